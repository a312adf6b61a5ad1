//! The choice of a group for a new directory.
//!
//! Files are allocated in the group of their directory. Directories are spread over the groups so
//! that their files have room to grow. The algorithm is Grigoriy Orlov's for FreeBSD (2001), as in
//! Linux's `fs/ext4/ialloc.c`:
//!
//! - A directory in the root goes to a region of groups (a flex group) with at least the average
//!   of free inodes and blocks. Of those it takes the one with the fewest directories. Each search
//!   starts one region after the previous search.
//! - A deeper directory stays in its parent's region unless that is crowded: it has many more
//!   directories, or much less free space, than the average. Then it goes to the next region that
//!   is not crowded.
//!
//! Within a region the directory goes to the group with the fewest directories, at or after its
//! parent's group where several have equally few. The inode tables of a region are adjacent, so
//! this costs no seeks. Threads that fill different directories do not share a bitmap's lock.

use super::Groups;
use std::ops::Range;
use sync::atomic::Ordering;
use units::{GroupNo, Ino};

/// The most regions that a search looks at.
const REGIONS_MAX: u32 = 64;

/// The counts of a region, an average of them, or limits for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    free_inodes: u64,
    free_blocks: u64,
    dirs: u64,
}

impl Groups {
    /// Returns the group for a new directory whose parent is in group `home`.
    pub(super) fn group_for_directory(&self, home: GroupNo, parent: Ino) -> GroupNo {
        let size = self.region_size();
        let regions = self.geo.groups.div_ceil(size);
        let average = self.average(regions);
        let region = match parent {
            Ino::ROOT => self.region_for_top_level(regions, average),
            _ => self.region_for_nested(home.0 / size, regions, average),
        };
        let range = self.region_of(GroupNo(region * size));
        GroupNo(self.group_with_fewest_dirs(range, home.0))
    }

    fn average(&self, regions: u32) -> Load {
        let regions = u64::from(regions.max(1));
        Load {
            free_inodes: self.free_inodes.load(Ordering::Relaxed) / regions,
            free_blocks: self.space.free() / regions,
            dirs: self.dirs.load(Ordering::Relaxed) / regions,
        }
    }

    fn load_of(&self, region: u32) -> Load {
        let range = self.region_of(GroupNo(region.saturating_mul(self.region_size())));
        let mut load = Load::default();
        for group in range.filter_map(|number| self.parts.get(GroupNo(number))) {
            load.free_inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
            load.free_blocks += u64::from(group.available.load(Ordering::Relaxed));
            load.dirs += u64::from(group.dirs.load(Ordering::Relaxed));
        }
        load
    }

    fn region_for_top_level(&self, regions: u32, average: Load) -> u32 {
        let start = self.next_top_dir.fetch_add(1, Ordering::Relaxed);
        let candidates =
            (0..regions.min(REGIONS_MAX)).map(|step| start.wrapping_add(step) % regions);
        let good = candidates.filter_map(|region| {
            let load = self.load_of(region);
            let enough =
                load.free_inodes >= average.free_inodes && load.free_blocks >= average.free_blocks;
            (enough && load.free_inodes > 0).then_some((load.dirs, region))
        });
        good.min_by_key(|(dirs, _)| *dirs)
            .map_or(start % regions, |(_, region)| region)
    }

    fn region_for_nested(&self, home: u32, regions: u32, average: Load) -> u32 {
        let size = u64::from(self.region_size());
        let inodes = u64::from(self.geo.inodes_per_group) * size;
        let blocks = u64::from(self.geo.clusters_per_group()) * size;
        let limits = Load {
            free_inodes: average.free_inodes.saturating_sub(inodes / 4).max(1),
            free_blocks: average.free_blocks.saturating_sub(blocks / 4),
            dirs: average.dirs + inodes / 16,
        };
        let near = (0..regions.min(REGIONS_MAX))
            .map(|step| ((u64::from(home) + u64::from(step)) % u64::from(regions)) as u32);
        near.into_iter()
            .find(|region| {
                let load = self.load_of(*region);
                load.free_inodes >= limits.free_inodes
                    && load.free_blocks >= limits.free_blocks
                    && load.dirs <= limits.dirs
            })
            .unwrap_or(home)
    }

    /// Returns the group of `range` with a free inode and the fewest directories. Groups with much
    /// free space come before crowded ones.
    fn group_with_fewest_dirs(&self, range: Range<u32>, home: u32) -> u32 {
        let start = if range.contains(&home) {
            home
        } else {
            range.start
        };
        let order = (start..range.end).chain(range.start..start);
        let with_room = order.filter_map(|number| {
            let group = self.parts.get(GroupNo(number))?;
            let free_inodes = group.free_inodes.load(Ordering::Relaxed);
            // A crowded group has no room for the directory's files.
            let crowded = free_inodes < self.geo.inodes_per_group / 8
                || group.available.load(Ordering::Relaxed) < self.geo.clusters_per_group() / 32;
            (free_inodes > 0).then(|| ((crowded, group.dirs.load(Ordering::Relaxed)), number))
        });
        with_room
            .min_by_key(|(key, _)| *key)
            .map_or(start, |(_, number)| number)
    }
}
