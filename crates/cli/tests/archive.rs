//! Import of tar archives, which becomes durable in groups.

mod common;

use common::{Scratch, is_root, listing};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

/// A tree with the difficult cases of archives.
fn tree(s: &Scratch) {
    s.write("src/a", "contents of a\n");
    s.write("src/empty", "");
    s.write("src/large", vec![7; 3 << 20]);
    let long = format!("src/{}/{}/f", "d".repeat(150), "e".repeat(150));
    s.write(&long, "behind a long name");
    std::fs::hard_link(s.path("src/a"), s.path("src/z")).unwrap();
    std::fs::hard_link(s.path(&long), s.path(&format!("src/{}/z", "d".repeat(150)))).unwrap();
    symlink("t".repeat(200), s.path("src/long link")).unwrap();
    symlink("../a", s.path("src/link")).unwrap();
    s.other("mkfifo", &["src/pipe"]);
    for i in 0..300 {
        s.write(&format!("src/many/{i}"), format!("file {i}").repeat(i));
    }
    for (name, mode) in [("src/a", 0o4751), ("src/empty", 0), ("src/many", 0o1500)] {
        std::fs::set_permissions(s.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    if is_root() {
        s.other("mknod", &["src/disk", "b", "259", "70000"]);
        s.other("chown", &["-h", "1234:70000", "src/link", "src/many"]);
    }
    let old = SystemTime::UNIX_EPOCH + Duration::new(986_000_000, 123_456_789);
    for name in ["src", "src/many", "src/large"] {
        let file = std::fs::File::open(s.path(name)).unwrap();
        file.set_modified(old).unwrap();
    }
}

fn tar(s: &Scratch, archive: &str, options: &[&str]) {
    let args = [&["-C", "src", "-cf", archive][..], options, &["."]].concat();
    s.other("tar", &args);
}

#[test]
fn an_archive_survives_import_and_export() {
    let s = Scratch::new();
    tree(&s);
    if is_root() {
        s.other("setfattr", &["-n", "user.origin", "-v", "here", "src/a"]);
        s.other("setfattr", &["-n", "user.dir", "-v", "x y", "src/many"]);
    }
    let image = s.volume();
    tar(
        &s,
        "posix.tar",
        &["--format=posix", "--xattrs", "--pax-option=delete=atime"],
    );
    let said = s.run(&["import", "--durable", "--json", "posix.tar", "disk.img:/in"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["errors"], 0);
    // The number of regular files, hard links counted once.
    assert_eq!(said["durable_files"], 304, "{said}");
    assert_eq!(said["syncs"], 1, "{said}");
    s.check(image);
    s.run(&["export", "disk.img:/in", "out"]);
    assert_eq!(listing(&s.path("src")), listing(&s.path("out")));
    if is_root() {
        let of = |file: &str| s.other("getfattr", &["-d", "--absolute-names", file]);
        assert!(of("out/a").contains("user.origin=\"here\""));
        assert!(of("out/many").contains("user.dir=\"x y\""));
    }
    // The GNU format has whole seconds.
    tar(&s, "gnu.tar", &["--format=gnu"]);
    let archive = std::fs::File::open(s.path("gnu.tar")).unwrap();
    let mut import = s.command(&["import", "-", "disk.img:/gnu"]);
    assert!(import.stdin(archive).status().unwrap().success());
    s.run(&["export", "disk.img:/gnu", "gnu"]);
    let seconds = |top: &str| -> Vec<String> {
        let lines = listing(&s.path(top));
        let fraction = |line: &str| {
            let nine = |w: &[u8]| w[0] == b'.' && w[1..].iter().all(u8::is_ascii_digit);
            line.as_bytes().windows(10).position(nine)
        };
        let cut = |line: &String| {
            let at = fraction(line).unwrap();
            format!("{}{}", &line[..at], &line[at + 10..])
        };
        lines.iter().map(cut).collect()
    };
    assert_eq!(seconds("src"), seconds("gnu"));
    s.check(image);
}

#[test]
fn sparse_files_stay_sparse() {
    let s = Scratch::new();
    s.write("src/dense", "x");
    let sparse = std::fs::File::create(s.path("src/sparse")).unwrap();
    sparse.set_len(20 << 20).unwrap();
    sparse.write_all_at(b"middle", 10 << 20).unwrap();
    sparse.write_all_at(&[1; 5000], 1 << 20).unwrap();
    s.volume();
    for (format, name) in [("--format=gnu", "gnu"), ("--format=posix", "posix")] {
        tar(&s, "s.tar", &[format, "-S"]);
        let target = format!("disk.img:/{name}");
        s.run(&["import", "s.tar", &target]);
        let blocks = s.other(
            "debugfs",
            &["-R", &format!("stat /{name}/sparse"), "disk.img"],
        );
        assert!(blocks.contains("Blockcount: 24"), "{blocks}");
        s.run(&["export", &target, name]);
        for file in ["dense", "sparse"] {
            assert_eq!(
                std::fs::read(s.path("src").join(file)).unwrap(),
                std::fs::read(s.path(name).join(file)).unwrap(),
                "{name} {file}"
            );
        }
    }
    s.check("disk.img");
}

/// An archive with unchanged names, which tar(1) would not write.
struct Raw(tar::Builder<Vec<u8>>);

impl Raw {
    fn new() -> Raw {
        Raw(tar::Builder::new(Vec::new()))
    }

    fn add(&mut self, kind: tar::EntryType, name: &str, link: &str, contents: &[u8]) {
        let mut header = tar::Header::new_ustar();
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        self.0.append(&header, contents).unwrap();
    }

    fn save(self, s: &Scratch, name: &str) {
        s.write(name, self.0.into_inner().unwrap());
    }
}

#[test]
fn an_archive_cannot_write_outside_of_the_directory() {
    use tar::EntryType::{Directory, Link, Regular, Symlink};
    let s = Scratch::new();
    let mut raw = Raw::new();
    raw.add(Regular, "../up", "", b"bad");
    raw.add(Regular, "d/../../up", "", b"bad");
    raw.add(Link, "passwd", "../secret", b"");
    raw.add(Symlink, "out", "/", b"");
    raw.add(Regular, "out/up", "", b"bad");
    raw.add(Directory, "out", "", b"");
    raw.add(Link, "stolen", "out/secret", b"");
    raw.add(Regular, "/absolute", "", b"below");
    raw.save(&s, "bad.tar");
    s.write("secret", "secret");
    s.volume();
    s.run(&["cp", "secret", "disk.img:/"]);
    let said = s.fail(1, &["import", "bad.tar", "disk.img:/in"]);
    assert_eq!(said.matches("`..`").count(), 3, "{said}");
    assert_eq!(said.matches("through a symbolic link").count(), 2, "{said}");
    assert_eq!(s.run(&["ls", "disk.img:/in"]), "absolute\nout\n");
    assert_eq!(s.run(&["ls", "disk.img:/"]), "in\nlost+found\nsecret\n");
    assert_eq!(s.run(&["cat", "disk.img:/in/absolute"]), "below");
    s.check("disk.img");
}

#[test]
fn an_entry_replaces_a_name_and_not_its_links() {
    use tar::EntryType::{Link, Regular, Symlink};
    let s = Scratch::new();
    let mut raw = Raw::new();
    raw.add(tar::EntryType::new(b'V'), "label", "", b"");
    raw.add(Regular, "a", "", b"first");
    raw.add(Link, "b", "a", b"");
    raw.add(Regular, "a", "", b"second");
    raw.add(Symlink, "l", "b", b"");
    raw.add(Regular, "l", "", b"no link");
    raw.add(Link, "b", "b", b"");
    raw.save(&s, "twice.tar");
    s.volume();
    s.run(&["import", "twice.tar", "disk.img"]);
    for (name, contents) in [("a", "second"), ("b", "first"), ("l", "no link")] {
        assert_eq!(s.run(&["cat", &format!("disk.img:/{name}")]), contents);
    }
    s.check("disk.img");
}

#[test]
fn a_file_that_is_no_archive_is_refused_with_advice() {
    let s = Scratch::new();
    s.volume();
    s.write("text", "hello ".repeat(200));
    let said = s.fail(1, &["import", "text", "disk.img"]);
    assert!(said.contains("text: not a tar archive"), "{said}");
    s.write("x.tgz", b"\x1f\x8b\x08 and so on");
    let said = s.fail(1, &["import", "x.tgz", "disk.img"]);
    assert!(said.contains("gzip -dc"), "{said}");
    let said = s.fail(1, &["import", "missing", "disk.img"]);
    assert!(said.contains("missing: No such file"), "{said}");
    let mut raw = Raw::new();
    raw.add(tar::EntryType::Regular, "f", "", &[1; 10_000]);
    let archive = raw.0.into_inner().unwrap();
    s.write("short.tar", &archive[..5000]);
    let said = s.fail(1, &["import", "short.tar", "disk.img"]);
    assert!(said.contains("ends after"), "{said}");
    s.check("disk.img");
}

#[test]
fn acknowledged_changes_survive_a_kill() {
    let s = Scratch::new();
    let mut raw = Raw::new();
    for i in 0..3000 {
        raw.add(
            tar::EntryType::Regular,
            &format!("{i}"),
            "",
            &[i as u8; 5000],
        );
    }
    let archive = raw.0.into_inner().unwrap();
    s.volume();
    // The pipe stays open, so that the import is in the middle of the archive when it is killed.
    let mut import = s.command(&["import", "--durable", "--memory", "64MiB", "-", "disk.img"]);
    let mut import = import.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = import.stdin.take().unwrap();
    pipe.write_all(&archive[..archive.len() - 100_000]).unwrap();
    // A group is a sixteenth of the memory, 4 MiB. The first groups are durable when the last one
    // begins.
    import.kill().unwrap();
    import.wait().unwrap();
    s.other("sh", &["-c", "e2fsck -fy disk.img; test $? -le 1"]);
    let there = s.run(&["ls", "disk.img:/"]);
    let files = there.lines().filter(|name| name.parse::<u32>().is_ok());
    assert!(files.clone().count() >= 800, "{} are there", files.count());
    for name in ["0", "100", "799"] {
        s.run(&["cp", &format!("disk.img:/{name}"), "got"]);
        let i: usize = name.parse().unwrap();
        assert_eq!(std::fs::read(s.path("got")).unwrap(), [i as u8; 5000]);
    }
}
