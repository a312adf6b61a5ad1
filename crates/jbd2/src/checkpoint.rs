//! The checkpoint: it writes committed blocks home and then moves the log's tail.
//!
//! States of a block of the log:
//!
//! ```text
//!            publish (T)              write_home           flush           super block without T
//!  running ─────────────▶ committed ────────────▶ written ───────▶ home ───────────────────────▶ released
//!  (a handle's           (an entry of            (in `in_flight`)                      (entry gone; a data block
//!   change)               the set, tid T)                                               is no longer held)
//!     ▲                      │
//!     └── changed again ─────┘  publish (T2): the entry has T2's content and T2's number
//! ```
//!
//! Algorithm of a checkpoint up to T, which covers the oldest transactions of the log:
//! 1. Write the blocks whose newest committed content is of T or older, in sorted batches. The plug
//!    merges neighbours. A block that a later transaction has committed again is skipped: the log
//!    has its newer content.
//! 2. Flush the device.
//! 3. Write a super block whose log starts after T. It is durable on return.
//! 4. Release: remove the entries up to T, release held data blocks, count T's log blocks as free.
//!
//! ```text
//!  set:  block → newest committed content                log:   tail ─▶ t1 t2 t3 t4 ◀─ head
//!        {10: t3, 11: t1, 40: t2, 50: t4}
//!                                          up to t2            tail ─▶ t3 t4 t5 ◀─ head
//!        {10: t3, 40: t5, 50: t4}          (t5 commits meanwhile)
//! ```
//!
//! *Parts.* A checkpoint covers a part of the log ([`LOG_PARTS`]). So space becomes free steadily,
//! and a commit that finds too little waits for one part. Blocks that each commit changes are in
//! the newest transactions, so the parts skip them.
//!
//! *When.* The journal's second thread writes parts while the log's fill is above [`START`]. They
//! leave room for other requests ([`block::Throttle`]) until the fill reaches [`URGENT`] or a
//! thread waits. The fill is that of the log or of the memory for blocks that are not home,
//! whichever is greater.
//!
//! Invariants:
//! - For each block of the log that was not revoked, the set holds its newest committed content.
//!   Content of the running transaction is never written home.
//! - Nothing is released before the super block that no longer needs it is durable. So a failed
//!   checkpoint changes nothing.
//! - A block is in flight from before its write is submitted until that has completed. The entries
//!   of a batch are looked up when the batch starts, so a revoked block is not written later.
//! - While a block is to be written last ([`Journal::write_last`]), a checkpoint covers the whole
//!   log and runs under the commit lock. So no later commit makes it skip a block that has to be
//!   home before that one. The journal's second thread, which has no commit lock, writes no part.

use crate::state::checkpoint_set::{Batch, BatchLimits, Part};
use crate::state::flush_steps::FlushSteps;
use crate::state::log_format::CommitState;
use crate::state::stop_on_panic::StopOnPanic;
use crate::state::{START, URGENT};
use crate::transaction::Frozen;
use crate::{Journal, JournalError, LogBlock, Tid};
use block::{Bio, Buf, Class, Completion, IoError, Reason};
use smallvec::smallvec;
use sync::atomic::{AtomicUsize, Ordering};
use units::FsBlock;

/// Most bytes of a batch. A larger batch would merge better, but a commit that revokes one of its
/// blocks waits for the batch.
const BATCH_BYTES: usize = 8 << 20;
/// Most runs of adjacent blocks of a batch, for the same reason.
const BATCH_RUNS: usize = 128;
/// The thread's parts have this fraction of the log.
const LOG_PARTS: u32 = 4;
/// Most bytes of the log in such a part, unless it is one transaction.
const PART_BYTES: usize = 128 << 20;
/// A part that a commit waits for has at least this fraction of the log.
const SMALL_PARTS: u32 = 16;
/// Attempts to write a batch before the journal stops.
const ATTEMPTS: u32 = 3;

/// A thread waits for a checkpoint.
pub(crate) struct UrgentCheckpoint<'a>(&'a AtomicUsize);

impl Drop for UrgentCheckpoint<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A block is written home after all others ([`Journal::write_last`]).
#[must_use]
pub struct WritesLast<'a>(&'a Journal);

impl Drop for WritesLast<'_> {
    fn drop(&mut self) {
        self.0.set.lock().set_last(None);
    }
}

