//! The way of inodes into memory: from the inode table, or new.

use super::inode::rdev_of;
use super::{Attr, Inode, InodeRef};
use crate::{Error, Fs, InodeDamage, Result};
use ext4_format::features::IncompatFeatures;
use ext4_format::inode::{
    FileType, InodeFields, InodeFlags, InodeMode, in_inode_xattr_area, verify_checksum,
};
use jbd2::Handle;
use sync::atomic::Ordering;
use units::{FsBlock, Ino};

/// The links that an inode must have to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// At least one.
    Required,
    /// None is enough: the inode may be an orphan.
    Optional,
}

impl Fs {
    /// Makes the in-memory inode of a number that `alloc_inode` has just taken, with a new
    /// generation, the current time, and an empty extent root where the type has one. Puts it in
    /// the table, from where scans read it, and marks it dirty.
    pub(crate) fn new_inode(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        mode: u16,
        uid: u32,
        gid: u32,
        mut flags: InodeFlags,
    ) -> Result<InodeRef> {
        let now = self.now();
        let mode = InodeMode(mode);
        let mut i_block = [0; 60];
        let has_map = mode.is_regular() || mode.is_dir() || mode.is_symlink();
        // Without extents the map is a block map, which is empty.
        if has_map && self.geo.incompat.contains(IncompatFeatures::EXTENTS) {
            flags |= InodeFlags::EXTENTS;
            ext4_format::extent::init(&mut i_block, 0)?;
        }
        let extra_isize = if self.geo.inode_size > 128 {
            self.geo.want_extra_isize
        } else {
            0
        };
        let fields = InodeFields {
            mode,
            uid,
            gid,
            size: 0,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: (extra_isize > 0).then_some(now),
            dtime: 0,
            links_count: 1,
            blocks: 0,
            flags,
            version: 1,
            i_block,
            generation: self.next_generation(),
            file_acl: FsBlock(0),
            extra_isize,
            projid: 0,
        };
        let kind = fields.file_type()?;
        self.budget.make_room();
        let inode = Inode::assemble(self, ino, kind, fields, None);
        let inode = self.inodes.insert(ino, inode);
        inode.mark_dirty(self, handle);
        Ok(inode)
    }

    /// Makes the in-memory inode of a number that was taken, with these fields and attributes in
    /// the inode. Puts it in the table and marks it dirty.
    pub(crate) fn adopt_inode(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        fields: InodeFields,
        inline_xattrs: Option<Box<[u8]>>,
    ) -> Result<InodeRef> {
        let kind = self.checked_kind(ino, &fields)?;
        self.budget.make_room();
        let inode = Inode::assemble(self, ino, kind, fields, inline_xattrs);
        let inode = self.inodes.insert(ino, inode);
        inode.mark_dirty(self, handle);
        Ok(inode)
    }

    /// An inode that a directory entry names. The caller has locked the directory.
    ///
    /// # Errors
    /// `CorruptInode` for a deleted inode, and for one that holds an attribute's value: the entry
    /// is damage.
    pub(crate) fn named_inode(&self, ino: Ino) -> Result<InodeRef> {
        let damage = match self.file_or_value(ino) {
            Ok(inode) if self.holds_value(|| inode.flags()) => InodeDamage::NamedValue,
            Err(Error::Stale) => InodeDamage::NamedButDeleted,
            loaded => return loaded,
        };
        Err(self.blame("named_inode", ino, damage.of(ino)))
    }

    /// An inode by number, loaded if necessary. Refuses numbers that no directory entry can have.
    ///
    /// # Errors
    /// `Stale` for a deleted inode, and for one that holds an attribute's value: the number is from
    /// an old handle.
    pub fn inode(&self, ino: Ino) -> Result<InodeRef> {
        let inode = self.file_or_value(ino)?;
        match self.holds_value(|| inode.flags()) {
            true => Err(Error::Stale),
            false => Ok(inode),
        }
    }

