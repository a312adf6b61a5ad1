//! `sluice find` and `sluice du`. find(1) and du(1) on a mount by the kernel are the oracles.

mod common;

use common::Scratch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, run_ok};

/// A volume with files of all kinds: links across directories, holes, deep paths, odd names.
fn volume(s: &Scratch) {
    s.run(&["mkfs", "disk.img", "--size", "64MiB"]);
    s.run(&["mkdir", "-p", "disk.img:/a/b/c"]);
    s.run(&["mkdir", "disk.img:/a.d"]);
    s.run(&["mkdir", "-m", "700", "disk.img:/empty"]);
    for (name, bytes) in [
        ("small", 10),
        ("large", 3_000_000),
        ("page", 4096),
        ("none", 0),
    ] {
        s.write(name, vec![7; bytes]);
        s.run(&["cp", name, &format!("disk.img:/a/{name}.bin")]);
        s.run(&["cp", name, &format!("disk.img:/a/b/{name}")]);
    }
    s.run(&["cp", "small", "disk.img:/a.d/odd\n name\u{e9}"]);
    s.run(&["ln", "disk.img:/a/large.bin", "disk.img:/a/b/c/again"]);
    s.run(&["ln", "-s", "a/b", "disk.img:/link"]);
    for i in 0..60 {
        s.run(&["mkdir", &format!("disk.img:/a.d/{i}")]);
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn find_lists_paths_in_order_and_by_name_and_type() {
    let s = Scratch::new();
    volume(&s);
    let all = s.run(&["find", "disk.img", "--print0"]);
    let paths: Vec<&str> = all.split_terminator('\0').collect();
    assert_eq!(paths[..4], ["/", "/a", "/a/b", "/a/b/c"]);
    assert_eq!(paths.len(), 78, "{paths:?}");
    let below = s.run(&["find", "disk.img:/a", "--name", "*.bin", "--name", "c"]);
    let expected = [
        "/a/b/c",
        "/a/large.bin",
        "/a/none.bin",
        "/a/page.bin",
        "/a/small.bin",
    ];
    assert_eq!(lines(&below), expected);
    let dirs = s.run(&["find", "disk.img", "--type", "d,l", "--maxdepth", "1"]);
    assert_eq!(
        lines(&dirs),
        ["/", "/a", "/a.d", "/empty", "/link", "/lost+found"]
    );
    let deep = s.run(&["find", "disk.img:/a", "--mindepth", "2", "--path", "*/b/*"]);
    assert_eq!(lines(&deep)[0], "/a/b/c");
    let json: Value = serde_json::from_str(
        &s.run(&["find", "disk.img", "--links", "+1", "--type", "f", "--json"]),
    )
    .unwrap();
    let names: Vec<_> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|f| &f["path"])
        .collect();
    assert_eq!(names, ["/a/b/c/again", "/a/large.bin"]);
    assert_eq!(
        (&json[0]["size"], &json[0]["nlink"]),
        (&3_000_000.into(), &2.into())
    );
    let none: Value =
        serde_json::from_str(&s.run(&["find", "disk.img", "--size", "+1G", "--json"])).unwrap();
    assert_eq!(none, serde_json::json!([]));
    assert!(s.fail(1, &["find", "disk.img:/no"]).contains("/no"));
    s.fail(2, &["find", "disk.img", "--size", "big"]);
    s.fail(2, &["find", "disk.img", "--printf", "%q"]);
}

/// Tests as of `sluice find`; find(1) has one hyphen.
const TESTS: &[&[&str]] = &[
    &[],
    &["--size", "+1"],
    &["--size", "-1k"],
    &["--size", "8"],
    &["--size", "3000000c"],
    &["--links", "+2"],
    &["--links", "2"],
    &["--mtime", "-1"],
    &["--mtime", "+0"],
    &["--mmin", "-600"],
    &["--perm", "700"],
    &["--perm", "-111"],
    &["--perm", "/022"],
    &["--uid", "0"],
    &["--gid", "+0"],
    &["--iname", "*.BIN"],
    &["--path", "*/b/c*"],
    &["--type", "f,l"],
    &["--inum", "+20"],
    &["--size", "+1", "--size", "-20"],
    &["!", "--name", "*.bin"],
    &["--not", "--type", "d"],
    &["--name", "*.bin", "-o", "--links", "+2"],
    &[
        "(", "--name", "small*", "--or", "--size", "+1k", ")", "--type", "f",
    ],
    &["!", "(", "--type", "d", "-o", "--size", "-2", ")"],
    &[
        "--type", "f", "--size", "+1", "--or", "--type", "d", "!", "--links", "2",
    ],
    &["--mindepth", "2"],
    &["--maxdepth", "1"],
];

#[test]
fn find_and_du_agree_with_those_of_the_kernel() {
    if !have(
        "sluice find and du, beside the kernel's",
        &[Need::Loop, Need::Tool("find")],
    ) {
        return;
    }
    let s = Scratch::new();
    volume(&s);
    const FORMAT: &str = "%P|%f|%d|%s|%b|%k|%i|%n|%y|%l|%m|%M|%U|%G|%T@|%A@|%C@|\\101%%\\0";
    let mount = KernelMount::read_only(&s.path("disk.img"));
    let sorted = |text: &str| {
        let mut files: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        files.sort();
        files
    };
    for start in ["/", "/a"] {
        for test in TESTS {
            let target = format!("disk.img:{start}");
            let ours = s.run(&[&["find", &target, "--printf", FORMAT], *test].concat());
            let top = mount.join(start.trim_start_matches('/'));
            let mut args = vec![top.to_str().unwrap().to_owned()];
            // All tests are one group, as the format follows them.
            args.extend(["(", "-true"].map(str::to_owned));
            args.extend(test.iter().map(|arg| arg.replace("--", "-")));
            args.push(")".to_owned());
            args.extend(["-printf".to_owned(), FORMAT.to_owned()]);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let theirs = run_ok("find", &args);
            let (mut ours, mut theirs) = (sorted(&ours), sorted(&theirs));
            // The name of the start is that of the mount point.
            for files in [&mut ours, &mut theirs] {
                files.retain(|file| !file.starts_with('|'));
            }
            assert_eq!(ours, theirs, "{start} {test:?}");
        }
        assert_same_space(&s, start, &mount.join(start.trim_start_matches('/')));
    }
    mount.unmount();
}

/// Compares each directory. The kernel's du is given the directories in our order, so that a file
/// with several names counts in the same one.
fn assert_same_space(s: &Scratch, start: &str, top: &Path) {
    let target = format!("disk.img:{start}");
    let json: Value = serde_json::from_str(&s.run(&["du", &target, "--json"])).unwrap();
    let ours: BTreeMap<String, u64> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|dir| {
            let path = dir["path"].as_str().unwrap();
            let below = path.strip_prefix(start).unwrap().trim_start_matches('/');
            (below.to_owned(), dir["bytes"].as_u64().unwrap())
        })
        .collect();
    let total = run_ok("du", &["-s", "-B1", top.to_str().unwrap()]);
    let total: u64 = total.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(ours[""], total, "{start}");
    // Directories without a file of several names.
    for dir in ["a.d", "empty", "lost+found", "a.d/7"] {
        if let Some(&bytes) = ours.get(dir) {
            let theirs = run_ok("du", &["-s", "-B1", top.join(dir).to_str().unwrap()]);
            let theirs: u64 = theirs.split_whitespace().next().unwrap().parse().unwrap();
            assert_eq!(bytes, theirs, "{dir}");
        }
    }
}

