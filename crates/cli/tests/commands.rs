//! The commands on volumes. e2fsck and debugfs are the oracles.

mod common;

use common::Scratch;

/// The usage types have the figures of mke2fs.
#[test]
fn mkfs_makes_volumes_for_a_usage() {
    let s = Scratch::new();
    let figures = |image: &str| {
        let said = s.other("dumpe2fs", &["-h", image]);
        let field = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name));
            line.expect(name).trim().parse::<u64>().expect(name)
        };
        (field("Block size:"), field("Inode count:"))
    };
    let types = [
        "auto",
        "floppy",
        "small",
        "default",
        "big",
        "huge",
        "news",
        "largefile",
        "largefile4",
    ];
    for usage in types {
        for size in ["64MiB", "700MiB"] {
            s.run(&["mkfs", "ours.img", "--size", size, "-T", usage, "--force"]);
            let theirs = match usage {
                "auto" => &["-t", "ext4"][..],
                usage => &["-t", "ext4", "-T", usage],
            };
            let mib = size.trim_end_matches("iB");
            let args = [&["-q", "-F"], theirs, &["theirs.img", mib]].concat();
            s.other("mke2fs", &args);
            assert_eq!(figures("ours.img"), figures("theirs.img"), "{usage} {size}");
            s.other("e2fsck", &["-fn", "ours.img"]);
            std::fs::remove_file(s.path("theirs.img")).unwrap();
        }
    }
    // Options have precedence.
    s.run(&[
        "mkfs", "ours.img", "--size", "64MiB", "-T", "news", "-b", "1024", "--force",
    ]);
    assert_eq!(figures("ours.img").0, 1024);
    let said = s.fail(2, &["mkfs", "new.img", "--size", "64MiB", "-T", "tiny"]);
    assert!(said.contains("there are auto, floppy, small"), "{said}");
    assert!(!s.path("new.img").exists());
}

#[test]
fn mkfs_follows_its_options() {
    let s = Scratch::new();
    s.run(&[
        "mkfs",
        "d.img",
        "--size",
        "1GiB",
        "-L",
        "backup",
        "-U",
        "550e8400-e29b-41d4-a716-446655440000",
        "-N",
        "20000",
        "-m",
        "1",
        "-O",
        "^orphan_file",
    ]);
    s.check("d.img");
    let super_block = s.other("dumpe2fs", &["-h", "d.img"]);
    assert!(super_block.contains("backup"));
    assert!(super_block.contains("550e8400-e29b-41d4-a716-446655440000"));
    assert!(!super_block.contains("orphan_file"));
    let refused = s.fail(1, &["mkfs", "d.img"]);
    assert!(
        refused.contains("ext4") && refused.contains("--force"),
        "{refused}"
    );
    s.fail(1, &["mkfs", "d.img", "--size", "2GiB"]);
    assert_eq!(std::fs::metadata(s.path("d.img")).unwrap().len(), 1 << 30);
    s.run(&["mkfs", "d.img", "--force"]);
    s.run(&["mkfs", "d.img", "--size", "64MiB", "--force"]);
    s.check("d.img");
    s.write("data", vec![3; 1 << 20]);
    let refused = s.fail(1, &["mkfs", "data"]);
    assert!(refused.contains("unknown kind"), "{refused}");
    let missing = s.fail(1, &["mkfs", "none.img"]);
    assert!(missing.contains("--size"), "{missing}");
    s.fail(2, &["mkfs", "d.img", "--size", "lots"]);
    s.fail(2, &["mkfs", "d.img", "-U", "abc"]);
}

