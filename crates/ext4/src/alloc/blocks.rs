//! Picking, recording and freeing blocks.
//!
//! How [`Groups::pick`] chooses, for `want` blocks near `goal`:
//!
//! 1. At the goal itself, if the run there holds all of `want`, or reaches the end of the group
//!    (the next pick goes on in the next group, so that the extent grows across): this is what a
//!    stream of writes meets nearly always.
//! 2. Behind the goal in its group, then before it: the first run that holds all of `want`.
//! 3. In the groups after it, the same. A group is passed over, without its lock, when its counts
//!    say that it cannot have such a run; of a very large volume only so many groups are looked at.
//! 4. Again, content with an eighth of `want`, then with a single block, and now with the longest
//!    run of each group.
//!
//! The idea of criteria that relax (0 to 3) and of passing over groups by their longest run is that
//! of Linux's `fs/ext4/mballoc.c`.

use super::free_map::BitRun;
use super::group::{BlockState, Group, mirror};
use super::{BlockRun, Claim, Groups};
use crate::{Error, Result};
use ext4_format::bitmap;
use ext4_format::error::FormatError;
use ext4_format::types::{FsBlock, GroupNo};
use jbd2::{FreedExtent, Handle};
use sync::MutexGuard;
use sync::atomic::Ordering;

/// Groups that a search for a whole run looks at before it is content with less.
const GROUPS_FOR_WHOLE_RUN: u32 = 4096;
/// How often all groups are searched for a block that is promised.
const SCANS_MAX: u32 = 1000;

fn misuse(what: &'static str, group: GroupNo) -> Error {
    Error::Corrupt(FormatError::Bitmap {
        structure: "block bitmap",
        group: group.0,
        what,
    })
}

impl Groups {
    /// Takes 1 to `want` contiguous blocks, as near behind `goal` as possible, in memory only
    /// (nothing is journaled). Prefers a run that holds all of `want`. The caller has a promise for
    /// `want` blocks ([`super::space`]).
    ///
    /// # Errors
    /// `NoSpace` only when nothing at all is free; the device's where a bitmap could not be read
    /// and no other group has a free block.
    pub fn pick(&self, goal: FsBlock, want: u32) -> Result<BlockRun> {
        let mut scans = 0;
        loop {
            scans += 1;
            match self.pick_once(goal, want) {
                // The promise says that some group has a block, but while the groups were looked at
                // one after another, it became available behind the search.
                Err(Error::NoSpace) if scans < SCANS_MAX && self.has_available() => {
                    sync::thread::yield_now();
                }
                result => return result,
            }
        }
    }

    /// Whether the counts of any group say that a block can be picked.
    fn has_available(&self) -> bool {
        let available = |group: &Group| group.available.load(Ordering::Relaxed) > 0;
        self.groups.iter().any(available)
    }

