//! A scan of a damaged volume.

use super::{fill, scan, scan_all};
use ext4::{Error, Fs, MountOptions};
use mkfs::MkfsOptions;
use std::collections::BTreeMap;
use testkit::disk::Disk;
use testkit::volume::options;
use units::Ino;

const BLOCK: usize = 4096;
/// Linux's number of the error.
const EIO: i32 = 5;

fn filled() -> (Disk, BTreeMap<Ino, ext4::Attr>) {
    let disk = Disk::new(256 << 20);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    fill(&fs);
    fs.unmount().unwrap();
    let found = scan_all(&read_only(&disk));
    (disk, found)
}

fn read_only(disk: &Disk) -> std::sync::Arc<Fs> {
    let options = MountOptions {
        read_only: true,
        ..options()
    };
    Fs::mount(disk.queue(), options).unwrap()
}

/// The bytes of an inode on the device. Its owner makes it unique.
fn place_of(disk: &Disk, uid: u32) -> usize {
    let low = (uid as u16).to_le_bytes();
    let high = ((uid >> 16) as u16).to_le_bytes();
    let bytes = disk.bytes();
    let is_it = |at: &usize| {
        let inode = &bytes[*at..at + 256];
        inode[..2] == 0o060_600u16.to_le_bytes() && inode[2..4] == low && inode[0x78..0x7a] == high
    };
    (0..bytes.len())
        .step_by(256)
        .find(is_it)
        .expect("its inode")
}

#[test]
fn a_damaged_inode_is_reported_and_the_others_are_visited() {
    let (disk, whole) = filled();
    let (ino, _) = whole.iter().find(|(_, attr)| attr.uid == 70_000).unwrap();
    let at = place_of(&disk, 70_000);
    disk.edit(|bytes| bytes[at + 0x1a] ^= 1);
    let (found, unreadable) = scan(&read_only(&disk));
    assert_eq!(unreadable.keys().collect::<Vec<_>>(), [ino]);
    assert!(
        matches!(unreadable[ino], Error::Corrupt(_)),
        "{unreadable:?}"
    );
    let mut expected = whole.clone();
    expected.remove(ino);
    assert_eq!(found, expected);
}

#[test]
fn an_unreadable_block_hides_only_its_inodes() {
    let (disk, whole) = filled();
    let bad = (place_of(&disk, 70_000) / BLOCK * BLOCK) as u64;
    let fs = read_only(&disk);
    disk.inject(move |_, _, offset, len| {
        let is_bad = (offset..offset + len).contains(&bad);
        is_bad.then_some(EIO)
    });
    let (found, unreadable) = scan(&fs);
    assert!((1..=16).contains(&unreadable.len()), "{unreadable:?}");
    for (ino, error) in &unreadable {
        assert_eq!(error.errno(), EIO);
        assert!(whole.contains_key(ino) && !found.contains_key(ino));
    }
    assert_eq!(found.len() + unreadable.len(), whole.len());
}

#[test]
fn a_damaged_bitmap_hides_the_inodes_of_its_group() {
    let (disk, whole) = filled();
    let fs = read_only(&disk);
    let groups = fs.info().groups;
    let per_group = fs.info().inodes / groups;
    drop(fs);
    // The descriptor of the last group, in the block behind the super block: 64 bytes each, with
    // the low half of the inode bitmap's block at byte 4.
    let group = (whole.keys().next_back().unwrap().0 - 1) / per_group;
    let desc = disk.bytes_at(BLOCK + 64 * group as usize, 64);
    let block = u32::from_le_bytes(desc[4..8].try_into().unwrap()) as usize;
    disk.edit(|bytes| bytes[block * BLOCK] ^= 0x80);
    let (found, unreadable) = scan(&read_only(&disk));
    let in_group = |ino: &Ino| (ino.0 - 1) / per_group == group;
    assert!(unreadable.keys().all(in_group) && !unreadable.is_empty());
    let mut expected = whole.clone();
    expected.retain(|ino, _| !in_group(ino));
    assert!(expected.len() < whole.len());
    assert_eq!(found, expected);
    assert!(
        whole
            .keys()
            .filter(|i| in_group(i))
            .all(|i| unreadable.contains_key(i))
    );
}
