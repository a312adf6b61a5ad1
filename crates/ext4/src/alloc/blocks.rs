//! Picking, recording and freeing blocks.
//!
//! [`Groups::pick`] searches for `want` blocks near `goal` in these steps. It searches for whole
//! clusters, which are blocks without `bigalloc`:
//!
//! 1. At the goal, if the run there holds all of `want` or reaches the end of the group. In the
//!    second case the next pick starts in the next group, so the extent continues there. Nearly all
//!    picks for a stream of writes succeed here.
//! 2. After the goal in its group, then before it: the first run that holds all of `want`.
//! 3. In the following groups: the first run that holds all of `want`. The search skips a group,
//!    without its lock, if its counts exclude such a run. On a very large volume the search is
//!    limited to `GROUPS_FOR_WHOLE_RUN` groups.
//! 4. In all groups, with a smaller minimum: an eighth of `want`, then a single block. A group
//!    gives its longest run.
//!
//! The criteria that relax and the skip by the longest run follow Linux's `fs/ext4/mballoc.c`.

use super::free_map::BitRun;
use super::group::{BlockState, Group, publish};
use super::system::SystemBlocks;
use super::{BlockRun, Claim, Groups};
use crate::{Error, Result};
use ext4_format::bitmap;
use ext4_format::error::{BitmapDamage, BitmapKind};
use jbd2::{Buffer, FreedExtent, Handle};
use std::sync::Arc;
use sync::MutexGuard;
use sync::atomic::Ordering;
use units::{FsBlock, GroupNo};

/// The most groups that a search for a whole run looks at.
const GROUPS_FOR_WHOLE_RUN: u32 = 4096;
/// The most searches of all groups for a block that is reserved.
const SCANS_MAX: u32 = 1000;

impl Groups {
    /// Picks 1 to `want` contiguous blocks, rounded up to whole clusters, as close after `goal` as
    /// possible. It prefers a run that holds all of `want`. The change is in memory only; nothing
    /// is journaled. The caller has reserved the clusters ([`super::space`]).
    ///
    /// # Errors
    /// `NoSpace` if no block is free; an I/O error if a bitmap could not be read and no other group
    /// has a free block.
    pub fn pick(&self, goal: FsBlock, want: u32) -> Result<BlockRun> {
        let mut scans = 0;
        loop {
            scans += 1;
            match self.pick_once(goal, want) {
                // The reservation guarantees a block. It became available in a group that the
                // search had already passed.
                Err(Error::NoSpace) if scans < SCANS_MAX && self.has_available() => {
                    sync::thread::yield_now();
                }
                result => return result,
            }
        }
    }

    /// Returns whether the counts of any group allow a pick.
    fn has_available(&self) -> bool {
        let available = |group: &Group| group.available.load(Ordering::Relaxed) > 0;
        self.parts.groups().any(available)
    }

    fn pick_once(&self, goal: FsBlock, want: u32) -> Result<BlockRun> {
        let size = self.geo.cluster();
        let want = size.clusters_for(want.into()) as u32;
        let want = want.clamp(1, self.geo.clusters_per_group());
        let goal = size.next_start(goal);
        let (home, bit) = self.geo.locate_block(goal).unwrap_or((GroupNo(0), 0));
        let mut failure = None;
        if let Some(run) = self.pick_near_goal(home, bit, want, &mut failure) {
            return Ok(run);
        }
        let groups = self.geo.groups;
        let mut least = want;
        loop {
            // `pick_near_goal` has searched the goal's group for a whole run.
            let (first, end) = match least == want && want > 1 {
                true => (1, groups.min(GROUPS_FOR_WHOLE_RUN)),
                false => (0, groups),
            };
            for step in first..end {
                let group = GroupNo(
                    (u64::from(home.0) + u64::from(step)).rem_euclid(u64::from(groups)) as u32,
                );
                if let Some(run) = self.pick_in(group, want, least, &mut failure) {
                    return Ok(run);
                }
            }
            if least == 1 {
                return Err(failure.unwrap_or(Error::NoSpace));
            }
            least = (least / 8).max(1);
            if least < want / 8 {
                least = 1;
            }
        }
    }

