//! The two formats of the log, and when the journal changes from one to the other.
//!
//! | format  | checksums                              | commit of a small transaction                  |
//! |---------|----------------------------------------|------------------------------------------------|
//! | default | of each block (csum v3, by default)    | write; flush; commit block with FUA            |
//! | async   | of each transaction (csum v1)          | one write with FUA, the commit block included  |
//!
//! The default format finds damage block by block. The async format saves a trip to the device,
//! which is most of the time of a single small fsync.
//!
//! [`AsyncCommit::Adaptive`] chooses the async format while small commits that a thread waits for
//! follow one another.
//!
//! ```text
//!                     log empty or emptied by a checkpoint; super block names the async format
//!  default format ───────────────────────────────────────────────────────────────────────────▶ async format
//!        ▲                                                                                          │
//!        └──── log empty or emptied by a checkpoint; super block names the default format ──────────┘
//! ```
//!
//! Invariants:
//! - All transactions of the log have the same format, and the super block names it.
//! - The super block that names a format is durable before the first transaction in that format.
//! - An empty log has the default format.

use crate::format::revoke;
use crate::state::background::CheckpointRequest;
use crate::state::checkpoint_set::BatchLimits;
use crate::state::log_format::{CommitSize, CommitState, Format, Mode};
use crate::transaction::{Closed, CommitReason};
use crate::{AsyncCommit, Journal, JournalError};

/// Bytes of the largest transaction that is committed with a single write, its commit block
/// included.
const SINGLE_WRITE: usize = 1 << 20;
/// Limits on the bytes that a change of format writes home, while a thread waits for the commit, in
/// so few runs that a disk needs a third of a second.
const CHANGE_BYTES: usize = 2 << 20;
const CHANGE_RUNS: usize = 32;

impl Journal {
    /// Returns the format of the log.
    pub(crate) fn log_format(&self, state: &CommitState) -> &Format {
        self.formats.get(state.mode)
    }

    /// Chooses the format for a transaction, and changes the log to it if that is possible now.
    pub(crate) fn choose_log_format(
        &self,
        state: &mut CommitState,
        closed: &Closed,
        reason: CommitReason,
    ) -> Result<(), JournalError> {
        let size = self.commit_size(closed);
        if reason == CommitReason::Requested || size == CommitSize::Large {
            state.load.record(size);
        }
        let wanted = match self.options.async_commit {
            AsyncCommit::Never => Mode::Default,
            AsyncCommit::Adaptive => state.load.wanted,
            AsyncCommit::Always => Mode::Async,
        };
        if wanted == state.mode {
            state.commits_to_request = 0;
        } else if self.empty_log_for_change(state)? {
            let mut tail = self.tail.lock();
            tail.set_features(self.formats.get(wanted).features);
            // `mark_in_use` writes the super block of an empty log before the first transaction.
            if tail.start().is_some() {
                self.write_superblock(&mut tail)?;
            }
            state.mode = wanted;
        }
        Ok(())
    }

    /// Empties the log for a change of format if few blocks are not home. Otherwise it requests a
    /// checkpoint and returns `false`.
    fn empty_log_for_change(&self, state: &mut CommitState) -> Result<bool, JournalError> {
        let limits = BatchLimits {
            blocks: CHANGE_BYTES / self.block_size(),
            runs: CHANGE_RUNS,
        };
        let is_quick = self.set.lock().is_within(limits);
        if !is_quick {
            if state.should_request_checkpoint() {
                self.background.request_checkpoint(CheckpointRequest::All);
            }
            return Ok(false);
        }
        let Some(mut steps) = self.checkpointing.try_lock() else {
            return Ok(false);
        };
        // The callers of the commit wait for it.
        let _urgent = self.urge_checkpoint();
        self.checkpoint(&mut steps)?;
        // The commit lock is held, so no transaction was added.
        assert_eq!(self.set.lock().used(), 0, "the log is not empty");
        Ok(true)
    }

    /// The CRC-32 of the async format does not cover revoke blocks. So the revoke records
    /// of a small transaction must fit a sector, which is written as a whole or not at all.
    fn commit_size(&self, closed: &Closed) -> CommitSize {
        let format = self.formats.get(Mode::Async);
        let bytes = format.log_blocks(closed) as usize * self.block_size();
        let is_small = bytes <= SINGLE_WRITE
            && closed.revokes.len() <= revoke::entries_in_first_sector(&format.layout);
        match is_small {
            true => CommitSize::Small,
            false => CommitSize::Large,
        }
    }

    /// Returns whether the commit block may be written together with the blocks before it.
    pub(crate) fn is_single_write_commit(&self, state: &CommitState, closed: &Closed) -> bool {
        state.mode == Mode::Async && self.commit_size(closed) == CommitSize::Small
    }
}
