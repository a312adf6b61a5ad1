//! The committed blocks that are not home, and the part of the log in use (`crate::checkpoint`).

use crate::transaction::Frozen;
use crate::{LogBlock, Tid};
use block::Buf;
use std::collections::{BTreeMap, HashSet, VecDeque};
use units::FsBlock;

struct Entry {
    frozen: Frozen,
    /// The transaction that committed this content.
    tid: Tid,
}

/// A committed transaction of the log.
struct Logged {
    tid: Tid,
    /// First log block.
    start: LogBlock,
    /// Number of log blocks.
    len: u32,
}

/// The committed blocks that are not home, and the part of the log in use.
pub(crate) struct CheckpointSet {
    entries: BTreeMap<FsBlock, Entry>,
    in_flight: HashSet<FsBlock>,
    /// Oldest first.
    logged: VecDeque<Logged>,
    /// First log block of the next transaction.
    head: LogBlock,
    /// Log blocks in use.
    used: u32,
}

impl CheckpointSet {
    pub fn new(first: LogBlock) -> CheckpointSet {
        CheckpointSet {
            entries: BTreeMap::new(),
            in_flight: HashSet::new(),
            logged: VecDeque::new(),
            head: first,
            used: 0,
        }
    }
    /// Returns the first log block of the next transaction.
    pub fn head(&self) -> LogBlock {
        self.head
    }
    /// Returns the number of log blocks in use.
    pub fn used(&self) -> u32 {
        self.used
    }
    /// Returns whether a block is being written home.
    pub fn in_flight(&self, block: FsBlock) -> bool {
        self.in_flight.contains(&block)
    }
    /// Returns the number of blocks that are not home.
    pub fn blocks(&self) -> usize {
        self.entries.len()
    }
    /// Returns whether at most so many blocks, in at most so many runs of adjacent blocks, are not
    /// home.
    pub fn is_within(&self, blocks: usize, runs: usize) -> bool {
        let mut previous = None;
        let begins_run =
            |block: &&FsBlock| previous.replace(**block).is_none_or(|p| p + 1 != **block);
        self.blocks() <= blocks && self.entries.keys().filter(begins_run).count() <= runs
    }
    /// Returns the last transaction of the log, and the blocks that are not home, sorted.
    pub fn committed(&self) -> Option<(Tid, Vec<FsBlock>)> {
        let last = self.logged.back()?;
        Some((last.tid, self.entries.keys().copied().collect()))
    }
    /// Begins a batch: returns the contents of those blocks of `batch` whose newest content is of
    /// `up_to` or older. They are in flight until [`CheckpointSet::end_batch`].
    pub fn begin_batch(&mut self, batch: &[FsBlock], up_to: Tid) -> Vec<(FsBlock, Buf)> {
        let content = |&block: &FsBlock| {
            let entry = self.entries.get(&block)?;
            let covered = up_to.reached(entry.tid);
            covered.then(|| (block, entry.frozen.data.clone()))
        };
        let contents: Vec<_> = batch.iter().filter_map(content).collect();
        self.in_flight
            .extend(contents.iter().map(|(block, _)| block));
        contents
    }
    /// Ends a batch.
    pub fn end_batch(&mut self) {
        self.in_flight.clear();
    }
    /// Adds a committed transaction. Replaced contents are appended to `replaced`.
    pub fn logged(
        &mut self,
        tid: Tid,
        len: u32,
        next_head: LogBlock,
        blocks: Vec<Frozen>,
        replaced: &mut Vec<Frozen>,
    ) {
        debug_assert!(self.logged.back().is_none_or(|last| last.tid.next() == tid));
        let start = std::mem::replace(&mut self.head, next_head);
        self.logged.push_back(Logged { tid, start, len });
        self.used += len;
        for frozen in blocks {
            let block = frozen.buffer.block();
            if let Some(old) = self.entries.insert(block, Entry { frozen, tid }) {
                replaced.push(old.frozen);
            }
        }
    }
    /// Removes a block that was freed: it must not be written home any more.
    pub fn forget(&mut self, block: FsBlock) -> Option<Frozen> {
        debug_assert!(!self.in_flight(block));
        self.entries.remove(&block).map(|entry| entry.frozen)
    }
    /// Returns the log's start without `up_to` and older transactions: the oldest of the others, or
    /// the head if there is none.
    pub fn start_after(&self, up_to: Tid) -> LogBlock {
        let next = self.logged.iter().find(|t| !up_to.reached(t.tid));
        next.map_or(self.head, |t| t.start)
    }
    /// Removes `up_to` and older transactions from the log, and those of `blocks` whose newest
    /// content they committed. Returns these contents.
    pub fn release(&mut self, up_to: Tid, blocks: &[FsBlock]) -> Vec<Frozen> {
        while let Some(oldest) = self.logged.front()
            && up_to.reached(oldest.tid)
        {
            self.used -= oldest.len;
            self.logged.pop_front();
        }
        let mut released = Vec::new();
        for block in blocks {
            if let Some(entry) = self.entries.get(block)
                && up_to.reached(entry.tid)
                && let Some(entry) = self.entries.remove(block)
            {
                released.push(entry.frozen);
            }
        }
        released
    }
    /// Removes everything, when the journal is dropped.
    pub fn release_all(&mut self) {
        for (_, entry) in std::mem::take(&mut self.entries) {
            entry.frozen.buffer.release(entry.frozen.data);
        }
    }
}