#[test]
fn find_runs_programs_and_refuses_incomplete_expressions() {
    let s = Scratch::new();
    volume(&s);
    let lengths = s.run(&[
        "find",
        "disk.img:/a",
        "--name",
        "*.bin",
        "--size",
        "-3",
        "--exec",
        "sh",
        "-c",
        "printf '%s %s\\n' \"$1\" \"$2\"",
        "sh",
        "{}",
        "of {}",
        ";",
        "--type",
        "f",
    ]);
    assert_eq!(
        lines(&lengths),
        ["/a/none.bin of /a/none.bin", "/a/small.bin of /a/small.bin"]
    );
    // A program may open the volume, too.
    let sluice = env!("CARGO_BIN_EXE_sluice");
    let text = s.run(&[
        "find",
        "disk.img",
        "--path",
        "/a/small.bin",
        "--exec",
        sluice,
        "cat",
        "disk.img:{}",
        ";",
    ]);
    assert_eq!(text.as_bytes(), [7; 10]);
    let failed = s.fail(1, &["find", "disk.img:/empty", "--exec", "false", "{}"]);
    assert!(
        failed.contains("/empty") && failed.contains("false"),
        "{failed}"
    );
    s.fail(1, &["find", "disk.img:/empty", "--exec", "no-such-program"]);
    for bad in [
        &["("][..],
        &["!"],
        &["--or", "--name", "x"],
        &["--name", "x", ")"],
    ] {
        s.fail(2, &[&["find", "disk.img"], bad].concat());
    }
    s.fail(1, &["find", "!", "--name", "x"]);
}

