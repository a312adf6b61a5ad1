//! More space for a mounted volume: a larger last group, and new groups.
//!
//! ```text
//!  Groups::place ─▶ NewGroups ─▶ bitmaps and tables are written and flushed ─▶ Groups::add
//! ```
//!
//! Nothing refers to the blocks of [`NewGroups`] before [`Groups::add`]. It publishes the groups,
//! then the geometry, then the free blocks: who can reserve a block finds its group. All of it
//! happens while a handle is held, so allocations in the new groups belong to the same transaction
//! as their descriptors, or to a later one.
//!
//! With `flex_bg` the bitmaps and inode tables of new groups are together behind the descriptors
//! of the first one, as mke2fs places them. Where they do not fit, or without `flex_bg`, each group
//! has its own. They are adjacent blocks, so with `bigalloc` those of several groups share
//! clusters.

use super::free_map::FreeMap;
use super::group::publish;
use super::parts::Part;
use super::{BlockRun, Groups};
use crate::{Error, Result};
use ext4_format::bitmap;
use ext4_format::features::IncompatFeatures;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{GroupDesc, GroupFlags};
use jbd2::Handle;
use std::collections::BTreeMap;
use sync::atomic::Ordering;
use units::{ClusterSize, FsBlock, GroupNo};

/// Groups that are placed and not part of the volume yet.
pub(crate) struct NewGroups {
    part: Part,
    geo: Geometry,
    first: GroupNo,
    /// The contents of the bitmaps that are not flagged as uninitialised.
    pub bitmaps: Vec<(FsBlock, Vec<u8>)>,
    /// Inode tables that have to be zeroed.
    pub tables: Vec<BlockRun>,
    /// Clusters that the groups use themselves.
    pub overhead: u64,
    free_clusters: u64,
}

impl Groups {
    /// Places the groups from `first` on of `geo`, the geometry after they are added.
    ///
    /// # Errors
    /// `Invalid` if a group is too small; `Unsupported` if the memory budget is.
    pub fn place(&self, geo: Geometry, first: GroupNo) -> Result<NewGroups> {
        let together = geo.incompat.contains(IncompatFeatures::FLEX_BG);
        let placed = together.then(|| place_together(&geo, first)).flatten();
        let (mut descs, used) = match placed {
            Some(placed) => placed,
            None => place_apart(&geo, first).ok_or(Error::Invalid("a group is too small"))?,
        };
        let lazy = geo.has_group_csum();
        let itable = geo.itable_blocks_per_group();
        let size = geo.cluster();
        let used = used.whole_clusters(size);
        let (mut bitmaps, mut tables) = (Vec::new(), Vec::new());
        let (mut overhead, mut free_clusters) = (0, 0);
        for (number, desc) in (first.0..).map(GroupNo).zip(&mut descs) {
            let clusters = geo.clusters_in_group(number);
            let runs = used.within(&geo, number);
            let taken: u32 = runs.iter().map(|(_, len)| len).sum();
            overhead += u64::from(taken);
            free_clusters += u64::from(clusters - taken);
            desc.free_blocks_count = clusters - taken;
            desc.free_inodes_count = geo.inodes_per_group;
            // The kernel computes an uninitialised bitmap from the group's own super block only,
            // and e2fsck wants that of the last group initialised.
            let is_last = number.0 + 1 == geo.groups;
            let of_super = size.clusters_for(geo.super_blocks_in_group(number).into());
            if lazy && !is_last && u64::from(taken) == of_super {
                desc.flags.insert(GroupFlags::BLOCK_UNINIT);
            } else {
                let mut map = vec![0; geo.block_size as usize];
                for (start, len) in runs {
                    bitmap::set_range(&mut map, start, len);
                }
                bitmap::set_range(&mut map, clusters, u32::MAX);
                desc.update_block_bitmap_csum(&geo, &map);
                bitmaps.push((desc.block_bitmap, map));
            }
            if lazy {
                desc.flags.insert(GroupFlags::INODE_UNINIT);
                desc.itable_unused = geo.inodes_per_group;
            } else {
                let mut map = vec![0; geo.block_size as usize];
                bitmap::set_range(&mut map, geo.inodes_per_group, u32::MAX);
                bitmaps.push((desc.inode_bitmap, map));
                tables.push(BlockRun {
                    start: desc.inode_table,
                    len: itable,
                });
            }
        }
        Ok(NewGroups {
            part: Part::new(&self.budget, &geo, (first, descs), &[])?,
            geo,
            first,
            bitmaps,
            tables,
            overhead,
            free_clusters,
        })
    }

