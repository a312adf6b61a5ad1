//! `sluice bench syncstorm`, alone and in `bench compare`.

mod common;

use common::Scratch;
use serde_json::Value;
use std::path::Path;

/// Splits a command line at its spaces.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn storms_are_counted_beside_clean_inodes_and_during_fs_mark() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("dir")).unwrap();
    for on in ["--volume mem:256MiB --fresh", "--dir dir"] {
        let command = format!(
            "bench syncstorm {on} --inodes 2k --syncs 8 --storms 3 --during fsmark -t 4 -n 2k \
             --every 1ms --rounds 2 --json"
        );
        let report: Value = serde_json::from_str(&s.run(&words(&command))).unwrap();
        let found = &report["storms"];
        assert_eq!(
            (&found["inodes"], &found["syncs"]),
            (&2000.into(), &8.into())
        );
        let clean = &found["clean"];
        assert_eq!(
            (&clean["count"], &clean["calls"]["count"]),
            (&3.into(), &24.into())
        );
        let number = |value: &Value| value.as_f64().unwrap();
        assert!(number(&clean["max_wall_s"]) >= number(&clean["wall_s"]));
        let during = &found["during"];
        assert_eq!(
            (&during["threads"], &during["files"]),
            (&4.into(), &8000.into())
        );
        assert!(number(&during["alone_per_sec"]) > 0.0 && number(&during["beside_per_sec"]) > 0.0);
        if on.starts_with("--volume") {
            assert!(number(&found["cached"]) >= 2000.0, "{found}");
            assert_eq!(
                (number(&clean["commits"]), number(&clean["flushes"])),
                (0.0, 0.0)
            );
            let count = number(&during["storms"]["count"]);
            // Each of the eight calls leads one run at most. How many share a run depends on when
            // their threads run: the tests of the engine hold a run, so they know the number.
            let commits = number(&during["storms"]["commits"]);
            assert!(count < 1.0 || commits <= 8.0, "{commits} commits");
        }
    }
    let left: Vec<_> = std::fs::read_dir(s.path("dir")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let text = s.run(&words(
        "bench syncstorm --volume mem:64MiB --fresh --inodes 100 --syncs 3 --report out.html",
    ));
    for part in [
        "3 syncs: wall",
        "beside 100 clean inodes",
        "one sync alone",
        "clean",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("fs_mark"), "{text}");
    let page = std::fs::read_to_string(s.path("out.html")).unwrap();
    assert!(page.contains("3 syncs: wall"));
}

#[test]
fn bad_counts_are_refused() {
    let s = Scratch::new();
    let on = "bench syncstorm --volume mem:64MiB --fresh";
    let said = s.fail(2, &words(&format!("{on} --inodes 8G")));
    assert!(said.contains("800k"), "{said}");
    let said = s.fail(1, &words(&format!("{on} --inodes 1 --syncs 0")));
    assert!(said.contains("--syncs 0"), "{said}");
    let said = s.fail(2, &words(&format!("{on} --during stream")));
    assert!(said.contains("fsmark"), "{said}");
}

#[test]
fn the_kernel_is_compared() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let exists = |path: &str| Path::new(path).exists();
    if !(common::is_root() && exists("/dev/loop-control")) {
        eprintln!("SKIPPED: the_kernel_is_compared: needs root, loop devices");
        return;
    }
    let outcome = s.run(&words(
        "bench compare --scratch work --device sim:ssd,size=512MiB --memory 64MiB --rounds 1 \
         --only sluice,ext4 --json \
         syncstorm --inodes 1k --syncs 5 --storms 2 --during fsmark -t 2 -n 200 --every 1ms",
    ));
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    let targets = outcome["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2, "{outcome}");
    for target in targets {
        let found = &target["report"]["storms"];
        assert_eq!(found["clean"]["calls"]["count"], 10, "{target}");
        assert!(
            found["during"]["files"] == 400 && target["ratio"].is_null(),
            "{target}"
        );
    }
    std::fs::write(s.path("saved.json"), outcome.to_string()).unwrap();
    let table = s.run(&words("bench table saved.json"));
    for part in [
        "5 syncs: wall",
        "| kernel ext4, clean |",
        "| kernel ext4, during fs_mark |",
        "beside storms",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
}
