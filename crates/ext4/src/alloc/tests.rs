//! The allocator on real volumes: compared with a model, used by several threads, checked by
//! e2fsck.

use super::*;
use crate::volume::bootstrap;
use block::{Create, DeviceUrl, OpenMode, Queue};
use cache::Budget;
use ext4_format::inode::FileType;
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use jbd2::{FreedExtent, Handle, JournalClient, JournalError, JournalOptions, Phase, Tid};
use mkfs::MkfsOptions;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Weak;
use std::time::Duration;
use sync::Mutex;
use testkit::needs::{Need, have, have_e2fsprogs, skipped};
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use testkit::seed::Rng;

/// A volume with a journal and the allocator only.
struct Volume {
    groups: Groups,
    journal: Arc<Journal>,
    geo: Geometry,
    superblock: Mutex<Superblock>,
}

impl JournalClient for Volume {
    fn write_back_state(&self, handle: &Handle<'_>, _phase: Phase) {
        self.groups.write_back_state(handle).unwrap();
        let block = SUPERBLOCK_OFFSET / u64::from(self.geo.block_size);
        let buffer = handle.get(FsBlock(block)).unwrap();
        let counts = self.groups.counts();
        let mut sb = self.superblock.lock();
        sb.set_free_blocks_count(counts.free_blocks);
        sb.set_free_inodes_count(counts.free_inodes as u32);
        sb.update_checksum();
        let at = SUPERBLOCK_OFFSET as usize % self.geo.block_size as usize;
        handle.modify(&buffer, None, |bytes| {
            bytes[at..at + SUPERBLOCK_SIZE].copy_from_slice(sb.as_bytes());
        });
    }
    fn pending_blocks(&self) -> u32 {
        self.groups.pending_blocks() + 1
    }
    fn committed(&self, _tid: Tid, freed: &[FreedExtent]) {
        self.groups.released(freed);
    }
    fn aborted(&self, error: &JournalError) {
        panic!("{error}");
    }
}

impl Volume {
    fn open(queue: &Arc<Queue>) -> Arc<Volume> {
        let superblock = bootstrap::read_superblock(queue).unwrap();
        let geo = Geometry::from_superblock(&superblock).unwrap();
        let extents = bootstrap::journal_extents(queue, &geo, Ino::JOURNAL).unwrap();
        let options = JournalOptions {
            commit_interval: Duration::from_secs(3600),
            block_size: geo.block_size,
            format: jbd2::LogFormat::ChecksumV3,
            async_commit: jbd2::AsyncCommit::Never,
            uuid: geo.uuid,
        };
        let budget = Budget::new(256 << 20);
        let journal =
            Journal::open(queue.clone(), &extents.into(), budget.clone(), options).unwrap();
        let live = LiveGeometry::new(geo.clone()).into();
        let volume = Arc::new(Volume {
            groups: Groups::load(journal.clone(), &budget, &live, &[]).unwrap(),
            journal: journal.clone(),
            superblock: Mutex::new(superblock),
            geo,
        });
        let client: Weak<dyn JournalClient> = Arc::downgrade(&volume) as Weak<dyn JournalClient>;
        journal.set_client(client);
        volume
    }

    fn commit(&self) {
        self.journal.commit(self.journal.running_tid()).unwrap();
    }

    fn record(&self, run: BlockRun) {
        let promised = self
            .groups
            .space
            .reserve(run.len.into(), super::Claim::Margin);
        promised.unwrap();
        let handle = self.journal.start(8).unwrap();
        self.groups.record(&handle, run).unwrap();
    }

    fn free(&self, run: BlockRun) -> Result<()> {
        let handle = self.journal.start(8).unwrap();
        self.groups.free(&handle, run)
    }
}

fn memory(url: &str, features: &str) -> Arc<Queue> {
    let queue = block::open(&DeviceUrl::parse(url).unwrap(), OpenMode::ReadWrite).unwrap();
    format(&queue, features);
    queue
}

fn format(queue: &Queue, features: &str) {
    let options = MkfsOptions {
        features: vec![features.to_owned()],
        ..MkfsOptions::default()
    };
    mkfs::format(queue, &options).unwrap();
}

