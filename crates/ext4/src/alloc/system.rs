//! The file system's own blocks: superblocks, descriptor tables, bitmaps, inode tables, the log,
//! and the block of the multiple mount protection.
//!
//! They are never picked and never freed. Only blocks that are kept for the descriptor table can be
//! given up. With `flex_bg` a group holds blocks of other groups. So a group's bitmap can be
//! checked, or initialised, only with the descriptors of all groups.

use super::BlockRun;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use std::sync::OnceLock;
use units::{FsBlock, GroupNo};

/// The first block of a run, and the block after its last.
type Range = (u64, u64);

/// Runs of system blocks, sorted and disjoint.
pub(super) struct SystemBlocks {
    at_first: Vec<Range>,
    /// The runs after some blocks were given up.
    fewer: OnceLock<Vec<Range>>,
}

impl SystemBlocks {
    /// Returns the blocks of the groups from `first` on with these descriptors, and those in `own`.
    pub fn new(
        geo: &Geometry,
        (first, descs): (GroupNo, &[GroupDesc]),
        own: &[BlockRun],
    ) -> SystemBlocks {
        let itable = u64::from(geo.itable_blocks_per_group());
        let mut all = Vec::with_capacity(descs.len() * 3 + own.len());
        all.extend(
            own.iter()
                .map(|run| (run.start.0, run.start.0 + u64::from(run.len))),
        );
        for (group, desc) in (first.0..).map(GroupNo).zip(descs) {
            let supers = geo.super_blocks_in_group(group);
            if supers > 0 {
                let start = geo.group_first_block(group).0;
                all.push((start, start + u64::from(supers)));
            }
            all.push((desc.block_bitmap.0, desc.block_bitmap.0 + 1));
            all.push((desc.inode_bitmap.0, desc.inode_bitmap.0 + 1));
            all.push((desc.inode_table.0, desc.inode_table.0 + itable));
        }
        all.sort_unstable();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (start, end) in all {
            match runs.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => runs.push((start, end)),
            }
        }
        runs.shrink_to_fit();
        SystemBlocks {
            at_first: runs,
            fewer: OnceLock::new(),
        }
    }

    fn runs(&self) -> &[Range] {
        self.fewer.get().unwrap_or(&self.at_first)
    }

    /// Takes blocks out of the system blocks. This happens once at most.
    pub fn give_up(&self, blocks: &[BlockRun]) {
        let mut fewer = self.at_first.clone();
        for run in blocks {
            let (start, end) = (run.start.0, run.start.0 + u64::from(run.len));
            let parts = |(first, last): Range| [(first, last.min(start)), (first.max(end), last)];
            fewer = fewer.into_iter().flat_map(parts).collect();
            fewer.retain(|(first, last)| first < last);
        }
        let stored = self.fewer.set(fewer);
        debug_assert!(stored.is_ok(), "system blocks are given up twice");
    }

    /// Returns whether any block of `run` is the file system's own.
    pub fn overlaps(&self, run: BlockRun) -> bool {
        // Numbers from a damaged volume can be out of range.
        let end = run.start.0.saturating_add(u64::from(run.len));
        let runs = self.runs();
        let after = runs.partition_point(|(first, _)| *first < end);
        after > 0 && runs[after - 1].1 > run.start.0
    }

    /// Returns the runs of bits of `group` whose clusters have system blocks. Two runs may overlap
    /// in a bit.
    pub fn bits_of(&self, geo: &Geometry, group: GroupNo) -> impl Iterator<Item = (u32, u32)> + '_ {
        let size = geo.cluster();
        let blocks = geo.blocks_in_group(group);
        self.within(geo.group_first_block(group), blocks)
            .map(move |(start, len)| {
                let first = size.number_of(start);
                (first, size.number_of(start + len - 1) - first + 1)
            })
    }

    /// Returns the system blocks among the `len` blocks from `start` on, as offsets from `start`
    /// and lengths.
    fn within(&self, start: FsBlock, len: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let start = start.0;
        let end = start + u64::from(len);
        let runs = self.runs();
        let from = runs.partition_point(|(_, last)| *last <= start);
        runs[from..]
            .iter()
            .take_while(move |(first, _)| *first < end)
            .map(move |(first, last)| {
                let (first, last) = ((*first).max(start), (*last).min(end));
                ((first - start) as u32, (last - first) as u32)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_and_within_cut_at_run_boundaries() {
        let system = SystemBlocks {
            at_first: vec![(0, 10), (20, 30)],
            fewer: OnceLock::new(),
        };
        let overlaps = |start, len| {
            let start = FsBlock(start);
            system.overlaps(BlockRun { start, len })
        };
        assert!(overlaps(9, 1) && overlaps(5, 100) && overlaps(15, 6));
        assert!(!overlaps(10, 10) && !overlaps(30, 5));
        let within: Vec<_> = system.within(FsBlock(5), 20).collect();
        assert_eq!(within, [(0, 5), (15, 5)]);
        assert_eq!(system.within(FsBlock(10), 10).count(), 0);
        let run = |start, len| BlockRun {
            start: FsBlock(start),
            len,
        };
        system.give_up(&[run(3, 4), run(25, 5)]);
        assert_eq!(system.runs(), [(0, 3), (7, 10), (20, 25)]);
        assert!(!overlaps(3, 4) && overlaps(2, 2) && overlaps(6, 2) && !overlaps(25, 5));
    }
}
