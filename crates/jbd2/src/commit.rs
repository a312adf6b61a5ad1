//! The commit: one transaction from running to durable.
//!
//! Algorithm, on the calling thread, under the commit lock:
//!
//! 1. *Early*: the client puts most of its state into buffers, beside running handles. Whoever
//!    waits for data to land before the commit has had a part of that done already
//!    ([`Journal::prepare_commit`]).
//! 2. *Close*: take the gate (wait for the handles to end), let the client finish, clone the
//!    reference to every buffer's content, put a fresh transaction into the gate, let go. Nothing
//!    here grows with the size of the blocks.
//! 3. *Seal* the frozen blocks (checksums), in place where the next transaction has not touched
//!    them yet.
//! 4. *Form and space*: choose the form of the log (`form.rs`). If the log has not enough room, or
//!    what is not home takes half of the memory, checkpoint everything.
//! 5. *Write*, and make durable:
//!    - revoke blocks, descriptors, blocks and zeroes in the commit block's place as one stream;
//!      wait; flush the device (data that landed before is durable from here on, too); write the
//!      commit block with FUA.
//!    - In the asynchronous form, a small transaction: flush the device if data that the
//!      transaction refers to is not durable yet; then all of it, the commit block too, in one
//!      write with FUA. The commit block may reach the device before what it commits, but it
//!      carries the CRC-32 of that, and recovery takes a transaction whose CRC-32 is wrong for one
//!      that was not committed. The CRC-32 does not cover revoke blocks; with few revoke records
//!      they are no obstacle, since those of one sector are there or not, and where they are not,
//!      neither is the transaction.
//! 6. *Publish*: put the blocks into the checkpoint set, take what was revoked out of it, tell the
//!    client, and only then say that the number is committed.
//!
//! Invariants:
//! - The commit block is found valid only if everything that it covers is durable: the log by the
//!   flush or the CRC-32, and data outside of the log by a flush before the commit block is
//!   written.
//! - The super block names a start of the log from before the first commit block until the log is
//!   empty again.
//! - A block is told to be free only when no checkpoint write of it is in flight or can be started.

use crate::form::CommitState;
use crate::format::checksum::Crc32Be;
use crate::format::{Checksums, Layout, MAGIC, checksum, commit, descriptor, get_u32, revoke};
use crate::handle::Handle;
use crate::transaction::Transaction;
use crate::{Buffer, FreedExtent, Journal, JournalError, Phase, Tid};
use block::{Buf, BufMut, Durability, Reason, WriteMark};
use std::sync::{Arc, PoisonError};
use sync::atomic::Ordering;

/// Why there is a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody wants to know something durable.
    WaitedFor,
    /// It was time, or the transaction is full, or the log is to be empty.
    Due,
}

/// A block of a closed transaction.
pub(crate) struct Frozen {
    pub buffer: Arc<Buffer>,
    pub data: Buf,
}

/// A closed transaction on its way to the log.
pub(crate) struct Closed {
    tid: Tid,
    /// Data outside of the log that must be durable first.
    data: WriteMark,
    pub blocks: Vec<Frozen>,
    pub revokes: Vec<u64>,
    freed: Vec<FreedExtent>,
}

impl Journal {
    /// Commits the running transaction; does nothing where that is empty.
    pub(crate) fn commit_running(
        &self,
        state: &mut CommitState,
        why: Why,
    ) -> Result<(), JournalError> {
        self.check()?;
        let Some(closed) = self.close_running(state) else {
            return Ok(());
        };
        match self.write_transaction(state, &closed, why) {
            Ok(log_blocks) => {
                self.publish(state, closed, log_blocks);
                Ok(())
            }
            Err(error) => {
                // The journal stops, but what readers have seen must not fall back to what the
                // device holds.
                self.lost.lock().extend(closed.blocks);
                Err(error)
            }
        }
    }

