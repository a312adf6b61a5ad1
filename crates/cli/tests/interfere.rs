//! `sluice bench interfere`, alone and in `bench compare`.

mod common;

use common::Scratch;
use serde_json::Value;

/// Splits a command line at its spaces.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn the_table_has_a_line_for_each_interval_and_each_period() {
    let s = Scratch::new();
    let text = s.run(&words(
        "bench interfere --volume sim:ssd,size=512MiB --fresh --reader-file 32MiB --writer 100MiB \
         --memory 64MiB --alone 1s --after 500ms --interval 250ms --report out.html",
    ));
    let after = |start: &str| {
        let lines = text.lines().skip_while(|line| !line.starts_with(start));
        let table = lines.skip(2).skip_while(|line| line.is_empty());
        let table: Vec<_> = table.take_while(|line| !line.is_empty()).collect();
        table
    };
    let seconds = after("Each second");
    let header: Vec<_> = seconds[0].split("  ").map(str::trim).collect();
    let header: Vec<_> = header.into_iter().filter(|cell| !cell.is_empty()).collect();
    let names = [
        "second",
        "reader/s",
        "MiB/s",
        "p50",
        "p99",
        "max",
        "writer",
        "device in",
        "out",
        "limit",
        "MiB/s",
        "lost",
        "cause",
        "cache debt",
    ];
    let (usual, more) = header.split_at(names.len());
    assert_eq!(usual, names, "{text}");
    // A host may take the processors of a virtual machine at any time.
    assert!(more.is_empty() || more == ["steal, ms/s"], "{text}");
    // The header, four intervals alone (fewer on a busy machine), and one of each other period.
    assert!(seconds.len() >= 1 + 3 + 3, "{text}");
    let periods = after("reader rand4k, 1 thread; beside the writer its rate is");
    let first: Vec<_> = periods.iter().map(|line| line.split("  ").next()).collect();
    let expected = ["", "alone", "beside the writer", "final sync", "after"].map(Some);
    assert_eq!(first, expected, "{text}");
    let page = std::fs::read_to_string(s.path("out.html")).unwrap();
    for plot in [
        "The reader's latency",
        "MiB/s that the writer writes",
        "MiB/s of the device",
    ] {
        assert!(page.contains(&format!("<h2>{plot}</h2><svg")), "{plot}");
    }
}