    /// Steps 1 and 2 of the search.
    fn pick_near_goal(
        &self,
        home: GroupNo,
        bit: u32,
        want: u32,
        failure: &mut Option<Error>,
    ) -> Option<BlockRun> {
        let group = self.parts.get(home)?;
        if group.available.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.lock_loaded(home, group, failure)?;
        let map = state.map.as_ref()?;
        let bits = self.geo.clusters_in_group(home);
        let at_goal = map.run_at(bit, want);
        let mut run = BitRun {
            start: bit,
            len: at_goal,
        };
        if at_goal < want && (at_goal == 0 || bit + at_goal < bits) {
            run = map.find_run(bit, bits, want);
            if run.len < want {
                let before = map.find_run(0, bit, want);
                if before.len > run.len {
                    run = before;
                }
            }
            if run.len < want {
                // The two searches cover every run of the group.
                publish(&group.largest, run.len);
                return None;
            }
        }
        Some(self.mark_picked(home, group, &mut state, run))
    }

    /// Steps 3 and 4 of the search: picks the first run of `want` in a group, or else its longest
    /// run if that has `least` blocks.
    fn pick_in(
        &self,
        number: GroupNo,
        want: u32,
        least: u32,
        failure: &mut Option<Error>,
    ) -> Option<BlockRun> {
        let group = self.parts.get(number)?;
        let most = group
            .available
            .load(Ordering::Relaxed)
            .min(group.largest.load(Ordering::Relaxed));
        if most < least {
            return None;
        }
        let mut state = self.lock_loaded(number, group, failure)?;
        let run = state.map.as_ref()?.find_run(0, u32::MAX, want);
        if run.len < want {
            publish(&group.largest, run.len);
        }
        if run.len < least {
            return None;
        }
        Some(self.mark_picked(number, group, &mut state, run))
    }