    /// Steps 4 and 5; the log blocks used.
    fn write_transaction(
        &self,
        state: &mut CommitState,
        closed: &Closed,
        why: Why,
    ) -> Result<u32, JournalError> {
        // The client may have met an error while it wrote its state, and then the transaction is
        // not whole.
        self.check()?;
        self.choose_form(state, closed, why)?;
        let form = self.form(state);
        let layout = &form.layout;
        let needed = form.log_blocks(closed);
        self.ensure_log_space(needed)?;
        let head = self.set.lock().head();
        let mut encoded = self.encode(layout, closed);
        let mut commit = BufMut::zeroed(self.block_size());
        let now = sync::time::system_now();
        commit::write(layout, closed.tid.0, now, encoded.sum_v1, &mut commit);
        assert_eq!(
            encoded.bufs.len() as u32 + 1,
            needed,
            "log space was reckoned wrong"
        );
        self.mark_in_use(head, closed.tid)?;
        let write = |bufs, durability| {
            self.log
                .write(&self.queue, head, self.bounds, bufs, durability)
        };
        if self.goes_out_at_once(state, closed) {
            self.queue.flush_up_to(closed.data, Reason::Journal)?;
            encoded.bufs.push(commit.freeze());
            write(encoded.bufs, Durability::Fua)?;
        } else {
            // Where the commit block will be there are zeroes first: what counts of it lies in its
            // first sector, so that a torn write of it leaves either no commit block or a whole
            // one. Recovery by others would take the mixture of a new sector and old ones for
            // damage of the log.
            let zeroes = BufMut::zeroed(self.block_size()).freeze();
            encoded.bufs.push(zeroes);
            write(encoded.bufs, Durability::Cached)?;
            self.queue.flush(Reason::Journal)?;
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

    /// Steps 1 to 3; `None` where there is nothing to commit.
    fn close_running(&self, state: &CommitState) -> Option<Closed> {
        self.write_back_early(state, Phase::Early);
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = self.client() {
            client.write_back_state(&Handle::locked(self, &gate), Phase::Locked);
        }
        if gate.is_empty() {
            return None;
        }
        let next = Arc::new(Transaction::new(gate.tid.next()));
        self.running.store(next.tid.0, Ordering::Release);
        let transaction = std::mem::replace(&mut *gate, next);
        let tid = transaction.tid;
        let frozen: Vec<_> = transaction
            .take_buffers()
            .into_iter()
            .filter_map(|buffer| {
                let (data, seal) = buffer.freeze(tid)?;
                Some((buffer, data, seal))
            })
            .collect();
        drop(gate);
        self.committing.changed();
        let blocks = frozen
            .into_iter()
            .map(|(buffer, data, seal)| Frozen {
                data: match seal {
                    Some(seal) => buffer.seal_frozen(data, seal),
                    None => data,
                },
                buffer,
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

    /// Has the client put state into buffers beside running handles; one thread at a time, lest an
    /// older state replace a newer one.
    pub(crate) fn write_back_early(&self, _state: &CommitState, phase: Phase) {
        if let Some(client) = self.client() {
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            client.write_back_state(&Handle::early(self, gate), phase);
        }
    }

    /// Everything of a transaction's stream but its commit block.
    fn encode(&self, layout: &Layout, closed: &Closed) -> Encoded {
        let mut bufs = Vec::new();
        for part in closed.revokes.chunks(revoke::entries_per_block(layout)) {
            let mut buf = BufMut::zeroed(layout.block_size);
            revoke::write(layout, closed.tid.0, part, &mut buf);
            bufs.push(buf.freeze());
        }
        let described = bufs.len();
        for part in closed.blocks.chunks(descriptor::tags_per_block(layout)) {
            let mut tags = Vec::with_capacity(part.len());
            let at = bufs.len();
            bufs.reserve(part.len() + 1);
            for frozen in part {
                let (buf, escaped) = escape(&frozen.data);
                let sum = if layout.block_checksums() {
                    checksum::of_logged_block(layout.seed, closed.tid.0, &buf)
                } else {
                    0
                };
                bufs.push(buf);
                tags.push(descriptor::Tag {
                    block: frozen.buffer.block(),
                    escaped,
                    deleted: false,
                    checksum: sum,
                });
            }
            let mut buf = BufMut::zeroed(layout.block_size);
            descriptor::write(layout, closed.tid.0, &tags, &self.uuid, &mut buf);
            bufs.insert(at, buf.freeze());
        }
        let mut sum = Crc32Be::new();
        if layout.checksums == Checksums::V1 {
            bufs[described..].iter().for_each(|buf| sum.update(buf));
        }
        Encoded {
            bufs,
            sum_v1: sum.sum(),
        }
    }

    /// Step 6.
    fn publish(&self, _state: &CommitState, closed: Closed, log_blocks: u32) {
        let Closed {
            tid,
            blocks,
            revokes,
            freed,
            ..
        } = closed;
        let mut replaced = Vec::new();
        {
            let mut set = self.set.lock();
            let before = set.blocks();
            let next_head = self.advance(set.head(), log_blocks);
            set.logged(tid, log_blocks, next_head, blocks, &mut replaced);
            for block in revokes {
                while set.in_flight(block) {
                    self.set_changed.wait(&mut set);
                }
                replaced.extend(set.forget(block));
            }
            self.note_pinned(before, &set);
            if set.used() > self.log_len() / 2 || self.metadata_fills(4) {
                self.background.ask_checkpoint();
            }
        }
        for old in replaced {
            old.buffer.release(old.data);
        }
        if let Some(client) = self.client() {
            client.committed(tid, &freed);
        }
        self.committed.store(tid.0, Ordering::Release);
    }

    /// The log block `count` after `at`.
    pub(crate) fn advance(&self, at: u32, count: u32) -> u32 {
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

struct Encoded {
    bufs: Vec<Buf>,
    /// CRC-32 of descriptors and blocks (checksums v1).
    sum_v1: u32,
}
/// A block as it goes to the log: one that begins with the magic could be taken for a log block,
/// and is changed.
fn escape(data: &Buf) -> (Buf, bool) {
    if get_u32(data, 0) != Some(MAGIC) {
        return (data.clone(), false);
    }
    let mut copy = BufMut::copy_of(data);
    copy[..4].fill(0);
    (copy.freeze(), true)
}
