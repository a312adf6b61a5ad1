//! Space that was freed can be used at once.

use crate::volume::{Image, PAGE, check_page, create, fill, mkdir, open, put_page};
use ext4::{Error, FallocateMode, Fs, InodeRef, NewInode, SetXattrMode};
use std::sync::Arc;

/// Fills a volume with two thirds of its pages in "old", durable.
fn mount(image: &Image) -> (Arc<Fs>, u64) {
    let fs = image.mount();
    let pages = fs.statfs().free * 2 / 3;
    let file = create(&fs, "old");
    assert!((0..pages).all(|index| put_page(&fs, &file, 1, index)));
    fs.sync().unwrap();
    (fs, pages)
}

fn remove(fs: &Fs, name: &str) {
    fs.unlink(&fs.root().unwrap(), name.as_bytes()).unwrap();
}

/// Two thirds of the volume's pages can be written again after `free`.
fn writes_again(free: impl Fn(&Fs)) {
    let image = Image::new(64 << 20);
    let (fs, pages) = mount(&image);
    free(&fs);
    let file = create(&fs, "new");
    let full = (0..pages).find(|index| !put_page(&fs, &file, 2, *index));
    assert_eq!(full, None, "of {pages}, {} free", fs.statfs().free);
    fs.fsync(&file, false).unwrap();
    drop(file);
    image.unmount(fs);
    let fs = image.mount();
    let file = open(&fs, "new");
    (0..pages).for_each(|index| check_page(&fs, &file, 2, index));
    drop(file);
    image.unmount(fs);
}

#[test]
fn what_a_deleted_file_had_is_written_again() {
    writes_again(|fs| remove(fs, "old"));
}

#[test]
fn what_was_cut_off_is_written_again() {
    writes_again(|fs| fs.truncate(&open(fs, "old"), 0).unwrap());
}

#[test]
fn what_was_punched_out_is_written_again() {
    writes_again(|fs| {
        let file = open(fs, "old");
        let size = file.size();
        fs.fallocate(&file, FallocateMode::PunchHole, 0, size)
            .unwrap();
    });
}

#[test]
fn what_was_freed_is_allocated_again() {
    let image = Image::new(64 << 20);
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
fn a_large_write_takes_all_that_was_freed() {
    let image = Image::new(64 << 20);
    let (fs, pages) = mount(&image);
    remove(&fs, "old");
    let file = create(&fs, "new");
    let data = vec![3; (pages as usize) * PAGE];
    assert_eq!(fs.write(&file, 0, &data).unwrap(), data.len());
    fs.fsync(&file, false).unwrap();
    drop(file);
    image.unmount(fs);
}

/// A full volume, on which `change` works as soon as a file is removed.
fn works_when_freed(change: impl Fn(&Fs, &InodeRef, u32) -> Result<(), Error>) {
    let image = Image::new(16 << 20);
    let fs = image.mount();
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
fn a_directory_is_made_from_what_was_freed() {
    works_when_freed(|fs, dir, nth| mkdir(fs, dir, &nth.to_string()).map(drop));
}

#[test]
fn a_long_link_is_made_from_what_was_freed() {
    let target = [b't'; 200];
    works_when_freed(|fs, dir, nth| {
        let name = nth.to_string();
        fs.symlink(dir, name.as_bytes(), &target, NewInode::default())
            .map(drop)
    });
}

#[test]
fn an_attribute_is_set_in_what_was_freed() {
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
fn an_inode_is_made_from_what_was_freed() {
    let image = Image::new(16 << 20);
    let fs = image.mount();
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