fn image(path: &Path, size: u64, features: &str) -> Arc<Queue> {
    block::create_image(path, size, Create::Overwrite).unwrap();
    let queue = block::open(&DeviceUrl::Path(path.to_owned()), OpenMode::ReadWrite).unwrap();
    format(&queue, features);
    queue
}

/// Applies random operations to a volume and to sets of blocks, and compares them. After a new
/// mount the bitmaps hold exactly the recorded blocks. When all blocks and inodes are freed again,
/// the counts are the first ones and e2fsck finds the volume clean.
fn compare_with_model(seed: u64, size: u64, features: &str) {
    let scratch = Scratch::new();
    let path = scratch.join("image");
    let queue = image(&path, size, features);
    let mut rng = Rng::from_seed(seed);
    let mut recorded: HashMap<u64, u32> = HashMap::new();
    let mut inodes: HashMap<Ino, FileType> = HashMap::new();
    let first_counts = Volume::open(&queue).groups.counts();
    for _round in 0..3 {
        let volume = Volume::open(&queue);
        let mut picked: Vec<BlockRun> = Vec::new();
        let mut in_use: HashSet<u64> = recorded
            .iter()
            .flat_map(|(s, l)| *s..s + u64::from(*l))
            .collect();
        let mut freed: HashSet<u64> = HashSet::new();
        for _step in 0..1500 {
            match rng.below(100) {
                0..40 => {
                    let goal = FsBlock(rng.below(volume.geo.blocks_count + 10));
                    let most = 1 << rng.below(11);
                    let want = 1 + rng.below(most) as u32;
                    let Ok(run) = volume.groups.pick(goal, want) else {
                        continue;
                    };
                    assert!((1..=want).contains(&run.len));
                    assert!(!volume.groups.is_system(run));
                    for block in run.start.0..run.start.0 + u64::from(run.len) {
                        assert!(block < volume.geo.blocks_count);
                        assert!(in_use.insert(block), "block {block} was picked twice");
                        assert!(!freed.contains(&block), "block {block} was not released");
                    }
                    picked.push(run);
                }
                40..65 if !picked.is_empty() => {
                    let run = picked.swap_remove(rng.index(picked.len()));
                    volume.record(run);
                    recorded.insert(run.start.0, run.len);
                }
                65..75 if !picked.is_empty() => {
                    let run = picked.swap_remove(rng.index(picked.len()));
                    volume.groups.unpick(run);
                    (run.start.0..run.start.0 + u64::from(run.len)).for_each(|b| {
                        in_use.remove(&b);
                    });
                }
                75..88 if !recorded.is_empty() => {
                    let (start, len) = recorded.iter().next().map(|(s, l)| (*s, *l)).unwrap();
                    recorded.remove(&start);
                    let run = BlockRun {
                        start: FsBlock(start),
                        len,
                    };
                    volume.free(run).unwrap();
                    assert!(volume.free(run).is_err(), "a double free is not detected");
                    for block in start..start + u64::from(len) {
                        in_use.remove(&block);
                        freed.insert(block);
                    }
                }
                88..90 => {
                    volume.commit();
                    freed.clear();
                }
                90..96 => {
                    let handle = volume.journal.start(8).unwrap();
                    let kind = match rng.below(4) {
                        0 => FileType::Directory,
                        _ => FileType::Regular,
                    };
                    let ino = volume.groups.alloc_inode(&handle, Ino::ROOT, kind).unwrap();
                    assert!(ino >= volume.geo.first_ino);
                    assert!(inodes.insert(ino, kind).is_none());
                    assert!(volume.groups.inode_in_use(ino).unwrap());
                }
                96.. if !inodes.is_empty() => {
                    let (ino, kind) = inodes.iter().next().map(|(i, k)| (*i, *k)).unwrap();
                    inodes.remove(&ino);
                    let handle = volume.journal.start(8).unwrap();
                    volume.groups.free_inode(&handle, ino, kind).unwrap();
                    assert!(volume.groups.free_inode(&handle, ino, kind).is_err());
                }
                _ => {}
            }
        }
        let counts = volume.groups.counts();
        let blocks: u64 = recorded.values().map(|len| u64::from(*len)).sum();
        assert_eq!(counts.free_blocks, first_counts.free_blocks - blocks);
        assert_eq!(
            counts.free_inodes,
            first_counts.free_inodes - inodes.len() as u64
        );
        volume.journal.close().unwrap();
    }
    // After a new mount, checksums are right and exactly the recorded blocks are in use.
    let volume = Volume::open(&queue);
    let is_directory = |kind: &&FileType| **kind == FileType::Directory;
    assert_eq!(
        volume.groups.counts().dirs,
        first_counts.dirs + inodes.values().filter(is_directory).count() as u64
    );
    for (ino, kind) in inodes {
        let handle = volume.journal.start(8).unwrap();
        volume.groups.free_inode(&handle, ino, kind).unwrap();
    }
    for (start, len) in recorded {
        volume
            .free(BlockRun {
                start: FsBlock(start),
                len,
            })
            .unwrap();
    }
    assert_eq!(volume.groups.counts(), first_counts);
    volume.journal.close().unwrap();
    drop(volume);
    drop(queue);
    if have("the allocator", &[Need::Tool("e2fsck")]) {
        assert_clean(&path, "when all is freed");
    }
}

