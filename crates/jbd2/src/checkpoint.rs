//! The checkpoint: committed blocks go home, then the log's tail moves.
//!
//! A block of the log goes through these states:
//!
//! ```text
//!            publish (T)              write_home           flush           super block without T
//!  running ─────────────▶ committed ────────────▶ written ───────▶ home ───────────────────────▶ released
//!  (a handle's           (an entry of            (in `in_flight`)                      (entry gone; a file's block
//!   change)               the set, tid T)                                               is no longer held)
//!     ▲                      │
//!     └── changed again ─────┘  publish (T2): the entry has T2's content and T2's number
//! ```
//!
//! Algorithm of a checkpoint up to T, the last committed transaction:
//! 1. Write the blocks that T or an older transaction committed last, in batches, sorted, so that
//!    the plug merges neighbours. A block that was committed anew meanwhile is left out: the log
//!    keeps its newer copy.
//! 2. Flush the device.
//! 3. Write a super block whose log starts after T (durable on return).
//! 4. Release: drop the entries up to T, let go of files' blocks, count T's log blocks as free.
//!
//! ```text
//!  set:  block → newest committed content                log:   tail ─▶ t1 t2 t3 ◀─ head
//!        {10: t3, 11: t1, 40: t2}         checkpoint to t3, t4 commits meanwhile
//!        {40: t4}                                               tail ─▶ t4 ◀─ head
//! ```
//!
//! Invariants:
//! - The set holds, for every block that a transaction of the log has, its newest committed
//!   content, unless it was revoked. Content of the running transaction is never written home.
//! - Nothing is released before the super block that needs it no more is durable. So a failed
//!   checkpoint changes nothing.
//! - A block is in flight from before its write is submitted until that has ended. The entries of a
//!   batch are looked up when it starts, so a block that was revoked is not written afterwards.

use crate::commit::Frozen;
use crate::form::CommitState;
use crate::{Journal, JournalError, Tid};
use block::{Bio, Buf, Class, Completion, IoError, Reason};
use smallvec::smallvec;
use std::collections::{BTreeMap, HashSet, VecDeque};
use sync::MutexGuard;
use sync::atomic::Ordering;

/// Blocks written home at once, at most: enough to merge, few enough that a commit which revokes
/// one does not wait long.
const BATCH_BLOCKS: usize = 2048;
/// A batch has at most one of so many parts of the log, so that a small log goes home in several
/// batches, too.
const LOG_PARTS: usize = 8;
/// How often a failed write home is tried before the journal stops.
const ATTEMPTS: u32 = 3;

struct Entry {
    frozen: Frozen,
    /// The transaction that committed this content.
    tid: Tid,
}

/// A committed transaction that the log still has.
struct Logged {
    tid: Tid,
    /// Its first block in the log.
    start: u32,
    /// Its blocks in the log.
    len: u32,
}

/// What is committed and not home, and where the log begins and ends.
pub(crate) struct CheckpointSet {
    entries: BTreeMap<u64, Entry>,
    in_flight: HashSet<u64>,
    /// Oldest first.
    logged: VecDeque<Logged>,
    /// Where the next transaction goes.
    head: u32,
    /// Log blocks in use.
    used: u32,
}

