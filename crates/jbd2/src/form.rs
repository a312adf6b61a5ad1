//! In which of two forms the log is written, and when that changes.
//!
//! | form   | checksums                              | a small commit                                            |
//! |--------|----------------------------------------|-----------------------------------------------------------|
//! | usual  | of each block (csum v3, by default)    | log; flush; commit block with FUA                         |
//! | async  | of each transaction (csum v1)          | log and commit block in one write with FUA                |
//!
//! The usual form finds damage block by block; the other one saves a trip to the device, which is
//! what a lone small fsync waits for. A log has one form at a time, and its super block says which.
//! So it changes only where nothing would be replayed: when the log was empty, or when a checkpoint
//! has just emptied it; and the super block that says so is durable before the first transaction in
//! the new form. An empty log has the usual form.
//!
//! With [`AsyncCommit::Adaptive`] the form follows the load: small commits that somebody waits for,
//! one after another, are worth the other form; large ones are not.

use crate::commit::{Closed, Why};
use crate::format::superblock::{Features, JournalSuperblock};
use crate::format::{Layout, descriptor, revoke};
use crate::{Journal, JournalError};

/// Blocks of the largest transaction that is written at once, its commit block included (1 MiB).
const ONE_WRITE_BLOCKS: u32 = 256;
/// Blocks that a change of form writes home at most (2 MiB), and in how many runs (a third of a
/// second on a disk): somebody waits for the commit.
const CHANGE_BLOCKS: usize = 512;
const CHANGE_RUNS: usize = 32;
/// Commits between two checkpoints that are asked for because the form is to change.
const COMMITS_BETWEEN_ASKS: u32 = 64;

/// Whether the commit block of a small transaction is written together with what it commits (the
/// kernel's `journal_async_commit`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncCommit {
    /// Never.
    Never,
    /// While small commits that somebody waits for follow one another.
    #[default]
    Adaptive,
    /// Always.
    Always,
}

/// A form of the log.
pub(crate) struct Form {
    /// How its blocks are laid out.
    pub layout: Layout,
    /// How the super block says so.
    features: Features,
}

impl Form {
    /// The form that `sb` names, with `features` in their place.
    fn new(sb: &JournalSuperblock, features: Features) -> Form {
        let mut sb = sb.clone();
        sb.set_features(features);
        Form {
            layout: sb.layout(),
            features,
        }
    }
    /// Log blocks that a transaction takes.
    pub fn log_blocks(&self, closed: &Closed) -> u32 {
        let (blocks, revokes) = (closed.blocks.len(), closed.revokes.len());
        let descriptors = blocks.div_ceil(descriptor::tags_per_block(&self.layout));
        let revokes = revokes.div_ceil(revoke::entries_per_block(&self.layout));
        (blocks + descriptors + revokes + 1) as u32
    }
}

/// The forms that a log may have.
pub(crate) struct Forms {
    usual: Form,
    asynchronous: Form,
    /// Revoke records that a block has room for, in either form.
    revokes_per_block: u32,
}

impl Forms {
    /// Those of a log whose (upgraded) super block is `sb`.
    pub fn new(sb: &JournalSuperblock) -> Forms {
        let usual = sb.features();
        let asynchronous = Form::new(sb, usual.with_async_commit());
        let usual = Form::new(sb, usual);
        let room = |form: &Form| revoke::entries_per_block(&form.layout) as u32;
        Forms {
            revokes_per_block: room(&usual).min(room(&asynchronous)),
            usual,
            asynchronous,
        }
    }
    /// Log blocks for `records` revoke records, in whichever form.
    pub fn revoke_blocks(&self, records: u32) -> u32 {
        records.div_ceil(self.revokes_per_block)
    }
    /// The one, or the other.
    pub fn get(&self, asynchronous: bool) -> &Form {
        match asynchronous {
            true => &self.asynchronous,
            false => &self.usual,
        }
    }
}

/// What the last commits were like, and which form they ask for.
#[derive(Default)]
struct Load {
    small: u32,
    wants_async: bool,
}

impl Load {
    /// Small commits that count, and how many of them make the asynchronous form worth while.
    const MOST: u32 = 32;
    const MANY: u32 = 16;
    /// What a commit that is not small takes from them; where nothing is left, the usual form is
    /// wanted again.
    const LARGE: u32 = 4;

    fn note(&mut self, small: bool) {
        self.small = match small {
            true => Load::MOST.min(self.small + 1),
            false => self.small.saturating_sub(Load::LARGE),
        };
        match self.small {
            Load::MANY.. => self.wants_async = true,
            0 => self.wants_async = false,
            _ => {}
        }
    }
}