    /// Locks a group and loads its map. A group that cannot be loaded gives `None`; the first error
    /// that is not damage is stored in `failure`.
    pub(super) fn lock_loaded<'a>(
        &self,
        number: GroupNo,
        group: &'a Group,
        failure: &mut Option<Error>,
    ) -> Option<MutexGuard<'a, BlockState>> {
        let mut state = group.blocks.lock();
        match self.ensure_loaded(number, group, &mut state) {
            Ok(()) => Some(state),
            Err(error) => {
                if !matches!(error, Error::Corrupt(_)) {
                    failure.get_or_insert(error);
                }
                None
            }
        }
    }

    pub(super) fn ensure_loaded(
        &self,
        number: GroupNo,
        group: &Group,
        state: &mut BlockState,
    ) -> Result<()> {
        if state.map.is_some() {
            return Ok(());
        }
        let result = state.load(
            &self.journal,
            &self.geo,
            self.system_of(number),
            number,
            &group.desc,
        );
        match &result {
            Ok(()) => {
                if self.loaded.fetch_add(1, Ordering::Relaxed) >= self.loaded_max {
                    self.evict_one(number);
                }
            }
            Err(error @ Error::Corrupt(_)) if !state.damaged => {
                self.log_damage("load_block_bitmap", error);
                tracing::error!("{error}; nothing is allocated from this group");
                state.damaged = true;
                self.space.exclude_damaged(state.free);
                publish(&group.available, 0);
            }
            Err(_) => {}
        }
        result
    }

    /// Evicts the bitmaps of one idle group. It examines at most 64 groups.
    fn evict_one(&self, except: GroupNo) {
        for _ in 0..64 {
            let hand = self.evict_hand.fetch_add(1, Ordering::Relaxed) % self.geo.groups.max(1);
            let Some(group) = self.parts.get(GroupNo(hand)).filter(|_| hand != except.0) else {
                continue;
            };
            // A locked group is in use. Two evictions that wait for each other would deadlock.
            let Some(mut state) = group.blocks.try_lock() else {
                continue;
            };
            if state.evict() {
                self.loaded.fetch_sub(1, Ordering::Relaxed);
                if let Some(mut inodes) = group.inodes.try_lock() {
                    inodes.evict();
                }
                return;
            }
        }
    }

    /// Makes a run of available bits unavailable.
    pub(super) fn mark_picked(
        &self,
        number: GroupNo,
        group: &Group,
        state: &mut BlockState,
        run: BitRun,
    ) -> BlockRun {
        if let Some(map) = &mut state.map {
            map.set(run.start, run.len);
        }
        state.outstanding += run.len;
        group.available.fetch_sub(run.len, Ordering::Relaxed);
        self.run_of(number, run)
    }

    /// Makes picked blocks available again: their data was truncated or could not be written.
    pub fn unpick(&self, run: BlockRun) {
        let _ = self.per_group(run, |number, group, bits| {
            let mut state = group.blocks.lock();
            self.make_available(number, group, &mut state, bits);
            Ok(())
        });
    }

    /// Makes outstanding blocks available. Returns false, and changes nothing, if the bits are not
    /// outstanding.
    fn make_available(
        &self,
        number: GroupNo,
        group: &Group,
        state: &mut BlockState,
        bits: BitRun,
    ) -> bool {
        let data = state.bitmap.as_ref().map(|buffer| buffer.data());
        let free_on_disk = match &data {
            Some(data) => bitmap::all_clear(data, bits.start, bits.len),
            None => !self.is_system(self.run_of(number, bits)),
        };
        let Some(map) = state.map.as_mut().filter(|_| free_on_disk) else {
            tracing::error!("blocks of group {number} were released that were not picked");
            return false;
        };
        if map.count_zeros(bits.start, bits.len) != 0 {
            tracing::error!("blocks of group {number} were released twice");
            return false;
        }
        map.clear(bits.start, bits.len);
        state.outstanding = state.outstanding.saturating_sub(bits.len);
        publish(&group.largest, u32::MAX);
        group.available.fetch_add(bits.len, Ordering::Relaxed);
        true
    }

    /// Sets the bits of picked blocks in the bitmap, as part of the handle's transaction. It takes
    /// one credit per group of the run. It consumes the reservation of these blocks.
    ///
    /// # Errors
    /// `Corrupt` if the bitmap has one of the blocks in use; an I/O error.
    pub fn record(&self, handle: &Handle<'_>, run: BlockRun) -> Result<()> {
        self.per_group(run, |number, group, bits| {
            let mut state = group.blocks.lock();
            self.ensure_loaded(number, group, &mut state)?;
            let buffer = self.initialised(handle, number, group, &mut state)?;
            let was_clear = handle.modify(buffer, None, |bytes| {
                let clear = bitmap::all_clear(bytes, bits.start, bits.len);
                if clear {
                    bitmap::set_range(bytes, bits.start, bits.len);
                }
                clear
            });
            if !was_clear {
                let BlockRun { start, len } = self.run_of(number, bits);
                let damage = BitmapDamage::BlockInUse { start, len };
                return Err(damage.of(BitmapKind::Block, number).into());
            }
            // Callers pick blocks before they record them. The counts stay right if they do not.
            let unpicked = state.map.as_mut().map_or(0, |map| {
                let unpicked = map.count_zeros(bits.start, bits.len);
                map.set(bits.start, bits.len);
                unpicked
            });
            group.available.fetch_sub(unpicked, Ordering::Relaxed);
            state.outstanding = state.outstanding.saturating_sub(bits.len - unpicked);
            state.free = state.free.saturating_sub(bits.len);
            state.stale = true;
            self.space.allocated(bits.len);
            self.note_changed(number, group);
            Ok(())
        })
    }

    /// Allocates a block for metadata (an extent node, a directory block, an attribute block): the
    /// first one of a cluster.
    ///
    /// The block is at the start of the region of `goal`: away from file data and near the inode
    /// tables. It is not taken from the reservations of others.
    ///
    /// # Errors
    /// `NoSpace`, and the errors of [`Groups::pick`] and [`Groups::record`].
    pub fn alloc_metadata_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        self.space.reserve(1, Claim::Ordinary)?;
        self.place_metadata_block(handle, goal)
            .inspect_err(|_| self.space.unreserve(1))
    }

    /// Allocates a block for the data of a file, the first one of a cluster, as close after `goal`
    /// as possible. It is not taken from the reservations of others.
    ///
    /// # Errors
    /// `NoSpace`, and the errors of [`Groups::pick`] and [`Groups::record`].
    pub fn alloc_data_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        self.space.reserve(1, Claim::Ordinary)?;
        self.pick(goal, 1)
            .and_then(|run| self.record_or_unpick(handle, run))
            .inspect_err(|_| self.space.unreserve(1))
    }

    /// Allocates a block that [`Groups::reserve_nodes`] has reserved. An error leaves the
    /// reservation unchanged.
    ///
    /// # Errors
    /// The errors of [`Groups::pick`] and [`Groups::record`].
    pub fn alloc_reserved_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        self.place_metadata_block(handle, goal)
            .inspect(|_| self.space.node_allocated())
    }

    fn place_metadata_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        let home = self.geo.group_of_block(goal).unwrap_or(GroupNo(0));
        let first = GroupNo(self.region_of(home).start);
        let mut failure = None;
        let run = match self.pick_in(first, 1, 1, &mut failure) {
            Some(run) => run,
            None => self.pick(goal, 1)?,
        };
        self.record_or_unpick(handle, run)
    }

    /// Records a picked block. Returns its number.
    fn record_or_unpick(&self, handle: &Handle<'_>, run: BlockRun) -> Result<FsBlock> {
        self.record(handle, run).inspect_err(|_| self.unpick(run))?;
        Ok(run.start)
    }

    /// Reads the bitmaps that [`Groups::free`] needs for a run.
    ///
    /// # Errors
    /// An I/O error. Damage is for [`Groups::free`].
    pub fn read_bitmaps(&self, run: BlockRun) -> Result<()> {
        let read = self.per_group(self.whole_clusters(run), |number, group, _| {
            self.ensure_loaded(number, group, &mut group.blocks.lock())
        });
        match read {
            Err(Error::Corrupt(_)) => Ok(()),
            read => read,
        }
    }

    /// Frees the clusters of blocks as part of the handle's transaction. It takes one credit per
    /// group of the run.
    ///
    /// The bits in the bitmap are cleared now. The blocks stay unavailable until the journal calls
    /// [`Groups::released`] for them (see [`Handle::free_blocks`]).
    ///
    /// # Errors
    /// `Corrupt`, with the group, if one of the blocks is already free or is the file system's own;
    /// an I/O error.
    pub fn free(&self, handle: &Handle<'_>, run: BlockRun) -> Result<()> {
        let run = self.whole_clusters(run);
        if self.is_system(run) {
            let group = self.geo.group_of_block(run.start)?;
            let (start, len) = (run.start, run.len);
            let damage = BitmapDamage::SystemBlockFreed { start, len };
            return Err(damage.of(BitmapKind::Block, group).into());
        }
        self.per_group(run, |number, group, bits| {
            let mut state = group.blocks.lock();
            self.ensure_loaded(number, group, &mut state)?;
            let buffer = self.initialised(handle, number, group, &mut state)?;
            let was_set = handle.modify(buffer, None, |bytes| {
                let set = bitmap::all_set(bytes, bits.start, bits.len);
                if set {
                    bitmap::clear_range(bytes, bits.start, bits.len);
                }
                set
            });
            if !was_set {
                let BlockRun { start, len } = self.run_of(number, bits);
                let damage = BitmapDamage::BlockFree { start, len };
                return Err(damage.of(BitmapKind::Block, number).into());
            }
            state.outstanding += bits.len;
            state.free += bits.len;
            state.stale = true;
            self.space.freed(bits.len);
            self.note_changed(number, group);
            let run = self.run_of(number, bits);
            handle.free_blocks(FreedExtent {
                start: run.start,
                len: run.len,
            });
            Ok(())
        })
    }

    /// Makes freed blocks available: the transaction that freed them has committed.
    pub fn released(&self, freed: &[FreedExtent]) {
        for extent in freed {
            let run = BlockRun {
                start: extent.start,
                len: extent.len,
            };
            let _ = self.per_group(run, |number, group, bits| {
                let mut state = group.blocks.lock();
                if self.make_available(number, group, &mut state, bits) {
                    self.space.released(bits.len);
                }
                Ok(())
            });
        }
    }

    /// Returns whether any of the blocks is the file system's own (superblock, descriptors,
    /// bitmaps, inode tables). No file may map such a block.
    pub fn is_system(&self, run: BlockRun) -> bool {
        self.parts.is_system(run)
    }

    /// Returns the file system's own blocks among those of a group.
    pub(super) fn system_of(&self, number: GroupNo) -> &SystemBlocks {
        &self.parts.of_group(number).system
    }

    /// See [`BlockState::initialise`].
    pub(super) fn initialised<'a>(
        &self,
        handle: &Handle<'_>,
        number: GroupNo,
        group: &Group,
        state: &'a mut BlockState,
    ) -> Result<&'a Arc<Buffer>> {
        let system = self.system_of(number);
        state.initialise(handle, &self.geo, system, number, &group.desc)
    }
}
