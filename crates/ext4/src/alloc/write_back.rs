//! Work at commit: checksums of bitmaps, group descriptors, fresh inode table blocks.
//!
//! A change of a bitmap goes to its buffer at once. The bitmap's checksum and the group descriptor
//! are updated here, once per commit and group. A changed group enters the list of changed groups.
//! The commit's early phase empties the list concurrently with running handles. The locked phase
//! handles the groups that changed since then.

use super::group::Group;
use super::{ChangedGroups, Groups};
use crate::Result;
use ext4_format::group_desc::{self, GroupDesc, GroupFlags};
use jbd2::Handle;
use sync::atomic::Ordering;
use units::GroupNo;

impl Groups {
    /// Adds a group to the list of changed groups. The caller holds the lock of the changed state,
    /// so a commit that sees the flag also sees the change.
    pub(super) fn note_changed(&self, number: GroupNo, group: &Group) {
        if group.listed.load(Ordering::Acquire) || group.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let block = self.gdt_index(number);
        let mut changed = self.changed.lock();
        changed.numbers.push(number);
        if changed.tables.len() <= block {
            changed.tables.resize(block + 1, false);
        }
        if !std::mem::replace(&mut changed.tables[block], true) {
            self.pending.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the index of the descriptor table block that holds the group's descriptor.
    fn gdt_index(&self, number: GroupNo) -> usize {
        self.geo.gdt_index(number) as usize
    }

    /// Writes the checksums of changed bitmaps and the changed group descriptors to their buffers.
    /// See [`jbd2::JournalClient`].
    ///
    /// # Errors
    /// An I/O error if a descriptor block or a bitmap cannot be read. The transaction is then
    /// incomplete and must not commit.
    pub fn write_back_state(&self, handle: &Handle<'_>) -> Result<()> {
        let mut numbers = {
            let mut changed = self.changed.lock();
            let ChangedGroups { numbers, tables } = &mut *changed;
            let mut cleared = 0;
            for number in numbers.iter() {
                let flag = &mut tables[self.gdt_index(*number)];
                cleared += u32::from(std::mem::take(flag));
            }
            self.pending.fetch_sub(cleared, Ordering::AcqRel);
            std::mem::take(numbers)
        };
        numbers.sort_unstable();
        let mut result = Ok(());
        for same_block in numbers.chunk_by(|a, b| self.gdt_index(*a) == self.gdt_index(*b)) {
            let done = self.write_back_groups(handle, same_block);
            if done.is_err() {
                for number in same_block {
                    if let Some(group) = self.parts.get(*number) {
                        self.note_changed(*number, group);
                    }
                }
            }
            result = result.and(done);
        }
        result
    }

    /// Encodes the descriptors of groups that share a block of the descriptor table.
    fn write_back_groups(&self, handle: &Handle<'_>, numbers: &[GroupNo]) -> Result<()> {
        let mut descs = Vec::with_capacity(numbers.len());
        for number in numbers.iter().copied() {
            let group = self.group(number)?;
            // The flag is cleared before the state is read, so a later change sets it again.
            group.listed.store(false, Ordering::Release);
            descs.push((number, self.current_desc(handle, group)?));
        }
        let Some((block, _)) = descs
            .first()
            .map(|(number, _)| self.geo.group_desc_location(*number))
        else {
            return Ok(());
        };
        let buffer = handle.get(block)?;
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

    /// Returns the current descriptor of a group. It computes the checksums of changed bitmaps and
    /// creates inode table blocks in use that have not been written, filled with zeroes.
    fn current_desc(&self, handle: &Handle<'_>, group: &Group) -> Result<GroupDesc> {
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
            // The flag is only ever removed: a bitmap stays initialised.
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
            .fetch_sub(unwritten.len() as u32, Ordering::AcqRel);
        for block in unwritten {
            handle.initialize(desc.inode_table + u64::from(block));
        }
        Ok(desc)
    }

    /// Returns an upper bound of the blocks that [`Groups::write_back_state`] would change now.
    pub fn pending_blocks(&self) -> u32 {
        self.pending.load(Ordering::Acquire)
    }
}
