//! The two formats of the log, and the counts from which the commit chooses one
//! (`crate::log_format`).

use crate::format::superblock::{Features, JournalSuperblock};
use crate::format::{Layout, revoke};
use crate::log_copies;
use crate::transaction::Closed;

/// Commits between two checkpoints that are requested for a change of format.
const COMMITS_BETWEEN_REQUESTS: u32 = 64;

/// A format of the log.
pub(crate) struct Format {
    /// The layout of its blocks.
    pub layout: Layout,
    /// The features in the super block.
    pub features: Features,
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
        let copies = log_copies::log_blocks(&self.layout, blocks);
        let revokes = revokes.div_ceil(revoke::entries_per_block(&self.layout));
        (copies + revokes + 1) as u32
    }
}

/// Selects one of the two formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
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
    /// Sets the default format of an empty log in `state` and in the super block `sb`, which the
    /// caller writes.
    pub fn reset(&self, state: &mut CommitState, sb: &mut JournalSuperblock) {
        sb.set_features(self.default.features);
        state.mode = Mode::Default;
    }
    pub fn get(&self, mode: Mode) -> &Format {
        match mode {
            Mode::Async => &self.asynchronous,
            Mode::Default => &self.default,
        }
    }
}

/// Whether a transaction can be committed with a single write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitSize {
    Small,
    Large,
}

/// Counts recent small commits and derives the wanted format.
#[derive(Default)]
pub(crate) struct Load {
    small: u32,
    pub wanted: Mode,
}

impl Load {
    /// Upper bound of the count.
    const MAX: u32 = 32;
    /// A count from which the async format is wanted. It stays wanted until the count is 0.
    const MANY: u32 = 16;
    /// A large commit lowers the count by so much.
    const LARGE: u32 = 4;

    pub fn record(&mut self, size: CommitSize) {
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
    pub mode: Mode,
    pub load: Load,
    /// While another format is wanted: commits until the next request for a checkpoint.
    pub commits_to_request: u32,
}

impl CommitState {
    /// Returns whether a commit that cannot change the format requests a checkpoint.
    ///
    /// A request by every commit would write the log home all the time. A single request is not
    /// enough, because other transactions may commit before its checkpoint is done.
    pub fn should_request_checkpoint(&mut self) -> bool {
        let request = self.commits_to_request == 0;
        self.commits_to_request = match request {
            true => COMMITS_BETWEEN_REQUESTS,
            false => self.commits_to_request - 1,
        };
        request
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
