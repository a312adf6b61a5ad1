//! Many entries are found, listed and removed, in linear and hashed directories.

use crate::namespace::volume::{by_mke2fs, file, list, mkdir, touch};
use ext4::{Error, Fs, InodeRef};
use std::collections::BTreeMap;
use testkit::seed::Rng;
use testkit::volume::Image;
use units::Ino;

/// A name of about `len` bytes.
fn name(number: usize, len: usize) -> Vec<u8> {
    let mut name = format!("{number:x}").into_bytes();
    name.resize(len.max(name.len()), b'-');
    name
}

/// Adds names without an inode for each: links to a few files.
struct Linker {
    targets: Vec<InodeRef>,
    used: usize,
}

impl Linker {
    fn new() -> Linker {
        Linker {
            targets: Vec::new(),
            used: 0,
        }
    }
    fn link(&mut self, fs: &Fs, dir: &InodeRef, name: &[u8]) -> Ino {
        if self.used.is_multiple_of(60_000) {
            let root = fs.root().unwrap();
            let target = format!("target{}", self.targets.len());
            self.targets.push(touch(fs, &root, &target).unwrap());
        }
        self.used += 1;
        let target = self.targets.last().unwrap();
        fs.link(target, dir, name).unwrap();
        target.ino()
    }
}

fn check_all(fs: &Fs, dir: &InodeRef, expected: &BTreeMap<Vec<u8>, Ino>, batch: usize) {
    for (name, ino) in expected {
        assert_eq!(fs.lookup(dir, name).unwrap().ino(), *ino, "{name:?}");
    }
    assert!(matches!(fs.lookup(dir, b"absent"), Err(Error::NotFound)));
    let mut found = list(fs, dir, batch);
    found.sort();
    let expected: Vec<_> = expected.iter().map(|(n, i)| (n.clone(), *i)).collect();
    assert!(found == expected, "{} of {}", found.len(), expected.len());
}

fn grow_and_shrink(volume: &Image, count: usize, len: usize) {
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let mut linker = Linker::new();
    let mut expected = BTreeMap::new();
    for number in 0..count {
        let name = name(number, len);
        let ino = linker.link(&fs, &dir, &name);
        expected.insert(name, ino);
    }
    let again = name(count / 2, len);
    assert!(matches!(
        fs.create(&dir, &again, file()),
        Err(Error::Exists)
    ));
    check_all(&fs, &dir, &expected, 37);

    let mut names: Vec<_> = expected.keys().cloned().collect();
    Rng::from_seed(7).shuffle(&mut names);
    for name in &names[..count / 2] {
        fs.unlink(&dir, name).unwrap();
        expected.remove(name);
    }
    assert!(matches!(fs.rmdir(&root, b"dir"), Err(Error::NotEmpty)) || count < 2);
    let size = dir.size();
    drop((dir, root, linker));
    volume.unmount(fs);

    // A new mount reads the same names.
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = fs.lookup(&root, b"dir").unwrap();
    assert_eq!(dir.size(), size);
    check_all(&fs, &dir, &expected, 1000);
    let mut listed: Vec<String> = volume_names(volume, "/dir");
    listed.sort();
    let mut ours: Vec<String> = expected
        .keys()
        .map(|name| String::from_utf8(name.clone()).unwrap())
        .collect();
    ours.sort();
    assert!(listed == ours, "debugfs sees the same names");

    // New names reuse the space of removed ones.
    let mut linker = Linker::new();
    linker.targets.push(touch(&fs, &root, "last").unwrap());
    linker.used = 1;
    for name in &names[..(count / 2).min(50_000)] {
        let ino = linker.link(&fs, &dir, name);
        expected.insert(name.clone(), ino);
    }
    check_all(&fs, &dir, &expected, 5000);
    for name in expected.keys() {
        fs.unlink(&dir, name).unwrap();
    }
    assert_eq!(list(&fs, &dir, 1), []);
    fs.rmdir(&root, b"dir").unwrap();
    assert!(matches!(touch(&fs, &dir, "late"), Err(Error::NotFound)));
    drop((dir, root, linker));
    volume.unmount(fs);
}