    /// Adds groups whose bitmaps and tables are durable, as part of the handle's transaction. The
    /// blocks of the descriptor table that they need exist. The caller excludes other growth.
    pub fn add(&self, handle: &Handle<'_>, new: NewGroups) {
        let _ = handle;
        let numbers = new.first.0..new.geo.groups;
        let inodes = u64::from(numbers.end - numbers.start) * u64::from(new.geo.inodes_per_group);
        self.parts.append(new.part);
        self.geo.publish(new.geo);
        for number in numbers.map(GroupNo) {
            if let Some(group) = self.parts.get(number) {
                self.note_changed(number, group);
            }
        }
        self.free_inodes.fetch_add(inodes, Ordering::Relaxed);
        self.space.grown(new.free_clusters);
    }

    /// Makes `geo`, in which the last group has more blocks, the geometry (one credit).
    ///
    /// # Errors
    /// `Corrupt` for a damaged bitmap; an I/O error. Then nothing has changed.
    pub fn extend_last_group(&self, handle: &Handle<'_>, geo: Geometry) -> Result<()> {
        let number = GroupNo(self.geo.groups - 1);
        let group = self.group(number)?;
        let mut state = group.blocks.lock();
        self.ensure_loaded(number, group, &mut state)?;
        let (old, new) = (
            self.geo.clusters_in_group(number),
            geo.clusters_in_group(number),
        );
        let more = new - old;
        let buffer = self.initialised(handle, number, group, &mut state)?;
        handle.modify(buffer, None, |bytes| bitmap::clear_range(bytes, old, more));
        if let Some(map) = &mut state.map {
            FreeMap::extend(map, new);
        }
        state.free += more;
        state.stale = true;
        publish(&group.largest, u32::MAX);
        group.available.fetch_add(more, Ordering::Relaxed);
        // The group's lock is held, so its next holder sees the new number of bits.
        self.geo.publish(geo);
        self.note_changed(number, group);
        drop(state);
        self.space.grown(u64::from(more));
        Ok(())
    }

    /// Makes `geo`, which keeps fewer blocks for the descriptor table, the geometry. Frees the
    /// clusters of the others, in each group with a copy (one credit per copy). Returns their
    /// number.
    ///
    /// # Errors
    /// `Corrupt` for a damaged bitmap; an I/O error. Then nothing has changed.
    pub fn give_up_reserve(&self, handle: &Handle<'_>, geo: Geometry) -> Result<u64> {
        let mut given = Vec::new();
        let mut bitmaps = Vec::new();
        for number in (0..geo.groups).map(GroupNo) {
            let before = self.geo.super_blocks_in_group(number);
            let kept = geo.super_blocks_in_group(number);
            if kept == before {
                continue;
            }
            given.push(BlockRun {
                start: geo.group_first_block(number) + u64::from(kept),
                len: before - kept,
            });
            // A bitmap that was never written has these blocks in use, too.
            let group = self.group(number)?;
            let mut state = group.blocks.lock();
            self.ensure_loaded(number, group, &mut state)?;
            // As long as the buffer is held, it does not have to be read again.
            bitmaps.push(self.initialised(handle, number, group, &mut state)?.clone());
        }
        self.parts.give_up(&given);
        self.geo.publish(geo);
        let mut clusters = 0;
        for run in given {
            let run = self.own_clusters(run);
            if run.len > 0 {
                self.free(handle, run)?;
                clusters += self.geo.cluster().clusters_for(run.len.into());
            }
        }
        Ok(clusters)
    }

    /// Returns the whole clusters of a run without those at its ends that have system blocks.
    fn own_clusters(&self, run: BlockRun) -> BlockRun {
        let cluster = self.geo.cluster().blocks_in(1) as u32;
        let mut run = self.whole_clusters(run);
        let at = |start| BlockRun {
            start,
            len: cluster,
        };
        if self.is_system(at(run.start)) {
            run.start.0 += u64::from(cluster);
            run.len -= cluster;
        }
        if run.len > 0 && self.is_system(at(run.start + u64::from(run.len - cluster))) {
            run.len -= cluster;
        }
        run
    }

