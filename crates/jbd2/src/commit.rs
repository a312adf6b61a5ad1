//! The commit: it makes the running transaction durable.
//!
//! Algorithm, on the calling thread, under the commit lock:
//!
//! 1. *Early*: the client writes most of its state into buffers, concurrently with handles.
//!    [`Journal::prepare_commit`] may have done a part of that before.
//! 2. *Close*: take the gate (wait until all handles have ended), let the client finish, clone the
//!    reference to each buffer's content, put a new transaction into the gate, release the gate.
//!    The time of this step does not depend on the block size.
//! 3. *Seal* the frozen blocks (checksums). A block that the next transaction has not changed yet
//!    is sealed in place.
//! 4. *Format and space*: choose the log format (`log_format.rs`). If the log has too little room,
//!    or blocks that are not home take half of the memory, write parts of a checkpoint.
//! 5. *Write*, and make durable:
//!    - Write revoke blocks, descriptors, blocks, and zeroes in place of the commit block. Wait.
//!      Flush the device. Write the commit block with FUA. If the log is on a device of its own,
//!      the volume's device is flushed as well, as far as the transaction depends on its data.
//!    - A small transaction in the async format: flush the device if data that the transaction
//!      depends on is not durable yet. Then write all blocks, the commit block included, with one
//!      FUA write.
//! 6. *Publish*: put the blocks into the checkpoint set, remove revoked blocks from it, notify the
//!    client, and then publish the transaction's number as committed.
//!
//! A volume without a log ([`Journal::without_log`]) commits by checkpoints in place of step 4 and
//! 5: it flushes the data that the transaction depends on, and writes the blocks home in three
//! steps ([`HomeStep`](crate::buffer::HomeStep)) with a flush after each. Only then is the
//! transaction committed.
//!
//! In the async format the commit block may reach the device before the blocks that it commits. It
//! contains the CRC-32 of descriptors and blocks. Recovery treats a transaction with a wrong CRC-32
//! as not committed. The CRC-32 does not cover revoke blocks, so the revoke records of a small
//! transaction fit a sector: a sector is written as a whole or not at all, and without it the
//! transaction is incomplete.
//!
//! ```text
//!  Transaction (running) ── close ──▶ Closed ── write ──▶ durable ── publish ──▶ entries of the checkpoint set
//!                                       │
//!                                       ├── I/O error ──▶ Journal::lost; the journal stops
//!                                       └── panic ──▶ the journal stops
//! ```
//!
//! Invariants:
//! - A commit block is valid only if all that it covers is durable: the log by the flush or the
//!   CRC-32, data outside of the log by a flush before the commit block is written.
//! - The super block names a start of the log from before the first commit block until the log is
//!   empty again.
//! - A block is reported as free only when no checkpoint write of it is in flight or can start.

use crate::format::checksum::Crc32Be;
use crate::format::{Checksums, Layout, commit, revoke};
use crate::state::background::CheckpointRequest;
use crate::state::handle::assert_none_held;
use crate::state::log_format::CommitState;
use crate::state::stop_on_panic::StopOnPanic;
use crate::transaction::{Closed, CommitReason, Frozen, Transaction};
use crate::{FreedExtent, Handle, Journal, JournalError, LogBlock, Phase, Tid, log_copies};
use block::{Buf, BufMut, Durability, Reason};
use std::sync::{Arc, PoisonError};
use sync::atomic::Ordering;

/// Bytes of log blocks from one flush to the next. Many devices stop every other request while a
/// flush writes their cache, and a disk writes so many in a tenth of a second.
const FLUSH_BYTES: usize = 16 << 20;

/// A commit writes many log blocks; the checkpoint waits meanwhile.
struct LogBusy<'a>(&'a Journal);

impl LogBusy<'_> {
    fn new(journal: &Journal) -> LogBusy<'_> {
        journal.set.lock().begin_log_write();
        LogBusy(journal)
    }
}

impl Drop for LogBusy<'_> {
    fn drop(&mut self) {
        self.0.set.lock().end_log_write();
        self.0.set_changed.notify_all();
    }
}

impl Journal {
    /// Makes all transactions up to `tid` durable, and the data that they depend on
    /// ([`Handle::depends_on`]).
    ///
    /// The calling thread commits unless another thread does. Concurrent callers share one commit.
    /// Without changes, nothing is written or flushed.
    pub fn commit(&self, tid: Tid) -> Result<(), JournalError> {
        self.commit_because(tid, CommitReason::Requested)
    }
    /// Carries out a part of the next commit's work while the caller waits for other I/O: the
    /// client writes its final state into buffers ([`Phase::Ahead`]). The call returns at once
    /// while another thread commits, and delays no handle.
    pub fn prepare_commit(&self) {
        if self.read_only || self.check().is_err() {
            return;
        }
        if let Some(state) = self.committing.try_lock() {
            self.write_back_early(&state, Phase::Ahead);
        }
    }
    pub(crate) fn commit_because(
        &self,
        tid: Tid,
        reason: CommitReason,
    ) -> Result<(), JournalError> {
        assert_none_held("a commit is waited for");
        if self.read_only || self.is_committed(tid) {
            return Ok(());
        }
        let mut state = self.committing.lock();
        if self.is_committed(tid) {
            return Ok(());
        }
        let result = self.commit_running(&mut state, reason);
        self.stop_on_error(result)
    }
    /// Commits the running transaction and writes a checkpoint of everything. The log is empty
    /// afterwards.
    pub fn flush(&self) -> Result<(), JournalError> {
        assert_none_held("a flush is waited for");
        if self.read_only {
            return Ok(());
        }
        let mut state = self.committing.lock();
        let result = self
            .commit_running(&mut state, CommitReason::Internal)
            .and_then(|()| self.checkpoint_all())
            .and_then(|()| self.mark_empty(&mut state));
        self.stop_on_error(result)
    }

