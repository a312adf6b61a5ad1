//! Names: look up, create, link, unlink, rename.

use crate::{DirEntry, Fs, InodeRef, Result};

/// What a new inode is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewInode {
    /// Type and permission bits; the umask has been applied by the caller unless a default ACL decides.
    pub mode: u16,
    /// The umask, applied where the parent has no default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group (a set-group-ID parent overrides it).
    pub gid: u32,
    /// Device number for device files.
    pub rdev: u32,
}

/// How to rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameFlags {
    /// Replace an existing target.
    #[default]
    Replace,
    /// Fail if the target exists.
    NoReplace,
    /// Exchange the two.
    Exchange,
}

impl Fs {
    /// The inode that `name` in `dir` refers to.
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<InodeRef> {
        let _ = (dir, name);
        todo!()
    }
    /// Creates a regular file, FIFO, socket or device.
    pub fn create(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<InodeRef> {
        let _ = (dir, name, new);
        todo!()
    }
    /// Creates a directory.
    pub fn mkdir(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<InodeRef> {
        let _ = (dir, name, new);
        todo!()
    }
    /// Creates a symbolic link.
    pub fn symlink(
        &self,
        dir: &InodeRef,
        name: &[u8],
        target: &[u8],
        new: NewInode,
    ) -> Result<InodeRef> {
        let _ = (dir, name, target, new);
        todo!()
    }
    /// A symbolic link's target.
    pub fn readlink(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        let _ = inode;
        todo!()
    }
    /// Adds a name for `inode`.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let _ = (inode, dir, name);
        todo!()
    }
    /// Removes a name of something that is not a directory.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let _ = (dir, name);
        todo!()
    }
    /// Removes an empty directory.
    pub fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let _ = (dir, name);
        todo!()
    }
    /// Renames.
    pub fn rename(
        &self,
        from: &InodeRef,
        from_name: &[u8],
        to: &InodeRef,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let _ = (from, from_name, to, to_name, flags);
        todo!()
    }
    /// Creates an unnamed regular file (O_TMPFILE) in the group of `dir`; it is an orphan until linked.
    pub fn tmpfile(&self, dir: &InodeRef, new: NewInode) -> Result<InodeRef> {
        let _ = (dir, new);
        todo!()
    }
    /// Reads a directory, "." and ".." included; see [`DirEntry::next`].
    pub fn read_dir(
        &self,
        dir: &InodeRef,
        pos: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let _ = (dir, pos, each);
        todo!()
    }
    /// The inode of the directory's "..".
    pub fn parent(&self, dir: &InodeRef) -> Result<InodeRef> {
        let _ = dir;
        todo!()
    }
}
