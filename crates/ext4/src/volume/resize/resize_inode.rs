//! The resize inode (7), which owns the blocks that are kept for the descriptor table.
//!
//! ```text
//!  inode 7 ─▶ double indirect block ─▶ reserved block i of the table ─▶ its copies in groups 1, 3, 5, …
//! ```
//!
//! The pointers to copies are in the reserved block itself. A reserved block that becomes part of
//! the table leaves the map together with its copies. A new group with copies is added to each
//! reserved block that remains. e2fsck compares all pointers with the groups that have copies.

use super::damaged;
use crate::alloc::BlockRun;
use crate::{Error, Fs, Result};
use ext4_format::block_map;
use ext4_format::geometry::Geometry;
use ext4_format::inode::{FileType, InodeFields, update_checksum};
use jbd2::{Buffer, Handle};
use std::sync::Arc;
use units::{FsBlock, GroupNo, Ino};

/// The place of the double indirect pointer in `i_block`.
const DOUBLE_INDIRECT: usize = 13;

/// The resize inode before a step, with all blocks that the step changes.
pub(super) struct ResizeInode<'a> {
    fs: &'a Fs,
    /// The block of the inode table, and the inode's place there.
    table: Arc<Buffer>,
    at: usize,
    fields: InodeFields,
    pointers: Arc<Buffer>,
    /// The reserved blocks that remain.
    reserved: Vec<Arc<Buffer>>,
}

impl<'a> ResizeInode<'a> {
    /// Blocks that each change changes: that of the inode, and the double indirect one.
    pub const CREDITS: u32 = 2;