#[test]
fn names_are_made_moved_and_removed() {
    let s = Scratch::new();
    let image = s.volume();
    s.run(&["mkdir", "-p", "disk.img:/a/b/c"]);
    s.run(&["mkdir", "-p", "disk.img:/a/b/c"]);
    s.run(&["mkdir", "-m", "1777", "disk.img:/tmp"]);
    s.fail(1, &["mkdir", "disk.img:/tmp"]);
    s.fail(1, &["mkdir", "disk.img:/no/such"]);
    s.write("f", "text\n");
    s.run(&["cp", "f", "disk.img:/a"]);
    s.run(&["ln", "disk.img:/a/f", "disk.img:/hard"]);
    s.run(&["ln", "-s", "a/f", "disk.img:/soft"]);
    assert_eq!(
        s.run(&["cat", "disk.img:/hard", "disk.img:/soft"]),
        "text\ntext\n"
    );
    s.run(&["mv", "disk.img:/a/f", "disk.img:/tmp"]);
    s.run(&["mv", "disk.img:/a/b", "disk.img:/moved"]);
    s.fail(1, &["mv", "-n", "disk.img:/hard", "disk.img:/soft"]);
    s.run(&["mv", "--exchange", "disk.img:/tmp", "disk.img:/moved"]);
    s.fail(1, &["mv", "disk.img:/hard", "other.img:/x"]);
    let names = s.run(&["ls", "-R", "disk.img"]);
    assert_eq!(
        names,
        "/:\na\nhard\nlost+found\nmoved\nsoft\ntmp\n\n/a:\n\n/lost+found:\n\n/moved:\nf\n\n/tmp:\nc\n\n/tmp/c:\n"
    );
    let listed = s.other("debugfs", &["-R", "ls -l /", image]);
    assert!(
        listed.contains("41777") && listed.contains("hard"),
        "{listed}"
    );
    let refused = s.fail(1, &["rm", "disk.img:/tmp"]);
    assert!(refused.contains("-r"), "{refused}");
    s.fail(1, &["rm", "-rf", "disk.img:/"]);
    s.fail(1, &["rm", "disk.img:/none"]);
    s.run(&["rm", "-f", "disk.img:/none"]);
    s.run(&[
        "rm",
        "-r",
        "disk.img:/tmp",
        "disk.img:/a",
        "disk.img:/moved",
    ]);
    s.run(&["rm", "disk.img:/soft"]);
    assert_eq!(s.run(&["ls", "disk.img"]), "hard\nlost+found\n");
    s.check(image);
}

#[test]
fn lists_and_descriptions_agree_with_debugfs() {
    let s = Scratch::new();
    let image = s.volume();
    s.write("src/file", "twelve bytes");
    s.write("src/.hidden", "");
    s.run(&["import", "src", "disk.img:/src"]);
    assert_eq!(s.run(&["ls", "disk.img:/src"]), "file\n");
    assert_eq!(s.run(&["ls", "-a", "disk.img:/src"]), ".hidden\nfile\n");
    assert!(s.run(&["tree", "disk.img"]).contains("└── file\n"));
    let json: serde_json::Value =
        serde_json::from_str(&s.run(&["ls", "--json", "disk.img:/src"])).unwrap();
    assert_eq!(json[0]["path"], "/src/file");
    assert_eq!(json[0]["size"], 12);
    let json: serde_json::Value =
        serde_json::from_str(&s.run(&["stat", "--json", "disk.img:/src/file"])).unwrap();
    let told = s.other("debugfs", &["-R", "stat /src/file", image]);
    assert!(told.contains(&format!("Inode: {} ", json["ino"])), "{told}");
    assert!(s.run(&["stat", "disk.img:/src/file"]).contains("Size: 12 "));
    let info: serde_json::Value = serde_json::from_str(&s.run(&["info", "--json", image])).unwrap();
    assert_eq!(info["device_bytes"], 512 << 20);
    assert_eq!(info["errors"], false);
    let free = info["free_bytes"].as_u64().unwrap() / 4096;
    let told = s.other("dumpe2fs", &["-h", image]);
    assert!(
        told.contains(&format!("{free}\n")),
        "{free} is not in {told}"
    );
    assert!(s.run(&["info", image]).contains("clean"));
}

