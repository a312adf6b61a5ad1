//! What allocation leaves for the commit: checksums of bitmaps, group descriptors, fresh inode
//! table blocks.
//!
//! Bitmaps are changed in their buffers at once, but their checksums, and the descriptors that hold
//! these and the counts, are brought up to date only here: once per commit and group instead of
//! once per change. A group that changes gets into the list of changed groups; the commit's early
//! phase empties it beside running handles, and in its locked phase only those are left that
//! changed since.

use super::Groups;
use super::group::Group;
use crate::Result;
use ext4_format::group_desc::{self, GroupDesc, GroupFlags};
use ext4_format::types::GroupNo;
use jbd2::Handle;
use sync::atomic::Ordering;

impl Groups {
    /// A group's descriptor has to be encoded. Under the lock of what changed, so that the commit
    /// sees the change when it sees the mark.
    pub(super) fn note_changed(&self, number: GroupNo, group: &Group) {
        if group.listed.load(Ordering::Acquire) || group.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let block = self.gdt_index(number);
        let mut changed = self.changed.lock();
        changed.push(number.0);
        if !self.gdt_changed[block].swap(true, Ordering::Relaxed) {
            self.pending.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Which block of the descriptor table has the group's descriptor.
    fn gdt_index(&self, number: GroupNo) -> usize {
        let (block, _) = self.geo.group_desc_location(number);
        (block.0 - self.geo.first_data_block - 1) as usize
    }

    /// Puts changed bitmaps (with checksums) and group descriptors into their buffers. See
    /// [`jbd2::JournalClient`].
    ///
    /// # Errors
    /// Where a descriptor block or a bitmap cannot be read; the transaction is not whole then.
    pub fn write_back_state(&self, handle: &Handle<'_>) -> Result<()> {
        let mut numbers = {
            let mut changed = self.changed.lock();
            let mut cleared = 0;
            for number in changed.iter() {
                let flag = &self.gdt_changed[self.gdt_index(GroupNo(*number))];
                cleared += u32::from(flag.swap(false, Ordering::Relaxed));
            }
            self.pending.fetch_sub(cleared, Ordering::Relaxed);
            std::mem::take(&mut *changed)
        };
        numbers.sort_unstable();
        let mut result = Ok(());
        for same_block in
            numbers.chunk_by(|a, b| self.gdt_index(GroupNo(*a)) == self.gdt_index(GroupNo(*b)))
        {
            let done = self.write_back_groups(handle, same_block);
            if done.is_err() {
                for number in same_block {
                    self.note_changed(GroupNo(*number), &self.groups[*number as usize]);
                }
            }
            result = result.and(done);
        }
        result
    }

    /// Encodes the descriptors of groups that share a block of the descriptor table.
    fn write_back_groups(&self, handle: &Handle<'_>, numbers: &[u32]) -> Result<()> {
        let mut descs = Vec::with_capacity(numbers.len());
        for number in numbers.iter().copied().map(GroupNo) {
            let group = self.group(number)?;
            // Before the state is read: what changes from here on is marked again.
            group.listed.store(false, Ordering::Release);
            descs.push((number, self.describe(handle, group)?));
        }
        let Some((block, _)) = descs
            .first()
            .map(|(number, _)| self.geo.group_desc_location(*number))
        else {
            return Ok(());
        };
        let buffer = handle.get(block.0)?;
        handle.modify(&buffer, None, |bytes| {
            for (number, desc) in &descs {
                let at = self.geo.group_desc_location(*number).1 as usize;
                let raw = bytes.get_mut(at..).unwrap_or_default();
                desc.encode(raw, self.geo.desc_size)?;
                group_desc::update_checksum(&self.geo, *number, raw);
            }
            Ok(())
        })
    }

    /// The descriptor as it is to be now. Takes the checksums of what changed, and zeroes inode
    /// table blocks that came into use without having been written.
    fn describe(&self, handle: &Handle<'_>, group: &Group) -> Result<GroupDesc> {
        let mut desc = group.desc.clone();
        {
            let mut state = group.blocks.lock();
            desc.block_bitmap_csum = state.csum;
            if let Some(bitmap) = state.bitmap.as_ref().filter(|_| state.stale) {
                desc.update_block_bitmap_csum(&self.geo, &bitmap.data());
                state.csum = desc.block_bitmap_csum;
                state.stale = false;
            }
            desc.free_blocks_count = state.free;
            // What was not set when the volume was mounted is not set now either.
            if !state.uninit {
                desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            }
        }
        let mut state = group.inodes.lock();
        desc.inode_bitmap_csum = state.csum;
        if let Some(bitmap) = state.bitmap.as_ref().filter(|_| state.stale) {
            desc.update_inode_bitmap_csum(&self.geo, &bitmap.data());
            state.csum = desc.inode_bitmap_csum;
            state.stale = false;
        }
        desc.free_inodes_count = state.free;
        desc.used_dirs_count = state.dirs;
        if !state.uninit {
            desc.flags.remove(GroupFlags::INODE_UNINIT);
        }
        if self.geo.has_group_csum() {
            desc.itable_unused = state.unused;
        }
        let unwritten = std::mem::take(&mut state.unwritten);
        self.pending
            .fetch_sub(unwritten.len() as u32, Ordering::Relaxed);
        for block in unwritten {
            handle.create(desc.inode_table.0 + u64::from(block));
        }
        Ok(desc)
    }

    /// Blocks that [`Groups::write_back_state`] would change now, at most.
    pub fn pending_blocks(&self) -> u32 {
        self.pending.load(Ordering::Relaxed)
    }
}