impl Journal {
    /// Makes room for `needed` log blocks, and in memory. Writes parts of a checkpoint if
    /// necessary.
    pub(crate) fn ensure_log_space(&self, needed: u32) -> Result<(), JournalError> {
        let len = self.log_len();
        if needed > len {
            return Err(JournalError::TooLarge {
                asked: needed,
                most: len,
            });
        }
        let missing = || (self.set.lock().used() + needed).saturating_sub(len);
        let has_space = || missing() == 0 && !self.metadata_fills(2);
        if has_space() {
            return Ok(());
        }
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let _urgent = self.urge_checkpoint();
        loop {
            let mut steps = self.checkpointing.lock();
            // The checkpoint thread may have written a part while this thread waited. Other volumes
            // may have filled the memory, which no part of this log makes free.
            let least = missing().max(len / SMALL_PARTS);
            if has_space() || !self.checkpoint_part(&mut steps, least)? {
                break;
            }
        }
        assert!(self.set.lock().used() + needed <= len);
        Ok(())
    }

    /// Returns whether there is no log, or little log space or memory is left, because commits are
    /// faster than the checkpoint. Callers with an alternative must not use the log then.
    pub fn is_crowded(&self) -> bool {
        !self.has_log() || self.set.lock().used() > self.log_len() / 4 * 3 || self.metadata_fills(3)
    }