    fn pick_once(&self, goal: FsBlock, want: u32) -> Result<BlockRun> {
        let want = want.clamp(1, self.geo.blocks_per_group);
        let (home, bit) = self.geo.locate_block(goal).unwrap_or((GroupNo(0), 0));
        let mut failure = None;
        if let Some(run) = self.pick_at_home(home, bit, want, &mut failure) {
            return Ok(run);
        }
        let groups = self.geo.groups;
        let mut least = want;
        loop {
            // At the first pass the goal's own group has had its turn.
            let (first, looked_at) = match least == want && want > 1 {
                true => (1, groups.min(GROUPS_FOR_WHOLE_RUN)),
                false => (0, groups),
            };
            for step in first..looked_at {
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

    /// Steps 1 and 2.
    fn pick_at_home(
        &self,
        home: GroupNo,
        bit: u32,
        want: u32,
        failure: &mut Option<Error>,
    ) -> Option<BlockRun> {
        let group = self.groups.get(home.0 as usize)?;
        if group.available.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.loaded(home, group, failure)?;
        let map = state.map.as_ref()?;
        let bits = self.geo.blocks_in_group(home);
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
                // Both searches together saw every run.
                mirror(&group.largest, run.len);
                return None;
            }
        }
        Some(self.take(home, group, &mut state, run))
    }

    /// Steps 3 and 4: the first run of `want` in a group, or its longest if that has `least`
    /// blocks.
    fn pick_in(
        &self,
        number: GroupNo,
        want: u32,
        least: u32,
        failure: &mut Option<Error>,
    ) -> Option<BlockRun> {
        let group = self.groups.get(number.0 as usize)?;
        let most = group
            .available
            .load(Ordering::Relaxed)
            .min(group.largest.load(Ordering::Relaxed));
        if most < least {
            return None;
        }
        let mut state = self.loaded(number, group, failure)?;
        let run = state.map.as_ref()?.find_run(0, u32::MAX, want);
        if run.len < want {
            mirror(&group.largest, run.len);
        }
        if run.len < least {
            return None;
        }
        Some(self.take(number, group, &mut state, run))
    }

    /// The group's lock, with its map in memory.
    pub(super) fn loaded<'a>(
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

    fn ensure_loaded(&self, number: GroupNo, group: &Group, state: &mut BlockState) -> Result<()> {
        if state.map.is_some() {
            return Ok(());
        }
        let result = state.load(&self.journal, &self.geo, &self.system, number, &group.desc);
        match &result {
            Ok(()) => {
                if self.loaded.fetch_add(1, Ordering::Relaxed) >= self.loaded_max {
                    self.evict_one(number);
                }
            }
            Err(error @ Error::Corrupt(_)) if !state.damaged => {
                self.blame("load_block_bitmap", error);
                tracing::error!("{error}; nothing is allocated from this group");
                state.damaged = true;
                self.space.lose(state.free);
                mirror(&group.available, 0);
            }
            Err(_) => {}
        }
        result
    }

    /// Drops the bitmaps of a group that is not in use, if one is found soon.
    fn evict_one(&self, except: GroupNo) {
        for _ in 0..64 {
            let hand = self.evict_hand.fetch_add(1, Ordering::Relaxed) % self.geo.groups.max(1);
            let Some(group) = self.groups.get(hand as usize).filter(|_| hand != except.0) else {
                continue;
            };
            // Whoever holds it uses it; and waiting could be for each other.
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

    pub(super) fn take(
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
        let first = self.geo.group_first_block(number).0;
        BlockRun {
            start: FsBlock(first + u64::from(run.start)),
            len: run.len,
        }
    }

    /// Gives picked blocks back (their data failed to land or was truncated before).
    pub fn unpick(&self, run: BlockRun) {
        let _ = self.per_group(run, |number, group, bits| {
            let mut state = group.blocks.lock();
            self.give_back(number, group, &mut state, bits);
            Ok(())
        });
    }

    /// Blocks that are unavailable, but free in the bitmap, become available.
    fn give_back(
        &self,
        number: GroupNo,
        group: &Group,
        state: &mut BlockState,
        bits: BitRun,
    ) -> bool {
        let data = state.bitmap.as_ref().map(|buffer| buffer.data());
        let free_on_disk = match &data {
            Some(data) => bitmap::all_clear(data, bits.start, bits.len),
            None => !self.system.overlaps(
                self.geo.group_first_block(number).0 + u64::from(bits.start),
                u64::from(bits.len),
            ),
        };
        let Some(map) = state.map.as_mut().filter(|_| free_on_disk) else {
            tracing::error!("blocks of group {number} were given back that nobody had picked");
            return false;
        };
        if map.count_zeros(bits.start, bits.len) != 0 {
            tracing::error!("blocks of group {number} were given back twice");
            return false;
        }
        map.clear(bits.start, bits.len);
        state.outstanding = state.outstanding.saturating_sub(bits.len);
        mirror(&group.largest, u32::MAX);
        group.available.fetch_add(bits.len, Ordering::Relaxed);
        true
    }

    /// Sets the bits of picked blocks in the bitmap, as part of the handle's transaction (one
    /// credit for each group that the run is in). This keeps the promise of these blocks, which
    /// ends.
    ///
    /// # Errors
    /// `Corrupt` where the bitmap says that one of them is in use; the device's.
    pub fn record(&self, handle: &Handle<'_>, run: BlockRun) -> Result<()> {
        self.per_group(run, |number, group, bits| {
            let mut state = group.blocks.lock();
            self.ensure_loaded(number, group, &mut state)?;
            let buffer = state.initialise(handle, &self.geo, &self.system, number, &group.desc)?;
            let was_clear = handle.modify(buffer, None, |bytes| {
                let clear = bitmap::all_clear(bytes, bits.start, bits.len);
                if clear {
                    bitmap::set_range(bytes, bits.start, bits.len);
                }
                clear
            });
            if !was_clear {
                return Err(misuse("a block that is taken is in use already", number));
            }
            // Nobody but journal replay's like would record what was not picked; count it right all
            // the same.
            let unpicked = state.map.as_mut().map_or(0, |map| {
                let unpicked = map.count_zeros(bits.start, bits.len);
                map.set(bits.start, bits.len);
                unpicked
            });
            group.available.fetch_sub(unpicked, Ordering::Relaxed);
            state.outstanding = state.outstanding.saturating_sub(bits.len - unpicked);
            state.free = state.free.saturating_sub(bits.len);
            state.stale = true;
            self.space.keep(bits.len);
            self.note_changed(number, group);
            Ok(())
        })
    }

    /// Takes a block for metadata (extent node, directory block, attribute block), at the front of
    /// the cluster of groups that `goal` is in: out of the way of file data, and near the inode
    /// tables. Takes none that is promised.
    ///
    /// # Errors
    /// `NoSpace`, and as [`Groups::pick`] and [`Groups::record`].
    pub fn alloc_metadata_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        self.space.reserve(1, Claim::Ordinary)?;
        self.place_metadata_block(handle, goal)
            .inspect_err(|_| self.space.unreserve(1))
    }

    /// Takes a block that [`Groups::reserve_nodes`] has promised. An error leaves the promise as it
    /// is.
    ///
    /// # Errors
    /// As [`Groups::pick`] and [`Groups::record`].
    pub fn take_promised_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        self.place_metadata_block(handle, goal)
            .inspect(|_| self.space.use_node())
    }

    fn place_metadata_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        let home = self.geo.group_of_block(goal).unwrap_or(GroupNo(0));
        let front = GroupNo(self.cluster_of(home.0).start);
        let mut failure = None;
        let run = match self.pick_in(front, 1, 1, &mut failure) {
            Some(run) => run,
            None => self.pick(goal, 1)?,
        };
        match self.record(handle, run) {
            Ok(()) => Ok(run.start),
            Err(error) => {
                self.unpick(run);
                Err(error)
            }
        }
    }

