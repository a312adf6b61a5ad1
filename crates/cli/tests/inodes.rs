//! `sluice bench inodes`.

mod common;

use common::Scratch;
use serde_json::Value;

fn json(s: &Scratch, args: &[&str]) -> Value {
    serde_json::from_str(&s.run(args)).unwrap()
}

/// Splits a command line at its spaces.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn inodes_has_the_phases_on_a_volume_and_in_one_directory() {
    let s = Scratch::new();
    let of = |args: &str| {
        let report = json(
            &s,
            &words(&format!("bench inodes {args} --look-up 1ms --json")),
        );
        let phases = report["phases"].as_array().unwrap().clone();
        let phases = phases
            .into_iter()
            .map(|p| (p["name"].as_str().unwrap().to_owned(), p));
        phases.collect::<std::collections::BTreeMap<_, _>>()
    };
    let phases = of("--volume mem:256MiB --fresh -t 2 -n 100 -N 30 -s 5");
    for name in [
        "create",
        "bulkstat",
        "find cold",
        "find hot",
        "look-up 16",
        "unlink",
    ] {
        let phase = &phases[name];
        assert!(phase["count"].as_u64().unwrap() >= 200, "{name}: {phase}");
        for time in ["wall_s", "cpu_s", "per_sec"] {
            assert!(phase[time].is_number(), "{name}: {phase}");
        }
    }
    let one = of("--volume mem:256MiB --fresh -t 2 -n 100 --one-directory");
    // The root, lost+found, and the directory.
    assert_eq!(one["bulkstat"]["count"], 203);
    let text = s.run(&words(
        "bench inodes --volume mem:256MiB --fresh -t 1 -n 9 --look-up 1ms",
    ));
    assert!(text.contains("opened again"), "{text}");
    let refused = s.fail(1, &words("bench inodes --volume mem:256MiB --fresh -n 0"));
    assert!(refused.contains("at least 1"), "{refused}");
}
