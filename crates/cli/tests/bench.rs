//! `sluice bench`: its tables, its JSON and its error messages.

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

/// The numbers of fs_mark's rows.
fn rows(text: &str) -> Vec<Vec<f64>> {
    let rows = text
        .lines()
        .skip_while(|l| !l.starts_with("FSUse%"))
        .skip(1);
    rows.take_while(|l| !l.is_empty())
        .map(|l| l.split_whitespace().map(|n| n.parse().unwrap()).collect())
        .collect()
}

#[test]
fn fsmark_prints_fs_marks_columns_and_what_reached_the_device() {
    let s = Scratch::new();
    let text = s.run(&words(
        "bench fsmark --volume mem:256MiB --fresh -S0 -D 16 -N 5 -n 50 -s 4096 -L 2 -t 4",
    ));
    let columns = text.lines().find(|l| l.starts_with("FSUse%")).expect(&text);
    let columns: Vec<_> = columns
        .split("  ")
        .filter(|c| !c.is_empty())
        .map(str::trim)
        .collect();
    assert_eq!(
        columns,
        ["FSUse%", "Count", "Size", "Files/sec", "App Overhead"]
    );
    let rows = rows(&text);
    assert_eq!(
        rows.iter().map(|r| (r[1], r[2])).collect::<Vec<_>>(),
        [(200.0, 4096.0), (400.0, 4096.0)]
    );
    assert!(rows.iter().all(|r| r.len() == 5 && r[3] > 0.0));
    for word in [
        "wall ",
        "cpu ",
        "writes of",
        "merged",
        "flushes",
        "commits",
        "durable",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn fsmark_spreads_and_keeps_files_by_its_flags() {
    let s = Scratch::new();
    let image = s.volume();
    let args = [
        "bench", "fsmark", "--volume", image, "-S1", "-D", "2", "-N", "3", "-n", "7", "-s", "100",
        "-w", "64", "-k", "-d", "/a", "-d", "/deep/b",
    ];
    let report = json(&s, &[&args[..], &["--json"]].concat());
    assert_eq!(report["files"], 14);
    assert_eq!(report["bytes"], 1400);
    assert_eq!(report["latency"]["write"]["count"], 28);
    assert_eq!(report["latency"]["fsync"]["count"], 14);
    for dir in ["/a", "/deep/b"] {
        let count = |sub: &str| {
            s.run(&["ls", &format!("{image}:{dir}/{sub}")])
                .lines()
                .count()
        };
        assert_eq!((count("00"), count("01")), (4, 3), "{dir}");
    }
    s.check(image);
    let without = s.run(&[
        "bench", "fsmark", "--volume", image, "-S0", "-n", "9", "-s", "0", "-d", "/gone",
    ]);
    assert_eq!(rows(&without)[0][2], 0.0);
    assert_eq!(s.run(&["ls", &format!("{image}:/gone")]), "");
    s.check(image);
}

#[test]
fn bulk_and_asynchronous_fsyncs_commit_less_often_than_blocking_ones() {
    let s = Scratch::new();
    let commits = |mode: &str| {
        let report = json(
            &s,
            &[
                "bench",
                "fsmark",
                "--volume",
                "mem:256MiB",
                "--fresh",
                "-S5",
                "-n",
                "200",
                "-s",
                "4096",
                "--fsync",
                mode,
                "--json",
            ],
        );
        report["device"]["commits"].as_u64().unwrap()
    };
    let blocking = commits("blocking");
    assert!(blocking >= 200, "{blocking}");
    assert!(commits("bulk") < 10);
    assert!(commits("async") < blocking);
}

#[test]
fn fsmark_runs_in_mounted_directories_with_the_same_report() {
    let s = Scratch::new();
    let (a, b) = (s.path("a"), s.path("b"));
    let report = json(
        &s,
        &words("bench fsmark -S5 -n 10 -s 10KiB -k -d a -d b --json --rounds 2"),
    );
    assert_eq!(report["files"], 20);
    assert_eq!(report["latency"]["open"]["count"], 20);
    for dir in [a, b] {
        let files: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap())
            .collect();
        assert_eq!(files.len(), 20, "two rounds of ten");
        assert!(
            files
                .iter()
                .all(|f| f.metadata().unwrap().len() == 10 << 10)
        );
    }
}

#[test]
fn json_of_every_workload_has_the_same_names() {
    let s = Scratch::new();
    let on = ["--volume", "mem:256MiB", "--fresh", "--json"];
    let works: [&[&str]; 3] = [
        &words("bench fsmark -n 20 -s 4096"),
        &words("bench small-files -n 20 -t 2"),
        &words("bench stream --mib 4"),
    ];
    for work in works {
        let report = json(&s, &[work, &on[..]].concat());
        assert_eq!(report["workload"], work[1]);
        for name in [
            "files_per_sec",
            "bytes_per_sec",
            "wall_s",
            "cpu_s",
            "machine_cpu_s",
        ] {
            assert!(report[name].is_number(), "{name} of {work:?}");
        }
        for name in [
            "write_ios",
            "write_bytes",
            "merged",
            "flushes",
            "read_ios",
            "read_bytes",
            "commits",
        ] {
            assert!(report["device"][name].is_u64(), "{name} of {work:?}");
        }
        let sizes = report["device"]["write_sizes"].as_array().unwrap();
        let requests: u64 = sizes.iter().map(|c| c["requests"].as_u64().unwrap()).sum();
        assert_eq!(report["device"]["write_ios"], requests, "{work:?}");
        let sample = &report["samples"][0];
        for name in ["at_s", "files_per_sec", "device_write_bytes"] {
            assert!(sample[name].is_number(), "{name} of {work:?}");
        }
        assert!(report["phases"][0]["per_sec"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_report_is_one_page_with_tables_and_plots() {
    let s = Scratch::new();
    let text = s.run(&words(
        "bench fsmark --volume mem:256MiB --fresh -S0 -n 200 -s 4096 -t 2 --report out.html",
    ));
    assert!(text.contains("FSUse%"), "the text is printed, too");
    let page = std::fs::read_to_string(s.path("out.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for part in [
        "<svg",
        "Write requests by size",
        "App Overhead",
        "prefers-color-scheme: dark",
        "SluiceFS in process",
    ] {
        assert!(page.contains(part), "{part}");
    }
    std::fs::create_dir(s.path("work")).unwrap();
    s.run(&words(
        "bench compare --scratch work --size 256MiB --rounds 1 --only sluice,rust-fs-ext4 \
         --rival none --report compare.html small-files -n 20 -t 2",
    ));
    let page = std::fs::read_to_string(s.path("compare.html")).unwrap();
    for part in [
        "Device writes for 1000 files",
        "left out: rust-fs-ext4",
        "unlink",
        "<svg",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let said = s.fail(
        1,
        &words("bench stream --volume mem:64MiB --fresh --mib 1 --report no/x.html"),
    );
    assert!(said.contains("no/x.html"), "{said}");
}

#[test]
fn errors_name_the_flag_to_use() {
    let s = Scratch::new();
    let said = s.fail(1, &words("bench fsmark -n 1"));
    assert!(
        said.contains("--volume") && said.contains("-d DIR"),
        "{said}"
    );
    let said = s.fail(1, &words("bench fsmark -d a -d b -t 3"));
    assert!(said.contains("multiple of 2"), "{said}");
    let said = s.fail(1, &words("bench fsmark -d a -N 3"));
    assert!(said.contains("-D"), "{said}");
    let said = s.fail(1, &words("bench fsmark -d a --fsync bulk"));
    assert!(said.contains("--volume"), "{said}");
    let said = s.fail(1, &words("bench fsmark -d no/such/place"));
    assert!(said.contains("no/such/place"), "{said}");
    let said = s.fail(2, &words("bench fsmark -d a -S 7"));
    assert!(said.contains("0 to 6"), "{said}");
    assert!(!s.path("a").exists(), "nothing was made");
}

/// Checks that a comparison has removed its files and mounts.
fn nothing_is_left(s: &Scratch) {
    let left: Vec<_> = std::fs::read_dir(s.path("work")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let work = s.path("work").canonicalize().unwrap();
    let work = work.to_str().unwrap();
    assert!(
        !std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .contains(work)
    );
}

#[test]
fn compare_names_the_peers_that_are_missing() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let args = words(
        "bench compare --scratch work --size 512MiB --rounds 2 --only rust-fs-ext4,sluice \
         --rival none fsmark -n 40 -s 4096 -t 2",
    );
    let outcome = json(&s, &[&args[..], &["--json"]].concat());
    assert_eq!(outcome["workload"], "fsmark");
    let ours = &outcome["targets"][0];
    assert_eq!(ours["name"], "SluiceFS in process");
    assert_eq!(
        (&ours["ratio"], &ours["durable"]),
        (&1.0.into(), &true.into())
    );
    assert_eq!(ours["files_per_sec"].as_array().unwrap().len(), 2);
    assert_eq!(ours["report"]["files"], 80);
    assert!(ours["report"]["device"]["write_ios"].as_u64().unwrap() > 0);
    let why = outcome["left_out"][0]["why"].as_str().unwrap();
    assert!(why.contains("rivals/rust-fs-ext4"), "{why}");
    nothing_is_left(&s);
    let text = s.run(&args);
    for word in [
        "SluiceFS in process",
        "1.00 ×",
        "left out: rust-fs-ext4",
        "per 1000 files",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    nothing_is_left(&s);
    let said = s.fail(2, &words("bench compare --only zfs"));
    assert!(said.contains("btrfs"), "{said}");
    let said = s.fail(1, &words("bench compare --scratch nowhere"));
    assert!(said.contains("nowhere"), "{said}");
}

#[test]
fn compare_has_a_row_for_each_way_to_call_fsync() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let args = "bench compare --scratch work --size 512MiB --rounds 1 --only sluice fsmark -S5 -n 50 -s 4096";
    let args: Vec<_> = args.split(' ').collect();
    let both = [&args[..], &["--fsync", "bulk,blocking"]].concat();
    let outcome = json(&s, &[&both[..], &["--json"]].concat());
    let rows = outcome["targets"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["SluiceFS in process, bulk fsync", "SluiceFS in process"]
    );
    let commits = |row: usize| rows[row]["report"]["device"]["commits"].as_u64().unwrap();
    assert!(commits(0) <= 2 && commits(1) > 10, "{outcome}");
    assert_eq!(rows[0]["ratio"], 1.0);
    let text = s.run(&both);
    assert!(text.contains("commits/s"), "{text}");
    let several = "bench fsmark --volume mem:64MiB --fresh --fsync bulk,async";
    let said = s.fail(1, &several.split(' ').collect::<Vec<_>>());
    assert!(said.contains("one way at a time"), "{said}");
}

#[test]
fn compare_reuses_an_image_that_was_written_before() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let args =
        "bench compare --scratch work --images written --size 256MiB --rounds 2 --only sluice,ext4";
    let work = "fsmark -S5 -n 50 -s 4096 --fsync bulk";
    let args: Vec<_> = args.split(' ').chain(work.split(' ')).collect();
    let outcome = json(&s, &[&args[..], &["--json"]].concat());
    assert_eq!(outcome["images"], "written");
    assert_eq!(outcome["image_bytes"], 256 << 20);
    let ext4_may = common::is_root() && std::path::Path::new("/dev/loop-control").exists();
    let targets = outcome["targets"].as_array().unwrap();
    assert_eq!(targets.len(), if ext4_may { 2 } else { 1 }, "{outcome}");
    nothing_is_left(&s);
    let text = s.run(&args);
    assert!(text.contains("written before, of 256 MiB"), "{text}");
    let said = s.fail(2, &words("bench compare --images old"));
    assert!(said.contains("sparse, written"), "{said}");
}

#[test]
fn a_comparison_is_interrupted_while_it_writes_its_image() {
    use std::io::BufRead;
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let args = "bench compare --scratch work --images written --size 2GiB --only sluice fsmark";
    let mut command = s.command(&args.split(' ').collect::<Vec<_>>());
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert_eq!(first, "writing an image of 2.0 GiB");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest:?}");
    assert!(
        rest.len() == 1 && rest[0].contains("interrupted"),
        "{rest:?}"
    );
    nothing_is_left(&s);
}

/// Whether this machine can measure mounted peers.
fn can_mount_peers() -> bool {
    let exists = |path: &str| std::path::Path::new(path).exists();
    common::is_root() && exists("/dev/fuse") && exists("/dev/loop-control")
}

#[test]
fn compare_measures_asynchronous_fsync_of_the_kernel() {
    if !can_mount_peers() {
        eprintln!(
            "SKIPPED: compare_measures_asynchronous_fsync_of_the_kernel: needs root, /dev/fuse, loop devices"
        );
        return;
    }
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let outcome = json(
        &s,
        &words(
            "bench compare --scratch work --size 512MiB --rounds 1 --only sluice,ext4 --json \
             fsmark -S5 -n 200 -s 4096 --fsync bulk,async,blocking --fsync-depth 32",
        ),
    );
    let rows = outcome["targets"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "SluiceFS in process, bulk fsync",
            "SluiceFS in process, async fsync",
            "SluiceFS in process",
            "kernel ext4, async fsync",
            "kernel ext4"
        ]
    );
    let fsyncs = |row: usize| rows[row]["report"]["latency"]["fsync"]["count"].as_u64();
    assert_eq!((fsyncs(3), fsyncs(4)), (Some(200), Some(200)), "{outcome}");
    assert_eq!(outcome["left_out"].as_array().unwrap().len(), 0);
    // Each row of SluiceFS has a ratio to ext4's best and to its blocking fsync.
    let ratios = outcome["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 3, "{outcome}");
    for ratio in ratios {
        assert_eq!(ratio["peer"], "ext4");
        let (best, blocking) = (&ratio["best"], &ratio["blocking"]);
        assert!(best.as_f64() <= blocking.as_f64(), "{ratio}");
    }
    nothing_is_left(&s);

    std::fs::write(s.path("fsync.json"), outcome.to_string()).unwrap();
    let table = s.run(&words("bench table fsync.json"));
    for cell in [
        "| kernel ext4, async fsync |",
        "kernel ext4, best",
        "kernel ext4, blocking",
    ] {
        assert!(table.contains(cell), "{cell} in {table}");
    }
    std::fs::write(s.path("fsync.md"), &table).unwrap();
    s.run(&words("bench picture fsync.md --column files/s"));
    let text = s.fail(1, &words("bench table work"));
    assert!(text.contains("work"), "{text}");
}

#[test]
fn compare_measures_fuse_and_the_kernel() {
    if !can_mount_peers() {
        eprintln!(
            "SKIPPED: compare_measures_fuse_and_the_kernel: needs root, /dev/fuse, loop devices"
        );
        return;
    }
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let outcome = json(
        &s,
        &words(
            "bench compare --scratch work --size 512MiB --rounds 1 --only sluice,fuse,ext4 --json \
         fsmark -S0 -n 100 -s 4096 -t 2",
        ),
    );
    assert!(
        outcome["left_out"].as_array().unwrap().is_empty(),
        "{outcome}"
    );
    let targets = outcome["targets"].as_array().unwrap();
    let names: Vec<_> = targets
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "SluiceFS in process",
            "SluiceFS through FUSE",
            "kernel ext4"
        ]
    );
    for target in targets {
        let written = target["report"]["device"]["write_bytes"].as_u64().unwrap();
        assert!(written >= 200 * 4096, "{target}");
        assert!(target["ratio"].as_f64().unwrap() > 0.0);
    }
    nothing_is_left(&s);
}

#[test]
fn compare_puts_all_file_systems_on_a_modelled_device() {
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    let on = |device: &str| {
        let args = format!(
            "bench compare --scratch work --device {device} --rounds 1 --only sluice,ext4 --json fsmark -S5 -n 50 -s 4096 --fsync bulk"
        );
        args.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let args = on("sim:ssd,size=512MiB");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if !can_mount_peers() {
        eprintln!(
            "SKIPPED: compare_puts_all_file_systems_on_a_modelled_device: needs root, /dev/fuse, loop devices"
        );
        let said = s.fail(1, &args);
        assert!(said.contains("bench fsmark --volume sim:ssd"), "{said}");
        return;
    }
    let outcome = json(&s, &args);
    assert_eq!(outcome["images"]["modelled"], "sim:ssd,size=512MiB");
    assert_eq!(outcome["image_bytes"], 512 << 20);
    let targets = outcome["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2, "{outcome}");
    // Fifty fsyncs need fifty flushes, a bulk fsync needs few.
    let of = |i: usize, what: &str| targets[i]["report"]["device"][what].as_u64().unwrap();
    assert!(of(0, "flushes") < 10 && of(1, "flushes") >= 50, "{outcome}");
    assert!(targets[1]["ratio"].as_f64().unwrap() > 2.0, "{outcome}");
    nothing_is_left(&s);
    let args = on("sim:tape,size=1GiB");
    let said = s.fail(1, &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("no modelled device"), "{said}");
    nothing_is_left(&s);
}

#[test]
fn an_interrupted_comparison_cleans_up() {
    use std::io::BufRead;
    let s = Scratch::new();
    std::fs::create_dir(s.path("work")).unwrap();
    // More files than can be written before the signal arrives.
    let args = words(
        "bench compare --scratch work --size 4GiB --only sluice,ext4 --rounds 9 fsmark -S0 -n \
         30000 -s 4096 -t 2",
    );
    let mut command = s.command(&args);
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let wanted = if common::is_root() {
        "kernel ext4"
    } else {
        "SluiceFS in process"
    };
    assert!(
        lines.any(|line| line.unwrap().contains(wanted)),
        "no step was reported"
    );
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("interrupted")),
        "{rest:?}"
    );
    nothing_is_left(&s);
}
