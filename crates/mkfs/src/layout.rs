//! The places of all tables and files of a new volume.
//!
//! ```text
//! first group of a flex group                                        the other groups
//! | super | GDT | reserved GDT | block bitmaps | inode bitmaps | inode tables | data … |   | (backups) | data … |
//! ```
//!
//! The bitmaps and inode tables of a flex group (16 groups; one without `flex_bg`) follow the
//! superblock of its first group. If they need more than that group, they continue in the next
//! groups and skip backups.
//!
//! With `bigalloc` these are adjacent blocks, which share clusters. Files take whole clusters.

use crate::{Error, Result};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{GroupDesc, GroupFlags};
use std::collections::BTreeMap;
use units::{ClusterSize, FsBlock, GroupNo};

/// A run of blocks: first block and length.
pub(crate) type Run = (u64, u64);

/// The blocks in use and the groups' descriptors.
pub(crate) struct Layout {
    /// Runs in use, by first block; they never overlap. They are whole clusters once the tables
    /// are placed.
    used: BTreeMap<u64, u64>,
    cluster: ClusterSize,
    end: u64,
    first: u64,
    /// One descriptor per group. [`Layout::finish`] sets counts and flags.
    pub descs: Vec<GroupDesc>,
}

impl Layout {
    /// Places the backups, bitmaps and inode tables of all groups.
    ///
    /// # Errors
    /// `Invalid` if the inode tables do not fit.
    pub fn new(geo: &Geometry) -> Result<Layout> {
        let mut layout = Layout {
            used: BTreeMap::new(),
            cluster: geo.cluster(),
            end: geo.blocks_count,
            first: geo.first_data_block,
            descs: vec![GroupDesc::default(); geo.groups as usize],
        };
        for group in (0..geo.groups).map(GroupNo) {
            let len = geo.super_blocks_in_group(group);
            if len > 0 {
                let start = geo.group_first_block(group).0;
                layout.used.insert(start, u64::from(len));
            }
        }
        let per_flex = 1usize << geo.flex_bg_log;
        let itable = u64::from(geo.itable_blocks_per_group());
        for first in (0..geo.groups).step_by(per_flex) {
            let last = geo.groups.min(first.saturating_add(per_flex as u32));
            let groups = first as usize..last as usize;
            let mut at = geo.group_first_block(GroupNo(first)).0;
            for group in groups.clone() {
                layout.descs[group].block_bitmap = layout.place(&mut at, 1)?;
            }
            for group in groups.clone() {
                layout.descs[group].inode_bitmap = layout.place(&mut at, 1)?;
            }
            for group in groups {
                layout.descs[group].inode_table = layout.place(&mut at, itable)?;
            }
        }
        layout.take_whole_clusters();
        Ok(layout)
    }

    /// Takes the free blocks of clusters that have used ones.
    fn take_whole_clusters(&mut self) {
        let size = self.cluster;
        for (start, len) in std::mem::take(&mut self.used) {
            let first = size.start_of(FsBlock(start)).0;
            let end = size.next_start(FsBlock(start + len)).0;
            match self.used.last_entry() {
                Some(mut last) if *last.key() + *last.get() >= first => {
                    let len = end - *last.key();
                    last.insert(len);
                }
                _ => {
                    self.used.insert(first, end - first);
                }
            }
        }
    }

    /// Takes the first `len` contiguous free blocks from `*at` on and sets `*at` to the block after
    /// them.
    fn place(&mut self, at: &mut u64, len: u64) -> Result<FsBlock> {
        let mut start = *at;
        // Runs do not overlap. So only the last one that starts before our end can be in the way.
        while let Some((run, run_len)) = self.used.range(..start + len).next_back() {
            if run + run_len <= start {
                break;
            }
            start = run + run_len;
        }
        if start + len > self.end {
            return Err(NO_ROOM);
        }
        *at = start + len;
        self.take((start, len));
        Ok(FsBlock(start))
    }