/// The names that debugfs finds in a directory.
fn volume_names(volume: &Image, path: &str) -> Vec<String> {
    let text = volume.debugfs(&format!("ls -p {path}"));
    text.lines()
        .filter_map(|line| line.split('/').nth(5))
        .filter(|name| !matches!(*name, "" | "." | ".."))
        .map(str::to_owned)
        .collect()
}

#[test]
fn one_entry() {
    grow_and_shrink(&Image::ours(64 << 20, &[]), 1, 1);
}
#[test]
fn a_hundred_short_names() {
    grow_and_shrink(&Image::ours(64 << 20, &[]), 100, 1);
}
#[test]
fn a_hundred_long_names() {
    grow_and_shrink(&Image::ours(64 << 20, &[]), 100, 255);
}
#[test]
fn twenty_thousand_short_names() {
    grow_and_shrink(&Image::ours(256 << 20, &[]), 20_000, 1);
}
#[test]
fn twenty_thousand_long_names_make_two_levels() {
    let volume = Image::ours(256 << 20, &[]);
    grow_and_shrink(&volume, 20_000, 255);
}
#[test]
fn two_hundred_thousand_names() {
    grow_and_shrink(&Image::ours(1 << 30, &[]), 200_000, 12);
}
#[test]
fn linear_directories() {
    grow_and_shrink(&Image::ours(256 << 20, &["^dir_index"]), 2000, 40);
}
#[test]
fn without_checksums() {
    grow_and_shrink(&Image::ours(256 << 20, &["^metadata_csum"]), 8000, 200);
}
#[test]
fn without_file_types() {
    let volume = by_mke2fs(256 << 20, &["-O", "^filetype"], None);
    grow_and_shrink(&volume, 3000, 20);
}

#[test]
fn the_tree_is_what_debugfs_expects() {
    let volume = Image::ours(256 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let mut linker = Linker::new();
    for number in 0..12_000 {
        linker.link(&fs, &dir, &name(number, 255));
    }
    drop((dir, root, linker));
    volume.unmount(fs);
    let dump = volume.debugfs("htree_dump /dir");
    assert!(dump.contains("Indirect levels: 1"), "{}", &dump[..400]);
    assert!(dump.matches("Reading directory block").count() > 500);
    // debugfs prints each name with its hash and its leaf, and complaints between them.
    assert!(dump.matches("-----").count() >= 12_000);
    assert!(!dump.contains("orrupt") && !dump.contains("rror"));
}

#[test]
fn a_full_volume_refuses_entries_and_stays_clean() {
    let volume = Image::ours(16 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let target = touch(&fs, &root, "target").unwrap();
    let mut made = 0;
    let error = loop {
        match fs.link(&target, &dir, &name(made, 255)) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, Error::NoSpace | Error::TooManyLinks),
        "{error}"
    );
    let refused = fs.mkdir(&root, b"no room", file());
    if matches!(error, Error::NoSpace) {
        assert!(matches!(refused, Err(Error::NoSpace)));
    }
    assert_eq!(list(&fs, &dir, 100).len(), made);
    for number in 0..made {
        fs.unlink(&dir, &name(number, 255)).unwrap();
    }
    drop((dir, root, target, refused));
    volume.unmount(fs);
}

#[test]
fn sixty_five_thousand_subdirectories_count_as_one_link() {
    let volume = by_mke2fs(2 << 30, &["-N", "70000", "-J", "size=64"], None);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    for number in 0..65_100 {
        mkdir(&fs, &dir, &number.to_string()).unwrap();
    }
    assert_eq!(dir.attr().nlink, 1);
    for number in 0..200 {
        fs.rmdir(&dir, number.to_string().as_bytes()).unwrap();
    }
    assert_eq!(dir.attr().nlink, 1);
    drop((dir, root));
    volume.unmount(fs);
}