    /// Reads what a step changes that adds groups from `first` on. `None` if it changes nothing.
    ///
    /// # Errors
    /// `Corrupt` if the map is not that of the geometry; an I/O error.
    pub fn read(fs: &'a Fs, geo: &Geometry, first: u32) -> Result<Option<ResizeInode<'a>>> {
        let has_copies = copies(geo, first..geo.groups).next().is_some();
        if geo.gdt_blocks == fs.geo.gdt_blocks && !has_copies {
            return Ok(None);
        }
        let mut inode = ResizeInode::read_empty(fs)?;
        let blocks: Vec<FsBlock> = table_end(geo).map(|index| geo.gdt_block(index)).collect();
        inode.check_pointers()?;
        fs.journal.prefetch(&blocks);
        for block in blocks {
            inode.reserved.push(fs.journal.get(block)?);
        }
        Ok(Some(inode))
    }

    /// Reads the inode and its double indirect block.
    ///
    /// # Errors
    /// `Corrupt` if the inode is not one that mke2fs makes; an I/O error.
    pub fn read_empty(fs: &'a Fs) -> Result<ResizeInode<'a>> {
        let (block, at) = fs.groups.inode_location(Ino::RESIZE)?;
        let table = fs.journal.get(block)?;
        let data = table.data();
        let raw = data.get(at..at + usize::from(fs.geo.inode_size));
        let raw = raw.ok_or(Error::Internal("an inode lies beyond its block"))?;
        ext4_format::inode::verify_checksum(&fs.geo, Ino::RESIZE, raw)?;
        let fields = InodeFields::decode(&fs.geo, raw)?;
        let pointer = |nth: usize| block_map::get(&fields.i_block, nth);
        if fields.mode.file_type() != Some(FileType::Regular) {
            return Err(damaged("mode", fields.mode.0.into()));
        }
        if let Some(other) = (0..15).find(|nth| *nth != DOUBLE_INDIRECT && pointer(*nth) != 0) {
            return Err(damaged("i_block", other as u64));
        }
        let block = FsBlock(pointer(DOUBLE_INDIRECT).into());
        let run = BlockRun {
            start: block,
            len: 1,
        };
        if !fs.geo.contains_blocks(block, 1) || fs.groups.is_system(run) {
            return Err(damaged("double indirect block", block.0));
        }
        Ok(ResizeInode {
            fs,
            at,
            pointers: fs.journal.get(block)?,
            table,
            fields,
            reserved: Vec::new(),
        })
    }

    /// Compares the pointers to reserved blocks with the volume's geometry.
    ///
    /// # Errors
    /// `Corrupt` if one is different.
    pub fn check_pointers(&self) -> Result<()> {
        let geo = &self.fs.geo;
        let pointers = self.pointers.data();
        for index in table_end(geo) {
            let found = block_map::get(&pointers, slot(geo, index));
            if u64::from(found) != geo.gdt_block(index).0 {
                return Err(damaged("reserved block", found.into()));
            }
        }
        Ok(())
    }

    /// Returns the number of copies of each reserved block.
    pub fn copies(&self) -> u32 {
        copies(&self.fs.geo, 1..self.fs.geo.groups).count() as u32
    }

    /// Blocks that [`ResizeInode::update`] changes.
    pub fn credits(&self) -> u32 {
        ResizeInode::CREDITS + self.reserved.len() as u32
    }

    /// Removes the blocks that are part of the table in `geo`, and adds the copies of the groups
    /// from `first` on.
    ///
    /// # Errors
    /// `Corrupt` if the inode cannot be encoded; then nothing has changed.
    pub fn update(self, handle: &Handle<'_>, geo: &Geometry, first: u32) -> Result<()> {
        self.count_blocks(handle, geo)?;
        handle.modify(&self.pointers, None, |bytes| {
            for index in self.fs.geo.gdt_blocks..geo.gdt_blocks {
                block_map::put(bytes, slot(geo, index), 0);
            }
        });
        let before = copies(geo, 1..first).count();
        for (index, buffer) in table_end(geo).zip(&self.reserved) {
            handle.modify(buffer, None, |bytes| {
                let place = geo.gdt_block(index);
                for (nth, group) in (before..).zip(copies(geo, first..geo.groups)) {
                    block_map::put(bytes, nth, geo.nominal_copy(place, group).0 as u32);
                }
            });
        }
        Ok(())
    }

    /// Removes the reserved blocks that are not those of `geo`, which has the same groups
    /// ([`ResizeInode::CREDITS`]).
    ///
    /// # Errors
    /// `Corrupt` if the inode cannot be encoded; then nothing has changed.
    pub fn shorten(self, handle: &Handle<'_>, geo: &Geometry) -> Result<()> {
        self.count_blocks(handle, geo)?;
        handle.modify(&self.pointers, None, |bytes| {
            bytes.fill(0);
            for index in table_end(geo) {
                block_map::put(bytes, slot(geo, index), geo.gdt_block(index).0 as u32);
            }
        });
        Ok(())
    }

    /// Stores the number of blocks that the inode has in `geo`.
    fn count_blocks(&self, handle: &Handle<'_>, geo: &Geometry) -> Result<()> {
        // With `bigalloc` mke2fs and e2fsck count a whole cluster for each block.
        let sectors = geo.sectors_per_cluster();
        let copies = copies(geo, 1..geo.groups).count() as u64;
        let mut fields = self.fields.clone();
        fields.blocks = sectors * (1 + u64::from(geo.reserved_gdt_blocks) * (1 + copies));
        self.change_inode(handle, |raw| fields.encode(geo, raw))
    }

    /// Clears the inode and frees its block ([`ResizeInode::CREDITS`]).
    ///
    /// # Errors
    /// `Corrupt` if the block is not in use; an I/O error.
    pub fn remove(self, handle: &Handle<'_>) -> Result<()> {
        let start = self.pointers.block();
        self.fs.groups.free(handle, BlockRun { start, len: 1 })?;
        handle.forget(start);
        self.change_inode(handle, |raw| {
            raw.fill(0);
            Ok(())
        })
    }

    fn change_inode(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut [u8]) -> ext4_format::error::Result<()>,
    ) -> Result<()> {
        let geo = &self.fs.geo;
        let size = usize::from(geo.inode_size);
        handle.modify(&self.table, None, |bytes| {
            let raw = bytes.get_mut(self.at..self.at + size).unwrap_or_default();
            change(raw)?;
            Ok(update_checksum(geo, Ino::RESIZE, raw)?)
        })
    }
}

/// Returns the groups of a range that have copies of the super block.
fn copies(geo: &Geometry, range: std::ops::Range<u32>) -> impl Iterator<Item = GroupNo> {
    range.map(GroupNo).filter(|group| geo.has_super(*group))
}

/// Returns the numbers of the reserved blocks within the grown table.
fn table_end(geo: &Geometry) -> std::ops::Range<u32> {
    geo.gdt_blocks..geo.gdt_blocks + geo.reserved_gdt_blocks
}

/// Returns the slot of a table block's pointer in the double indirect block.
fn slot(geo: &Geometry, index: u32) -> usize {
    (index % (geo.block_size / 4)) as usize
}
