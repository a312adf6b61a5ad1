//! Attributes of the files in a directory that was just read.
//!
//! A walk over a tree asks for the attributes of each file once. To load an inode for that, and to
//! put its name into the dentry cache, takes longer than to decode it, and evicts inodes and names
//! that are in use. So the newest version of an inode is read where it is: in the cache, else in
//! the buffer of its table block. An inode leaves the cache only when the buffer has its newest
//! version, unless it is being deleted, and one with a name is not.

use crate::state::{Attr, NamesVersion};
use crate::{Fs, Inode, InodeRef, Result};
use units::Ino;

impl Fs {
    /// Returns the attributes of `ino`, to which an entry of `dir` refers. The caller has read the
    /// entry after it took `version`. `None` if the directory has changed since then, or if the
    /// inode has to be looked up by its name for another reason, damage for one.
    pub fn entry_attr(&self, dir: &InodeRef, version: NamesVersion, ino: Ino) -> Option<Attr> {
        // The entry stays while the directory is locked, so the inode has a link.
        let _shared = dir.lock.read();
        if dir.names_version() != version || ino < self.geo.first_ino {
            return None;
        }
        if let Some(attr) = self.inodes.read(ino, Inode::try_attr) {
            return Some(attr);
        }
        if let Some(inode) = self.inodes.peek(ino) {
            return Some(inode.attr());
        }
        self.attr_in_table(ino).ok().flatten()
    }

    /// The attributes of an inode that is not in the cache.
    fn attr_in_table(&self, ino: Ino) -> Result<Option<Attr>> {
        let (block, offset) = self.groups.inode_location(ino)?;
        self.groups.read_table_ahead(ino)?;
        let buffer = self.journal.get(block)?;
        let data = buffer.data();
        let end = offset + usize::from(self.geo.inode_size);
        self.decode_attr(ino, data.get(offset..end))
    }
}