    /// Returns whether so much of the log is in use that the checkpoint thread should write.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.log_fill() > START
    }

    /// Returns whether the log has transactions up to `tid` no more.
    pub(crate) fn is_home(&self, tid: Tid) -> bool {
        let oldest = self.set.lock().transactions();
        oldest.is_none_or(|(first, _)| !tid.reached(first))
    }

    /// Waits for a running part and then writes a checkpoint of everything.
    pub(crate) fn checkpoint_all(&self) -> Result<(), JournalError> {
        let _urgent = self.urge_checkpoint();
        self.checkpoint(&mut self.checkpointing.lock())
    }

    /// Changes of `last` by later handles are written home after all other blocks, until the guard
    /// is dropped. There is one guard at a time. For the super block of a volume whose other blocks
    /// make sense with the older one, and not vice versa.
    pub fn write_last(&self, last: FsBlock) -> WritesLast<'_> {
        // A part that is being written now has no such change: none is committed yet.
        let before = self.set.lock().set_last(Some(last));
        debug_assert!(before.is_none(), "two blocks are to be written last");
        WritesLast(self)
    }

    /// Writes home the blocks of a transaction that has no log, one step after the other.
    pub(crate) fn checkpoint_in_steps(
        &self,
        up_to: Tid,
        steps: [Vec<FsBlock>; 3],
    ) -> Result<(), JournalError> {
        let _urgent = self.urge_checkpoint();
        let mut flushes = self.checkpointing.lock();
        for blocks in steps.into_iter().filter(|blocks| !blocks.is_empty()) {
            let part = self.set.lock().part(up_to, blocks);
            self.checkpoint_up_to(&mut flushes, &part)?;
        }
        Ok(())
    }

    /// Writes one part and returns whether there was one. Leaves room for other requests until the
    /// checkpoint is urgent.
    pub(crate) fn checkpoint_in_background(&self) -> Result<bool, JournalError> {
        let most = (PART_BYTES / self.block_size()) as u32;
        let least = (self.log_len() / LOG_PARTS).min(most);
        let mut steps = self.checkpointing.lock();
        if self.set.lock().has_last() {
            return Ok(false);
        }
        self.checkpoint_part(&mut steps, least)
    }

    /// Lifts the limits of checkpoints until the guard is dropped: this thread waits for one.
    pub(crate) fn urge_checkpoint(&self) -> UrgentCheckpoint<'_> {
        self.checkpoint_waiters.fetch_add(1, Ordering::SeqCst);
        self.queue.throttle().kick();
        UrgentCheckpoint(&self.checkpoint_waiters)
    }

    /// Takes no lock.
    fn is_checkpoint_urgent(&self) -> bool {
        self.checkpoint_waiters.load(Ordering::SeqCst) > 0 || self.log_fill() >= URGENT
    }

    /// Writes home all blocks that are committed now and moves the log's tail.
    pub(crate) fn checkpoint(&self, steps: &mut FlushSteps) -> Result<(), JournalError> {
        self.checkpoint_part(steps, u32::MAX).map(|_| ())
    }

    /// Writes home the oldest part of the log, of at least so many log blocks, and moves the tail
    /// behind it. Returns whether there was one.
    fn checkpoint_part(&self, steps: &mut FlushSteps, least: u32) -> Result<bool, JournalError> {
        let part = self.set.lock().oldest(least);
        match part {
            Some(part) => self.checkpoint_up_to(steps, &part).map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes home the blocks of a part, and flushes; then the last one.
    fn write_part(&self, steps: &mut FlushSteps, part: &Part) -> Result<(), JournalError> {
        self.check()?;
        // Its blocks stay in flight: a write may be in progress.
        let _stop = StopOnPanic::new(self, "a checkpoint");
        let mut written = self.write_blocks(steps, &part.blocks, part.up_to)?;
        if let Some(last) = part.last {
            written += self.write_blocks(steps, &[last], part.up_to)?;
        }
        self.counters
            .checkpointed_blocks
            .fetch_add(written, Ordering::Relaxed);
        Ok(())
    }

    /// Writes home those of the sorted `blocks` whose newest content is of `up_to` or older, and
    /// flushes. Returns how many these are.
    fn write_blocks(
        &self,
        steps: &mut FlushSteps,
        blocks: &[FsBlock],
        up_to: Tid,
    ) -> Result<u64, JournalError> {
        let mut written = 0;
        let is_urgent = || self.is_checkpoint_urgent();
        let mut rest = blocks;
        while !rest.is_empty() {
            self.wait_for_log();
            let want = BATCH_BYTES.min(rest.len() * self.block_size()) as u64;
            let room = self
                .queue
                .wait_for_room(Reason::Checkpoint, want, is_urgent);
            let limits = BatchLimits {
                blocks: (room.min(want) as usize / self.block_size()).max(1),
                runs: BATCH_RUNS,
            };
            let (blocks, runs) = self.write_home(&mut rest, up_to, limits)?;
            written += blocks as u64;
            if steps.wrote(blocks * self.block_size(), runs) && !rest.is_empty() {
                self.flush_home(steps)?;
            }
        }
        self.flush_home(steps)?;
        Ok(written)
    }

    fn checkpoint_up_to(&self, steps: &mut FlushSteps, part: &Part) -> Result<(), JournalError> {
        self.write_part(steps, part)?;
        if self.has_log() {
            let mut tail = self.tail.lock();
            let start = self.set.lock().start_after(part.up_to);
            tail.set_tail(start, part.up_to.next());
            self.write_superblock(&mut tail)?;
        }
        let released = {
            let mut set = self.set.lock();
            let before = set.blocks();
            let released = set.release(part);
            self.note_space(before, &set);
            released
        };
        for Frozen { buffer, data, .. } in released {
            buffer.release(data);
            self.cache.touch(&buffer);
            if buffer.is_data() {
                self.held.release(buffer);
            }
        }
        Ok(())
    }

    /// Waits while a commit writes many log blocks. A disk that writes the log and homes in turns
    /// seeks most of the time.
    fn wait_for_log(&self) {
        let mut set = self.set.lock();
        while set.is_log_busy() {
            self.set_changed.wait(&mut set);
        }
    }

    /// Makes all blocks durable that were written home.
    fn flush_home(&self, steps: &mut FlushSteps) -> Result<(), JournalError> {
        let is_urgent = || self.is_checkpoint_urgent();
        let _quiet = self.queue.throttle().wait_for_flush(is_urgent);
        let began = sync::time::monotonic();
        self.queue.flush(Reason::Checkpoint)?;
        steps.flushed(sync::time::monotonic().saturating_sub(began));
        Ok(())
    }

    /// Writes home a batch of the sorted `blocks` whose newest content is of `up_to` or older, and
    /// waits. Returns the number of blocks and of runs, and removes the batch from `blocks`.
    fn write_home(
        &self,
        blocks: &mut &[FsBlock],
        up_to: Tid,
        limits: BatchLimits,
    ) -> Result<(usize, usize), JournalError> {
        let Batch { contents, runs } = self.set.lock().begin_batch(blocks, up_to, limits);
        let mut result = self.submit_home(&contents);
        for _ in 1..ATTEMPTS {
            if result.is_ok() {
                break;
            }
            result = self.submit_home(&contents);
        }
        self.set.lock().end_batch();
        self.set_changed.notify_all();
        result?;
        Ok((contents.len(), runs))
    }

    fn submit_home(&self, contents: &[(FsBlock, Buf)]) -> Result<(), IoError> {
        if contents.is_empty() {
            return Ok(());
        }
        let done = Completion::new();
        done.expect(contents.len());
        let mut bios: Vec<Bio> = contents
            .iter()
            .map(|(block, data)| {
                let offset = block.offset(self.block_size() as u32);
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

    /// Writes the log's start into the super block, if that marks the log as empty.
    pub(crate) fn mark_in_use(&self, head: LogBlock, tid: Tid) -> Result<(), JournalError> {
        let mut tail = self.tail.lock();
        if tail.start().is_some() {
            return Ok(());
        }
        tail.set_tail(head, tid);
        self.write_superblock(&mut tail)
    }

    /// Marks the log as empty in the super block, after a checkpoint of everything.
    pub(crate) fn mark_empty(&self, state: &mut CommitState) -> Result<(), JournalError> {
        assert_eq!(self.set.lock().used(), 0, "the log is not empty");
        let mut tail = self.tail.lock();
        if tail.start().is_none() {
            return Ok(());
        }
        tail.set_empty(self.running_tid());
        self.formats.reset(state, &mut tail);
        self.write_superblock(&mut tail)
    }
}

#[cfg(test)]
mod tests;
