//! The block with attributes of an inode, which several inodes may share.

use super::attribute::{Attribute, borrow, own, references};
use super::value_inode;
use crate::alloc::BlockRun;
use crate::{Fs, Inode, InodeDamage, Result};
use block::BufMut;
use ext4_format::checksum::Seed;
use ext4_format::xattr::{
    build_block, parse_block, set_refcount, update_block_checksum, verify_block_checksum,
};
use jbd2::{Buffer, Handle, Seal};
use std::sync::Arc;
use units::FsBlock;

/// The change of an inode's attribute block.
#[derive(Clone, Copy)]
pub(super) enum BlockChange {
    None,
    /// No other inode has the block.
    InPlace,
    /// The reference to the block, if there is one, is dropped, and a new block is written if there
    /// are attributes for it.
    Replace,
}

impl BlockChange {
    pub fn plan(fs: &Fs, inode: &Inode, attributes: &[Attribute]) -> Result<BlockChange> {
        let old = inode.xattr_block();
        if old.0 == 0 || attributes.is_empty() {
            return Ok(BlockChange::Replace);
        }
        // The one reference is this inode's, and no reference is ever added.
        Ok(match is_shared_block(fs, inode)? {
            false => BlockChange::InPlace,
            true => BlockChange::Replace,
        })
    }
}

/// Writes the attributes of the block, or drops the block if there are none.
pub(super) fn write_block(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    attributes: &[Attribute],
    change: BlockChange,
) -> Result<()> {
    if attributes.is_empty() {
        return release(fs, handle, inode);
    }
    let mut bytes = BufMut::zeroed(fs.geo.block_size as usize);
    build_block(&borrow(attributes), 1, &mut bytes)?;
    if matches!(change, BlockChange::InPlace) {
        let buffer = get_block(fs, inode, inode.xattr_block())?;
        handle.modify(&buffer, seal(fs), |block| block.copy_from_slice(&bytes));
        return Ok(());
    }
    let goal = fs.groups.goal_for(inode.ino);
    let place = fs.groups.alloc_metadata_block(handle, goal)?;
    let buffer = handle.create(place);
    handle.modify(&buffer, seal(fs), |block| block.copy_from_slice(&bytes));
    if let Err(error) = release(fs, handle, inode) {
        drop(buffer);
        free_block(fs, handle, place)?;
        return Err(error);
    }
    inode.set_xattr_block(place, fs.geo.sectors_per_cluster() as i64);
    Ok(())
}

/// Drops the inode's reference to its block, if it has one, and frees the block with the last
/// reference, and the references to values that it has. An error has changed nothing.
pub(super) fn release(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let place = inode.xattr_block();
    if place.0 == 0 {
        return Ok(());
    }
    let buffer = get_block(fs, inode, place)?;
    let attributes = own(parse_block(&buffer.data())?.1);
    let values = references(&attributes);
    // Another inode may drop its reference concurrently, so the count is read and changed in one
    // step.
    let is_last = handle.modify(&buffer, seal(fs), |block| {
        let refcount = parse_block(block)?.0.refcount;
        match refcount {
            0 | 1 => Ok(true),
            shared => set_refcount(block, shared - 1).map(|()| false),
        }
    })?;
    drop(buffer);
    if is_last {
        free_block(fs, handle, place)?;
        for value in &value_inode::load_lost(fs, inode, &values) {
            value_inode::put(fs, handle, value, inode);
        }
    }
    inode.set_xattr_block(FsBlock(0), -(fs.geo.sectors_per_cluster() as i64));
    inode.mark_dirty(fs, handle);
    Ok(())
}

/// Drops the inode's reference to its block if other inodes have the block, too. Returns `false` if
/// they do not, or if there is no block.
pub(super) fn leave_shared_block(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<bool> {
    // The last inode that has a block shares it with none, whatever others do.
    if !is_shared_block(fs, inode)? {
        return Ok(false);
    }
    let buffer = get_block(fs, inode, inode.xattr_block())?;
    let left = handle.modify(&buffer, seal(fs), |block| {
        let refcount = parse_block(block)?.0.refcount;
        match refcount {
            0 | 1 => Ok(false),
            shared => set_refcount(block, shared - 1).map(|()| true),
        }
    })?;
    if left {
        inode.set_xattr_block(FsBlock(0), -(fs.geo.sectors_per_cluster() as i64));
    }
    Ok(left)
}

/// Returns whether the inode has a block that other inodes have, too.
pub(super) fn is_shared_block(fs: &Fs, inode: &Inode) -> Result<bool> {
    let place = inode.xattr_block();
    if place.0 == 0 {
        return Ok(false);
    }
    let buffer = get_block(fs, inode, place)?;
    Ok(parse_block(&buffer.data())?.0.refcount > 1)
}

fn free_block(fs: &Fs, handle: &Handle<'_>, start: FsBlock) -> Result<()> {
    handle.forget(start);
    fs.groups.free(handle, BlockRun { start, len: 1 })
}

/// Updates the checksum of a block before it is logged.
fn seal_block(seed: u32, block: FsBlock, bytes: &mut [u8]) {
    update_block_checksum(Some(Seed(seed)), bytes, block);
}

/// Returns the seal of attribute blocks. It has the volume's seed, because inodes share blocks.
fn seal(fs: &Fs) -> Option<Seal> {
    fs.geo.csum_seed.map(|seed| Seal {
        seal: seal_block,
        seed: seed.0,
    })
}

pub(super) fn get_block(fs: &Fs, inode: &Inode, place: FsBlock) -> Result<Arc<Buffer>> {
    let run = BlockRun {
        start: place,
        len: 1,
    };
    if !fs.geo.contains_blocks(place, 1) || fs.groups.is_system(run) {
        return Err(InodeDamage::XattrBlock { block: place }.of(inode.ino));
    }
    let buffer = fs.journal.get(place)?;
    buffer.verify_once(|bytes| verify_block_checksum(fs.geo.csum_seed, bytes, place))?;
    Ok(buffer)
}