#[test]
fn dump_lists_what_changed_since_a_time() {
    let s = Scratch::new();
    volume(&s);
    let dump = |args: &[&str]| s.run(&[&["dump", "disk.img"], args].concat());
    let all = dump(&["--changed-since", "@0"]);
    assert_eq!(lines(&all)[..3], [".", "./a", "./a/b"]);
    assert_eq!(dump(&["--changed-since", "9999-01-01"]), "");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let then = format!("@{}.{:09}", now.as_secs(), now.subsec_nanos());
    s.run(&["mkdir", "disk.img:/empty/new"]);
    s.run(&["mv", "disk.img:/a/page.bin", "disk.img:/a/b/-page"]);
    s.run(&["rm", "-r", "disk.img:/a.d/3"]);
    s.run(&["ln", "disk.img:/a/large.bin", "disk.img:/a/b/c/more"]);
    let changed = dump(&["--changed-since", &then, "-0"]);
    let changed: Vec<&str> = changed.split_terminator('\0').collect();
    let expected = [
        "./a",
        "./a.d",
        "./a/b",
        "./a/b/-page",
        "./a/b/c",
        "./a/b/c/again",
        "./a/b/c/more",
        "./a/large.bin",
        "./empty",
        "./empty/new",
    ];
    let mut sorted = changed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    // Below a directory, and with the attributes.
    let below = s.run(&["dump", "disk.img:/empty", "--changed-since", &then]);
    assert_eq!(lines(&below), [".", "./new"]);
    let json: Value = serde_json::from_str(&dump(&["--changed-since", &then, "--json"])).unwrap();
    assert_eq!(json["files"].as_array().unwrap().len(), expected.len());
    let next = json["next"].as_str().unwrap();
    dump(&["--changed-since", next]);
    // By the time of a file of the host.
    s.write("stamp", b"");
    let stamp = |time| {
        let file = std::fs::File::options().write(true).open(s.path("stamp"));
        file.unwrap().set_modified(time).unwrap();
        dump(&["--changed-since-file", "stamp"])
    };
    assert_eq!(stamp(UNIX_EPOCH), dump(&["--changed-since", "@0"]));
    assert_eq!(stamp(SystemTime::now() + Duration::from_secs(3600)), "");
    s.fail(1, &["dump", "disk.img:/no", "--changed-since", "1d"]);
    assert!(
        s.fail(2, &["dump", "disk.img", "--changed-since", "soon"])
            .contains("soon")
    );
    s.fail(2, &["dump", "disk.img"]);
}

#[test]
fn du_draws_a_tree_with_the_largest_first() {
    let s = Scratch::new();
    volume(&s);
    let tree = s.run(&["du", "-d", "1", "disk.img"]);
    let names: Vec<&str> = tree.lines().map(|line| &line[10..]).collect();
    assert_eq!(names[..3], ["/", "├── a", "├── a.d"], "{tree}");
    assert!(names[4].starts_with("└── "), "{tree}");
    let with_files = s.run(&["du", "-a", "-b", "disk.img:/a"]);
    let large = with_files
        .lines()
        .filter(|line| line.contains("3002368"))
        .count();
    assert_eq!(large, 2, "the linked file counts once: {with_files}");
    let total = s.run(&["du", "-s", "--apparent-size", "-b", "disk.img:/a"]);
    assert_eq!(total.trim(), format!("{}  /a", 2 * (3_000_000 + 4096 + 10)));
    let by_name = s.run(&["du", "-d", "1", "--sort", "name", "disk.img"]);
    let names: Vec<&str> = by_name.lines().map(|line| &line[10..]).collect();
    assert_eq!(
        names,
        ["/", "├── a", "├── a.d", "├── empty", "└── lost+found"]
    );
}