    /// Makes `geo`, which has the same groups, the geometry.
    pub fn change_geometry(&self, handle: &Handle<'_>, geo: Geometry) {
        let _ = handle;
        self.geo.publish(geo);
    }
}

/// Blocks that new groups use: length by start.
struct Used(BTreeMap<u64, u64>);

impl Used {
    /// Returns the super blocks and descriptors of the groups from `first` on.
    fn of_supers(geo: &Geometry, first: GroupNo) -> Used {
        let mut used = BTreeMap::new();
        for group in (first.0..geo.groups).map(GroupNo) {
            let len = u64::from(geo.super_blocks_in_group(group));
            if len > 0 {
                used.insert(geo.group_first_block(group).0, len);
            }
        }
        Used(used)
    }

    /// Takes the first `len` contiguous free blocks from `at` on, before `end`. Moves `at` behind
    /// them.
    fn place(&mut self, at: &mut u64, len: u64, end: u64) -> Option<FsBlock> {
        let mut start = *at;
        while let Some((run, run_len)) = self.0.range(..start + len).next_back() {
            if run + run_len <= start {
                break;
            }
            start = run + run_len;
        }
        *at = start + len;
        (*at <= end).then(|| {
            self.0.insert(start, len);
            FsBlock(start)
        })
    }

    /// Returns the clusters of the blocks.
    fn whole_clusters(self, size: ClusterSize) -> Used {
        let mut whole = BTreeMap::new();
        let mut end_before = 0;
        for (start, len) in self.0 {
            let first = size.start_of(FsBlock(start)).0.max(end_before);
            let end = size.next_start(FsBlock(start + len)).0;
            if first < end {
                whole.insert(first, end - first);
                end_before = end;
            }
        }
        Used(whole)
    }

    /// Returns the runs in a group, which are whole clusters, as bits and lengths.
    fn within(&self, geo: &Geometry, group: GroupNo) -> Vec<(u32, u32)> {
        let size = geo.cluster();
        let start = geo.group_first_block(group).0;
        let end = start + u64::from(geo.blocks_in_group(group));
        let before = self.0.range(..start).next_back();
        let runs = before.into_iter().chain(self.0.range(start..end));
        runs.map(|(run, len)| ((*run).max(start), (run + len).min(end)))
            .filter(|(from, to)| from < to)
            .map(|(from, to)| {
                let bit = size.number_of((from - start) as u32);
                (bit, size.clusters_for(to - from) as u32)
            })
            .collect()
    }
}

fn place_together(geo: &Geometry, first: GroupNo) -> Option<(Vec<GroupDesc>, Used)> {
    let mut used = Used::of_supers(geo, first);
    let mut descs = vec![GroupDesc::default(); (geo.groups - first.0) as usize];
    let mut at = geo.group_first_block(first).0;
    let end = geo.blocks_count;
    for desc in &mut descs {
        desc.block_bitmap = used.place(&mut at, 1, end)?;
    }
    for desc in &mut descs {
        desc.inode_bitmap = used.place(&mut at, 1, end)?;
    }
    let table = u64::from(geo.itable_blocks_per_group());
    for desc in &mut descs {
        desc.inode_table = used.place(&mut at, table, end)?;
    }
    Some((descs, used))
}

fn place_apart(geo: &Geometry, first: GroupNo) -> Option<(Vec<GroupDesc>, Used)> {
    let mut used = Used::of_supers(geo, first);
    let table = u64::from(geo.itable_blocks_per_group());
    let place = |group: GroupNo| {
        let mut at = geo.group_first_block(group).0;
        let end = at + u64::from(geo.blocks_in_group(group));
        Some(GroupDesc {
            block_bitmap: used.place(&mut at, 1, end)?,
            inode_bitmap: used.place(&mut at, 1, end)?,
            inode_table: used.place(&mut at, table, end)?,
            ..GroupDesc::default()
        })
    };
    let descs = (first.0..geo.groups).map(GroupNo).map(place);
    let descs = descs.collect::<Option<Vec<_>>>()?;
    Some((descs, used))
}
