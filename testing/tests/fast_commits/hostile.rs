//! Fast commits that contradict the volume, or that cannot be replayed.

use super::{NEEDS, moments, store};
use ext4::{Fs, MountOptions};
use ext4_format::Seed;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use testing::snapshot::Snapshot;
use testkit::disk::Disk;
use testkit::kernel::KernelMount;
use testkit::needs::{have, run_ok, skipped};
use testkit::oracle::{self, Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume;

/// The first byte of the fast commits of an image, and their length: blocks with a TAIL.
fn area(bytes: &[u8], block_size: usize) -> Range<usize> {
    let is_head = |block: &&[u8]| block.starts_with(&[9, 0, 8, 0, 0, 0, 0, 0]);
    let mut blocks = bytes.chunks(block_size);
    let first = blocks.position(|block| is_head(&block)).expect("a HEAD");
    let end = blocks.position(|block| block.iter().all(|byte| *byte == 0));
    let end = first + 1 + end.expect("a block without tags");
    first * block_size..end * block_size
}

/// Corrects the checksum of each fast commit.
fn seal(area: &mut [u8], block_size: usize) {
    let mut sum = Seed(0);
    for block in area.chunks_mut(block_size) {
        let mut at = 0;
        while at + 4 <= block.len() {
            let kind = u16::from_le_bytes([block[at], block[at + 1]]);
            let len = usize::from(u16::from_le_bytes([block[at + 2], block[at + 3]]));
            let Some(tag) = block.get_mut(at..at + 4 + len) else {
                break;
            };
            match (kind, len) {
                (8, 8..) => {
                    sum = sum.extend(&tag[..8]);
                    tag[8..12].copy_from_slice(&sum.0.to_le_bytes());
                    sum = Seed(0);
                }
                _ => sum = sum.extend(tag),
            }
            at += 4 + len;
        }
    }
}

/// Returns the kind and the value's place of each tag.
fn tags(area: &[u8], block_size: usize) -> Vec<(u16, Range<usize>)> {
    let mut tags = Vec::new();
    for (nth, block) in area.chunks(block_size).enumerate() {
        let mut at = 0;
        while at + 4 <= block.len() {
            let number = |at| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
            let (kind, end) = (number(at) as u16, at + 4 + number(at + 2));
            let first = nth * block_size;
            tags.push((kind, first + at + 4..first + end));
            at = end;
        }
    }
    tags
}

/// Makes a full commit. Fast commits follow it.
fn full_commit(kernel: &KernelMount) {
    fs::write(kernel.join("first"), b"").unwrap();
    run_ok("sync", &["-f", oracle::text(kernel.path())]);
}

/// The names of directories that ignore case or are encrypted are not replayed.
#[test]
fn names_that_cannot_be_compared_are_refused() {
    let test = "fast_commits, special directories";
    if !have(test, NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let how = Mke2fs::by_default(64 << 20).features("fast_commit");
    how.make(&image).unwrap();
    let special = [
        ("folds", "0x40080000", "ignores case"),
        ("secret", "0x80800", "is encrypted"),
    ];
    let kernel = KernelMount::new(&image);
    let dirs = [&["plain"][..], &special.map(|(name, ..)| name)].concat();
    dirs.iter()
        .for_each(|name| fs::create_dir(kernel.join(name)).unwrap());
    let inos: Vec<u32> = dirs
        .iter()
        .map(|name| fs::metadata(kernel.join(name)).unwrap().ino() as u32)
        .collect();
    fs::write(kernel.join("plain/old"), b"old").unwrap();
    kernel.unmount();
    for (name, flags, _) in special {
        let command = format!("set_inode_field /{name} flags {flags}");
        run_ok("debugfs", &["-w", "-R", &command, oracle::text(&image)]);
    }
    let kernel = KernelMount::with(&image, "noatime,commit=300");
    full_commit(&kernel);
    fs::remove_file(kernel.join("plain/old")).unwrap();
    store(kernel.join("plain/new"), b"new");
    let bytes = fs::read(&image).unwrap();
    kernel.unmount();
    let area = area(&bytes, 1024);
    let tags = tags(&bytes[area.clone()], 1024);
    let is_name = |tag: &&(u16, Range<usize>)| matches!(tag.0, 3 | 5) && tag.1.len() == 11;
    let kinds: BTreeSet<u16> = tags.iter().filter(is_name).map(|tag| tag.0).collect();
    assert_eq!(
        kinds,
        BTreeSet::from([3, 5]),
        "a name is added, and one is removed"
    );
    for (nth, (kind, value)) in tags.iter().filter(is_name).enumerate() {
        for (ino, (.., reason)) in inos[1..].iter().zip(special) {
            let mut changed = bytes.clone();
            let area = &mut changed[area.clone()];
            area[value.start..value.start + 4].copy_from_slice(&ino.to_le_bytes());
            seal(area, 1024);
            let disk = Disk::from_bytes(changed);
            for read_only in [true, false] {
                let options = MountOptions {
                    read_only,
                    ..volume::options()
                };
                let said = Fs::mount(disk.queue(), options).err();
                let said = said.map_or(String::new(), |error| error.to_string());
                let is_named = said.contains(reason) && said.contains("run e2fsck");
                assert!(is_named, "tag {nth}, kind {kind}: {said}");
            }
        }
    }
}

/// A file is open and has no name when the log ends, so it is an orphan on disk. Fast commits that
/// remove its name again leave it to the orphan recovery, and its number cannot be used again.
#[test]
fn orphans_of_the_log_stay_orphans() {
    let test = "fast_commits, orphans";
    if !have(test, NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for features in ["fast_commit,^orphan_file", "fast_commit,orphan_file"] {
        let image = scratch.join("image");
        let how = Mke2fs::by_default(64 << 20).features(features);
        if let Err(said) = how.make(&image) {
            skipped(test, &said);
            continue;
        }
        let kernel = KernelMount::with(&image, "noatime,commit=300");
        fs::write(kernel.join("open"), [1; 50_000]).unwrap();
        fs::write(kernel.join("old"), b"old").unwrap();
        // Its number is not used again.
        fs::hard_link(kernel.join("old"), kernel.join("kept")).unwrap();
        let open = File::open(kernel.join("open")).unwrap();
        let orphan = (open.metadata().unwrap().ino() as u32).to_le_bytes();
        fs::remove_file(kernel.join("open")).unwrap();
        full_commit(&kernel);
        fs::remove_file(kernel.join("old")).unwrap();
        store(kernel.join("new"), b"new");
        let bytes = fs::read(&image).unwrap();
        drop(open);
        kernel.unmount();
        let area = area(&bytes, 1024);
        let tags = tags(&bytes[area.clone()], 1024);
        let with_orphan_in = |kind: u16, at: usize| {
            let mut changed = bytes.clone();
            let area = &mut changed[area.clone()];
            let (_, value) = tags.iter().find(|tag| tag.0 == kind).expect("a tag");
            area[value.start + at..value.start + at + 4].copy_from_slice(&orphan);
            seal(area, 1024);
            changed
        };
        for (what, bytes) in [("kernel", bytes.clone()), ("UNLINK", with_orphan_in(5, 4))] {
            let what = format!("{features}, {what}");
            fs::write(&image, bytes).unwrap();
            let ours = volume::mount(&image).unwrap_or_else(|e| panic!("{what}: {e}"));
            let info = ours.info();
            assert!(info.recovery.fast_changes > 0, "{what}");
            assert_eq!(info.orphans.deleted, 1, "{what}");
            ours.unmount().unwrap();
            drop(ours);
            assert_clean(&image, &what);
        }
        let disk = Disk::from_bytes(with_orphan_in(6, 0));
        let said = Fs::mount(disk.queue(), volume::options()).err();
        let said = said.map_or(String::new(), |error| error.to_string());
        assert!(said.contains("orphan inode"), "{features}: {said}");
    }
}

/// Fast commits with wrong values and right checksums. Each is refused, or has some effect; nothing
/// panics, and a read-only mount changes nothing.
#[test]
fn hostile_fast_commits_do_not_panic() {
    let test = "fast_commits, hostile";
    if !have(test, NEEDS) {
        return;
    }
    let mut rng = Rng::new(test);
    let scratch = Scratch::new();
    let moments = match moments(&scratch, &["-b", "1024"], &mut rng) {
        Ok(moments) => moments,
        Err(said) => return skipped(test, &said),
    };
    let (mut refused, mut replayed) = (0, 0);
    for moment in &moments {
        let bytes = fs::read(&moment.image).unwrap();
        let area = area(&bytes, 1024);
        let disk = Disk::from_bytes(bytes.clone());
        for _ in 0..12 {
            let mut hostile = bytes[area.clone()].to_vec();
            for _ in 0..1 + rng.index(3) {
                // Most of the values are at the start of a block.
                let block = rng.index(hostile.len() / 1024) * 1024;
                let most = *rng.pick(&[64, 300, 1024]);
                let any = rng.index(256) as u8;
                let at = block + rng.index(most);
                hostile[at] = *rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, any]);
            }
            seal(&mut hostile, 1024);
            for access in [true, false] {
                disk.edit(|all| {
                    all.copy_from_slice(&bytes);
                    all[area.clone()].copy_from_slice(&hostile);
                });
                let options = MountOptions {
                    read_only: access,
                    ..volume::options()
                };
                match Fs::mount(disk.queue(), options) {
                    Ok(ours) => {
                        replayed += u64::from(ours.info().recovery.fast_changes > 0);
                        let _ = Snapshot::of_volume(&ours);
                        let _ = ours.unmount();
                    }
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(
        refused > 0 && replayed > 0,
        "{refused} refused, {replayed} replayed"
    );
}
