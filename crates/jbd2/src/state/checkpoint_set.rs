//! The committed blocks that are not home, and the part of the log in use (`crate::checkpoint`).

use crate::transaction::Frozen;
use crate::{LogBlock, Tid};
use block::Buf;
use rustc_hash::FxHashMap;
use std::collections::{HashSet, VecDeque};
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
    /// The homes of its blocks.
    homes: Vec<FsBlock>,
}

/// The oldest transactions of the log: those that a checkpoint covers.
pub(crate) struct Part {
    /// The last of the transactions.
    pub up_to: Tid,
    /// The homes of their blocks, sorted, each once. A later transaction may have committed newer
    /// content of a block, or have freed it.
    pub blocks: Vec<FsBlock>,
    /// The block that is written when these are durable, if the transactions have it.
    pub last: Option<FsBlock>,
}

/// Blocks that are written home at once.
pub(crate) struct Batch {
    /// The blocks, sorted, and their contents.
    pub contents: Vec<(FsBlock, Buf)>,
    /// Runs of adjacent blocks.
    pub runs: usize,
}

/// The most that a batch has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    pub blocks: usize,
    /// Runs of adjacent blocks.
    pub runs: usize,
}

/// The committed blocks that are not home, and the part of the log in use.
pub(crate) struct CheckpointSet {
    entries: FxHashMap<FsBlock, Entry>,
    in_flight: HashSet<FsBlock>,
    /// Oldest first.
    logged: VecDeque<Logged>,
    /// First log block of the next transaction.
    head: LogBlock,
    /// Log blocks in use.
    used: u32,
    /// Whether a commit writes many log blocks.
    log_busy: bool,
    /// The block that is written home after all others.
    last: Option<FsBlock>,
}

impl CheckpointSet {
    pub fn new(first: LogBlock) -> CheckpointSet {
        CheckpointSet {
            entries: FxHashMap::default(),
            in_flight: HashSet::new(),
            logged: VecDeque::new(),
            head: first,
            used: 0,
            log_busy: false,
            last: None,
        }
    }
    /// Sets the block that is written home after all others, and returns the one before.
    pub fn set_last(&mut self, last: Option<FsBlock>) -> Option<FsBlock> {
        std::mem::replace(&mut self.last, last)
    }
    /// Returns whether there is such a block. Then only a thread that holds the commit lock writes
    /// parts.
    pub fn has_last(&self) -> bool {
        self.last.is_some()
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
    /// Returns whether a commit writes many log blocks.
    pub fn is_log_busy(&self) -> bool {
        self.log_busy
    }
    /// A commit begins to write many log blocks.
    pub fn begin_log_write(&mut self) {
        self.log_busy = true;
    }
    /// It has written them.
    pub fn end_log_write(&mut self) {
        self.log_busy = false;
    }
    /// Returns the number of blocks that are not home.
    pub fn blocks(&self) -> usize {
        self.entries.len()
    }
    /// Returns whether at most so many blocks, in at most so many runs of adjacent blocks, are not
    /// home.
    pub fn is_within(&self, limits: BatchLimits) -> bool {
        self.blocks() <= limits.blocks && {
            let mut blocks: Vec<FsBlock> = self.entries.keys().copied().collect();
            blocks.sort_unstable();
            blocks.chunk_by(|a, b| *a + 1 == *b).count() <= limits.runs
        }
    }
    /// Returns the first and the last transaction of the log.
    pub fn transactions(&self) -> Option<(Tid, Tid)> {
        Some((self.logged.front()?.tid, self.logged.back()?.tid))
    }
    /// Returns the oldest transactions that have at least so many log blocks together, or all. All
    /// while a block comes after all others.
    pub fn oldest(&self, log_blocks: u32) -> Option<Part> {
        let mut up_to = self.logged.front()?.tid;
        let mut blocks = Vec::new();
        let mut found = 0;
        for transaction in &self.logged {
            if found >= log_blocks && !self.has_last() {
                break;
            }
            found += transaction.len;
            up_to = transaction.tid;
            blocks.extend_from_slice(&transaction.homes);
        }
        blocks.sort_unstable();
        blocks.dedup();
        Some(self.part(up_to, blocks))
    }
    /// Returns the part with these sorted blocks.
    pub fn part(&self, up_to: Tid, mut blocks: Vec<FsBlock>) -> Part {
        let at = self.last.and_then(|last| blocks.binary_search(&last).ok());
        let last = at.map(|at| blocks.remove(at));
        Part {
            up_to,
            blocks,
            last,
        }
    }
    /// Begins a batch: the contents of the first of `blocks` whose newest content is of `up_to` or
    /// older. Removes these and the blocks between them from `blocks`. They are in flight until
    /// [`CheckpointSet::end_batch`].
    pub fn begin_batch(
        &mut self,
        blocks: &mut &[FsBlock],
        up_to: Tid,
        limits: BatchLimits,
    ) -> Batch {
        let mut contents: Vec<(FsBlock, Buf)> = Vec::new();
        let mut runs = 0;
        while let Some((&block, rest)) = blocks.split_first() {
            let entry = self.entries.get(&block);
            if let Some(entry) = entry.filter(|entry| up_to.reached(entry.tid)) {
                let adjacent = contents.last().is_some_and(|(last, _)| *last + 1 == block);
                let runs_then = runs + usize::from(!adjacent);
                if contents.len() == limits.blocks || runs_then > limits.runs {
                    break;
                }
                runs = runs_then;
                contents.push((block, entry.frozen.data.clone()));
            }
            *blocks = rest;
        }
        self.in_flight
            .extend(contents.iter().map(|(block, _)| block));
        Batch { contents, runs }
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
        let homes = blocks.iter().map(|frozen| frozen.buffer.block()).collect();
        let start = std::mem::replace(&mut self.head, next_head);
        self.logged.push_back(Logged {
            tid,
            start,
            len,
            homes,
        });
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
    /// Removes the transactions of `part` from the log, and those of its blocks whose newest
    /// content they committed. Returns these contents.
    pub fn release(&mut self, part: &Part) -> Vec<Frozen> {
        while let Some(oldest) = self.logged.front()
            && part.up_to.reached(oldest.tid)
        {
            self.used -= oldest.len;
            self.logged.pop_front();
        }
        let mut released = Vec::new();
        for block in part.blocks.iter().chain(&part.last) {
            if let Some(entry) = self.entries.get(block)
                && part.up_to.reached(entry.tid)
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
