//! The trees with which the kernel fills volumes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use testkit::seed::Rng;

/// Byte 4 GiB of a file is behind what two levels of indirect blocks of 4 KiB map.
const FAR: u64 = (4 << 30) + (40 << 20);

/// Fills a volume. Sizes are near the limits of inline data, of inodes and of each level of a block
/// map. The fill leaves out what a volume cannot store.
pub fn fill(root: &Path, rng: &mut Rng) {
    let small = root.join("small");
    fs::create_dir(&small).unwrap();
    for len in [
        0, 1, 59, 60, 61, 100, 159, 160, 161, 300, 900, 4095, 4096, 4097,
    ] {
        fs::write(small.join(format!("len{len}")), rng.bytes(len)).unwrap();
    }
    for i in 0..60 {
        let len = rng.index(20_000);
        fs::write(small.join(format!("f{i}")), rng.bytes(len)).unwrap();
    }
    let mut deep = root.join("deep");
    for level in 0..12 {
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("here"), format!("level {level}")).unwrap();
        deep.push(format!("level-{level}"));
    }
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for i in 0..1200 {
        File::create(many.join(format!("entry-{i:05}-{}", "x".repeat(i % 40)))).unwrap();
    }
    // One more name than fits into each size of inode.
    for names in 1..9 {
        let dir = root.join(format!("names{names}"));
        fs::create_dir(&dir).unwrap();
        for name in 0..names {
            fs::write(dir.join(format!("name-of-a-file-{name}")), b"x").unwrap();
        }
    }
    blocks(root, rng);
    names(&root.join("names"));
    attributes(&root.join("attributes"), rng);
}

fn blocks(root: &Path, rng: &mut Rng) {
    let sparse = File::create(root.join("sparse")).unwrap();
    for i in 0..12u64 {
        sparse
            .write_all_at(&rng.bytes(5000), i * i * 300_000 + 17)
            .unwrap();
    }
    let far = File::create(root.join("far")).unwrap();
    far.write_all_at(&rng.bytes(6000), 12 * 4096 - 100).unwrap();
    if far.write_all_at(&rng.bytes(70_000), FAR).is_err() {
        fs::remove_file(root.join("far")).unwrap();
    }
    let fragmented = File::create(root.join("fragmented")).unwrap();
    for i in 0..1500u64 {
        fragmented.write_all_at(&rng.bytes(4096), i * 8192).unwrap();
    }
    fs::write(root.join("large"), rng.bytes(7 << 20)).unwrap();
}

fn names(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("a".repeat(255)), b"long").unwrap();
    fs::write(dir.join("ünï☃"), b"text").unwrap();
    fs::write(dir.join("one"), b"linked").unwrap();
    fs::hard_link(dir.join("one"), dir.join("two")).unwrap();
    for len in [1, 59, 60, 61, 120, 160, 300, 3000] {
        let made = symlink("l".repeat(len), dir.join(format!("link{len}")));
        // A target has at most a block.
        assert!(made.is_ok() || len > 900, "{made:?}");
    }
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let mode = Mode::from_raw_mode(0o640);
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("char", FileType::CharacterDevice, makedev(5, 1)),
        ("block", FileType::BlockDevice, makedev(259, 70_000)),
    ] {
        mknodat(CWD, dir.join(name), kind, mode, device).unwrap();
    }
}

fn attributes(dir: &Path, rng: &mut Rng) {
    fs::create_dir(dir).unwrap();
    for (i, size) in [0, 1, 60, 300, 2000, 9000, 60_000].into_iter().enumerate() {
        let file = dir.join(format!("xattr{i}"));
        fs::write(&file, b"contents").unwrap();
        // Volumes without the feature ea_inode store no value that is larger than a block.
        let _ = xattr::set(&file, "user.value", &rng.bytes(size));
        let _ = xattr::set(&file, "trusted.short", b"t");
    }
    let dir = dir.join("of-a-directory");
    fs::create_dir(&dir).unwrap();
    let _ = xattr::set(&dir, "user.value", &rng.bytes(40));
    fs::write(dir.join("within"), b"x").unwrap();
}
