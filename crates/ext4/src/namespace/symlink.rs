//! Symbolic links. A target below 60 bytes is in the inode, a longer one in a block.
//!
//! The block is written and read as a metadata block of the journal, like a directory's. So memory
//! holds one copy of it, and the page cache holds none.

use super::NewInode;
use super::create::CreateRequest;
use crate::extents::{self, ExtentState, INSERT_CREDITS, Map};
use crate::{Error, Fs, Inode, InodeDamage, InodeRef, Result, inline_data};
use ext4_format::dirhash::DirHash;
use ext4_format::inode::{FileType, I_BLOCK_SIZE, InodeFlags, InodeMode};
use ext4_format::nokey_name;
use ext4_format::symlink::{MAX_FAST_TARGET, encrypted_target, fast_i_block};
use jbd2::Handle;
use std::sync::Arc;
use units::FileBlock;

/// The longest target, in bytes (Linux's PATH_MAX less the final NUL).
const MAX_TARGET: usize = 4095;

/// Targets are in no directory, so they have no hash.
const NO_HASH: DirHash = DirHash { major: 0, minor: 0 };

impl Fs {
    /// Creates a symbolic link. Its mode is always 0777.
    ///
    /// # Errors
    ///
    /// The errors of [`Fs::create`]; `NotFound` for an empty target; `NameTooLong` for a target
    /// longer than 4095 bytes or not shorter than a block.
    pub fn symlink(
        &self,
        dir: &InodeRef,
        name: &[u8],
        target: &[u8],
        new: NewInode,
    ) -> Result<InodeRef> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        // The kernel adds a NUL, so the target is at least one byte shorter than a block.
        if target.len() > MAX_TARGET.min(self.geo.block_size as usize - 1) {
            return Err(Error::NameTooLong);
        }
        if target.contains(&0) {
            return Err(Error::Invalid("the target has a NUL"));
        }
        let credits = if target.len() > MAX_FAST_TARGET {
            INSERT_CREDITS + 1
        } else {
            0
        };
        let new = NewInode { mode: 0o777, ..new };
        let request = CreateRequest {
            credits,
            ..CreateRequest::without_blocks(name, FileType::Symlink, new)
        };
        self.create_with(dir, request, |fs, handle, inode| {
            match fast_i_block(target) {
                Some(i_block) => {
                    *inode.i_block.write() = i_block;
                    inode.remove_flags(InodeFlags::EXTENTS);
                }
                None => fs.write_target(handle, inode, target)?,
            }
            inode.set_metadata_size(target.len() as u64);
            Ok(())
        })
    }

    /// Writes a long target to a new block.
    fn write_target(&self, handle: &Handle<'_>, inode: &Arc<Inode>, target: &[u8]) -> Result<()> {
        extents::make_empty(self, inode);
        let goal = self.groups.goal_for(inode.ino);
        let block = extents::add_metadata_block(self, handle, inode, FileBlock::FIRST, goal)?;
        let buffer = handle.create(block);
        handle.modify(&buffer, None, |bytes| {
            bytes[..target.len()].copy_from_slice(target);
        });
        Ok(())
    }

    /// Returns a symbolic link's target. The target of an encrypted link is as the kernel shows it
    /// without the key.
    ///
    /// # Errors
    ///
    /// `Invalid` if the inode is not a symbolic link; `CorruptInode` if it has no target.
    pub fn readlink(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        let (mode, size, fast) = inode.fields(|f| (f.mode, f.size, f.is_fast_symlink()));
        let flags = inode.flags();
        if !InodeMode::is_symlink(mode) {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let corrupt = |damage: InodeDamage, block| {
            let error = damage.at(inode.ino, block);
            self.blame("readlink", inode.ino, error)
        };
        let mut block = None;
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let mut target = if flags.contains(InodeFlags::INLINE_DATA) {
            Some(inline_data::target(self, inode)?)
        } else if fast {
            let i_block: [u8; I_BLOCK_SIZE] = *inode.i_block.read();
            i_block.get(..len).map(<[u8]>::to_vec)
        } else {
            let map = extents::lookup(self, inode, FileBlock(0))?;
            let Map::Mapped {
                start,
                state: ExtentState::Written,
                ..
            } = map
            else {
                return Err(corrupt(InodeDamage::TargetUnmapped, None));
            };
            block = Some(start);
            let data = self.journal.get(start)?.data();
            data.get(..len).map(<[u8]>::to_vec)
        }
        .ok_or_else(|| corrupt(InodeDamage::TargetSize { size }, None))?;
        if flags.contains(InodeFlags::ENCRYPT) {
            return match encrypted_target(&target) {
                Some(target) => Ok(nokey_name::encode(NO_HASH, target)),
                None => Err(corrupt(InodeDamage::TargetSize { size }, block)),
            };
        }
        // The kernel reads the target as a C string.
        if let Some(end) = target.iter().position(|&byte| byte == 0) {
            target.truncate(end);
        }
        if target.is_empty() {
            return Err(corrupt(InodeDamage::TargetEmpty, block));
        }
        Ok(target)
    }
}
