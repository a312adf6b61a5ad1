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

use crate::format::superblock::{Features, JournalSuperblock};
use crate::format::{Layout, descriptor, revoke};
use crate::transaction::{Closed, CommitReason};
use crate::{AsyncCommit, Journal, JournalError};

/// Blocks of the largest transaction that is committed with a single write, its commit block
/// included (1 MiB).
const SINGLE_WRITE_BLOCKS: u32 = 256;
/// Limits on the blocks that a change of format writes home, while a thread waits for the commit: 2
/// MiB, in so few runs that a disk needs a third of a second.
const CHANGE_BLOCKS: usize = 512;
const CHANGE_RUNS: usize = 32;
/// Commits between two checkpoints that are requested for a change of format.
const COMMITS_BETWEEN_REQUESTS: u32 = 64;

/// A format of the log.
pub(crate) struct Format {
    /// The layout of its blocks.
    pub layout: Layout,
    /// The features in the super block.
    features: Features,
}

impl Format {
    /// Returns the format of a log whose super block is `sb` with `features`.
    fn new(sb: &JournalSuperblock, features: Features) -> Format {
        let mut sb = sb.clone();
        sb.set_features(features);
        Format {
            layout: sb.layout(),
            features,
        }
    }
    /// Returns the log blocks that a transaction takes.
    pub fn log_blocks(&self, closed: &Closed) -> u32 {
        let (blocks, revokes) = (closed.blocks.len(), closed.revokes.len());
        let descriptors = blocks.div_ceil(descriptor::tags_per_block(&self.layout));
        let revokes = revokes.div_ceil(revoke::entries_per_block(&self.layout));
        (blocks + descriptors + revokes + 1) as u32
    }
}

/// Selects one of the two formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Default,
    Async,
}

/// Both formats of a log.
pub(crate) struct Formats {
    default: Format,
    asynchronous: Format,
    /// The smaller of both formats.
    revokes_per_block: u32,
}

impl Formats {
    /// Returns the formats of a log whose upgraded super block is `sb`.
    pub fn new(sb: &JournalSuperblock) -> Formats {
        let features = sb.features();
        let asynchronous = Format::new(sb, features.with_async_commit());
        let default = Format::new(sb, features);
        let room = |format: &Format| revoke::entries_per_block(&format.layout) as u32;
        Formats {
            revokes_per_block: room(&default).min(room(&asynchronous)),
            default,
            asynchronous,
        }
    }
    /// Returns the log blocks that `records` revoke records take at most.
    pub fn revoke_blocks(&self, records: u32) -> u32 {
        records.div_ceil(self.revokes_per_block)
    }
    fn get(&self, mode: Mode) -> &Format {
        match mode {
            Mode::Async => &self.asynchronous,
            Mode::Default => &self.default,
        }
    }
}

/// Whether a transaction can be committed with a single write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitSize {
    Small,
    Large,
}

/// Counts recent small commits and derives the wanted format.
#[derive(Default)]
struct Load {
    small: u32,
    wanted: Mode,
}

impl Load {
    /// Upper bound of the count.
    const MAX: u32 = 32;
    /// A count from which the async format is wanted. It stays wanted until the count is 0.
    const MANY: u32 = 16;
    /// A large commit lowers the count by so much.
    const LARGE: u32 = 4;

    fn record(&mut self, size: CommitSize) {
        self.small = match size {
            CommitSize::Small => Load::MAX.min(self.small + 1),
            CommitSize::Large => self.small.saturating_sub(Load::LARGE),
        };
        match self.small {
            Load::MANY.. => self.wanted = Mode::Async,
            0 => self.wanted = Mode::Default,
            _ => {}
        }
    }
}

/// The state that the commit lock protects.
#[derive(Default)]
pub(crate) struct CommitState {
    /// The format of the log.
    mode: Mode,
    load: Load,
    /// While another format is wanted: commits until the next request for a checkpoint.
    commits_to_request: u32,
}

impl CommitState {
    /// Returns whether a commit that cannot change the format requests a checkpoint.
    ///
    /// A request by every commit would write the log home all the time. A single request is not
    /// enough, because other transactions may commit before its checkpoint is done.
    fn should_request_checkpoint(&mut self) -> bool {
        let request = self.commits_to_request == 0;
        self.commits_to_request = match request {
            true => COMMITS_BETWEEN_REQUESTS,
            false => self.commits_to_request - 1,
        };
        request
    }
}

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
            if tail.start() != 0 {
                self.write_superblock(&mut tail)?;
            }
            state.mode = wanted;
        }
        Ok(())
    }

    /// Empties the log for a change of format if few blocks are not home. Otherwise it requests a
    /// checkpoint and returns `false`.
    fn empty_log_for_change(&self, state: &mut CommitState) -> Result<bool, JournalError> {
        let is_quick = self.set.lock().is_within(CHANGE_BLOCKS, CHANGE_RUNS);
        if !is_quick {
            if state.should_request_checkpoint() {
                self.background.request_checkpoint();
            }
            return Ok(false);
        }
        let Some(lock) = self.checkpointing.try_lock() else {
            return Ok(false);
        };
        self.checkpoint(&lock)?;
        // The commit lock is held, so no transaction was added.
        assert_eq!(self.set.lock().used(), 0, "the log is not empty");
        Ok(true)
    }

    /// Sets the default format in the super block of an empty log, which the caller writes.
    pub(crate) fn reset_log_format(&self, state: &mut CommitState, sb: &mut JournalSuperblock) {
        sb.set_features(self.formats.default.features);
        state.mode = Mode::Default;
    }

    /// Returns the CRC-32 of the async format does not cover revoke blocks. So the revoke records
    /// of a small transaction must fit a sector, which is written as a whole or not at all.
    fn commit_size(&self, closed: &Closed) -> CommitSize {
        let format = &self.formats.asynchronous;
        let is_small = format.log_blocks(closed) <= SINGLE_WRITE_BLOCKS
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

#[cfg(test)]
mod tests {
    use super::*;

    use CommitSize::{Large, Small};

    /// Returns the wanted format after each run of commits of one size.
    fn wanted_after(runs: &[(u32, CommitSize)]) -> Vec<Mode> {
        let mut load = Load::default();
        let mut wanted = Vec::new();
        for &(count, size) in runs {
            (0..count).for_each(|_| load.record(size));
            wanted.push(load.wanted);
        }
        wanted
    }

    #[test]
    fn checkpoints_are_requested_at_intervals() {
        let mut state = CommitState::default();
        let requests: Vec<u32> = (0..200)
            .filter(|_| state.should_request_checkpoint())
            .collect();
        assert_eq!(requests, [0, 65, 130, 195]);
    }

    #[test]
    fn small_commits_lead_to_the_async_format_and_large_ones_back() {
        assert_eq!(
            wanted_after(&[(15, Small), (1, Small)]),
            [Mode::Default, Mode::Async]
        );
        // A few large commits among them do not change it back.
        assert_eq!(
            wanted_after(&[(100, Small), (7, Large), (1, Large)]),
            [Mode::Async, Mode::Async, Mode::Default]
        );
        assert_eq!(
            wanted_after(&[(100, Small), (5, Large), (3, Small), (1, Large)]),
            [Mode::Async; 4]
        );
        assert_eq!(
            wanted_after(&[(12, Small), (1, Large), (7, Small), (1, Small)]),
            [Mode::Default, Mode::Default, Mode::Default, Mode::Async]
        );
    }
}