#[test]
fn json_has_every_interval() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("d")).unwrap();
    for on in ["--volume mem:256MiB --fresh", "--dir d"] {
        let args = format!(
            "bench interfere {on} --reader fsync --depth 2 --rate 200 --reader-file 2MiB \
             --writer 10MiB --alone 1s --after 0 --interval 200ms --json"
        );
        let report: Value = serde_json::from_str(&s.run(&words(&args))).unwrap();
        let found = &report["interference"];
        assert_eq!(
            (&found["reader"], &found["threads"]),
            (&"fsync".into(), &2.into())
        );
        let number = |of: &Value, name: &str| {
            let number = of[name].as_f64();
            number.unwrap_or_else(|| panic!("{name} in {of}"))
        };
        for name in ["bytes_per_sec", "wall_s", "cpu_s", "machine_cpu_s"] {
            // The clock of the machine's processors has ticks of 10 ms.
            let least = if name == "machine_cpu_s" {
                0.0
            } else {
                f64::MIN_POSITIVE
            };
            assert!(number(&report, name) >= least, "{name}");
        }
        if on.starts_with("--volume") {
            // The totals of the device cover the writer and its sync, not the reader's files.
            let device = &report["device"];
            let sizes = device["write_sizes"].as_array().unwrap();
            let requests: f64 = sizes.iter().map(|class| number(class, "requests")).sum();
            assert_eq!(number(device, "write_ios"), requests);
        }
        let seconds = found["seconds"].as_array().unwrap();
        assert!(seconds.len() >= 4 + 2, "{found}");
        for second in seconds {
            let names = ["from_s", "at_s", "reader_per_sec", "reader_bytes_per_sec"];
            let names = names.into_iter().chain(["writer_bytes_per_sec"]);
            names.for_each(|name| assert!(number(second, name) >= 0.0));
        }
        let periods = found["periods"].as_array().unwrap();
        let names: Vec<_> = periods.iter().map(|period| &period["period"]).collect();
        assert_eq!(names, ["alone", "writer", "sync"]);
        let reader = &periods[0]["reader"];
        for name in ["count", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"] {
            assert!(number(reader, name) > 0.0, "{name}");
        }
        let rate = number(&periods[0], "reader_per_sec");
        assert!(rate > 0.0 && rate <= 220.0, "the rate is limited: {rate}");
        assert!(number(found, "rate_ratio") >= 0.0);
    }
    let left: Vec<_> = std::fs::read_dir(s.path("d")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn invalid_parameters_are_refused() {
    let s = Scratch::new();
    let fail = |code, args: &str| {
        let on = "bench interfere --volume mem:64MiB --fresh";
        s.fail(code, &words(&format!("{on} {args}")))
    };
    let said = fail(2, "--reader walk");
    assert!(said.contains("rand4k, seq, lookup, fsync, none"), "{said}");
    assert!(fail(2, "--alone soon").contains("500ms, 20s or 2min"));
    assert!(fail(1, "--reader-file 4KiB --depth 2").contains("4096 bytes for each thread"));
    assert!(fail(1, "--rate 0").contains("more than 0"));
    assert!(fail(1, "--writer 0").contains("some bytes"));
    let said = fail(1, "--reader none --writer 100MiB");
    assert!(said.contains("of the writer; give it less"), "{said}");
    let said = s.fail(2, &words("bench interfere --reader seq"));
    assert!(said.contains("--dir"), "{said}");
    let said = s.fail(2, &words("bench compare interfere --kernel-wbt maybe"));
    assert!(said.contains("on, off, a latency in µs"), "{said}");
    let said = s.fail(2, &words("bench compare interfere --sluice-wbt 0%"));
    assert!(said.contains("on, off, min"), "{said}");
    let said = s.fail(2, &words("bench compare interfere --sweep --sluice-wbt 5%"));
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn the_kernel_is_compared_with_and_without_writeback_throttling() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let exists = |path: &str| std::path::Path::new(path).exists();
    if !(common::is_root() && exists("/dev/loop-control") && exists("/dev/fuse")) {
        eprintln!(
            "SKIPPED: the_kernel_is_compared_with_and_without_writeback_throttling: needs root, /dev/fuse, loop devices"
        );
        return;
    }
    let outcome = s.run(&words(
        "bench compare --scratch work --device sim:ssd,size=512MiB --memory 64MiB --rounds 1 \
         --only sluice,ext4 --json --report out.html \
         interfere --reader-file 16MiB --writer 50MiB --alone 300ms --after 0 --interval 100ms \
         --sluice-wbt on,off,75%",
    ));
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    let targets = outcome["targets"].as_array().unwrap();
    let row = |i: usize| (&targets[i]["name"], &targets[i]["report"]["interference"]);
    let names = ["wbt on", "wbt off", "wbt_loss 75"];
    for (i, name) in names.iter().enumerate() {
        let (row, found) = row(i);
        assert_eq!(row, &format!("SluiceFS in process, {name}"));
        let throttle = &found["seconds"][0]["throttle"];
        assert_eq!(throttle.is_null(), *name == "wbt off", "{found}");
    }
    for target in targets {
        let found = &target["report"]["interference"];
        assert_eq!(found["periods"].as_array().unwrap().len(), 3, "{target}");
        assert!(
            target["ratio"].is_null(),
            "the writers' files are not compared"
        );
    }
    if exists("/sys/block/loop0/queue/wbt_lat_usec") {
        assert_eq!(targets.len(), 5, "{outcome}");
        let (name, found) = row(3);
        assert_eq!(name, "kernel ext4, wbt on");
        assert!(found["wbt_lat_usec"].as_u64().unwrap() > 0);
    }
    let (name, found) = row(targets.len() - 1);
    assert_eq!(name, "kernel ext4, wbt off");
    assert!(found["wbt_lat_usec"].as_u64().unwrap_or(0) == 0);
    std::fs::write(s.path("saved.json"), outcome.to_string()).unwrap();
    let table = s.run(&words("bench table saved.json"));
    for part in ["p99 in the sync", "wbt µs", "| kernel ext4, wbt off |"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let page = std::fs::read_to_string(s.path("out.html")).unwrap();
    assert!(page.contains("p99 of the reader beside the writer (logarithmic scale)"));
    assert_eq!(page.matches("The reader's latency").count(), targets.len());
    let left: Vec<_> = std::fs::read_dir(s.path("work")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