    /// Returns whether an inode with these flags holds the value of an attribute and is no file.
    pub(crate) fn holds_value(&self, flags: impl FnOnce() -> InodeFlags) -> bool {
        self.geo.incompat.contains(IncompatFeatures::EA_INODE)
            && flags().contains(InodeFlags::EA_INODE)
    }

    fn file_or_value(&self, ino: Ino) -> Result<InodeRef> {
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        if ino != Ino::ROOT && ino < self.geo.first_ino {
            return Err(InodeDamage::Reserved.of(ino));
        }
        self.load_inode(ino, Links::Required)
    }

    /// Loads any inode, also a reserved one.
    ///
    /// # Errors
    /// `Stale` for an inode without links, if they are required.
    pub(crate) fn load_inode(&self, ino: Ino, links: Links) -> Result<InodeRef> {
        self.budget.make_room();
        let loaded = self.inodes.get_or_load(ino, || {
            let (block, offset) = self.groups.inode_location(ino)?;
            // Its links are in the block until the commit.
            if self.changed_inodes.is_deleted(block, ino) {
                return Err(Error::Stale);
            }
            self.groups.read_table_ahead(ino)?;
            let buffer = self.journal.get(block)?;
            let data = buffer.data();
            let raw = data
                .get(offset..offset + usize::from(self.geo.inode_size))
                .ok_or(Error::Internal("an inode lies beyond its block"))?;
            let fields = self.decode_inode(ino, raw)?;
            if fields.links_count == 0 && links == Links::Required {
                return Err(Error::Stale);
            }
            let kind = self.checked_kind(ino, &fields)?;
            let area = in_inode_xattr_area(&self.geo, raw)?;
            let inline = area.iter().any(|&b| b != 0).then(|| area.into());
            let inode = Inode::assemble(self, ino, kind, fields, inline);
            // It may have been written to and evicted before.
            inode.data.durability.written_up_to(self.queue.written());
            Ok(inode)
        });
        self.witness("load_inode", ino, loaded)
    }

    /// Decodes an inode of the table.
    ///
    /// # Errors
    /// `Corrupt` for a wrong checksum or impossible fields.
    pub(crate) fn decode_inode(&self, ino: Ino, raw: &[u8]) -> Result<InodeFields> {
        verify_checksum(&self.geo, ino, raw)?;
        Ok(InodeFields::decode(&self.geo, raw)?)
    }

    /// The attributes of an inode of the table; `None` if it has no links, holds an attribute's
    /// value, or is being created and was not written.
    pub(crate) fn decode_attr(&self, ino: Ino, raw: Option<&[u8]>) -> Result<Option<Attr>> {
        let raw = raw.ok_or(Error::Internal("an inode lies beyond its block"))?;
        if raw.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let fields = self.decode_inode(ino, raw)?;
        if fields.links_count == 0 || self.holds_value(|| fields.flags) {
            return Ok(None);
        }
        let kind = self.checked_kind(ino, &fields)?;
        let rdev = rdev_of(kind, &fields.i_block);
        Ok(Some(Attr::of_fields(ino, kind, &fields, rdev)))
    }

    /// The type of an inode that is in use.
    ///
    /// # Errors
    /// `Corrupt` for a mode without a type, `CorruptInode` for an impossible size.
    pub(crate) fn checked_kind(&self, ino: Ino, fields: &InodeFields) -> Result<FileType> {
        let kind = fields.file_type()?;
        let most = self.geo.max_file_size();
        if kind != FileType::Directory && fields.size > most {
            let size = fields.size;
            return Err(InodeDamage::Size { size, most }.of(ino));
        }
        Ok(kind)
    }

    /// A value for `i_generation` that differs from that of the number's last user.
    fn next_generation(&self) -> u32 {
        self.generation.fetch_add(0x9e37_79b1, Ordering::Relaxed)
    }
}
