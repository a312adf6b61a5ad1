//! An acknowledged write never gets ENOSPC later.

use crate::space::volume::{PAGE, check_page, create, fill, open, put_page};
use ext4::{Error, FallocateMode, SyncKind};
use testkit::volume::{Image, mkdir, quiet};

#[test]
fn directories_take_no_blocks_promised_to_data() {
    let image = Image::ours(64 << 20, &[]);
    let fs = image.mount_with(quiet());
    let file = create(&fs, "file");
    let end = fill(&fs, &file, 1, 0);
    assert!(end > 8_000, "{end}");
    let dirs = mkdir(&fs, &fs.root().unwrap(), "dirs");
    for nth in 0..500 {
        let Ok(dirs) = &dirs else { break };
        match mkdir(&fs, dirs, &nth.to_string()) {
            Ok(_) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
    }
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    drop((file, dirs));
    image.unmount(fs);
    let fs = image.mount_with(quiet());
    let file = open(&fs, "file");
    (0..end).for_each(|index| check_page(&fs, &file, 1, index));
    drop(file);
    image.unmount(fs);
}

#[test]
fn nodes_for_separate_pages_are_promised_with_them() {
    let image = Image::ours(64 << 20, &[]);
    let fs = image.mount_with(quiet());
    // Files with too many extents for the root; each needs a node.
    let mut files = Vec::new();
    'full: for salt in 0.. {
        let file = create(&fs, &salt.to_string());
        for nth in 0..6 {
            if !put_page(&fs, &file, salt, nth * 3) {
                files.push((file, nth));
                break 'full;
            }
        }
        files.push((file, 6));
    }
    assert!(files.len() > 1_000, "{}", files.len());
    for (file, _) in &files {
        fs.fsync(file, SyncKind::Fsync).unwrap();
    }
    let pages: Vec<u64> = files.iter().map(|(_, pages)| *pages).collect();
    drop(files);
    image.unmount(fs);
    let fs = image.mount_with(quiet());
    for (salt, pages) in (0..).zip(pages) {
        let file = open(&fs, &salt.to_string());
        (0..pages).for_each(|nth| check_page(&fs, &file, salt, nth * 3));
    }
    image.unmount(fs);
}

/// Every other page of one file, in an order in which each is recorded alone.
fn every_other_page(order: impl Fn(u64) -> u64) {
    let image = Image::ours(16 << 20, &[]);
    let fs = image.mount_with(quiet());
    let file = create(&fs, "file");
    let mut written = Vec::new();
    for nth in 0..8_000 {
        if !put_page(&fs, &file, 7, order(nth) * 2) {
            break;
        }
        written.push(order(nth) * 2);
        if nth % 5 == 0 {
            fs.fsync(&file, SyncKind::Fdatasync).unwrap();
        }
    }
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    // No more than a node for a hundred extents.
    let nodes = file.attr().blocks / 8 - written.len() as u64;
    assert!(
        nodes <= written.len() as u64 / 100 + 2,
        "{nodes} nodes for {}",
        written.len()
    );
    drop(file);
    image.unmount(fs);
    let fs = image.mount_with(quiet());
    let file = open(&fs, "file");
    written
        .iter()
        .for_each(|index| check_page(&fs, &file, 7, *index));
    drop(file);
    image.unmount(fs);
}

#[test]
fn separate_pages_from_the_last_to_the_first() {
    every_other_page(|nth| 10_000 - nth);
}

#[test]
fn separate_pages_from_the_first_to_the_last() {
    every_other_page(|nth| nth);
}

#[test]
fn allocated_space_can_be_written_on_a_full_volume() {
    let image = Image::ours(32 << 20, &[]);
    let fs = image.mount_with(quiet());
    let file = create(&fs, "allocated");
    let allocate = FallocateMode::Allocate { keep_size: false };
    let pages = 4_000;
    fs.fallocate(&file, allocate, 0, pages * PAGE as u64)
        .unwrap();
    let rest = create(&fs, "rest");
    let end = fill(&fs, &rest, 2, 0);
    fs.sync().unwrap();
    let end = fill(&fs, &rest, 2, end);
    // Each such page cuts an unwritten extent in two.
    for index in (0..pages).step_by(2) {
        assert!(put_page(&fs, &file, 1, index), "page {index}");
    }
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    fs.fsync(&rest, SyncKind::Fsync).unwrap();
    drop((file, rest));
    image.unmount(fs);
    let fs = image.mount_with(quiet());
    let (file, rest) = (open(&fs, "allocated"), open(&fs, "rest"));
    (0..pages)
        .step_by(2)
        .for_each(|index| check_page(&fs, &file, 1, index));
    (0..end).for_each(|index| check_page(&fs, &rest, 2, index));
    // Punching a hole splits extents as well.
    for index in (0..end).step_by(4).take(2_000) {
        let at = index * PAGE as u64;
        fs.fallocate(&rest, FallocateMode::PunchHole, at, PAGE as u64)
            .unwrap();
    }
    drop((file, rest));
    image.unmount(fs);
}
