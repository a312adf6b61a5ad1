//! Free blocks for discard (FITRIM).
//!
//! A run is picked while it is discarded, so no data is written to it. A pick takes only available
//! blocks. Blocks freed by a transaction become available when it has committed.

use super::free_map::BitRun;
use super::{BlockRun, Groups};
use crate::{Error, Result};
use std::ops::Range;
use sync::atomic::Ordering;
use units::GroupNo;

/// A run that is being discarded.
pub(crate) struct TrimRun<'a> {
    groups: &'a Groups,
    pub run: BlockRun,
}

impl Drop for TrimRun<'_> {
    fn drop(&mut self) {
        self.groups.unpick(self.run);
        let size = self.groups.geo.cluster();
        self.groups
            .unreserve(size.clusters_for(self.run.len.into()));
    }
}

impl Groups {
    /// Picks the first run of at least `min` available clusters that starts at a bit in `bits` of
    /// group `number`, or the first `max` clusters of it. Returns the run and the bit after it.
    ///
    /// The run cannot be allocated until it is dropped. The result is `None` if there is no such
    /// run, or if all free space is reserved.
    ///
    /// # Errors
    /// An I/O error if the bitmap could not be read. A damaged group has no runs.
    pub fn next_trim_run(
        &self,
        number: GroupNo,
        bits: Range<u32>,
        (min, max): (u32, u32),
    ) -> Result<Option<(TrimRun<'_>, u32)>> {
        let group = self.group(number)?;
        if group.available.load(Ordering::Relaxed) < min {
            return Ok(None);
        }
        let mut failure = None;
        let Some(mut state) = self.lock_loaded(number, group, &mut failure) else {
            return failure.map_or(Ok(None), Err);
        };
        let mut at = bits.start;
        loop {
            let found = state.map.as_ref().and_then(|map| {
                let start = map.next_zero(at).filter(|start| *start < bits.end)?;
                Some((start, map.run_at(start, bits.end - start)))
            });
            let Some((start, whole)) = found else {
                return Ok(None);
            };
            if whole < min {
                at = start + whole + 1;
                continue;
            }
            let len = whole.min(max);
            // Reserved blocks must be found elsewhere while this run is picked.
            match self.reserve(u64::from(len)) {
                Ok(()) => {}
                Err(Error::NoSpace) => return Ok(None),
                Err(error) => return Err(error),
            }
            let run = self.mark_picked(number, group, &mut state, BitRun { start, len });
            return Ok(Some((TrimRun { groups: self, run }, start + len)));
        }
    }
}
