//! Growth of volumes from the command line, mounted and not.

mod common;

use common::Scratch;
use std::fs;
use testkit::needs::{Need, have};

#[test]
fn an_image_grows() {
    let s = Scratch::new();
    s.run(&["mkfs", "disk.img", "--size", "64MiB"]);
    s.write("data", vec![1; 1 << 20]);
    s.run(&["cp", "data", "disk.img:/kept"]);
    let said = s.run(&["resize", "disk.img", "300MiB"]);
    assert_eq!(said, "disk.img: the volume has 300 MiB\n");
    assert_eq!(fs::metadata(s.path("disk.img")).unwrap().len(), 300 << 20);
    s.check("disk.img");
    let file = fs::File::options()
        .write(true)
        .open(s.path("disk.img"))
        .unwrap();
    file.set_len(1 << 30).unwrap();
    let json = s.run(&["resize", "--json", "disk.img"]);
    assert!(json.contains(&format!("\"bytes\": {}", 1 << 30)), "{json}");
    s.check("disk.img");
    assert_eq!(s.run(&["cat", "disk.img:/kept"]).len(), 1 << 20);
    let said = s.fail(1, &["resize", "disk.img", "64MiB"]);
    assert!(said.contains("resize2fs"), "{said}");
    let said = s.fail(1, &["resize", "mem:64MiB", "1GiB"]);
    assert!(said.contains("mem:"), "{said}");
}

#[test]
fn a_mounted_image_grows_while_it_is_used() {
    if !have("mounting", &[Need::Root, Need::Fuse]) {
        return;
    }
    let s = Scratch::new();
    s.run(&["mkfs", "disk.img", "--size", "64MiB"]);
    fs::create_dir(s.path("mnt")).unwrap();
    s.run(&["mount", "disk.img", "mnt"]);
    let said = s.fail(1, &["resize", "disk.img", "1GiB"]);
    assert!(said.contains("sluice resize DIRECTORY"), "{said}");
    let blocks = || {
        let now = rustix::fs::statvfs(s.path("mnt")).unwrap();
        (now.f_blocks * now.f_frsize) >> 20
    };
    let before = blocks();
    assert!(before < 64);
    let large = vec![7; 100 << 20];
    assert!(fs::write(s.path("mnt/large"), &large).is_err());
    let said = s.run(&["resize", "mnt", "400MiB"]);
    assert_eq!(said, "mnt: the volume has 400 MiB\n");
    assert!(blocks() > 350, "{before} -> {} MiB", blocks());
    fs::write(s.path("mnt/large"), &large).unwrap();
    let said = s.fail(1, &["resize", "mnt", "64MiB"]);
    assert!(said.contains("resize2fs"), "{said}");
    let said = s.fail(1, &["resize", "/proc", "64MiB"]);
    assert!(
        said.contains("no volume is mounted there by sluice"),
        "{said}"
    );
    s.run(&["unmount", "mnt"]);
    s.check("disk.img");
    assert_eq!(fs::metadata(s.path("disk.img")).unwrap().len(), 400 << 20);
}