    /// Commits the running transaction, unless it is empty.
    pub(crate) fn commit_running(
        &self,
        state: &mut CommitState,
        reason: CommitReason,
    ) -> Result<(), JournalError> {
        self.check()?;
        // A later transaction must not follow one that the log does not have.
        let _stop = StopOnPanic::new(self, "a commit");
        let Some(closed) = self.close_running(state) else {
            return Ok(());
        };
        let written = match self.has_log() {
            true => self.write_transaction(state, &closed, reason),
            false => self.check().and_then(|()| {
                let flushed = self.queue.flush_up_to(closed.data, Reason::Journal);
                flushed.map(|()| 0).map_err(JournalError::from)
            }),
        };
        let log_blocks = match written {
            Ok(log_blocks) => log_blocks,
            Err(error) => {
                // The journal stops. Readers must not fall back to the older content of the device.
                self.lost.lock().extend(closed.blocks);
                return Err(error);
            }
        };
        let steps = (!self.has_log()).then(|| closed.home_steps());
        let committed = self.add_to_set(state, closed, log_blocks)?;
        if let Some(steps) = steps {
            self.checkpoint_in_steps(committed.tid, steps)?;
            self.counters.commits.fetch_add(1, Ordering::Relaxed);
        }
        self.publish(state, committed);
        Ok(())
    }

    /// Steps 4 and 5. Returns the log blocks used.
    fn write_transaction(
        &self,
        state: &mut CommitState,
        closed: &Closed,
        reason: CommitReason,
    ) -> Result<u32, JournalError> {
        // After an error of the client in step 1 or 2 the transaction is incomplete.
        self.check()?;
        self.choose_log_format(state, closed, reason)?;
        let format = self.log_format(state);
        let layout = &format.layout;
        let needed = format.log_blocks(closed);
        self.log_claimed.store(needed, Ordering::Relaxed);
        self.ensure_log_space(needed)?;
        let head = self.set.lock().head();
        let mut encoded = self.encode(layout, closed);
        let mut commit = BufMut::zeroed(self.block_size());
        let now = sync::time::system_now();
        commit::write(layout, closed.tid, now, encoded.sum_v1, &mut commit);
        assert_eq!(
            encoded.bufs.len() as u32 + 1,
            needed,
            "the log space was computed wrong"
        );
        self.mark_in_use(head, closed.tid)?;
        if self.is_single_write_commit(state, closed) {
            self.queue.flush_up_to(closed.data, Reason::Journal)?;
            encoded.bufs.push(commit.freeze());
            self.log.write(
                &self.queue,
                head,
                self.bounds,
                encoded.bufs,
                Durability::Fua,
            )?;
        } else {
            // All fields of the commit block lie in its first sector. Zeroes in its place make sure
            // that a torn write leaves either no commit block or a complete one. Other
            // implementations of recovery report a mixture of new and old sectors as damage.
            let zeroes = BufMut::zeroed(self.block_size()).freeze();
            encoded.bufs.push(zeroes);
            if self.log.device().is_some() {
                // The flush of the log does not reach the data.
                self.queue.flush_up_to(closed.data, Reason::Journal)?;
            }
            self.write_and_flush(head, encoded.bufs)?;
            let commit_at = self.advance(head, needed - 1);
            self.log
                .write_fua(&self.queue, commit_at, commit.freeze())?;
        }
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters
            .logged_blocks
            .fetch_add(u64::from(needed), Ordering::Relaxed);
        Ok(needed)
    }

    /// Writes log blocks from `head` on and makes them durable, in steps of [`FLUSH_BYTES`].
    fn write_and_flush(&self, head: LogBlock, bufs: Vec<Buf>) -> Result<(), JournalError> {
        let mut at = head;
        let mut rest = bufs.into_iter();
        let most = FLUSH_BYTES / self.block_size();
        let shares_disk = self.log.device().is_none();
        let _alone = (shares_disk && rest.len() > most).then(|| LogBusy::new(self));
        while rest.len() > 0 {
            let step: Vec<Buf> = rest.by_ref().take(most).collect();
            let count = step.len() as u32;
            self.log
                .write(&self.queue, at, self.bounds, step, Durability::Cached)?;
            self.log.flush(&self.queue, Reason::Journal)?;
            at = self.advance(at, count);
        }
        Ok(())
    }