#[test]
fn one_group_agrees_with_the_model() {
    compare_with_model(1, 100 << 20, "");
}

#[test]
fn several_groups_agree_with_the_model() {
    compare_with_model(2, 600 << 20, "");
}

#[test]
fn groups_without_flex_bg_agree_with_the_model() {
    compare_with_model(3, 600 << 20, "^flex_bg");
}

#[test]
fn groups_without_checksums_agree_with_the_model() {
    compare_with_model(4, 400 << 20, "^metadata_csum,^64bit");
}

#[test]
fn groups_with_uninit_bg_agree_with_the_model() {
    compare_with_model(5, 600 << 20, "^metadata_csum,uninit_bg,^flex_bg");
}

#[test]
fn all_free_blocks_can_be_picked() {
    let queue = memory("mem:300MiB", "");
    let volume = Volume::open(&queue);
    let free = volume.groups.counts().free_blocks;
    let mut runs = Vec::new();
    while let Ok(run) = volume.groups.pick(FsBlock(0), 5000) {
        runs.push(run);
    }
    assert_eq!(runs.iter().map(|run| u64::from(run.len)).sum::<u64>(), free);
    assert!(matches!(
        volume.groups.pick(FsBlock(7), 1),
        Err(Error::NoSpace)
    ));
    for run in &runs {
        volume.record(*run);
    }
    assert_eq!(volume.groups.counts().free_blocks, 0);
    assert!(volume.groups.reserve(1).is_err());
    // Freed blocks are available after the commit, not before.
    volume.free(runs[0]).unwrap();
    assert!(volume.groups.pick(FsBlock(0), 1).is_err());
    volume.commit();
    let run = volume.groups.pick(FsBlock(0), 5000).unwrap();
    assert_eq!(run, runs[0]);
    volume.groups.unpick(run);
    volume.groups.unpick(run);
    assert_eq!(volume.groups.pick(FsBlock(0), 5000).unwrap(), run);
    volume.journal.close().unwrap();
}

#[test]
fn a_large_file_gets_long_extents() {
    let queue = memory("mem:4GiB", "");
    let volume = Volume::open(&queue);
    let mut goal = volume.groups.goal_for(Ino(12));
    let (mut left, mut extents) = (1u32 << 18, 0);
    while left > 0 {
        // 4 MiB, the size of a request by writeback.
        let run = volume.groups.pick(goal, left.min(1024)).unwrap();
        if run.start != goal || extents == 0 {
            extents += 1;
        }
        left -= run.len;
        goal = FsBlock(run.start.0 + u64::from(run.len));
    }
    assert!(extents <= 8, "{extents} runs");
}

#[test]
fn small_files_are_adjacent() {
    let queue = memory("mem:1GiB", "");
    let volume = Volume::open(&queue);
    let mut goal = volume.groups.goal_for(Ino(12));
    let mut runs = Vec::new();
    for nth in 0..1000 {
        let run = volume.groups.pick(goal, 1 + nth % 16).unwrap();
        assert_eq!(run.len, 1 + nth % 16);
        goal = FsBlock(run.start.0 + u64::from(run.len));
        runs.push(run);
    }
    let breaks = runs
        .windows(2)
        .filter(|w| w[0].start.0 + u64::from(w[0].len) != w[1].start.0)
        .count();
    assert!(breaks <= 1, "{breaks}");
}