    /// Marks a free run as used and joins it to the run before it.
    fn take(&mut self, (start, len): Run) {
        if let Some((_, before_len)) = self
            .used
            .range_mut(..start)
            .next_back()
            .filter(|(b, l)| **b + **l == start)
        {
            *before_len += len;
        } else {
            self.used.insert(start, len);
        }
    }

    /// Takes the next `count` free blocks from `from` on with their clusters, and continues at the
    /// front of the volume after its end.
    ///
    /// # Errors
    /// `Invalid` if fewer blocks are free.
    pub fn allocate(&mut self, from: u64, count: u64) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        let whole = self.cluster.blocks_in(self.cluster.clusters_for(count));
        let mut left = whole;
        let mut at = from.max(self.first);
        let mut wrapped = false;
        while left > 0 {
            if let Some((run, len)) = self
                .used
                .range(..=at)
                .next_back()
                .filter(|(b, l)| **b + **l > at)
            {
                at = run + len;
                continue;
            }
            if at >= self.end {
                if wrapped {
                    return Err(NO_ROOM);
                }
                (wrapped, at) = (true, self.first);
                continue;
            }
            let next = self.used.range(at..).next().map_or(self.end, |(b, _)| *b);
            let run = (at, (next - at).min(left));
            self.take(run);
            runs.push(run);
            left -= run.1;
            at += run.1;
        }
        if let Some((_, len)) = runs.last_mut() {
            *len -= whole - count;
        }
        Ok(runs)
    }

    /// Takes the first free block from `from` on.
    ///
    /// # Errors
    /// `Invalid` if no block is free.
    pub fn allocate_one(&mut self, from: u64) -> Result<FsBlock> {
        Ok(FsBlock(self.allocate(from, 1)?[0].0))
    }

    /// Returns where the search for the journal's blocks starts: near the middle of the volume,
    /// after the tables of the flex group there. On a volume of few groups it starts in that of the
    /// three middle groups with most free blocks.
    pub fn journal_goal(&self, geo: &Geometry) -> u64 {
        let middle = geo.groups / 2;
        let per_flex = 1u32 << geo.flex_bg_log;
        if per_flex > 1 && middle > per_flex {
            let first = middle & !(per_flex - 1);
            let group = (first + 1).min(geo.groups - 1);
            return geo.group_first_block(GroupNo(group)).0;
        }
        let candidates = middle.saturating_sub(1)..=(middle + 1).min(geo.groups - 1);
        let free = |group: &u32| {
            let runs = self.used_in(geo, GroupNo(*group));
            let used: u32 = runs.iter().map(|(_, len)| len).sum();
            (
                geo.clusters_in_group(GroupNo(*group)) - used,
                u32::MAX - *group,
            )
        };
        let group = candidates.max_by_key(free).unwrap_or(0);
        geo.group_first_block(GroupNo(group)).0
    }

    #[cfg(test)]
    fn is_used(&self, block: u64) -> bool {
        let run = self.used.range(..=block).next_back();
        run.is_some_and(|(b, l)| b + l > block)
    }

    /// Returns the parts of used runs that lie in `group`, as bit and length.
    fn used_in(&self, geo: &Geometry, group: GroupNo) -> Vec<(u32, u32)> {
        let start = geo.group_first_block(group).0;
        let end = start + u64::from(geo.blocks_in_group(group));
        let from = self
            .used
            .range(..=start)
            .next_back()
            .map_or(start, |(b, _)| *b);
        self.used
            .range(from..end)
            .map(|(b, l)| ((*b).max(start), (b + l).min(end)))
            .filter(|(from, to)| from < to)
            .map(|(from, to)| {
                let bit = self.cluster.number_of((from - start) as u32);
                (bit, self.cluster.clusters_for(to - from) as u32)
            })
            .collect()
    }

    /// Returns the block bitmap of `group`. Bits after its last cluster are set.
    pub fn block_bitmap(&self, geo: &Geometry, group: GroupNo) -> Vec<u8> {
        let mut map = vec![0; geo.block_size as usize];
        for (bit, len) in self.used_in(geo, group) {
            ext4_format::bitmap::set_range(&mut map, bit, len);
        }
        let clusters = geo.clusters_in_group(group);
        ext4_format::bitmap::set_range(&mut map, clusters, u32::MAX);
        map
    }

    /// Sets counts and flags of all descriptors. Group 0 has `inodes` inodes in use, `dirs` of
    /// which are directories; the other groups have none.
    pub fn finish(&mut self, geo: &Geometry, inodes: u32, dirs: u32) {
        let lazy = geo.has_group_csum();
        for group in (0..geo.groups).map(GroupNo) {
            let runs = self.used_in(geo, group);
            let used: u32 = runs.iter().map(|(_, len)| len).sum();
            let is_last = group.0 + 1 == geo.groups;
            let here = if group.0 == 0 { inodes } else { 0 };
            let free_inodes = geo.inodes_per_group - here;
            let desc = &mut self.descs[group.0 as usize];
            desc.free_blocks_count = geo.clusters_in_group(group) - used;
            desc.free_inodes_count = free_inodes;
            desc.used_dirs_count = if group.0 == 0 { dirs } else { 0 };
            desc.itable_unused = if lazy { free_inodes } else { 0 };
            desc.flags.set(GroupFlags::INODE_UNINIT, lazy && here == 0);
            // The kernel computes the bitmap of such a group from the group's own superblock only.
            let supers = geo.super_blocks_in_group(group).into();
            let only_super = u64::from(used) == self.cluster.clusters_for(supers);
            desc.flags
                .set(GroupFlags::BLOCK_UNINIT, lazy && only_super && !is_last);
        }
    }

    /// Returns the number of blocks in used clusters.
    pub fn used_blocks(&self) -> u64 {
        self.used.values().sum()
    }
}

