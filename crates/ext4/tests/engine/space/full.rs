//! Freed space can be used at once.

use crate::space::volume::{PAGE, check_page, create, fill, open, put_page};
use ext4::{Error, FallocateMode, Fs, InodeRef, NewInode, SetXattrMode, SyncKind};
use std::sync::Arc;
use testkit::volume::{Image, mkdir, quiet};

/// Fills a volume with two thirds of its pages in "old", durable.
fn mount(image: &Image) -> (Arc<Fs>, u64) {
    let fs = image.mount_with(quiet());
    let pages = fs.statfs().free * 2 / 3;
    let file = create(&fs, "old");
    assert!((0..pages).all(|index| put_page(&fs, &file, 1, index)));
    fs.sync().unwrap();
    (fs, pages)
}

fn remove(fs: &Fs, name: &str) {
    fs.unlink(&fs.root().unwrap(), name.as_bytes()).unwrap();
}

/// Asserts that two thirds of the volume's pages can be written again after `free`.
fn writes_again(free: impl Fn(&Fs)) {
    let image = Image::ours(64 << 20, &[]);
    let (fs, pages) = mount(&image);
    free(&fs);
    let file = create(&fs, "new");
    let full = (0..pages).find(|index| !put_page(&fs, &file, 2, *index));
    assert_eq!(full, None, "of {pages}, {} free", fs.statfs().free);
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    drop(file);
    image.unmount(fs);
    let fs = image.mount_with(quiet());
    let file = open(&fs, "new");
    (0..pages).for_each(|index| check_page(&fs, &file, 2, index));
    drop(file);
    image.unmount(fs);
}

#[test]
fn blocks_of_a_deleted_file_are_reused() {
    writes_again(|fs| remove(fs, "old"));
}

#[test]
fn truncated_blocks_are_reused() {
    writes_again(|fs| fs.truncate(&open(fs, "old"), 0).unwrap());
}

#[test]
fn punched_blocks_are_reused() {
    writes_again(|fs| {
        let file = open(fs, "old");
        let size = file.size();
        fs.fallocate(&file, FallocateMode::PunchHole, 0, size)
            .unwrap();
    });
}

#[test]
fn freed_blocks_are_allocated_again() {
    let image = Image::ours(64 << 20, &[]);
    let (fs, pages) = mount(&image);
    let mut len = pages * PAGE as u64;
    for _ in 0..3 {
        remove(&fs, "old");
        let file = create(&fs, "old");
        let allocate = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(&file, allocate, 0, len).unwrap();
        len -= PAGE as u64;
    }
    image.unmount(fs);
}

#[test]
fn a_large_write_uses_all_freed_blocks() {
    let image = Image::ours(64 << 20, &[]);
    let (fs, pages) = mount(&image);
    remove(&fs, "old");
    let file = create(&fs, "new");
    let data = vec![3; (pages as usize) * PAGE];
    assert_eq!(fs.write(&file, 0, &data).unwrap(), data.len());
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    drop(file);
    image.unmount(fs);
}

/// Asserts that `change` succeeds on a full volume as soon as a file is removed.
fn works_when_freed(change: impl Fn(&Fs, &InodeRef, u32) -> Result<(), Error>) {
    let image = Image::ours(16 << 20, &[]);
    let fs = image.mount_with(quiet());
    let victim = create(&fs, "victim");
    assert!((0..200).all(|index| put_page(&fs, &victim, 1, index)));
    drop(victim);
    let dir = mkdir(&fs, &fs.root().unwrap(), "dir").unwrap();
    let file = create(&fs, "rest");
    let end = fill(&fs, &file, 2, 0);
    fs.sync().unwrap();
    fill(&fs, &file, 2, end);
    fs.sync().unwrap();
    let mut nth = 0;
    loop {
        match change(&fs, &dir, nth) {
            Ok(()) => nth += 1,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    remove(&fs, "victim");
    change(&fs, &dir, nth).unwrap();
    drop((file, dir));
    image.unmount(fs);
}

#[test]
fn a_directory_uses_freed_blocks() {
    works_when_freed(|fs, dir, nth| mkdir(fs, dir, &nth.to_string()).map(drop));
}

#[test]
fn a_long_symlink_uses_a_freed_block() {
    let target = [b't'; 200];
    works_when_freed(|fs, dir, nth| {
        let name = nth.to_string();
        fs.symlink(dir, name.as_bytes(), &target, NewInode::default())
            .map(drop)
    });
}

#[test]
fn an_attribute_uses_a_freed_block() {
    works_when_freed(|fs, dir, nth| {
        let name = nth.to_string();
        let new = NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        };
        let made = match fs.lookup(dir, name.as_bytes()) {
            Err(Error::NotFound) => fs.create(dir, name.as_bytes(), new)?,
            found => found?,
        };
        fs.set_xattr(&made, b"user.large", &[7; 2_000], SetXattrMode::Any)
    });
}

#[test]
fn an_inode_reuses_a_freed_number() {
    let image = Image::ours(16 << 20, &[]);
    let fs = image.mount_with(quiet());
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let mut nth = 0;
    loop {
        match fs.create(&root, nth.to_string().as_bytes(), new) {
            Ok(_) => nth += 1,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(nth > 1_000);
    fs.sync().unwrap();
    for _ in 0..3 {
        fs.unlink(&root, b"5").unwrap();
        drop(fs.create(&root, b"5", new).unwrap());
    }
    drop(root);
    image.unmount(fs);
}