/// The output of find(1)'s format for each file, which a mount and the volume have in common.
const FORMAT: &str = "%P %i %m %n %U %G %s %b %y %l %T@ %C@\\n";

#[test]
fn a_mounted_volume_answers_as_the_volume_does() {
    if !have("mounting", &[Need::Root, Need::Fuse]) {
        return;
    }
    let s = Scratch::new();
    volume(&s);
    std::fs::create_dir(s.path("mnt")).unwrap();
    std::fs::create_dir(s.path("other")).unwrap();
    s.run(&["mount", "disk.img", "mnt"]);
    // More files than one answer has room for, most of them not in the inode table yet.
    std::fs::create_dir(s.path("mnt/many")).unwrap();
    for i in 0..3000 {
        std::fs::write(s.path(&format!("mnt/many/a name of some length {i}")), "x").unwrap();
    }
    std::fs::remove_file(s.path("mnt/a/page.bin")).unwrap();
    let on_mount = s.run(&["find", "mnt", "--printf", FORMAT]);
    let below = s.run(&["find", "mnt/a", "--printf", FORMAT]);
    let large = s.run(&["find", "mnt/many", "--newer", "mnt/a.d", "--name", "*9"]);
    let space = s.run(&["du", "-b", "-a", "--json", "mnt"]);
    let dump = |from: &str| s.run(&["dump", from, "--changed-since", "@0", "-0"]);
    let (changed, changed_below) = (dump("mnt"), dump("mnt/many"));
    s.run(&["sync", "mnt"]);
    // One of the 78 names before has a newline, and one was removed.
    assert_eq!(on_mount.lines().count(), 78 + 1 + 3001 - 1);
    assert_eq!(large.lines().count(), 300);
    let first = "mnt/many/a name of some length 1009";
    assert_eq!(large.lines().next(), Some(first));
    let said = s.fail(1, &["find", "other"]);
    assert!(said.contains("other: no volume is mounted"), "{said}");
    s.run(&["unmount", "mnt"]);
    assert_eq!(s.run(&["find", "disk.img", "--printf", FORMAT]), on_mount);
    assert_eq!(s.run(&["find", "disk.img:/a", "--printf", FORMAT]), below);
    assert_eq!(changed.matches('\0').count(), on_mount.lines().count() - 1);
    assert_eq!(dump("disk.img"), changed);
    assert_eq!(dump("disk.img:/many"), changed_below);
    let on_volume = s.run(&["du", "-b", "-a", "--json", "disk.img"]);
    let paths = space.replace("\"mnt/", "\"/").replace("\"mnt\"", "\"/\"");
    assert_eq!(paths, on_volume);
    s.check("disk.img");
}

#[test]
fn only_root_and_the_owner_scan_a_mount() {
    if !have("mounting", &[Need::Root, Need::Fuse]) {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let s = Scratch::new();
    volume(&s);
    let dir = s.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    // The other user may read the directory, but not scan the volume.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.parent().unwrap(), open).unwrap();
    s.run(&["mount", "-o", "allow_other", "disk.img", "mnt"]);
    let program = s.path("sluice");
    std::fs::copy(env!("CARGO_BIN_EXE_sluice"), &program).unwrap();
    let mut other = std::process::Command::new(&program);
    other
        .args(["find".as_ref(), dir.as_os_str()])
        .uid(65_534)
        .gid(65_534);
    let said = other.output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(
        text.contains("only root and the user who mounted"),
        "{text}"
    );
    assert_eq!(said.status.code(), Some(1));
    s.run(&["unmount", "mnt"]);
}