const NO_ROOM: Error =
    Error::Invalid("inode tables, journal and directories do not fit a volume of this size");

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(end: u64) -> Layout {
        Layout {
            used: BTreeMap::new(),
            cluster: ClusterSize::of_bits(0),
            end,
            first: 0,
            descs: Vec::new(),
        }
    }

    #[test]
    fn allocation_goes_around_what_is_used() {
        let mut layout = empty(100);
        layout.take((10, 5));
        layout.take((20, 5));
        assert_eq!(layout.allocate(12, 10).unwrap(), [(15, 5), (25, 5)]);
        assert_eq!(layout.allocate(95, 8).unwrap(), [(95, 5), (0, 3)]);
        assert!(layout.is_used(29) && layout.is_used(2) && !layout.is_used(30));
        assert_eq!(layout.used_blocks(), 5 + 5 + 10 + 8);
        assert!(layout.allocate(0, 73).is_err());
    }

    #[test]
    fn files_take_whole_clusters() {
        let mut layout = Layout {
            cluster: ClusterSize::of_bits(2),
            ..empty(100)
        };
        layout.take((0, 3));
        layout.take((5, 1));
        layout.take((12, 5));
        layout.take_whole_clusters();
        assert_eq!(layout.used_blocks(), 8 + 8);
        assert_eq!(layout.allocate(0, 6).unwrap(), [(8, 4), (20, 2)]);
        assert_eq!(layout.allocate_one(20).unwrap(), FsBlock(24));
        assert_eq!(layout.used_blocks(), 8 + 8 + 8 + 4);
    }

    #[test]
    fn placing_is_contiguous() {
        let mut layout = empty(100);
        layout.take((10, 5));
        let mut at = 0;
        assert_eq!(layout.place(&mut at, 8).unwrap(), FsBlock(0));
        assert_eq!(layout.place(&mut at, 8).unwrap(), FsBlock(15));
        assert_eq!(layout.place(&mut at, 77).unwrap(), FsBlock(23));
        assert!(layout.place(&mut at, 1).is_err());
    }
}
