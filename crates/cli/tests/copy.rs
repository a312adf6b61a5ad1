//! Copies of trees into volumes and out of them.

mod common;

use common::{Scratch, is_root, listing};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

/// A tree with one file of each kind that this user may create.
fn tree(s: &Scratch) {
    s.write("src/a", "contents of a\n");
    s.write("src/empty", "");
    s.write("src/dir/deep/er/f", vec![7; 3 << 20]);
    s.write("src/name with spaces\nand a newline", "x");
    std::fs::hard_link(s.path("src/a"), s.path("src/dir/also a")).unwrap();
    symlink("a", s.path("src/link")).unwrap();
    symlink("t".repeat(200), s.path("src/dir/long link")).unwrap();
    symlink("/nowhere", s.path("src/dangling")).unwrap();
    let sparse = std::fs::File::create(s.path("src/sparse")).unwrap();
    sparse.set_len(20 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 10 << 20).unwrap();
    std::fs::create_dir(s.path("src/many")).unwrap();
    for i in 0..500 {
        s.write(&format!("src/many/{i}"), format!("file {i}").repeat(i));
    }
    s.other("mkfifo", &["src/pipe"]);
    for (name, mode) in [
        ("src/a", 0o4751),
        ("src/empty", 0),
        ("src/dir/deep", 0o1500),
    ] {
        std::fs::set_permissions(s.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    if is_root() {
        s.other("mknod", &["src/null", "c", "1", "3"]);
        s.other("mknod", &["src/disk", "b", "259", "70000"]);
        s.other(
            "chown",
            &["-h", "1234:70000", "src/link", "src/empty", "src/dir"],
        );
    }
    let old = SystemTime::UNIX_EPOCH + Duration::new(986_000_000, 123_456_789);
    for name in ["src/dir", "src/sparse"] {
        let file = std::fs::File::open(s.path(name)).unwrap();
        file.set_modified(old).unwrap();
    }
}

#[test]
fn a_tree_survives_import_and_export() {
    let s = Scratch::new();
    tree(&s);
    if is_root() {
        // Without root, files of other owners cannot be restored.
        s.other("setfattr", &["-n", "user.origin", "-v", "here", "src/dir"]);
        s.other("setfattr", &["-n", "trusted.t", "-v", "x", "src/a"]);
        s.other("setfacl", &["-m", "u:77:rw", "src/many/1"]);
        s.other("setfacl", &["-d", "-m", "g:88:rx", "src/many"]);
    }
    let image = s.volume();
    s.run(&["import", "src", "disk.img:/in/here"]);
    s.check(image);
    s.run(&["export", "disk.img:/in/here", "out"]);
    assert_eq!(listing(&s.path("src")), listing(&s.path("out")));
    let blocks = |name: &str| s.path(name).metadata().unwrap().blocks();
    assert!(blocks("out/sparse") < 1000, "{}", blocks("out/sparse"));
    if is_root() {
        let of = |top: &str| {
            let tree = s.path(top).display().to_string();
            let attributes = s.other(
                "getfattr",
                &[
                    "-R",
                    "-P",
                    "-h",
                    "-d",
                    "-m",
                    "user|trusted",
                    "--absolute-names",
                    &tree,
                ],
            );
            let acls = s.other("getfacl", &["-R", "-P", "-p", &tree]);
            let text = (attributes
                + "
" + &acls)
                .replace(&tree, "");
            // One paragraph for each file, in the order of the directory.
            let mut files: Vec<String> = text
                .split(
                    "

",
                )
                .map(|f| f.trim().into())
                .collect();
            files.sort();
            files.join(
                "

",
            )
        };
        let (before, after) = (of("src"), of("out"));
        assert!(before.contains("user.origin") && before.contains("default:group:88"));
        assert_eq!(before, after);
    }
    // An independent reader finds the same bytes.
    s.other(
        "debugfs",
        &["-R", "dump /in/here/dir/deep/er/f dumped", image],
    );
    assert_eq!(std::fs::read(s.path("dumped")).unwrap(), vec![7; 3 << 20]);
    let root = s.other("debugfs", &["-R", "ls -l /in/here", image]);
    assert!(root.contains("104751") && root.contains("sparse"), "{root}");
}

#[test]
fn import_makes_a_volume_and_adds_to_one() {
    let s = Scratch::new();
    s.write("one/f", "1");
    s.write("one/only one", "1");
    s.write("two/f", "2");
    s.write("two/sub/g", "2");
    s.fail(1, &["import", "one", "new.img"]);
    s.fail(1, &["import", "one", "new.img", "--fresh"]);
    s.fail(2, &["import", "one", "new.img", "--size", "64MiB"]);
    s.run(&["import", "one", "new.img", "--fresh", "--size", "256MiB"]);
    let again = s.fail(1, &["import", "one", "new.img", "--fresh"]);
    assert!(again.contains("--force"), "{again}");
    s.run(&["import", "two", "new.img"]);
    assert_eq!(
        s.run(&["cat", "new.img:/f", "new.img:/only one", "new.img:/sub/g"]),
        "212"
    );
    s.check("new.img");
}

#[test]
fn import_does_not_copy_the_image_into_itself() {
    let s = Scratch::new();
    s.write("f", "x");
    s.volume();
    let said = s.fail(1, &["import", ".", "disk.img"]);
    assert!(said.contains("the image being written"), "{said}");
    assert_eq!(s.run(&["cat", "disk.img:/f"]), "x");
    s.check("disk.img");
}

#[test]
fn a_full_volume_ends_an_import_and_stays_consistent() {
    let s = Scratch::new();
    for i in 0..200 {
        s.write(&format!("src/{i}"), vec![i as u8; 1 << 20]);
    }
    s.run(&["mkfs", "small.img", "--size", "128MiB"]);
    let said = s.fail(1, &["import", "src", "small.img"]);
    assert!(said.contains("no space left"), "{said}");
    s.check("small.img");
}

#[test]
fn ctrl_c_leaves_a_consistent_volume() {
    let s = Scratch::new();
    for i in 0..4000 {
        s.write(&format!("src/{}/{i}", i % 10), vec![1; 20_000]);
    }
    s.volume();
    for after_ms in [0, 20, 60, 120] {
        let mut command = s.command(&["import", "-j", "1", "src", "disk.img"]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        child.wait().unwrap();
        s.check("disk.img");
    }
    s.run(&["import", "src", "disk.img"]);
    s.check("disk.img");
    s.run(&["export", "disk.img", "out"]);
    assert_eq!(listing(&s.path("src")).len(), listing(&s.path("out")).len());
}

#[test]
fn copies_follow_the_rules_of_cp() {
    let s = Scratch::new();
    s.write("f", "host file");
    s.write("d/x", "in d");
    std::fs::set_permissions(s.path("f"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("f", s.path("l")).unwrap();
    s.volume();
    s.run(&["cp", "f", "disk.img:/"]);
    s.run(&["cp", "f", "disk.img:/renamed"]);
    s.run(&["cp", "l", "disk.img:/followed"]);
    s.run(&["cp", "-r", "l", "disk.img:/kept"]);
    s.run(&["cp", "-r", "d", "disk.img:/new"]);
    s.run(&["cp", "-r", "d", "disk.img:/new"]);
    let names = s.run(&["ls", "-R", "disk.img"]);
    assert_eq!(
        names,
        "/:\nf\nfollowed\nkept\nlost+found\nnew\nrenamed\n\n/lost+found:\n\n/new:\nd\nx\n\n/new/d:\nx\n"
    );
    assert!(
        s.run(&["ls", "-l", "disk.img:/followed"])
            .starts_with("-rwxr-xr-x")
    );
    assert!(s.run(&["stat", "disk.img:/kept"]).contains("-> f"));
    // Within a volume, between volumes, and out again.
    s.run(&["cp", "disk.img:/f", "disk.img:/new/copy"]);
    s.run(&["mkfs", "other.img", "--size", "64MiB"]);
    s.run(&[
        "cp",
        "-rp",
        "disk.img:/new",
        "disk.img:/kept",
        "other.img:/",
    ]);
    s.run(&["cp", "-r", "other.img:/new", "back"]);
    assert_eq!(std::fs::read(s.path("back/copy")).unwrap(), b"host file");
    s.run(&["cp", "other.img:/new/x", "."]);
    assert_eq!(std::fs::read(s.path("x")).unwrap(), b"in d");
    s.check("disk.img");
    s.check("other.img");

    let said = s.fail(1, &["cp", "d", "disk.img:/"]);
    assert!(said.contains("-r copies it"), "{said}");
    let said = s.fail(1, &["cp", "-r", "disk.img:/new", "disk.img:/new/inner"]);
    assert!(said.contains("into itself"), "{said}");
    s.fail(1, &["cp", "f", "d"]);
    s.fail(1, &["cp", "f", "x", "disk.img:/f"]);
    s.fail(1, &["cp", "f", "disk.img:/no/such/dir"]);
    s.fail(1, &["cp", "nothing", "disk.img:/"]);
    s.fail(2, &["cp", "f"]);
}
