//! Inode numbers: allocation, freeing, location.
//!
//! The lowest free number of a group is allocated first, so the used part of an inode table grows
//! block by block from its start. The blocks after that part were never written and hold garbage.
//! [`Groups::itable_block_is_fresh`] returns true once for each of them, so that the writer of
//! inodes starts from zeroes and does not read the block. If all inodes of a new block are freed
//! before the block is written, the commit writes zeroes.

use super::Groups;
use super::group::{Group, InodeState, publish, reserved_inodes};
use crate::{Error, Result};
use ext4_format::bitmap;
use ext4_format::error::{BitmapDamage, BitmapKind};
use ext4_format::inode::FileType;
use jbd2::{Buffer, Handle};
use std::sync::Arc;
use sync::atomic::Ordering;
use units::{FsBlock, GroupNo, Ino};

fn corrupt(damage: BitmapDamage, group: GroupNo) -> Error {
    damage.of(BitmapKind::Inode, group).into()
}

impl Groups {
    /// Allocates an inode number (one credit).
    ///
    /// Directories are spread over groups; other inodes are near their parent directory. A number
    /// is not used again in the transaction that freed it if its group has a free number before.
    /// Without a journal it never is: a part of a commit could give the old name the new file.
    ///
    /// # Errors
    /// `NoSpace`; an I/O error if a bitmap could not be read and no other group has a free inode.
    pub fn alloc_inode(&self, handle: &Handle<'_>, parent: Ino, kind: FileType) -> Result<Ino> {
        let home = self
            .geo
            .inode_group(parent)
            .map_or(GroupNo(0), |(group, _)| group);
        let mut failure = None;
        let mut attempt = |group: GroupNo| match self.alloc_in_group(handle, group, kind) {
            Ok(ino) => ino,
            Err(error) => {
                if !matches!(error, Error::Corrupt(_)) {
                    failure.get_or_insert(error);
                }
                None
            }
        };
        let first = match kind {
            FileType::Directory => self.group_for_directory(home, parent),
            _ => home,
        };
        if let Some(ino) = attempt(first) {
            return Ok(ino);
        }
        // First the rest of the region. Then a quadratic hash: steps that double, offset by the
        // parent's number, so that inodes of different directories do not collide. Then all groups.
        let region = self.region_of(first);
        let first = first.0;
        let groups = u64::from(self.geo.groups);
        let near = (first + 1..region.end).chain(region.start..first);
        let steps = (0..32).map_while(|log| {
            let step = 1u64 << log;
            (step < groups)
                .then(|| ((u64::from(first) + u64::from(parent.0) + step) % groups) as u32)
        });
        let all = (0..groups).map(|step| ((u64::from(first) + step) % groups) as u32);
        for group in near.chain(steps).chain(all) {
            let Some(counts) = self.parts.get(GroupNo(group)) else {
                continue;
            };
            if counts.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(ino) = attempt(GroupNo(group)) {
                return Ok(ino);
            }
        }
        Err(failure.unwrap_or(Error::NoSpace))
    }

