//! Which group a new directory goes to.
//!
//! Directories are spread so that the files in them, which are put into their directory's group,
//! have room to grow beside one another (Grigoriy Orlov's allocator for FreeBSD, 2001, as in
//! Linux's `fs/ext4/ialloc.c`):
//!
//! - A directory in the root goes to a cluster of groups (a flex group) with at least the average
//!   of free inodes and blocks and the fewest directories, beginning each time behind the last one.
//! - A deeper one stays in its parent's cluster as long as that is not crowded: not many more
//!   directories than the average, and not much less free than the average. Else the next cluster
//!   that is not crowded.
//!
//! Within a cluster it goes to the group with the fewest directories, behind its parent's where
//! there are several: inode tables of a cluster are together, so that this costs no seeks, and
//! directories that are filled at once by several threads do not share a bitmap's lock.

use super::Groups;
use std::ops::Range;
use sync::atomic::Ordering;

/// Clusters that are looked at for a directory in the root.
const CLUSTERS_FOR_TOP: u32 = 64;

/// What a cluster has, or what it should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    free_inodes: u64,
    free_blocks: u64,
    dirs: u64,
}

impl Groups {
    /// The group for a new directory whose parent is in `home`.
    pub(super) fn group_for_directory(&self, home: u32, in_root: bool) -> u32 {
        let size = self.cluster_size();
        let clusters = self.geo.groups.div_ceil(size);
        let average = self.average(clusters);
        let cluster = match in_root {
            true => self.cluster_for_top(clusters, average),
            false => self.cluster_for_deep(home / size, clusters, average),
        };
        let range = self.cluster_of(cluster * size);
        self.emptiest(range, home)
    }

    fn average(&self, clusters: u32) -> Load {
        let clusters = u64::from(clusters.max(1));
        Load {
            free_inodes: self.free_inodes.load(Ordering::Relaxed) / clusters,
            free_blocks: self.space.free() / clusters,
            dirs: self.dirs.load(Ordering::Relaxed) / clusters,
        }
    }

    fn load_of(&self, cluster: u32) -> Load {
        let range = self.cluster_of(cluster.saturating_mul(self.cluster_size()));
        let mut load = Load::default();
        for group in &self.groups[range.start as usize..range.end as usize] {
            load.free_inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
            load.free_blocks += u64::from(group.available.load(Ordering::Relaxed));
            load.dirs += u64::from(group.dirs.load(Ordering::Relaxed));
        }
        load
    }

    fn cluster_for_top(&self, clusters: u32, average: Load) -> u32 {
        let start = self.next_top_dir.fetch_add(1, Ordering::Relaxed);
        let candidates =
            (0..clusters.min(CLUSTERS_FOR_TOP)).map(|step| start.wrapping_add(step) % clusters);
        let good = candidates.filter_map(|cluster| {
            let load = self.load_of(cluster);
            let enough =
                load.free_inodes >= average.free_inodes && load.free_blocks >= average.free_blocks;
            (enough && load.free_inodes > 0).then_some((load.dirs, cluster))
        });
        // The first of those with the fewest.
        good.min_by_key(|(dirs, _)| *dirs)
            .map_or(start % clusters, |(_, cluster)| cluster)
    }

    fn cluster_for_deep(&self, home: u32, clusters: u32, average: Load) -> u32 {
        let size = u64::from(self.cluster_size());
        let inodes = u64::from(self.geo.inodes_per_group) * size;
        let blocks = u64::from(self.geo.blocks_per_group) * size;
        let limits = Load {
            free_inodes: average.free_inodes.saturating_sub(inodes / 4).max(1),
            free_blocks: average.free_blocks.saturating_sub(blocks / 4),
            dirs: average.dirs + inodes / 16,
        };
        let near = (0..clusters.min(CLUSTERS_FOR_TOP))
            .map(|step| ((u64::from(home) + u64::from(step)) % u64::from(clusters)) as u32);
        near.into_iter()
            .find(|cluster| {
                let load = self.load_of(*cluster);
                load.free_inodes >= limits.free_inodes
                    && load.free_blocks >= limits.free_blocks
                    && load.dirs <= limits.dirs
            })
            .unwrap_or(home)
    }

    /// The group with the fewest directories, if it has free inodes and blocks.
    fn emptiest(&self, range: Range<u32>, home: u32) -> u32 {
        let start = if range.contains(&home) {
            home
        } else {
            range.start
        };
        let order = (start..range.end).chain(range.start..start);
        let with_room = order.filter_map(|number| {
            let group = &self.groups[number as usize];
            let free_inodes = group.free_inodes.load(Ordering::Relaxed);
            // A group in which little is left is no place for the files to come.
            let crowded = free_inodes < self.geo.inodes_per_group / 8
                || group.available.load(Ordering::Relaxed) < self.geo.blocks_per_group / 32;
            (free_inodes > 0).then(|| ((crowded, group.dirs.load(Ordering::Relaxed)), number))
        });
        with_room
            .min_by_key(|(key, _)| *key)
            .map_or(start, |(_, number)| number)
    }
}
