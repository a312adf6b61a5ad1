//! Inode numbers: taking, freeing, finding their place.
//!
//! The lowest free number of a group is taken first, so that the used part of an inode table grows
//! block by block from its front. What lies behind it was never written and holds garbage;
//! [`Groups::itable_block_is_fresh`] tells the writer of inodes, once for each such block, to start
//! from zeroes instead of reading. A block that comes into use without being written by then (its
//! inodes were freed again) is zeroed at the commit.

use super::Groups;
use super::group::{Group, InodeState, mirror};
use crate::{Error, Result};
use ext4_format::bitmap;
use ext4_format::error::FormatError;
use ext4_format::types::{FsBlock, GroupNo, Ino};
use jbd2::{Buffer, Handle};
use std::sync::Arc;
use sync::atomic::Ordering;

fn corrupt(what: &'static str, group: GroupNo) -> Error {
    Error::Corrupt(FormatError::Bitmap {
        structure: "inode bitmap",
        group: group.0,
        what,
    })
}

impl Groups {
    /// Takes an inode number (one credit): directories spread over groups, files near their parent
    /// directory. A number is not used again in the transaction that freed it, as long as its group
    /// has another.
    ///
    /// # Errors
    /// `NoSpace`; the device's where a bitmap could not be read and no other group has a free
    /// inode.
    pub fn alloc_inode(&self, handle: &Handle<'_>, parent: Ino, directory: bool) -> Result<Ino> {
        let home = self.geo.inode_group(parent).map_or(0, |(group, _)| group.0);
        let mut failure = None;
        let mut attempt = |group: u32| match self.take_inode(handle, GroupNo(group), directory) {
            Ok(ino) => ino,
            Err(error) => {
                if !matches!(error, Error::Corrupt(_)) {
                    failure.get_or_insert(error);
                }
                None
            }
        };
        let first = match directory {
            true => self.group_for_directory(home, parent == Ino::ROOT),
            false => home,
        };
        if let Some(ino) = attempt(first) {
            return Ok(ino);
        }
        // The rest of the cluster, then in steps that double, by the parent so that directories do
        // not crowd together, and at last every group.
        let cluster = self.cluster_of(first);
        let groups = u64::from(self.geo.groups);
        let near = (first + 1..cluster.end).chain(cluster.start..first);
        let steps = (0..32).map_while(|log| {
            let step = 1u64 << log;
            (step < groups)
                .then(|| ((u64::from(first) + u64::from(parent.0) + step) % groups) as u32)
        });
        let all = (0..groups).map(|step| ((u64::from(first) + step) % groups) as u32);
        for group in near.chain(steps).chain(all) {
            let hint = &self.groups[group as usize];
            if hint.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(ino) = attempt(group) {
                return Ok(ino);
            }
        }
        Err(failure.unwrap_or(Error::NoSpace))
    }

    /// Takes a number of `number`; `None` if the group has none.
    fn take_inode(
        &self,
        handle: &Handle<'_>,
        number: GroupNo,
        directory: bool,
    ) -> Result<Option<Ino>> {
        let group = self.group(number)?;
        if group.free_inodes.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut state = group.inodes.lock();
        if state.free == 0 {
            return Ok(None);
        }
        let buffer = self.inode_bitmap(handle, number, group, &mut state)?;
        let end = self.geo.inodes_per_group;
        let first = if number.0 == 0 {
            self.geo.first_ino.0 - 1
        } else {
            0
        };
        if let Some((tid, low)) = state.freed_in
            && tid != handle.tid()
        {
            state.hint = state.hint.min(low);
            state.freed_in = None;
        }
        let from = state.hint.max(first);
        let index = handle.modify(&buffer, None, |bytes| {
            let index = bitmap::find_next_zero(bytes, from, end)
                .or_else(|| bitmap::find_next_zero(bytes, first, from))?;
            bitmap::set(bytes, index);
            Some(index)
        });
        let Some((index, ino)) =
            index.and_then(|index| Some((index, self.geo.ino_at(number, index)?)))
        else {
            self.inodes_damaged(group, &mut state);
            return Err(corrupt(
                "has no free inode although the descriptor says so",
                number,
            ));
        };
        state.hint = index + 1;
        state.free -= 1;
        mirror(&group.free_inodes, state.free);
        if directory {
            state.dirs += 1;
            mirror(&group.dirs, state.dirs);
            self.dirs.fetch_add(1, Ordering::Relaxed);
        }
        self.note_used(&mut state, index);
        state.stale = true;
        self.free_inodes.fetch_sub(1, Ordering::Relaxed);
        self.note_changed(number, group);
        Ok(Some(ino))
    }

