//! A volume with a journal, on a recorded disk.

use block::Queue;
use cache::Budget;
use jbd2::{AsyncCommit, Journal, JournalExtent, JournalOptions, JournalPlace, LogFormat};
use std::sync::Arc;
use std::time::Duration;
use testkit::disk::Disk;
use testkit::seed::Rng;
use units::{FileBlock, FsBlock};

pub const BLOCK: u32 = 4096;
/// Blocks of a test volume.
pub const VOLUME: u64 = 6144;

/// The extents of the journal of a test volume, out of order.
pub fn extents(blocks: u32) -> Vec<JournalExtent> {
    let (a, b) = (blocks / 3, blocks / 2);
    let c = b + (blocks - b) / 2;
    let extent = |logical, physical, len| JournalExtent {
        logical: FileBlock(logical),
        physical: FsBlock(physical),
        len,
    };
    vec![
        extent(0, 2000, a),
        extent(a, 40, b - a),
        extent(b, 800, c - b),
        extent(c, 3400, blocks - c),
    ]
}

/// The place of the journal of a test volume.
pub fn place(blocks: u32) -> JournalPlace {
    extents(blocks).into()
}

/// The first block after all of [`extents`]; tests use it and those behind it.
pub const FREE: FsBlock = FsBlock(5000);

/// The bytes of a volume of `blocks` blocks with a fresh journal of `log` blocks.
pub fn volume(blocks: u64, log: u32, features: u32) -> Vec<u8> {
    let mut image = vec![0; blocks as usize * BLOCK as usize];
    let sb = jbd2::format::superblock::format_new(log, BLOCK, [7; 16], features);
    let at = extents(log)[0].physical.offset(BLOCK) as usize;
    image[at..at + sb.len()].copy_from_slice(&sb);
    image
}

pub fn options() -> JournalOptions {
    JournalOptions {
        commit_interval: Duration::from_secs(3600),
        block_size: BLOCK,
        format: LogFormat::ChecksumV3,
        async_commit: AsyncCommit::Never,
        uuid: [7; 16],
    }
}

/// Options with commit blocks that are written together with the blocks of the commit.
pub fn async_commit() -> JournalOptions {
    JournalOptions {
        async_commit: AsyncCommit::Always,
        ..options()
    }
}

/// Options with such commit blocks while small commits follow one another.
pub fn adaptive() -> JournalOptions {
    JournalOptions {
        async_commit: AsyncCommit::Adaptive,
        ..options()
    }
}

pub struct Rig {
    pub disk: Disk,
    pub queue: Arc<Queue>,
    pub budget: Arc<Budget>,
    pub journal: Arc<Journal>,
}

/// A recorded disk with these contents.
pub fn recorded(image: Vec<u8>) -> Disk {
    let disk = Disk::from_bytes(image);
    disk.start_recording();
    disk
}

/// A volume with an open journal of `log` blocks.
pub fn rig(log: u32) -> Rig {
    rig_with(volume(VOLUME, log, 0), log, options())
}
pub fn rig_with(image: Vec<u8>, log: u32, options: JournalOptions) -> Rig {
    let disk = recorded(image);
    let queue = disk.queue();
    let budget = Budget::new(64 << 20);
    let journal = Journal::open(queue.clone(), &place(log), budget.clone(), options).unwrap();
    Rig {
        disk,
        queue,
        budget,
        journal,
    }
}

/// Recovers an image; returns its bytes afterwards and the report.
pub fn recovered(image: Vec<u8>, log: u32) -> (Vec<u8>, jbd2::RecoveryReport) {
    let disk = recorded(image);
    let queue = disk.queue();
    let budget = Budget::new(64 << 20);
    let (overlay, in_memory) =
        jbd2::recover_to_memory(&queue, &place(log), BLOCK, &budget).unwrap();
    let report = jbd2::recover(&queue, &place(log), BLOCK, &budget).unwrap();
    assert_eq!(report, in_memory);
    let image = disk.bytes();
    for block in overlay.blocks() {
        let buf = overlay.read(&queue, block).unwrap().unwrap();
        assert_eq!(block_of(&image, block), &buf[..]);
    }
    drop(overlay);
    assert_eq!(budget.used(), 0);
    // The result of recovery is durable, and a second recovery has nothing to do.
    assert_eq!(disk.crash(&mut Rng::from_seed(1)), image);
    let again = jbd2::recover(&queue, &place(log), BLOCK, &budget).unwrap();
    assert_eq!(again, jbd2::RecoveryReport::default());
    (image, report)
}

pub fn block_of(image: &[u8], block: FsBlock) -> &[u8] {
    &image[block.offset(BLOCK) as usize..][..BLOCK as usize]
}
