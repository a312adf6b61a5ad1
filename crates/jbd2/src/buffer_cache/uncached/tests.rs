//! Reads past the cache beside a checkpoint that writes the same block.

use crate::format::superblock::{JournalSuperblock, format_new};
use crate::log::LogMap;
use crate::state::Access;
use crate::{AsyncCommit, Journal, JournalExtent, JournalOptions, LogBlock, LogFormat, Overlay};
use block::{Device, Op, Queue, Request};
use cache::Budget;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use units::{FileBlock, FsBlock};

const BLOCK: u32 = 4096;
/// Blocks of the journal, which is at the start of the volume.
const LOG: u32 = 1024;
const VOLUME: u64 = 2048;
/// A block behind the journal.
const HOME: FsBlock = FsBlock(1500);

/// Called between the two halves of a read.
type Between = Box<dyn FnOnce() + Send>;

/// A device in memory that reads one half of a request after the other.
struct Halves {
    bytes: Mutex<Vec<u8>>,
    between: Arc<Mutex<Option<Between>>>,
}

impl Halves {
    fn read(&self, request: &mut Request, first: bool) {
        let (start, middle) = (request.offset, request.offset + request.len / 2);
        let bytes = self.bytes.lock().unwrap();
        let read = |at: u64, to: &mut [u8]| {
            for (at, byte) in (at..).zip(to) {
                if (at < middle) == first {
                    *byte = bytes[at as usize];
                }
            }
        };
        debug_assert!(start < middle);
        request.copy(read, |_, _| ());
    }
}

impl Device for Halves {
    fn name(&self) -> &str {
        "halves"
    }
    fn capacity(&self) -> u64 {
        VOLUME * u64::from(BLOCK)
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        batch.into_iter().for_each(|request| self.execute(request));
    }
    fn execute(&self, mut request: Request) {
        match request.op {
            Op::Flush => {}
            Op::Write => {
                let bytes = &self.bytes;
                request.copy(
                    |_, _| (),
                    |at, buf| {
                        let at = at as usize;
                        bytes.lock().unwrap()[at..at + buf.len()].copy_from_slice(buf);
                    },
                );
            }
            Op::Read => {
                self.read(&mut request, true);
                let between = self.between.lock().unwrap().take();
                if let Some(between) = between {
                    between();
                }
                self.read(&mut request, false);
            }
        }
        request.complete(Ok(()));
    }
}

struct Rig {
    journal: Arc<Journal>,
    budget: Arc<Budget>,
    between: Arc<Mutex<Option<Between>>>,
}

/// A journal without threads.
fn rig() -> Rig {
    let mut bytes = vec![0; VOLUME as usize * BLOCK as usize];
    let sb = format_new(LOG, BLOCK, [7; 16], 0);
    bytes[..sb.len()].copy_from_slice(&sb);
    let between: Arc<Mutex<Option<Between>>> = Arc::default();
    let queue = Queue::new(Box::new(Halves {
        bytes: Mutex::new(bytes),
        between: between.clone(),
    }));
    let extents = [JournalExtent {
        logical: FileBlock::FIRST,
        physical: FsBlock(0),
        len: LOG,
    }];
    let log = LogMap::new(&extents.to_vec().into(), BLOCK, &queue).unwrap();
    let first = log.read(&queue, LogBlock::SUPERBLOCK, 1).unwrap();
    let mut sb = JournalSuperblock::parse(&first[0], BLOCK, log.blocks()).unwrap();
    sb.upgrade(LogFormat::ChecksumV3, VOLUME, &[7; 16]);
    let budget = Budget::new(64 << 20);
    let options = JournalOptions {
        commit_interval: Duration::from_secs(3600),
        block_size: BLOCK,
        format: LogFormat::ChecksumV3,
        async_commit: AsyncCommit::Never,
        uuid: [7; 16],
    };
    let journal = Journal::new(
        queue,
        log,
        sb,
        budget.clone(),
        options,
        Overlay::new(),
        Access::ReadWrite,
    );
    Rig {
        journal,
        budget,
        between,
    }
}

/// Commits a transaction that fills a block with a byte.
fn commit(journal: &Journal, block: FsBlock, byte: u8) {
    let handle = journal.start(2).unwrap();
    let buffer = handle.get(block).unwrap();
    handle.modify(&buffer, None, |bytes| bytes.fill(byte));
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
}

impl Rig {
    /// The byte with which each block is filled.
    fn read(&self, blocks: &[FsBlock]) -> Vec<u8> {
        let read = self.journal.read_uncached(blocks);
        read.into_iter()
            .map(|content| {
                let content = content.unwrap();
                assert!(content.iter().all(|byte| *byte == content[0]), "a mix");
                content[0]
            })
            .collect()
    }
    fn on_next_read(&self, between: impl FnOnce() + Send + 'static) {
        *self.between.lock().unwrap() = Some(Box::new(between));
    }
    fn cached(&self, block: FsBlock) -> bool {
        self.journal.cache.lookup(block).is_some()
    }
}

#[test]
fn the_newest_content_is_that_of_the_buffer_and_then_that_of_the_device() {
    let rig = rig();
    let blocks = [0, 1, 2, 3, 4, 90, 400].map(|block| HOME + block);
    for (&block, byte) in blocks.iter().zip(1..) {
        commit(&rig.journal, block, byte);
    }
    assert_eq!(rig.read(&blocks), [1, 2, 3, 4, 5, 6, 7], "not home");
    rig.journal.checkpoint_all().unwrap();
    commit(&rig.journal, blocks[2], 33);
    rig.budget.drop_caches();
    assert!(rig.cached(blocks[2]) && !rig.cached(blocks[0]));
    assert_eq!(rig.read(&blocks), [1, 2, 33, 4, 5, 6, 7]);
    assert!(!rig.cached(blocks[0]), "a read past the cache fills it");
}

#[test]
fn a_block_that_is_changed_during_its_read_is_read_again() {
    let rig = rig();
    commit(&rig.journal, HOME, 1);
    rig.journal.checkpoint_all().unwrap();
    rig.budget.drop_caches();
    assert!(!rig.cached(HOME));
    let (journal, budget) = (rig.journal.clone(), rig.budget.clone());
    rig.on_next_read(move || {
        commit(&journal, HOME, 2);
        journal.checkpoint_all().unwrap();
        budget.drop_caches();
        assert!(journal.cache.lookup(HOME).is_none());
    });
    assert_eq!(rig.read(&[HOME]), [2]);
}

#[test]
fn a_block_whose_buffer_appears_during_its_read_is_that_of_the_buffer() {
    let rig = rig();
    let journal = rig.journal.clone();
    rig.on_next_read(move || {
        commit(&journal, HOME, 2);
        journal.checkpoint_all().unwrap();
    });
    assert_eq!(rig.read(&[HOME]), [2]);
}
