//! The choice of a group for a new directory.
//!
//! Files are allocated in the group of their directory. Directories are spread over the groups so
//! that their files have room to grow. The algorithm is Grigoriy Orlov's for FreeBSD (2001), as in
//! Linux's `fs/ext4/ialloc.c`:
//!
//! - A directory in the root goes to a cluster of groups (a flex group) with at least the average
//!   of free inodes and blocks. Of those it takes the one with the fewest directories. Each search
//!   starts one cluster after the previous search.
//! - A deeper directory stays in its parent's cluster unless that is crowded: it has many more
//!   directories, or much less free space, than the average. Then it goes to the next cluster that
//!   is not crowded.
//!
//! Within a cluster the directory goes to the group with the fewest directories, at or after its
//! parent's group where several have equally few. The inode tables of a cluster are adjacent, so
//! this costs no seeks. Threads that fill different directories do not share a bitmap's lock.

use super::Groups;
use std::ops::Range;
use sync::atomic::Ordering;
use units::{GroupNo, Ino};

/// The most clusters that a search looks at.
const CLUSTERS_MAX: u32 = 64;

/// The counts of a cluster, an average of them, or limits for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    free_inodes: u64,
    free_blocks: u64,
    dirs: u64,
}

impl Groups {
    /// Returns the group for a new directory whose parent is in group `home`.
    pub(super) fn group_for_directory(&self, home: GroupNo, parent: Ino) -> GroupNo {
        let size = self.cluster_size();
        let clusters = self.geo.groups.div_ceil(size);
        let average = self.average(clusters);
        let cluster = match parent {
            Ino::ROOT => self.cluster_for_top_level(clusters, average),
            _ => self.cluster_for_nested(home.0 / size, clusters, average),
        };
        let range = self.cluster_of(GroupNo(cluster * size));
        GroupNo(self.group_with_fewest_dirs(range, home.0))
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
        let range = self.cluster_of(GroupNo(cluster.saturating_mul(self.cluster_size())));
        let mut load = Load::default();
        for group in range.filter_map(|number| self.parts.get(GroupNo(number))) {
            load.free_inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
            load.free_blocks += u64::from(group.available.load(Ordering::Relaxed));
            load.dirs += u64::from(group.dirs.load(Ordering::Relaxed));
        }
        load
    }

    fn cluster_for_top_level(&self, clusters: u32, average: Load) -> u32 {
        let start = self.next_top_dir.fetch_add(1, Ordering::Relaxed);
        let candidates =
            (0..clusters.min(CLUSTERS_MAX)).map(|step| start.wrapping_add(step) % clusters);
        let good = candidates.filter_map(|cluster| {
            let load = self.load_of(cluster);
            let enough =
                load.free_inodes >= average.free_inodes && load.free_blocks >= average.free_blocks;
            (enough && load.free_inodes > 0).then_some((load.dirs, cluster))
        });
        good.min_by_key(|(dirs, _)| *dirs)
            .map_or(start % clusters, |(_, cluster)| cluster)
    }

    fn cluster_for_nested(&self, home: u32, clusters: u32, average: Load) -> u32 {
        let size = u64::from(self.cluster_size());
        let inodes = u64::from(self.geo.inodes_per_group) * size;
        let blocks = u64::from(self.geo.clusters_per_group()) * size;
        let limits = Load {
            free_inodes: average.free_inodes.saturating_sub(inodes / 4).max(1),
            free_blocks: average.free_blocks.saturating_sub(blocks / 4),
            dirs: average.dirs + inodes / 16,
        };
        let near = (0..clusters.min(CLUSTERS_MAX))
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
