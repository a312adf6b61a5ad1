//! Volumes whose clusters have several blocks.

use ext4::{Error, FallocateMode, Fs, InodeRef, SyncKind};
use testkit::disk::Disk;
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;
use testkit::seed::Rng;
use testkit::volume::{Image, at, contents, fallocate, put, quiet, write_all};

const BLOCK: u64 = 4096;
/// Blocks of a cluster.
const RATIO: u64 = 16;

fn image(mib: u64, args: &[&str]) -> Option<Image> {
    let needs = [Need::Tool("mke2fs"), Need::Tool("e2fsck")];
    have("bigalloc", &needs).then(|| {
        let build =
            Mke2fs::by_default(mib << 20).args(&["-O", "bigalloc", "-b", "4096", "-C", "65536"]);
        Image::by_mke2fs(&build.args(args))
    })
}

/// Sectors of a file by its inode, as clusters.
fn clusters(file: &InodeRef) -> u64 {
    let sectors = file.attr().blocks;
    assert_eq!(sectors % (RATIO * 8), 0);
    sectors / (RATIO * 8)
}

fn write_block(fs: &Fs, file: &InodeRef, block: u64, byte: u8) {
    write_all(fs, file, block * BLOCK, &[byte; BLOCK as usize]).unwrap();
}

fn land(fs: &Fs, file: &InodeRef) {
    fs.fsync(file, SyncKind::Fsync).unwrap();
}

/// Pages of one cluster that are written in any order, in any number of batches, share it. The
/// extents fit into the inode, so no cluster is taken for a node.
#[test]
fn blocks_of_a_cluster_share_it() {
    let Some(image) = image(64, &[]) else { return };
    let fs = image.mount_with(quiet());
    let file = put(&fs, "file", b"").unwrap();
    let free = fs.statfs().free;
    for (nth, block) in [5, 3, 20, 4, 2, 19].into_iter().enumerate() {
        write_block(&fs, &file, block, block as u8);
        if nth % 2 == 1 {
            land(&fs, &file);
        }
        let used = (free - fs.statfs().free) / RATIO;
        assert_eq!(used, if nth < 2 { 1 } else { 2 }, "after block {block}");
    }
    land(&fs, &file);
    assert_eq!(clusters(&file), 2);
    drop(file);
    image.unmount(fs);
    image.check();
}

#[test]
fn a_cluster_is_free_when_its_last_block_is_unmapped() {
    let Some(image) = image(64, &[]) else { return };
    let fs = image.mount_with(quiet());
    let file = put(&fs, "file", b"").unwrap();
    let free = fs.statfs().free;
    for block in [0, 2, 14, 17] {
        write_block(&fs, &file, block, 1);
    }
    land(&fs, &file);
    assert_eq!(clusters(&file), 2);
    let punch = |from: u64, to: u64| {
        let (offset, len) = (from * BLOCK, (to - from) * BLOCK);
        fallocate(&fs, &file, FallocateMode::PunchHole, offset, len).unwrap();
    };
    for (range, left) in [((0, 1), 2), ((14, 18), 1), ((4, 14), 1), ((2, 3), 0)] {
        punch(range.0, range.1);
        assert_eq!(clusters(&file), left, "after {range:?}");
        land(&fs, &file);
    }
    fs.sync().unwrap();
    assert_eq!(fs.statfs().free, free);
    drop(file);
    image.unmount(fs);
    image.check();
}

/// Pages that wait in a cluster whose mapped blocks are removed keep their space.
#[test]
fn pages_that_wait_beside_removed_blocks_keep_their_space() {
    let Some(image) = image(64, &[]) else { return };
    let fs = image.mount_with(quiet());
    for (nth, truncates) in [true, false].into_iter().enumerate() {
        let name = format!("file{nth}");
        let file = put(&fs, &name, b"").unwrap();
        let free = fs.statfs().free;
        write_block(&fs, &file, 9, 9);
        land(&fs, &file);
        write_block(&fs, &file, 2, 2);
        match truncates {
            true => fs.truncate(&file, 5 * BLOCK).unwrap(),
            false => {
                let (offset, len) = (8 * BLOCK, 100 * BLOCK);
                fallocate(&fs, &file, FallocateMode::PunchHole, offset, len).unwrap();
            }
        }
        assert_eq!(free - fs.statfs().free, RATIO);
        land(&fs, &file);
        assert_eq!(clusters(&file), 1);
        let bytes = contents(&fs, &file).unwrap();
        assert_eq!(bytes[2 * BLOCK as usize..3 * BLOCK as usize], [2; 4096]);
        assert!(bytes[3 * BLOCK as usize..].iter().all(|byte| *byte == 0));
    }
    fs.sync().unwrap();
    image.unmount(fs);
    image.check();
}