    /// The group's inode bitmap, made now if it was never written.
    fn inode_bitmap(
        &self,
        handle: &Handle<'_>,
        number: GroupNo,
        group: &Group,
        state: &mut InodeState,
    ) -> Result<Arc<Buffer>> {
        match state.load(&self.journal, &self.geo, number, &group.desc) {
            Ok(Some(buffer)) => return Ok(buffer.clone()),
            Ok(None) => {}
            Err(error) => {
                if matches!(error, Error::Corrupt(_)) && !state.damaged {
                    self.blame("load_inode_bitmap", &error);
                    tracing::error!("{error}; no inode is taken from this group");
                    self.inodes_damaged(group, state);
                }
                return Err(error);
            }
        }
        let reserved = if number.0 == 0 {
            self.geo.first_ino.0 - 1
        } else {
            0
        };
        let inodes = self.geo.inodes_per_group;
        if state.free != inodes - reserved {
            self.inodes_damaged(group, state);
            let what = "was never written although inodes are in use";
            return Err(corrupt(what, number));
        }
        let buffer = handle.create(group.desc.inode_bitmap.0);
        handle.modify(&buffer, None, |bytes| {
            bitmap::set_range(bytes, 0, reserved);
            bitmap::set_range(bytes, inodes, u32::MAX);
        });
        state.uninit = false;
        state.stale = true;
        state.bitmap = Some(buffer.clone());
        Ok(buffer)
    }

    fn inodes_damaged(&self, group: &Group, state: &mut InodeState) {
        state.damaged = true;
        mirror(&group.free_inodes, 0);
    }

    /// Inode `index` of a group is in use: the part of the table that was never used shrinks.
    fn note_used(&self, state: &mut InodeState, index: u32) {
        state.unused = state.unused.min(self.geo.inodes_per_group - index - 1);
        let blocks = index / self.geo.inodes_per_block() + 1;
        if blocks > state.created {
            self.pending
                .fetch_add(blocks - state.created, Ordering::Relaxed);
            state.unwritten.extend(state.created..blocks);
            state.created = blocks;
        }
    }

    /// Frees an inode number (one credit).
    ///
    /// # Errors
    /// `Corrupt` where it is free already, or reserved; the device's.
    pub fn free_inode(&self, handle: &Handle<'_>, ino: Ino, directory: bool) -> Result<()> {
        let (number, index) = self.geo.inode_group(ino)?;
        if ino.0 < self.geo.first_ino.0 {
            return Err(corrupt("a reserved inode is to be freed", number));
        }
        let group = self.group(number)?;
        let mut state = group.inodes.lock();
        if state.uninit {
            return Err(corrupt(
                "an inode that is to be freed is free already",
                number,
            ));
        }
        let buffer = self.inode_bitmap(handle, number, group, &mut state)?;
        let was_set = handle.modify(&buffer, None, |bytes| bitmap::clear(bytes, index));
        if !was_set {
            return Err(corrupt(
                "an inode that is to be freed is free already",
                number,
            ));
        }
        state.freed_in = match state.freed_in {
            Some((tid, low)) if tid == handle.tid() => Some((tid, low.min(index))),
            Some((_, low)) => {
                state.hint = state.hint.min(low);
                Some((handle.tid(), index))
            }
            None => Some((handle.tid(), index)),
        };
        state.free += 1;
        mirror(&group.free_inodes, state.free);
        if directory {
            state.dirs = state.dirs.saturating_sub(1);
            mirror(&group.dirs, state.dirs);
            let _ = self
                .dirs
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
        state.stale = true;
        self.free_inodes.fetch_add(1, Ordering::Relaxed);
        self.note_changed(number, group);
        Ok(())
    }

    /// Block and byte offset of an inode in the inode table; `Err` for numbers out of range.
    pub fn inode_location(&self, ino: Ino) -> Result<(FsBlock, usize)> {
        let (group, _) = self.geo.inode_group(ino)?;
        let table = self.group(group)?.desc.inode_table;
        let (block, offset) = self.geo.inode_location(ino, table)?;
        Ok((block, offset as usize))
    }

    /// Whether this inode table block has never been written, so that it is to be created instead
    /// of read (see [`jbd2::Handle::create`]). Says so once: from then on the block has content.
    pub fn itable_block_is_fresh(&self, block: FsBlock) -> bool {
        let after = self.tables.partition_point(|(first, _)| *first <= block.0);
        let Some((first, group)) = after.checked_sub(1).and_then(|at| self.tables.get(at)) else {
            return false;
        };
        let index = block.0 - first;
        if index >= u64::from(self.geo.itable_blocks_per_group()) {
            return false;
        }
        let index = index as u32;
        let mut state = self.groups[*group as usize].inodes.lock();
        if index >= state.created {
            // Somebody writes an inode that is not in use; the blocks before it must have content,
            // too.
            self.pending
                .fetch_add(index - state.created, Ordering::Relaxed);
            let created = state.created;
            state.unwritten.extend(created..index);
            state.created = index + 1;
            return true;
        }
        match state
            .unwritten
            .iter()
            .position(|unwritten| *unwritten == index)
        {
            Some(at) => {
                state.unwritten.swap_remove(at);
                self.pending.fetch_sub(1, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    /// Whether the inode bitmap says that it is in use (hostile images refer to free ones).
    ///
    /// # Errors
    /// `Corrupt` for a number that the volume does not have, or a damaged bitmap; the device's.
    pub fn inode_in_use(&self, ino: Ino) -> Result<bool> {
        let (number, index) = self.geo.inode_group(ino)?;
        let group = self.group(number)?;
        let mut state = group.inodes.lock();
        let buffer = state.load(&self.journal, &self.geo, number, &group.desc)?;
        Ok(buffer.is_some_and(|buffer| bitmap::test(&buffer.data(), index)))
    }
}
