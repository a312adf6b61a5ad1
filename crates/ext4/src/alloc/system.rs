//! The file system's own blocks: superblocks, descriptor tables, bitmaps, inode tables.
//!
//! They are never picked and never freed. With `flex_bg` a group holds those of others, so that a
//! group's bitmap can be checked, or made where it was never written, only with all descriptors at
//! hand.

use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::types::GroupNo;

/// Runs of system blocks, sorted, apart from one another.
pub(super) struct SystemBlocks {
    /// First block and the block after the last.
    runs: Vec<(u64, u64)>,
}

impl SystemBlocks {
    pub fn new<'a>(geo: &Geometry, descs: impl Iterator<Item = &'a GroupDesc>) -> SystemBlocks {
        let itable = u64::from(geo.itable_blocks_per_group());
        let mut all = Vec::with_capacity(geo.groups as usize * 3);
        for (group, desc) in (0..geo.groups).map(GroupNo).zip(descs) {
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
        SystemBlocks { runs }
    }

    /// Whether any of the blocks is the file system's own.
    pub fn overlaps(&self, start: u64, len: u64) -> bool {
        // Numbers from a damaged volume may be anything.
        let end = start.saturating_add(len);
        let after = self.runs.partition_point(|(first, _)| *first < end);
        after > 0 && self.runs[after - 1].1 > start
    }

    /// The parts of the runs in `start..start + len`, as offsets from `start` and lengths.
    pub fn within(&self, start: u64, len: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let end = start + u64::from(len);
        let from = self.runs.partition_point(|(_, last)| *last <= start);
        self.runs[from..]
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
    fn ranges() {
        let system = SystemBlocks {
            runs: vec![(0, 10), (20, 30)],
        };
        assert!(system.overlaps(9, 1) && system.overlaps(5, 100) && system.overlaps(15, 6));
        assert!(!system.overlaps(10, 10) && !system.overlaps(30, 5));
        let within: Vec<_> = system.within(5, 20).collect();
        assert_eq!(within, [(0, 5), (15, 5)]);
        assert_eq!(system.within(10, 10).count(), 0);
    }
}