#[test]
fn check_reports_damage_by_its_exit_code() {
    let s = Scratch::new();
    s.volume();
    s.write("f", "text\n");
    s.run(&["cp", "f", "disk.img:/"]);
    let before = std::fs::read(s.path("disk.img")).unwrap();
    assert!(s.run(&["check", "disk.img"]).contains("disk.img: clean"));
    assert!(std::fs::read(s.path("disk.img")).unwrap() == before);
    s.other(
        "debugfs",
        &["-w", "-R", "set_inode_field /f links_count 9", "disk.img"],
    );
    let said = s.try_run(&["check", "disk.img"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.out.contains("the link count is 9, should be 1"),
        "{said:?}"
    );
    let said = s.try_run(&["check", "--json", "disk.img"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["problems"], 1);
    assert_eq!(report["findings"][0]["object"], "link-count");
    assert!(report["findings"][0]["place"]["inode"].is_u64());
    let missing = s.fail(8, &["check", "none.img"]);
    assert!(missing.contains("none.img"), "{missing}");
    s.write("noise", vec![0xa5; 1 << 20]);
    let noise = s.fail(8, &["check", "noise"]);
    assert!(noise.contains("no ext2, ext3 or ext4"), "{noise}");
    // A mount finds the damage, continues, and records an error in the super block.
    s.other(
        "debugfs",
        &["-w", "-R", "set_inode_field /f checksum 7", "disk.img"],
    );
    s.run(&["mkdir", "disk.img:/d"]);
    s.fail(1, &["rm", "disk.img:/f"]);
    let info = s.run(&["info", "disk.img"]);
    assert!(
        info.contains("has errors") && info.contains("load_inode"),
        "{info}"
    );
}

#[test]
fn errors_name_the_device_once_and_say_what_to_do() {
    let s = Scratch::new();
    s.volume();
    let missing = s.fail(1, &["ls", "none.img"]);
    assert!(
        missing.contains("none.img") && missing.contains("sluice mkfs"),
        "{missing}"
    );
    let missing = s.fail(1, &["cat", "disk.img:/none"]);
    assert_eq!(
        missing,
        "sluice: disk.img: cannot open /none: no such file or directory\n"
    );
    s.write("noise", vec![0xa5; 1 << 20]);
    let noise = s.fail(1, &["ls", "noise"]);
    assert!(
        noise.starts_with("sluice: ") && noise.lines().count() == 1,
        "{noise}"
    );
    s.write("short", [0; 100]);
    s.fail(1, &["info", "short"]);
    s.fail(2, &["ls"]);
    s.fail(2, &["nonsense"]);
}

#[test]
fn modelled_devices_work_like_images() {
    let s = Scratch::new();
    // A fast device, so that the test is short.
    let quick = "rpm=600000,seek_max_ms=1";
    let device = format!("sim:hdd,file=disk.img,{quick}");
    let missing = s.fail(1, &["ls", &device]);
    assert!(missing.contains("size= in the URL"), "{missing}");
    let missing = s.fail(1, &["mkfs", &device]);
    assert!(missing.contains("size= in the URL"), "{missing}");
    s.run(&["mkfs", &format!("{device},size=64MiB")]);
    s.write("file", "bytes");
    s.run(&["cp", "file", &format!("{device}:/file")]);
    assert_eq!(s.run(&["cat", &format!("{device}:/file")]), "bytes");
    assert_eq!(s.run(&["cat", "disk.img:/file"]), "bytes");
    let used = s.fail(1, &["mkfs", &device]);
    assert!(used.contains("--force"), "{used}");
    s.run(&["mkfs", "--force", &device]);
    assert!(!s.run(&["ls", &device]).contains("file"));
    for memory in ["mem:64MiB", "sim:ssd,size=64MiB"] {
        let gone = s.fail(1, &["mkfs", memory]);
        assert!(gone.contains("gone as soon as"), "{gone}");
    }
    let size = s.fail(1, &["mkfs", &device, "--size", "1GiB"]);
    assert!(size.contains("in its name"), "{size}");
}

#[test]
fn help_pages_and_completions() {
    let s = Scratch::new();
    assert!(s.run(&["help"]).contains("Examples:"));
    assert!(s.run(&["cp", "--help"]).contains("disk.img:/dst"));
    assert!(s.run(&["man"]).contains(".TH sluice"));
    std::fs::create_dir(s.path("man")).unwrap();
    s.run(&["man", "man"]);
    assert!(s.path("man/sluice-import.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        assert!(s.run(&["completions", shell]).contains("import"));
    }
}

#[test]
fn a_device_of_the_wrong_kind_or_size_is_named() {
    let s = Scratch::new();
    let fifo = s.path("fifo");
    s.other("mkfifo", &["fifo"]);
    // The mount point does not matter.
    for command in [&["info", "fifo"][..], &["mount", "fifo", "."]] {
        let mut timeout = std::process::Command::new("timeout");
        timeout
            .args(["20", env!("CARGO_BIN_EXE_sluice")])
            .args(command);
        let said = timeout
            .current_dir(fifo.parent().unwrap())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(1), "{command:?}: {text}");
        assert!(text.contains("fifo: neither a regular file"), "{text}");
    }
    for size in ["0", "1"] {
        let text = s.fail(1, &["mkfs", "small.img", "--size", size]);
        assert!(text.contains("too small"), "{text}");
    }
}
