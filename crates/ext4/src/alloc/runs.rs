//! Runs of blocks, and the bits of groups that they have: one for each cluster.

use super::free_map::BitRun;
use super::group::Group;
use super::{BlockRun, Groups};
use crate::{Error, Result};
use ext4_format::error::FormatError;
use units::{FsBlock, GroupNo};

impl Groups {
    /// Returns the blocks of a group's bits.
    pub(super) fn run_of(&self, number: GroupNo, bits: BitRun) -> BlockRun {
        let size = self.geo.cluster();
        let first = self.geo.group_first_block(number).0;
        BlockRun {
            start: FsBlock(first + size.blocks_in(bits.start.into())),
            len: size.blocks_in(bits.len.into()) as u32,
        }
    }

    /// Returns all blocks of the clusters of a run. A damaged number may be out of range.
    pub(super) fn whole_clusters(&self, run: BlockRun) -> BlockRun {
        let size = self.geo.cluster();
        let start = size.start_of(run.start);
        let end = size.next_start(run.start.saturating_add(run.len.into()));
        BlockRun {
            start,
            len: u32::try_from(end - start).map_or(run.len, |len| len.max(run.len)),
        }
    }

    /// Calls `each` for the clusters of `run` in each group. It stops at the first error.
    pub(super) fn per_group(
        &self,
        run: BlockRun,
        mut each: impl FnMut(GroupNo, &Group, BitRun) -> Result<()>,
    ) -> Result<()> {
        if !self.geo.contains_blocks(run.start, u64::from(run.len)) {
            return Err(Error::Corrupt(FormatError::OutOfRange {
                structure: "block number",
                field: "block",
                value: run.start.0,
            }));
        }
        let size = self.geo.cluster();
        let mut left = run;
        while left.len > 0 {
            let number = self.geo.group_of_block(left.start)?;
            let within = (left.start - self.geo.group_first_block(number)) as u32;
            let len = left.len.min(self.geo.blocks_in_group(number) - within);
            let start = size.number_of(within);
            let bits = BitRun {
                start,
                len: size.number_of(within + len - 1) - start + 1,
            };
            each(number, self.group(number)?, bits)?;
            left.start.0 += u64::from(len);
            left.len -= len;
        }
        Ok(())
    }
}
