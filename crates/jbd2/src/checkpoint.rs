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
//! Algorithm of a checkpoint up to T, the last committed transaction:
//! 1. Write the blocks whose newest committed content is of T or older, in sorted batches. The plug
//!    merges neighbours. A block that was committed again meanwhile is skipped: the log has its
//!    newer content.
//! 2. Flush the device.
//! 3. Write a super block whose log starts after T. It is durable on return.
//! 4. Release: remove the entries up to T, release held data blocks, count T's log blocks as free.
//!
//! ```text
//!  set:  block → newest committed content                log:   tail ─▶ t1 t2 t3 ◀─ head
//!        {10: t3, 11: t1, 40: t2}         checkpoint to t3, t4 commits meanwhile
//!        {40: t4}                                               tail ─▶ t4 ◀─ head
//! ```
//!
//! Invariants:
//! - For each block of the log that was not revoked, the set holds its newest committed content.
//!   Content of the running transaction is never written home.
//! - Nothing is released before the super block that no longer needs it is durable. So a failed
//!   checkpoint changes nothing.
//! - A block is in flight from before its write is submitted until that has completed. The entries
//!   of a batch are looked up when the batch starts, so a revoked block is not written later.

use crate::state::log_format::CommitState;
use crate::transaction::Frozen;
use crate::{Journal, JournalError, LogBlock, Tid};
use block::{Bio, Buf, Class, Completion, IoError, Reason};
use smallvec::smallvec;
use sync::MutexGuard;
use sync::atomic::{AtomicUsize, Ordering};
use units::FsBlock;

/// Most blocks of a batch. A larger batch would merge better, but a commit that revokes one of its
/// blocks waits for the batch.
const BATCH_BLOCKS: usize = 2048;
/// A batch has at most this part of the log, so that a small log also takes several batches.
const LOG_PARTS: usize = 8;
/// Attempts to write a batch before the journal stops.
const ATTEMPTS: u32 = 3;

/// A thread waits for a checkpoint.
struct UrgentCheckpoint<'a>(&'a AtomicUsize);

impl Drop for UrgentCheckpoint<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Journal {
    /// Makes room for `needed` log blocks, and in memory. Writes a checkpoint if necessary.
    pub(crate) fn ensure_log_space(&self, needed: u32) -> Result<(), JournalError> {
        let len = self.log_len();
        if needed > len {
            return Err(JournalError::TooLarge {
                asked: needed,
                most: len,
            });
        }
        if self.set.lock().used() + needed <= len && !self.metadata_fills(2) {
            return Ok(());
        }
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let _urgent = self.urge_checkpoint();
        let lock = self.checkpointing.lock();
        // The background thread may have written a checkpoint while this thread waited.
        if self.set.lock().used() + needed > len || self.metadata_fills(2) {
            self.checkpoint(&lock)?;
        }
        assert!(self.set.lock().used() + needed <= len);
        Ok(())
    }

    /// Returns whether little log space or memory is left, because commits are faster than the
    /// checkpoint. Callers with an alternative must not use the log then.
    pub fn is_crowded(&self) -> bool {
        self.set.lock().used() > self.log_len() / 4 * 3 || self.metadata_fills(3)
    }

    /// Waits for a running checkpoint and then writes one.
    pub(crate) fn checkpoint_all(&self) -> Result<(), JournalError> {
        let _urgent = self.urge_checkpoint();
        let lock = self.checkpointing.lock();
        self.checkpoint(&lock)
    }

    /// As [`Journal::checkpoint_all`], but leaves room for other requests until a thread waits for
    /// a checkpoint.
    pub(crate) fn checkpoint_in_background(&self) -> Result<(), JournalError> {
        let lock = self.checkpointing.lock();
        self.checkpoint(&lock)
    }

    /// Lifts the limits of checkpoints until the guard is dropped: this thread waits for one.
    fn urge_checkpoint(&self) -> UrgentCheckpoint<'_> {
        self.checkpoint_waiters.fetch_add(1, Ordering::SeqCst);
        self.queue.throttle().kick();
        UrgentCheckpoint(&self.checkpoint_waiters)
    }

    fn is_checkpoint_urgent(&self) -> bool {
        self.checkpoint_waiters.load(Ordering::SeqCst) > 0
    }

    /// Writes home all blocks that are committed now and moves the log's tail.
    pub(crate) fn checkpoint(&self, _lock: &MutexGuard<'_, ()>) -> Result<(), JournalError> {
        self.check()?;
        let Some((up_to, blocks)) = self.set.lock().committed() else {
            return Ok(());
        };
        let mut written = 0;
        let batch_blocks = BATCH_BLOCKS.min(self.log_len() as usize / LOG_PARTS).max(1);
        let is_urgent = || self.is_checkpoint_urgent();
        let mut rest = blocks.as_slice();
        while !rest.is_empty() {
            let want = (batch_blocks.min(rest.len()) * self.block_size()) as u64;
            let room = self
                .queue
                .wait_for_room(Reason::Checkpoint, want, is_urgent);
            let count = (room.min(want) as usize / self.block_size()).max(1);
            let (batch, later) = rest.split_at(count);
            written += self.write_home(batch, up_to)?;
            rest = later;
        }
        self.queue.throttle().wait_for_flush(is_urgent);
        self.queue.flush(Reason::Checkpoint)?;
        self.counters
            .checkpointed_blocks
            .fetch_add(written, Ordering::Relaxed);
        {
            let mut tail = self.tail.lock();
            let start = self.set.lock().start_after(up_to);
            tail.set_tail(start, up_to.next());
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

    /// Writes home those blocks of the sorted `batch` whose newest content is of `up_to` or older,
    /// and waits. Returns their number.
    fn write_home(&self, batch: &[FsBlock], up_to: Tid) -> Result<u64, JournalError> {
        let contents = self.set.lock().begin_batch(batch, up_to);
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
        Ok(contents.len() as u64)
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
