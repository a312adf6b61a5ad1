//! Blocks that were freed and wait to be discarded (`-o discard`).

use crate::alloc::BlockRun;
use jbd2::FreedExtent;
use sync::{Mutex, Rank};

/// Runs whose transaction has committed. By the time of the discard, another file may use a part of
/// them.
pub(crate) struct FreedRuns(Mutex<Vec<BlockRun>>);

impl Default for FreedRuns {
    fn default() -> FreedRuns {
        FreedRuns(Rank::FreedRuns.mutex(Vec::new()))
    }
}

impl FreedRuns {
    /// Notes blocks that are available again.
    pub fn add(&self, freed: &[FreedExtent]) {
        let runs = freed.iter().map(|extent| BlockRun {
            start: extent.start,
            len: extent.len,
        });
        self.0.lock().extend(runs);
    }

    /// Takes all runs, in the order of the device; adjacent ones are one.
    pub fn take(&self) -> Vec<BlockRun> {
        let mut runs = std::mem::take(&mut *self.0.lock());
        runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<BlockRun> = Vec::new();
        for run in runs {
            match merged.last_mut() {
                Some(last) if last.start.0 + u64::from(last.len) == run.start.0 => {
                    last.len = last.len.saturating_add(run.len);
                }
                _ => merged.push(run),
            }
        }
        merged
    }
}
