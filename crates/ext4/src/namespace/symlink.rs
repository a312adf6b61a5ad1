//! Symbolic links: targets below 60 bytes in the inode, longer ones in a block.
//!
//! The block of a target goes through the journal, as a directory's does, both ways: one that the
//! kernel made is read through the same cache, so that there is one copy of it in memory and none
//! in the page cache.

use super::NewInode;
use super::create::Wanted;
use crate::extents::{self, INSERT_CREDITS, Map};
use crate::{Error, Fs, Inode, InodeRef, Result};
use ext4_format::inode::{FileType, I_BLOCK_SIZE, InodeFlags, InodeMode};
use ext4_format::symlink::{MAX_FAST_TARGET, fast_i_block};
use ext4_format::types::FileBlock;
use jbd2::Handle;
use std::sync::Arc;

/// The longest target, in bytes (Linux's PATH_MAX less the final NUL).
const MAX_TARGET: usize = 4095;

impl Fs {
    /// Creates a symbolic link. Its mode is always 0777.
    ///
    /// # Errors
    ///
    /// As [`Fs::create`]; `NotFound` for an empty target, `NameTooLong` beyond 4095 bytes or a
    /// block.
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
        // One byte less than a block: the kernel puts a NUL behind.
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
        let wanted = Wanted {
            credits,
            ..Wanted::plain(name, FileType::Symlink, new)
        };
        self.create_with(dir, wanted, |fs, handle, inode| {
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

    /// Puts a long target into a block of its own.
    fn write_target(&self, handle: &Handle<'_>, inode: &Arc<Inode>, target: &[u8]) -> Result<()> {
        *inode.i_block.write() = extents::empty_root();
        inode.insert_flags(InodeFlags::EXTENTS);
        let goal = self.groups.goal_for(inode.ino);
        let block = self.groups.alloc_metadata_block(handle, goal)?;
        let at = FileBlock(0);
        if let Err(error) = extents::insert(self, handle, inode, at, block, 1, false) {
            let run = crate::alloc::BlockRun {
                start: block,
                len: 1,
            };
            self.groups.free(handle, run)?;
            return Err(error);
        }
        let buffer = handle.create(block.0);
        handle.modify(&buffer, None, |bytes| {
            bytes[..target.len()].copy_from_slice(target);
        });
        Ok(())
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    ///
    /// `Invalid` for anything else than a symbolic link, `CorruptInode` for one without a target.
    pub fn readlink(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        let (mode, size, fast) = inode.fields(|f| (f.mode, f.size, f.is_fast_symlink()));
        if !InodeMode::is_symlink(mode) {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let corrupt = |what| {
            let error = Error::CorruptInode {
                ino: inode.ino.0,
                what,
            };
            self.blame("readlink", inode.ino, error)
        };
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let mut target = if fast {
            let i_block: [u8; I_BLOCK_SIZE] = *inode.i_block.read();
            i_block.get(..len).map(<[u8]>::to_vec)
        } else {
            let map = extents::lookup(self, inode, FileBlock(0))?;
            let Map::Mapped {
                start,
                unwritten: false,
                ..
            } = map
            else {
                return Err(corrupt("the symbolic link's target has no block"));
            };
            let data = self.journal.get(start.0)?.data();
            data.get(..len).map(<[u8]>::to_vec)
        }
        .ok_or_else(|| corrupt("the symbolic link's size is impossible"))?;
        // As the kernel reads it: a C string.
        if let Some(end) = target.iter().position(|&byte| byte == 0) {
            target.truncate(end);
        }
        if target.is_empty() {
            return Err(corrupt("the symbolic link's target is empty"));
        }
        Ok(target)
    }
}