/// The space is promised by clusters: a full volume takes no new cluster, but all other blocks of
/// the clusters that are promised, and every accepted byte is stored.
#[test]
fn a_full_volume_has_space_in_promised_clusters() {
    let Some(image) = image(64, &[]) else { return };
    for lands in [false, true] {
        let fs = image.mount_with(quiet());
        let free = fs.statfs().free / RATIO;
        let mut files = 0;
        let full = loop {
            match put(&fs, &format!("{lands}{files}"), &[1; BLOCK as usize]) {
                Ok(_) => files += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full}");
        // All but the margin, and a few clusters of the directory.
        assert!(
            (free - 30..free).contains(&files),
            "{files} files, {free} clusters"
        );
        if lands {
            fs.sync().unwrap();
        }
        for nth in (0..files).rev() {
            let file = at(&fs, &format!("{lands}{nth}")).unwrap();
            for block in [RATIO - 1, 1, 7] {
                write_block(&fs, &file, block, 3);
            }
            if nth % 7 == 0 {
                let behind = write_all(&fs, &file, RATIO * BLOCK, b"more");
                assert!(matches!(behind, Err(Error::NoSpace)), "{nth}");
            }
        }
        fs.sync().unwrap();
        for nth in 0..files {
            let file = at(&fs, &format!("{lands}{nth}")).unwrap();
            assert_eq!(clusters(&file), 1);
            let bytes = contents(&fs, &file).unwrap();
            assert_eq!(bytes[..4096], [1; 4096]);
            assert_eq!(bytes[15 * 4096..], [3; 4096]);
        }
        image.unmount(fs);
        image.check();
        let fs = image.mount_with(quiet());
        for nth in 0..files {
            testkit::volume::remove(&fs, &format!("{lands}{nth}")).unwrap();
        }
        image.unmount(fs);
    }
}

/// Old bytes of a block that is unmapped and mapped again do not come back: not by a checkpoint of
/// the log, nor after a crash.
#[test]
fn blocks_that_are_reused_in_their_cluster_keep_the_new_bytes() {
    let needs = [Need::Tool("mke2fs"), Need::Tool("e2fsck")];
    if !have("bigalloc, blocks that are reused", &needs) {
        return;
    }
    let mut rng = Rng::new("bigalloc, blocks that are reused");
    let build = Mke2fs::by_default(32 << 20).args(&["-O", "bigalloc", "-b", "4096", "-C", "65536"]);
    let disk = Disk::by_mke2fs(&build);
    let mut fs = Fs::mount(disk.queue(), quiet()).unwrap();
    let file = put(&fs, "file", &rng.bytes(8 * BLOCK as usize)).unwrap();
    land(&fs, &file);
    drop(file);
    for round in 0..40u8 {
        let file = at(&fs, "file").unwrap();
        let block = 1 + rng.below(6);
        // Small fsyncs go through the log.
        write_block(&fs, &file, block, 1);
        land(&fs, &file);
        let (offset, len) = (block * BLOCK, BLOCK);
        fallocate(&fs, &file, FallocateMode::PunchHole, offset, len).unwrap();
        write_block(&fs, &file, block, 100 + round);
        match rng.one_in(2) {
            true => land(&fs, &file),
            false => fs.sync().unwrap(),
        }
        drop(file);
        if rng.one_in(2) {
            fs.crash();
        } else {
            fs.unmount().unwrap();
        }
        drop(fs);
        fs = Fs::mount(disk.queue(), quiet()).unwrap();
        let bytes = contents(&fs, &at(&fs, "file").unwrap()).unwrap();
        let offset = offset as usize;
        assert_eq!(
            bytes[offset..][..4096],
            [100 + round; 4096],
            "round {round}"
        );
    }
    fs.unmount().unwrap();
}

#[test]
fn free_clusters_are_discarded() {
    let Some(image) = image(512, &[]) else { return };
    let fs = image.mount_with(quiet());
    let bytes = vec![7; 300_000];
    let file = put(&fs, "file", &bytes).unwrap();
    land(&fs, &file);
    let (from, len) = (BLOCK, 1 << 30);
    let trimmed = fs.trim(from, len, 1).unwrap();
    assert!(trimmed > 400 << 20, "{trimmed}");
    assert_eq!(trimmed % (RATIO * BLOCK), 0);
    fs.drop_caches();
    assert_eq!(contents(&fs, &file).unwrap(), bytes);
    drop(file);
    image.unmount(fs);
    image.check();
}