    /// Allocates an inode in group `number`; `None` if the group has no free inode.
    fn alloc_in_group(
        &self,
        handle: &Handle<'_>,
        number: GroupNo,
        kind: FileType,
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
        let first = reserved_inodes(&self.geo, number);
        if let Some((tid, low)) = state.freed_in
            && tid != handle.tid()
        {
            state.hint = state.hint.min(low);
            state.freed_in = None;
            state.freed.clear();
        }
        let from = state.hint.max(first);
        let next = |bytes: &[u8], mut from: u32, end: u32| loop {
            match bitmap::find_next_zero(bytes, from, end) {
                Some(index) if state.freed.contains(&index) => from = index + 1,
                found => return found,
            }
        };
        let index = handle.modify(&buffer, None, |bytes| {
            let index = next(bytes, from, end).or_else(|| next(bytes, first, from))?;
            bitmap::set(bytes, index);
            Some(index)
        });
        if index.is_none() && !state.freed.is_empty() {
            self.inodes_held.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let Some((index, ino)) =
            index.and_then(|index| Some((index, self.geo.ino_at(number, index)?)))
        else {
            self.mark_inodes_damaged(group, &mut state);
            let counted = state.free;
            return Err(corrupt(BitmapDamage::NoFreeInode { counted }, number));
        };
        state.hint = index + 1;
        self.note_inode_taken((number, group), &mut state, index, kind);
        Ok(Some(ino))
    }

    /// The bit of inode `index` has been set in the group's bitmap.
    pub(super) fn note_inode_taken(
        &self,
        (number, group): (GroupNo, &Group),
        state: &mut InodeState,
        index: u32,
        kind: FileType,
    ) {
        state.free = state.free.saturating_sub(1);
        publish(&group.free_inodes, state.free);
        if kind == FileType::Directory {
            state.dirs += 1;
            publish(&group.dirs, state.dirs);
            self.dirs.fetch_add(1, Ordering::Relaxed);
        }
        self.extend_used_table(state, index);
        state.stale = true;
        self.free_inodes.fetch_sub(1, Ordering::Relaxed);
        self.note_changed(number, group);
    }

    /// Returns the group's inode bitmap. A bitmap that was never written is initialised.
    pub(super) fn inode_bitmap(
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
                    self.log_damage("load_inode_bitmap", &error);
                    tracing::error!("{error}; no inode is allocated from this group");
                    self.mark_inodes_damaged(group, state);
                }
                return Err(error);
            }
        }
        let reserved = reserved_inodes(&self.geo, number);
        let inodes = self.geo.inodes_per_group;
        if state.free != inodes - reserved {
            self.mark_inodes_damaged(group, state);
            let damage = BitmapDamage::NeverWritten {
                expected: inodes - reserved,
                counted: state.free,
            };
            return Err(corrupt(damage, number));
        }
        let buffer = handle.initialize(group.desc.inode_bitmap);
        handle.modify(&buffer, None, |bytes| {
            bitmap::set_range(bytes, 0, reserved);
            bitmap::set_range(bytes, inodes, u32::MAX);
        });
        state.uninit = false;
        state.stale = true;
        state.bitmap = Some(buffer.clone());
        Ok(buffer)
    }

    pub(super) fn mark_inodes_damaged(&self, group: &Group, state: &mut InodeState) {
        state.damaged = true;
        publish(&group.free_inodes, 0);
    }

    /// Extends the used part of a group's inode table to inode `index`.
    fn extend_used_table(&self, state: &mut InodeState, index: u32) {
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
    /// `Corrupt` if the inode is already free or is reserved; an I/O error.
    pub fn free_inode(&self, handle: &Handle<'_>, ino: Ino, kind: FileType) -> Result<()> {
        let (number, index) = self.geo.inode_group(ino)?;
        if ino.0 < self.geo.first_ino.0 {
            return Err(corrupt(BitmapDamage::ReservedInodeFreed { ino }, number));
        }
        let group = self.group(number)?;
        let mut state = group.inodes.lock();
        let already_free = || corrupt(BitmapDamage::InodeFree { ino }, number);
        if state.uninit {
            return Err(already_free());
        }
        let buffer = self.inode_bitmap(handle, number, group, &mut state)?;
        let was_set = handle.modify(&buffer, None, |bytes| bitmap::clear(bytes, index));
        if !was_set {
            return Err(already_free());
        }
        state.freed_in = match state.freed_in {
            Some((tid, low)) if tid == handle.tid() => Some((tid, low.min(index))),
            Some((_, low)) => {
                state.hint = state.hint.min(low);
                state.freed.clear();
                Some((handle.tid(), index))
            }
            None => Some((handle.tid(), index)),
        };
        if !self.journal.has_log() {
            state.freed.insert(index);
        }
        state.free += 1;
        publish(&group.free_inodes, state.free);
        if kind == FileType::Directory {
            state.dirs = state.dirs.saturating_sub(1);
            publish(&group.dirs, state.dirs);
            let _ = self
                .dirs
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
        state.stale = true;
        self.free_inodes.fetch_add(1, Ordering::Relaxed);
        self.note_changed(number, group);
        Ok(())
    }

    /// Returns the block and the byte offset of an inode in the inode table.
    ///
    /// # Errors
    /// `Corrupt` for a number out of range.
    pub fn inode_location(&self, ino: Ino) -> Result<(FsBlock, usize)> {
        let (group, _) = self.geo.inode_group(ino)?;
        let table = self.group(group)?.desc.inode_table;
        let (block, offset) = self.geo.inode_location(ino, table)?;
        Ok((block, offset as usize))
    }

    /// Returns whether this inode table block has content. Its next change reads such a block if it
    /// is not cached.
    pub fn itable_block_has_content(&self, block: FsBlock) -> bool {
        let Some((index, group)) = self.itable_index(block) else {
            return true;
        };
        let state = group.inodes.lock();
        index < state.created && !state.unwritten.contains(&index)
    }

    /// Returns the place of a block within its inode table, and the group.
    fn itable_index(&self, block: FsBlock) -> Option<(u32, &Group)> {
        let tables = &self.parts.of_block(block).tables;
        let after = tables.partition_point(|(first, _)| *first <= block);
        let (first, group) = tables.get(after.checked_sub(1)?)?;
        let index = block.0 - first.0;
        let group = self.parts.get(*group)?;
        (index < u64::from(self.geo.itable_blocks_per_group())).then_some((index as u32, group))
    }

    /// Returns whether this inode table block has never been written. The caller creates such a
    /// block and does not read it (see [`jbd2::Handle::create`]). The result is true only once,
    /// because the block has content afterwards.
    pub fn itable_block_is_fresh(&self, block: FsBlock) -> bool {
        let Some((index, group)) = self.itable_index(block) else {
            return false;
        };
        let mut state = group.inodes.lock();
        if index >= state.created {
            // An inode that is not in use is written. The blocks before it must get content, too.
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

    /// Returns whether an inode is in use by the inode bitmap. Hostile images refer to free inodes.
    ///
    /// # Errors
    /// `Corrupt` for a number out of range or a damaged bitmap; an I/O error.
    pub fn inode_in_use(&self, ino: Ino) -> Result<bool> {
        let (number, index) = self.geo.inode_group(ino)?;
        let group = self.group(number)?;
        let mut state = group.inodes.lock();
        let buffer = state.load(&self.journal, &self.geo, number, &group.desc)?;
        Ok(buffer.is_some_and(|buffer| bitmap::test(&buffer.data(), index)))
    }
}