impl CheckpointSet {
    pub fn new(first: u32) -> CheckpointSet {
        CheckpointSet {
            entries: BTreeMap::new(),
            in_flight: HashSet::new(),
            logged: VecDeque::new(),
            head: first,
            used: 0,
        }
    }
    /// Where the next transaction goes.
    pub fn head(&self) -> u32 {
        self.head
    }
    /// Log blocks in use.
    pub fn used(&self) -> u32 {
        self.used
    }
    /// Whether a block is being written home.
    pub fn in_flight(&self, block: u64) -> bool {
        self.in_flight.contains(&block)
    }
    /// Blocks that are not home.
    pub fn blocks(&self) -> usize {
        self.entries.len()
    }
    /// Whether that many blocks, and runs of adjacent ones, are all that is not home.
    pub fn is_within(&self, blocks: usize, runs: usize) -> bool {
        let mut previous = None;
        let begins_run = |block: &&u64| previous.replace(**block).is_none_or(|p| p + 1 != **block);
        self.blocks() <= blocks && self.entries.keys().filter(begins_run).count() <= runs
    }
    /// Adds a committed transaction; contents that it replaces go to `replaced`.
    pub fn logged(
        &mut self,
        tid: Tid,
        len: u32,
        next_head: u32,
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
    /// A block was freed for good: it must not be written home any more.
    pub fn forget(&mut self, block: u64) -> Option<Frozen> {
        debug_assert!(!self.in_flight(block));
        self.entries.remove(&block).map(|entry| entry.frozen)
    }
    /// Where the log starts without `up_to` and older transactions. Where nothing is left the next
    /// transaction starts at the head, with the next number.
    fn start_after(&self, up_to: Tid) -> u32 {
        let next = self.logged.iter().find(|t| !up_to.reached(t.tid));
        next.map_or(self.head, |t| t.start)
    }
    /// The log no longer has `up_to` and older transactions: counts their log blocks as free, and
    /// takes out what they committed last of `blocks`.
    fn release(&mut self, up_to: Tid, blocks: &[u64]) -> Vec<Frozen> {
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
    /// Drops everything (the journal goes away).
    pub fn release_all(&mut self) {
        for (_, entry) in std::mem::take(&mut self.entries) {
            entry.frozen.buffer.release(entry.frozen.data);
        }
    }
}

impl Journal {
    /// Makes room for `needed` log blocks and in memory, by a checkpoint if need be.
    pub(crate) fn ensure_log_space(&self, needed: u32) -> Result<(), JournalError> {
        let len = self.log_len();
        if needed > len {
            return Err(JournalError::TooLarge {
                asked: needed,
                most: len,
            });
        }
        if self.set.lock().used + needed <= len && !self.metadata_fills(2) {
            return Ok(());
        }
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let lock = self.checkpointing.lock();
        // The background thread may have made room while we waited for it.
        if self.set.lock().used + needed > len || self.metadata_fills(2) {
            self.checkpoint(&lock)?;
        }
        assert!(self.set.lock().used + needed <= len);
        Ok(())
    }

    /// Whether the log, or what is not home, grows faster than the checkpoint empties it: what is
    /// left is for those who have no other way.
    pub fn is_crowded(&self) -> bool {
        self.set.lock().used > self.log_len() / 4 * 3 || self.metadata_fills(3)
    }

    /// Whether blocks that are not home take more than a `part`th of the memory budget.
    pub(crate) fn metadata_fills(&self, part: u64) -> bool {
        self.budget.pinned() > self.budget.limit() / part
    }
    /// Counts what the set gained or lost since it had `before` blocks.
    pub(crate) fn note_pinned(&self, before: usize, set: &CheckpointSet) {
        let more = set.blocks() as i64 - before as i64;
        self.budget.pin(more * self.block_size() as i64);
    }

    /// [`Journal::checkpoint`], when no other is at it.
    pub(crate) fn checkpoint_all(&self) -> Result<(), JournalError> {
        let lock = self.checkpointing.lock();
        self.checkpoint(&lock)
    }

    /// Writes home what is committed now and moves the log's tail behind it.
    pub(crate) fn checkpoint(&self, _lock: &MutexGuard<'_, ()>) -> Result<(), JournalError> {
        self.check()?;
        let (up_to, blocks) = {
            let set = self.set.lock();
            let Some(last) = set.logged.back() else {
                return Ok(());
            };
            let blocks: Vec<u64> = set.entries.keys().copied().collect();
            (last.tid, blocks)
        };
        let mut written = 0;
        let batch_blocks = BATCH_BLOCKS.min(self.log_len() as usize / LOG_PARTS).max(1);
        for batch in blocks.chunks(batch_blocks) {
            written += self.write_home(batch, up_to)?;
        }
        self.queue.flush(Reason::Checkpoint)?;
        self.counters
            .checkpointed_blocks
            .fetch_add(written, Ordering::Relaxed);
        {
            let mut tail = self.tail.lock();
            let start = self.set.lock().start_after(up_to);
            tail.set_tail(start, up_to.next().0);
            self.write_superblock(&mut tail)?;
        }
        let released = {
            let mut set = self.set.lock();
            let before = set.blocks();
            let released = set.release(up_to, &blocks);
            self.note_pinned(before, &set);
            released
        };
        for Frozen { buffer, data } in released {
            buffer.release(data);
            if buffer.is_data() {
                self.held.release(buffer);
            }
        }
        Ok(())
    }

    /// Writes home what `up_to` or an older transaction committed last of `batch` (sorted), and
    /// waits; how many blocks.
    fn write_home(&self, batch: &[u64], up_to: Tid) -> Result<u64, JournalError> {
        let contents: Vec<(u64, Buf)> = {
            let mut set = self.set.lock();
            let contents: Vec<_> = batch
                .iter()
                .filter_map(|&block| {
                    let entry = set.entries.get(&block)?;
                    let covered = up_to.reached(entry.tid);
                    covered.then(|| (block, entry.frozen.data.clone()))
                })
                .collect();
            set.in_flight
                .extend(contents.iter().map(|(block, ..)| block));
            contents
        };
        let mut result = self.submit_home(&contents);
        for _ in 1..ATTEMPTS {
            if result.is_ok() {
                break;
            }
            result = self.submit_home(&contents);
        }
        self.set.lock().in_flight.clear();
        self.set_changed.notify_all();
        result?;
        Ok(contents.len() as u64)
    }

    fn submit_home(&self, contents: &[(u64, Buf)]) -> Result<(), IoError> {
        if contents.is_empty() {
            return Ok(());
        }
        let done = Completion::new();
        done.expect(contents.len());
        let mut bios: Vec<Bio> = contents
            .iter()
            .map(|(block, data)| {
                let offset = block * self.block_size() as u64;
                Bio::write(
                    offset,
                    smallvec![data.clone()],
                    Class::Metadata,
                    Reason::Checkpoint,
                    done.clone(),
                    0,
                )
            })
            .collect();
        self.queue.submit_and_wait(&mut bios, &done)
    }

    /// Says in the super block where the log starts, if that says that the log is empty.
    pub(crate) fn mark_in_use(&self, head: u32, tid: Tid) -> Result<(), JournalError> {
        let mut tail = self.tail.lock();
        if tail.start() != 0 {
            return Ok(());
        }
        tail.set_tail(head, tid.0);
        self.write_superblock(&mut tail)
    }

    /// Says in the super block that the log is empty, after a checkpoint of everything.
    pub(crate) fn mark_empty(&self, state: &mut CommitState) -> Result<(), JournalError> {
        assert_eq!(self.set.lock().used, 0, "the log is not empty");
        let mut tail = self.tail.lock();
        if tail.start() == 0 {
            return Ok(());
        }
        tail.set_tail(0, self.running_tid().0);
        self.rest(state, &mut tail);
        self.write_superblock(&mut tail)
    }
}
