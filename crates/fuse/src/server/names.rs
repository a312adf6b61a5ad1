//! Names: lookup, create, link, remove, rename.

use super::Server;
use super::attr::{TTL, no_entry};
use crate::nodes::node_of;
use ext4::{Error, FirstLink, InodeRef, NewInode, RenameFlags, Result, SyncKind};
use fusedev::{Entry, NodeId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Owner and mode of a new inode.
pub(crate) struct New {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub umask: u32,
    pub rdev: u32,
}

impl New {
    fn inode(&self) -> NewInode {
        NewInode {
            mode: self.mode as u16,
            umask: (self.umask & 0o777) as u16,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
        }
    }
}

const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

impl Server {
    /// The entry of `inode` for a reply. Counts a lookup.
    pub(super) fn entry(&self, inode: &InodeRef) -> Entry {
        let attr = self.count_lookup(inode);
        Entry {
            node: node_of(attr.ino),
            generation: u64::from(attr.generation),
            attr: self.fuse_attr(&attr),
            ttl: TTL,
        }
    }

    /// Makes a change of names durable if the mount or the directory asks for that.
    fn sync_names(&self, dir: &InodeRef) -> Result<()> {
        match self.syncs_names || dir.syncs_names() {
            true => self.fs.fsync(dir, SyncKind::Fsync),
            false => Ok(()),
        }
    }

    pub(super) fn lookup(&self, parent: NodeId, name: &OsStr) -> Result<Entry> {
        let dir = self.inode(parent)?;
        let found = match name.as_bytes() {
            // Lookups for file handles (NFS) of inodes that the kernel has forgotten. It knows
            // those that are open, so a deleted one only waits for its deletion.
            b"." if dir.attr().nlink == 0 => Err(Error::Stale),
            b"." => Ok(dir),
            b".." => self.fs.parent(&dir),
            name => self.fs.lookup(&dir, name),
        };
        match found {
            Ok(inode) => Ok(self.entry(&inode)),
            Err(Error::NotFound) => Ok(no_entry()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn mknod(&self, parent: NodeId, name: &OsStr, new: &New) -> Result<Entry> {
        let dir = self.inode(parent)?;
        let inode = self.fs.create(&dir, name.as_bytes(), new.inode())?;
        self.sync_names(&dir)?;
        Ok(self.entry(&inode))
    }

    /// Creates a file without a name. The kernel links it later or forgets it. If it was opened
    /// with O_EXCL, the kernel sends no LINK for it.
    pub(super) fn tmpfile(&self, parent: NodeId, new: &New) -> Result<Entry> {
        let dir = self.inode(parent)?;
        let inode = self.fs.tmpfile(&dir, new.inode(), FirstLink::Allowed)?;
        Ok(self.entry(&inode))
    }

    pub(super) fn mkdir(&self, parent: NodeId, name: &OsStr, new: &New) -> Result<Entry> {
        let dir = self.inode(parent)?;
        let new = NewInode {
            mode: (DIRECTORY | new.mode & 0o7777) as u16,
            ..new.inode()
        };
        let inode = self.fs.mkdir(&dir, name.as_bytes(), new)?;
        self.sync_names(&dir)?;
        Ok(self.entry(&inode))
    }

    pub(super) fn symlink(
        &self,
        parent: NodeId,
        name: &OsStr,
        target: &OsStr,
        by: (u32, u32),
    ) -> Result<Entry> {
        let dir = self.inode(parent)?;
        let new = NewInode {
            mode: (SYMLINK | 0o777) as u16,
            uid: by.0,
            gid: by.1,
            ..NewInode::default()
        };
        let (name, target) = (name.as_bytes(), target.as_bytes());
        let inode = self.fs.symlink(&dir, name, target, new)?;
        self.sync_names(&dir)?;
        Ok(self.entry(&inode))
    }

    pub(super) fn readlink(&self, node: NodeId) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        let target = self.fs.readlink(&inode)?;
        self.fs.note_access(&inode);
        Ok(target)
    }

    pub(super) fn link(&self, node: NodeId, parent: NodeId, name: &OsStr) -> Result<Entry> {
        let inode = self.inode(node)?;
        let dir = self.inode(parent)?;
        self.fs.link(&inode, &dir, name.as_bytes())?;
        self.sync_names(&dir)?;
        // An unnamed file was pinned. If another thread has removed the name again, `entry` pins
        // the inode.
        drop(self.nodes.unkeep(inode.ino()));
        Ok(self.entry(&inode))
    }

    pub(super) fn unlink(&self, parent: NodeId, name: &OsStr) -> Result<()> {
        let dir = self.inode(parent)?;
        // The reference prevents the deletion before `after_unlink` knows whether the file is open.
        let target = self.fs.lookup(&dir, name.as_bytes())?;
        self.before_unlink(&target);
        self.fs.unlink(&dir, name.as_bytes())?;
        self.after_unlink(target);
        self.sync_names(&dir)
    }

    pub(super) fn rmdir(&self, parent: NodeId, name: &OsStr) -> Result<()> {
        let dir = self.inode(parent)?;
        let target = self.fs.lookup(&dir, name.as_bytes())?;
        self.fs.rmdir(&dir, name.as_bytes())?;
        self.after_unlink(target);
        self.sync_names(&dir)
    }

    pub(super) fn rename(
        &self,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        flags: u32,
        by: (u32, u32),
    ) -> Result<()> {
        let flags = match flags {
            0 => RenameFlags::Replace,
            libc::RENAME_NOREPLACE => RenameFlags::NoReplace,
            libc::RENAME_EXCHANGE => RenameFlags::Exchange,
            _ if flags & !libc::RENAME_NOREPLACE == libc::RENAME_WHITEOUT => {
                RenameFlags::Whiteout {
                    replace: flags & libc::RENAME_NOREPLACE == 0,
                    uid: by.0,
                    gid: by.1,
                }
            }
            _ => return Err(Error::Invalid("these flags of renameat2 are not supported")),
        };
        let from_dir = self.inode(from.0)?;
        let to_dir = self.inode(to.0)?;
        let replaced = match flags {
            RenameFlags::Replace | RenameFlags::Whiteout { replace: true, .. } => {
                match self.fs.lookup(&to_dir, to.1.as_bytes()) {
                    Ok(target) => Some(target),
                    Err(Error::NotFound) => None,
                    Err(error) => return Err(error),
                }
            }
            _ => None,
        };
        if let Some(target) = &replaced {
            self.before_unlink(target);
        }
        self.fs.rename(
            &from_dir,
            from.1.as_bytes(),
            &to_dir,
            to.1.as_bytes(),
            flags,
        )?;
        if let Some(target) = replaced {
            self.after_unlink(target);
        }
        self.sync_names(&from_dir)?;
        self.sync_names(&to_dir)
    }
}