    /// Steps 1 to 3. Returns `None` if there is nothing to commit.
    fn close_running(&self, state: &CommitState) -> Option<Closed> {
        self.write_back_early(state, Phase::Early);
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = self.client() {
            client.write_back_state(&Handle::locked(self, &gate), Phase::Locked);
        }
        if gate.is_empty() {
            self.found_empty.fetch_add(1, Ordering::Release);
            return None;
        }
        let next = Arc::new(Transaction::new(gate.tid.next()));
        self.running.store(next.tid);
        let transaction = std::mem::replace(&mut *gate, next);
        let tid = transaction.tid;
        let frozen: Vec<_> = transaction
            .take_buffers()
            .into_iter()
            .filter_map(|buffer| {
                let (data, seal, step) = buffer.freeze(tid)?;
                Some((buffer, data, seal, step))
            })
            .collect();
        drop(gate);
        self.committing.notify();
        let blocks = frozen
            .into_iter()
            .map(|(buffer, data, seal, step)| Frozen {
                data: match seal {
                    Some(seal) => buffer.seal_frozen(data, seal),
                    None => data,
                },
                buffer,
                step,
            })
            .collect();
        Some(Closed {
            tid,
            data: transaction.data(),
            blocks,
            revokes: transaction.take_revokes(),
            freed: transaction.take_freed(),
        })
    }

    /// Lets the client write its state into buffers, concurrently with handles. The commit lock
    /// makes sure that no older state replaces a newer one.
    pub(crate) fn write_back_early(&self, _state: &CommitState, phase: Phase) {
        if let Some(client) = self.client() {
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            let _moving = self.write_backs.begin();
            client.write_back_state(&Handle::early(self, gate), phase);
        }
    }

    /// Returns all log blocks of a transaction except its commit block.
    fn encode(&self, layout: &Layout, closed: &Closed) -> Encoded {
        let mut bufs = Vec::new();
        for part in closed.revokes.chunks(revoke::entries_per_block(layout)) {
            let mut buf = BufMut::zeroed(layout.block_size);
            revoke::write(layout, closed.tid, part, &mut buf);
            bufs.push(buf.freeze());
        }
        let described = bufs.len();
        let blocks = closed.blocks.iter();
        let blocks = blocks.map(|frozen| (frozen.buffer.block(), &frozen.data));
        bufs.extend(log_copies::encode(layout, closed.tid, &self.uuid, blocks));
        let mut sum = Crc32Be::new();
        if layout.checksums == Checksums::V1 {
            bufs[described..].iter().for_each(|buf| sum.update(buf));
        }
        Encoded {
            bufs,
            sum_v1: sum.sum(),
        }
    }

    /// The first part of step 6: puts the blocks into the checkpoint set.
    ///
    /// # Errors
    /// The journal has stopped, and a checkpoint write of a freed block may be in flight.
    fn add_to_set(
        &self,
        _state: &CommitState,
        closed: Closed,
        log_blocks: u32,
    ) -> Result<Committed, JournalError> {
        let Closed {
            tid,
            blocks,
            revokes,
            freed,
            ..
        } = closed;
        let mut replaced = Vec::new();
        let waited;
        {
            let mut set = self.set.lock();
            let before = set.blocks();
            let next_head = self.advance(set.head(), log_blocks);
            set.logged(tid, log_blocks, next_head, blocks, &mut replaced);
            waited = revokes.into_iter().try_for_each(|block| {
                while set.in_flight(block) {
                    // The blocks of a checkpoint that panics stay in flight.
                    self.check()?;
                    self.set_changed.wait(&mut set);
                }
                replaced.extend(set.forget(block));
                Ok(())
            });
            self.note_space(before, &set);
            self.log_claimed.store(0, Ordering::Relaxed);
        }
        if self.wants_checkpoint() {
            self.background.request_checkpoint(CheckpointRequest::Part);
        }
        for old in replaced {
            old.buffer.release(old.data);
        }
        waited.map(|()| Committed { tid, freed })
    }

    /// The second part of step 6: the transaction is durable.
    fn publish(&self, _state: &CommitState, committed: Committed) {
        if let Some(client) = self.client() {
            client.committed(committed.tid, &committed.freed);
        }
        self.committed.store(committed.tid);
    }

    /// Returns the log block `count` after `at`, with wrap-around.
    pub(crate) fn advance(&self, at: LogBlock, count: u32) -> LogBlock {
        let (first, end) = self.bounds;
        debug_assert!(count <= end - first);
        let left = end - at;
        if count < left {
            at + count
        } else {
            first + (count - left)
        }
    }
}

/// A transaction whose blocks are in the checkpoint set.
struct Committed {
    tid: Tid,
    freed: Vec<FreedExtent>,
}

struct Encoded {
    bufs: Vec<Buf>,
    /// CRC-32 of descriptors and blocks (csum v1).
    sum_v1: u32,
}