    /// Clears bits in the bitmap as part of the handle's transaction (one credit for each group
    /// that the run is in); the blocks stay unavailable until [`Groups::released`] (this calls
    /// [`Handle::free_blocks`]).
    ///
    /// # Errors
    /// `Corrupt`, with the group, where one of them is free already or the file system's own; the
    /// device's.
    pub fn free(&self, handle: &Handle<'_>, run: BlockRun) -> Result<()> {
        if self.system.overlaps(run.start.0, u64::from(run.len)) {
            let group = self.geo.group_of_block(run.start)?;
            return Err(misuse(
                "a block of the file system itself is to be freed",
                group,
            ));
        }
        self.per_group(run, |number, group, bits| {
            let mut state = group.blocks.lock();
            self.ensure_loaded(number, group, &mut state)?;
            let buffer = state.initialise(handle, &self.geo, &self.system, number, &group.desc)?;
            let was_set = handle.modify(buffer, None, |bytes| {
                let set = bitmap::all_set(bytes, bits.start, bits.len);
                if set {
                    bitmap::clear_range(bytes, bits.start, bits.len);
                }
                set
            });
            if !was_set {
                return Err(misuse(
                    "a block that is to be freed is free already",
                    number,
                ));
            }
            state.outstanding += bits.len;
            state.free += bits.len;
            state.stale = true;
            self.space.freed(bits.len);
            self.note_changed(number, group);
            handle.free_blocks(FreedExtent {
                start: self.geo.group_first_block(number).0 + u64::from(bits.start),
                len: bits.len,
            });
            Ok(())
        })
    }

    /// The transaction that freed them has committed.
    pub fn released(&self, freed: &[FreedExtent]) {
        for extent in freed {
            let run = BlockRun {
                start: FsBlock(extent.start),
                len: extent.len,
            };
            let _ = self.per_group(run, |number, group, bits| {
                let mut state = group.blocks.lock();
                if self.give_back(number, group, &mut state, bits) {
                    self.space.release(bits.len);
                }
                Ok(())
            });
        }
    }

    /// Whether any of the blocks is the file system's own (superblock, descriptors, bitmaps, inode
    /// tables): no file may map these.
    pub fn is_system(&self, run: BlockRun) -> bool {
        self.system.overlaps(run.start.0, u64::from(run.len))
    }

    /// Calls `each` for the part of `run` in each group, until one fails.
    fn per_group(
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
        let mut left = run;
        while left.len > 0 {
            let (number, start) = self.geo.locate_block(left.start)?;
            let len = left.len.min(self.geo.blocks_in_group(number) - start);
            each(number, self.group(number)?, BitRun { start, len })?;
            left.start.0 += u64::from(len);
            left.len -= len;
        }
        Ok(())
    }
}
