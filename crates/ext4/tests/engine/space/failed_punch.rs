//! A punch that fails half way.

use super::volume::{PAGE, check_page, create, open, put_page};
use block::{Class, Op};
use ext4::{FallocateMode, SyncKind};
use testkit::disk::Disk;
use testkit::volume::mount_on;

/// The block is unmapped when the read of its bitmap fails. Its page needs a new promise, so it
/// must not stay in the cache.
#[test]
fn pages_whose_blocks_are_gone_get_new_ones() {
    let disk = Disk::new(64 << 20);
    mkfs::format(&disk.queue(), &mkfs::MkfsOptions::default()).unwrap();
    let fs = mount_on(&disk);
    let file = create(&fs, "file");
    assert!((0..2).all(|nth| put_page(&fs, &file, 1, nth)));
    drop(file);
    fs.unmount().unwrap();
    drop(fs);

    let fs = mount_on(&disk);
    let file = open(&fs, "file");
    check_page(&fs, &file, 1, 0);
    let free = fs.statfs().free;
    disk.inject(|op, class, _, _| (op == Op::Read && class == Class::Metadata).then_some(5));
    let punched = fs.fallocate(&file, FallocateMode::PunchHole, 0, PAGE as u64);
    disk.heal();
    punched.unwrap_err();
    assert!(fs.info().errors, "e2fsck has to find the block");
    assert!(put_page(&fs, &file, 2, 0));
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    check_page(&fs, &file, 2, 0);
    assert_eq!(fs.statfs().free, free - 1);
    drop(file);
    fs.unmount().unwrap();
}