#[test]
fn threads_never_share_blocks_or_inodes() {
    let queue = memory("mem:700MiB", "");
    let volume = Volume::open(&queue);
    let taken = Mutex::new((HashSet::new(), HashSet::new()));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (volume, taken) = (&volume, &taken);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(thread);
                let parent = {
                    let handle = volume.journal.start(8).unwrap();
                    volume
                        .groups
                        .alloc_inode(&handle, Ino::ROOT, FileType::Directory)
                        .unwrap()
                };
                let mut goal = volume.groups.goal_for(Ino(12));
                let mut mine = Vec::new();
                let mut inos = Vec::new();
                for step in 0..3000 {
                    let run = volume.groups.pick(goal, 1 + rng.below(16) as u32).unwrap();
                    goal = FsBlock(run.start.0 + u64::from(run.len));
                    if rng.below(8) == 0 {
                        volume.groups.unpick(run);
                        continue;
                    }
                    volume.record(run);
                    mine.push(run);
                    let handle = volume.journal.start(8).unwrap();
                    inos.push(
                        volume
                            .groups
                            .alloc_inode(&handle, parent, FileType::Regular)
                            .unwrap(),
                    );
                    drop(handle);
                    if step % 500 == 0 {
                        volume.commit();
                    }
                }
                let mut taken = taken.lock();
                for run in mine {
                    for block in run.start.0..run.start.0 + u64::from(run.len) {
                        assert!(taken.0.insert(block));
                    }
                }
                for ino in inos {
                    assert!(taken.1.insert(ino));
                }
            });
        }
    });
    volume.journal.close().unwrap();
    // The bitmaps on the device agree.
    let counts = volume.groups.counts();
    drop(volume);
    let again = Volume::open(&queue);
    assert_eq!(again.groups.counts(), counts);
    let taken = taken.lock();
    for ino in &taken.1 {
        assert!(again.groups.inode_in_use(*ino).unwrap());
    }
    let fresh = again.groups.pick(FsBlock(0), 1).unwrap();
    assert!(!taken.0.contains(&fresh.start.0));
}

#[test]
fn directories_spread_over_groups_and_files_stay_near_them() {
    let queue = memory("mem:2GiB", "");
    let volume = Volume::open(&queue);
    let handle = volume.journal.start(60).unwrap();
    let group_of = |ino: Ino| volume.geo.inode_group(ino).unwrap().0;
    let dirs: Vec<Ino> = (0..8)
        .map(|_| {
            volume
                .groups
                .alloc_inode(&handle, Ino::ROOT, FileType::Directory)
                .unwrap()
        })
        .collect();
    let distinct: HashSet<u32> = dirs.iter().map(|dir| group_of(*dir).0).collect();
    assert_eq!(distinct.len(), 8);
    for dir in &dirs {
        let file = volume
            .groups
            .alloc_inode(&handle, *dir, FileType::Regular)
            .unwrap();
        assert_eq!(group_of(file), group_of(*dir));
        let sub = volume
            .groups
            .alloc_inode(&handle, *dir, FileType::Directory)
            .unwrap();
        assert!(
            volume
                .groups
                .region_of(group_of(*dir))
                .contains(&group_of(sub).0)
        );
    }
}

#[test]
fn all_inodes_can_be_allocated() {
    let queue = memory("mem:64MiB", "");
    let volume = Volume::open(&queue);
    let free = volume.groups.counts().free_inodes;
    let mut last = None;
    for _ in 0..free {
        let handle = volume.journal.start(8).unwrap();
        last = Some(
            volume
                .groups
                .alloc_inode(&handle, Ino::ROOT, FileType::Regular)
                .unwrap(),
        );
    }
    let handle = volume.journal.start(8).unwrap();
    assert!(matches!(
        volume
            .groups
            .alloc_inode(&handle, Ino::ROOT, FileType::Regular),
        Err(Error::NoSpace)
    ));
    volume
        .groups
        .free_inode(&handle, last.unwrap(), FileType::Regular)
        .unwrap();
    assert_eq!(
        volume
            .groups
            .alloc_inode(&handle, Ino::ROOT, FileType::Regular)
            .unwrap(),
        last.unwrap()
    );
    drop(handle);
    volume.journal.close().unwrap();
}

