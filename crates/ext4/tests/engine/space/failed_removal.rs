//! Removals of blocks that fail.

use super::volume::{PAGE, check_page, create, open, put_page};
use block::{Class, Op};
use ext4::{FallocateMode, Fs, InodeRef, Result, SyncKind};
use testkit::disk::Disk;
use testkit::needs::have_e2fsprogs;
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use testkit::volume::{Image, mount_on};

type Removal = fn(&Fs, &InodeRef) -> Result<()>;

fn punch(fs: &Fs, file: &InodeRef) -> Result<()> {
    fs.fallocate(file, FallocateMode::PunchHole, 0, PAGE as u64)
}

fn cut(fs: &Fs, file: &InodeRef) -> Result<()> {
    fs.truncate(file, PAGE as u64)
}

/// The bitmap cannot be read for a moment. Nothing is lost, and e2fsck has nothing to do after the
/// next mount.
#[test]
fn a_removal_that_cannot_read_a_bitmap_leaves_a_sound_volume() {
    if !have_e2fsprogs("a_removal_that_cannot_read_a_bitmap_leaves_a_sound_volume") {
        return;
    }
    let removals: [(&str, Removal, u64); 2] = [("punch", punch, 1), ("cut", cut, 0)];
    for (what, remove, kept) in removals {
        let disk = Disk::new(64 << 20);
        mkfs::format(&disk.queue(), &mkfs::MkfsOptions::default()).unwrap();
        let fs = mount_on(&disk);
        let file = create(&fs, "file");
        assert!((0..4).all(|nth| put_page(&fs, &file, 1, nth)));
        drop(file);
        fs.unmount().unwrap();
        drop(fs);

        let fs = mount_on(&disk);
        let file = open(&fs, "file");
        disk.inject(|op, class, _, _| (op == Op::Read && class == Class::Metadata).then_some(5));
        remove(&fs, &file).unwrap_err();
        disk.heal();
        check_page(&fs, &file, 1, kept);
        assert!(!fs.info().errors, "{what}");
        drop(file);
        fs.unmount().unwrap();
        drop(fs);
        mount_on(&disk).unmount().unwrap();
        let scratch = Scratch::new();
        disk.save(&scratch.join("image"));
        assert_clean(&scratch.join("image"), what);
    }
}

/// By the bitmap the block is free: its group is damaged. The block is unmapped when that is found.
/// So its page needs a new promise, and must not stay in the cache.
#[test]
fn a_page_whose_block_is_gone_gets_another_one() {
    if !have_e2fsprogs("a_page_whose_block_is_gone_gets_another_one") {
        return;
    }
    let image = Image::by_mke2fs(&Mke2fs::new(512 << 20));
    image.with(|fs| {
        let file = create(fs, "file");
        assert!((0..2).all(|nth| put_page(fs, &file, 1, nth)));
    });
    let block = image.debugfs("bmap file 0");
    image.debugfs(&format!("freeb {}", block.trim()));
    let fs = image.mount();
    let file = open(&fs, "file");
    check_page(&fs, &file, 1, 0);
    punch(&fs, &file).unwrap_err();
    assert!(fs.info().errors, "e2fsck has to repair it");
    assert!(put_page(&fs, &file, 2, 0));
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    check_page(&fs, &file, 2, 0);
    drop(file);
    fs.unmount().unwrap();
}