/// What the commit lock guards: whoever holds it is the one who commits.
#[derive(Default)]
pub(crate) struct CommitState {
    /// The form of the log is the asynchronous one.
    is_async: bool,
    load: Load,
    /// Commits, with another form wanted, until a checkpoint is asked for (again) so that the form
    /// can change.
    patience: u32,
}

impl CommitState {
    /// Whether a commit that finds another form wanted and the log too full asks for a checkpoint.
    /// Not each does, or the log would be written home all the time; nor only the first, since
    /// others may commit before its checkpoint is done.
    fn asks(&mut self) -> bool {
        let asks = self.patience == 0;
        self.patience = match asks {
            true => COMMITS_BETWEEN_ASKS,
            false => self.patience - 1,
        };
        asks
    }
}

impl Journal {
    /// The form of the log.
    pub(crate) fn form(&self, state: &CommitState) -> &Form {
        self.forms.get(state.is_async)
    }

    /// Chooses the form for a transaction and changes the log to it, if that can be done now.
    pub(crate) fn choose_form(
        &self,
        state: &mut CommitState,
        closed: &Closed,
        why: Why,
    ) -> Result<(), JournalError> {
        let small = self.is_small(closed);
        if why == Why::WaitedFor || !small {
            state.load.note(small);
        }
        let wanted = match self.options.async_commit {
            AsyncCommit::Never => false,
            AsyncCommit::Adaptive => state.load.wants_async,
            AsyncCommit::Always => true,
        };
        if wanted == state.is_async {
            state.patience = 0;
        } else if self.empty_for_change(state)? {
            let mut tail = self.tail.lock();
            tail.set_features(self.forms.get(wanted).features);
            // That of an empty log is written when it comes into use, which is before the first
            // transaction.
            if tail.start() != 0 {
                self.write_superblock(&mut tail)?;
            }
            state.is_async = wanted;
        }
        Ok(())
    }

    /// Empties the log for a change of form, if that is soon done; otherwise asks for a checkpoint
    /// that makes it so.
    fn empty_for_change(&self, state: &mut CommitState) -> Result<bool, JournalError> {
        let little = self.set.lock().is_within(CHANGE_BLOCKS, CHANGE_RUNS);
        if !little {
            if state.asks() {
                self.background.ask_checkpoint();
            }
            return Ok(false);
        }
        let Some(lock) = self.checkpointing.try_lock() else {
            return Ok(false);
        };
        self.checkpoint(&lock)?;
        // Nobody commits meanwhile.
        assert_eq!(self.set.lock().used(), 0, "the log is not empty");
        Ok(true)
    }

    /// The super block of an empty log names the usual form again; written by the caller.
    pub(crate) fn rest(&self, state: &mut CommitState, sb: &mut JournalSuperblock) {
        sb.set_features(self.forms.usual.features);
        state.is_async = false;
    }

    /// Whether a transaction could be written at once. (The CRC-32 does not cover revoke blocks.)
    fn is_small(&self, closed: &Closed) -> bool {
        let form = &self.forms.asynchronous;
        form.log_blocks(closed) <= ONE_WRITE_BLOCKS
            && closed.revokes.len() <= revoke::entries_in_first_sector(&form.layout)
    }

    /// Whether the commit block may be written together with what it commits.
    pub(crate) fn goes_out_at_once(&self, state: &CommitState, closed: &Closed) -> bool {
        state.is_async && self.is_small(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the asynchronous form is wanted after each run of commits: their number, and whether
    /// they are small.
    fn forms(commits: &[(u32, bool)]) -> Vec<bool> {
        let mut state = CommitState::default();
        let mut forms = Vec::new();
        for &(count, small) in commits {
            for _ in 0..count {
                state.load.note(small);
                state.is_async = state.load.wants_async;
            }
            forms.push(state.is_async);
        }
        forms
    }

    #[test]
    fn a_checkpoint_is_asked_for_now_and_then() {
        let mut state = CommitState::default();
        let asks: Vec<u32> = (0..200).filter(|_| state.asks()).collect();
        assert_eq!(asks, [0, 65, 130, 195]);
    }

    #[test]
    fn a_run_of_small_commits_changes_the_form_and_large_ones_change_it_back() {
        assert_eq!(forms(&[(15, true), (1, true)]), [false, true]);
        // A large one among them, now and then, does not.
        assert_eq!(
            forms(&[(100, true), (7, false), (1, false)]),
            [true, true, false]
        );
        assert_eq!(
            forms(&[(100, true), (5, false), (3, true), (1, false)]),
            [true; 4]
        );
        assert_eq!(
            forms(&[(12, true), (1, false), (7, true), (1, true)]),
            [false, false, false, true]
        );
    }
}