#[test]
fn an_inode_table_block_is_fresh_only_once() {
    let queue = memory("mem:64MiB", "");
    let volume = Volume::open(&queue);
    let per_block = volume.geo.inodes_per_block();
    let mut fresh = 0;
    for _ in 0..per_block * 3 {
        let handle = volume.journal.start(8).unwrap();
        let ino = volume
            .groups
            .alloc_inode(&handle, Ino::ROOT, FileType::Regular)
            .unwrap();
        let (block, _) = volume.groups.inode_location(ino).unwrap();
        fresh += u32::from(volume.groups.itable_block_is_fresh(block));
    }
    assert_eq!(fresh, 3);
    volume.commit();
    let (first, _) = volume.groups.inode_location(Ino(1)).unwrap();
    assert!(!volume.groups.itable_block_is_fresh(first));
    assert!(!volume.groups.itable_block_is_fresh(FsBlock(0)));
    assert!(!volume.groups.itable_block_is_fresh(FsBlock(u64::MAX)));
}

#[test]
fn system_blocks_are_never_freed() {
    let queue = memory("mem:300MiB", "");
    let volume = Volume::open(&queue);
    for start in [0, 1, 40, 32768, volume.geo.blocks_count, u64::MAX] {
        let run = BlockRun {
            start: FsBlock(start),
            len: 1,
        };
        assert!(volume.free(run).is_err(), "{start}");
    }
    let run = BlockRun {
        start: FsBlock(1),
        len: u32::MAX,
    };
    assert!(volume.free(run).is_err());
    let handle = volume.journal.start(8).unwrap();
    for ino in [0, 1, 2, 8, 10, u32::MAX] {
        assert!(
            volume
                .groups
                .free_inode(&handle, Ino(ino), FileType::Regular)
                .is_err(),
            "{ino}"
        );
    }
}

#[test]
fn nothing_is_allocated_from_a_group_with_a_damaged_bitmap() {
    let queue = memory("mem:1GiB", "");
    let (block, geo) = {
        let volume = Volume::open(&queue);
        // Group 0 always has an initialised block bitmap.
        let first = volume.groups.group(GroupNo(0)).unwrap();
        (first.desc.block_bitmap.0, volume.geo.clone())
    };
    let size = geo.block_size as usize;
    let zeroes = block::BufMut::zeroed(size).freeze();
    queue
        .write(
            block * size as u64,
            &[zeroes],
            block::Class::Metadata,
            block::Reason::Other,
            block::Durability::Cached,
        )
        .unwrap();
    let volume = Volume::open(&queue);
    let run = volume.groups.pick(FsBlock(0), 10).unwrap();
    assert_ne!(geo.group_of_block(run.start).unwrap(), GroupNo(0));
    let error = volume
        .free(BlockRun {
            start: FsBlock(20_000),
            len: 1,
        })
        .unwrap_err();
    assert!(error.to_string().contains("block bitmap"), "{error}");
    assert!(matches!(error, Error::Corrupt(_)));
}

/// All blocks of images that mke2fs made can be allocated and freed. Without mke2fs the test
/// passes.
#[test]
fn images_by_mke2fs_work() {
    if !have_e2fsprogs("images by mke2fs") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("image");
    for features in [
        "^64bit",
        "^metadata_csum",
        "^metadata_csum,uninit_bg",
        "^flex_bg",
        "metadata_csum_seed,orphan_file",
    ] {
        let mke2fs = Mke2fs::new(600 << 20).features(features);
        if let Err(said) = mke2fs.make(&path) {
            return skipped("images by mke2fs", &said);
        }
        let queue = block::open(&DeviceUrl::Path(path.clone()), OpenMode::ReadWrite).unwrap();
        let volume = Volume::open(&queue);
        let free = volume.groups.counts().free_blocks;
        let mut taken = 0;
        let mut runs = Vec::new();
        while let Ok(run) = volume.groups.pick(FsBlock(0), 32768) {
            taken += u64::from(run.len);
            runs.push(run);
        }
        assert_eq!(taken, free, "{features}");
        for run in &runs {
            volume.record(*run);
        }
        volume.commit();
        for run in runs {
            volume.free(run).unwrap();
        }
        volume.journal.close().unwrap();
        drop(volume);
        drop(queue);
        assert_clean(&path, features);
    }
}
