//! Free space goes back to the image file.

mod common;

use common::Scratch;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use testkit::needs::{Need, have};

const MIB: u64 = 1 << 20;

/// MiB that the image file takes.
fn used(s: &Scratch) -> u64 {
    fs::metadata(s.path("disk.img")).unwrap().blocks() * 512 / MIB
}

fn copy_in(s: &Scratch, name: &str, mib: u64, byte: u8) {
    s.write("data", vec![byte; (mib * MIB) as usize]);
    s.run(&["cp", "data", &format!("disk.img:/{name}")]);
}

#[test]
fn an_image_gets_small_again() {
    let s = Scratch::new();
    let image = s.volume();
    copy_in(&s, "kept", 8, 1);
    copy_in(&s, "removed", 64, 2);
    s.run(&["rm", "disk.img:/removed"]);
    let before = used(&s);
    assert!(before >= 72, "{before} MiB");
    let said = s.run(&["trim", image]);
    assert!(said.contains("of free space discarded"), "{said}");
    let after = used(&s);
    assert!(after < before - 60, "{before} -> {after} MiB");
    let json = s.run(&["trim", "--json", "--minimum", "1MiB", image]);
    assert!(json.contains("discarded_bytes"), "{json}");
    assert_eq!(s.run(&["cat", "disk.img:/kept"]).len() as u64, 8 * MIB);
    s.check(image);
    let said = s.fail(1, &["trim", "--minimum", "1GiB", image]);
    assert!(said.contains("trim"), "{said}");
}

#[test]
fn a_mounted_image_gets_small_while_it_is_used() {
    if !have("mounting", &[Need::Root, Need::Fuse]) {
        return;
    }
    let s = Scratch::new();
    let image = s.volume();
    fs::create_dir(s.path("mnt")).unwrap();
    s.run(&[
        "mount",
        "-o",
        "discard,dirty_writeback=0.1,commit=300",
        image,
        "mnt",
    ]);
    let kept = vec![1; (8 * MIB) as usize];
    fs::write(s.path("mnt/kept"), &kept).unwrap();
    fs::write(s.path("mnt/removed"), vec![2; (64 * MIB) as usize]).unwrap();
    s.run(&["sync", "mnt"]);
    let before = used(&s);
    fs::remove_file(s.path("mnt/removed")).unwrap();
    // A crash now brings the file back, so its blocks must not be discarded yet.
    std::thread::sleep(Duration::from_millis(500));
    assert!(used(&s) >= before, "{before} -> {} MiB", used(&s));
    s.run(&["sync", "mnt"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while used(&s) > before - 60 {
        assert!(Instant::now() < deadline, "{before} -> {} MiB", used(&s));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(fs::read(s.path("mnt/kept")).unwrap() == kept);
    // The unmount discards the blocks of the last transactions.
    fs::remove_file(s.path("mnt/kept")).unwrap();
    let before = used(&s);
    s.run(&["unmount", "mnt"]);
    assert!(used(&s) <= before - 7, "{before} -> {} MiB", used(&s));
    s.check(image);

    // Without the option, the mount is trimmed by the command.
    s.run(&["mount", image, "mnt"]);
    fs::write(s.path("mnt/removed"), vec![2; (64 * MIB) as usize]).unwrap();
    s.run(&["sync", "mnt"]);
    fs::remove_file(s.path("mnt/removed")).unwrap();
    s.run(&["sync", "mnt"]);
    let before = used(&s);
    s.run(&["trim", "mnt"]);
    assert!(used(&s) < before - 60, "{before} -> {} MiB", used(&s));
    s.run(&["unmount", "mnt"]);
    s.check(image);
}
