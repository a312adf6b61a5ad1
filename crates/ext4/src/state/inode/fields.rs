//! The fields of an inode, by methods: nothing outside of `state` takes the lock of `meta`.
//!
//! Methods that change fields only change them in memory. The caller holds a handle and calls
//! [`Inode::mark_dirty`] afterwards.

use super::{Inode, InodeMeta, OrphanPlace};
use crate::{Error, Result};
use ext4_format::inode::{FileType, InodeFields, InodeFlags, InodeMode, Timestamp};
use std::ops::Range;
use sync::atomic::Ordering;
use units::{FsBlock, PageIndex};

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// The work of a write after it has stored its pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AfterWrite {
    /// The mode has a set-user-ID or set-group-ID bit, which a write clears.
    pub clears_privileges: bool,
    /// No page is unrecorded, so no record has the size and the times of this write.
    pub has_landed: bool,
    /// A flag asks for synchronous writes.
    pub is_sync: bool,
}

/// The writes that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Writes at any offset, and other changes of the contents.
    Anywhere,
    /// Writes at the end of the file only.
    Append,
}

/// Whether an unnamed file may get a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstLink {
    /// It may: Linux's `I_LINKABLE`, O_TMPFILE without O_EXCL.
    Allowed,
    /// It never may: O_TMPFILE with O_EXCL, and every inode that had a name and lost it.
    #[default]
    Refused,
}

/// A version of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesVersion(u64);

impl Inode {
    /// The version of a directory's entries. Each change of them has another one, which it sets
    /// before it releases the directory's lock.
    pub fn names_version(&self) -> NamesVersion {
        NamesVersion(self.meta.lock().fields.version)
    }
    /// Reads several fields at one moment.
    pub(crate) fn fields<T>(&self, read: impl FnOnce(&InodeFields<()>) -> T) -> T {
        read(&self.meta.lock().fields)
    }
    /// Changes several fields at one moment.
    pub(crate) fn change_fields<T>(&self, change: impl FnOnce(&mut InodeFields<()>) -> T) -> T {
        let mut meta = self.meta.lock();
        let changed = change(&mut meta.fields);
        self.note_links(&meta);
        changed
    }
    /// The same, as a part of a change of the inode's names. The caller holds the locks of the
    /// directories, and has changed or cleared [`Inode::parent`] before.
    pub(crate) fn change_names(&self, change: impl FnOnce(&mut InodeFields<()>)) {
        let mut meta = self.meta.lock();
        change(&mut meta.fields);
        meta.name_changes = meta.name_changes.wrapping_add(1);
        self.note_links(&meta);
    }
    /// Differs after each change of the inode's names.
    pub(crate) fn name_changes(&self) -> u32 {
        self.meta.lock().name_changes
    }

    /// The size that users see, in bytes.
    pub fn size(&self) -> u64 {
        self.meta.lock().size
    }
    pub(crate) fn flags(&self) -> InodeFlags {
        self.meta.lock().fields.flags
    }
    pub(crate) fn mode(&self) -> InodeMode {
        self.meta.lock().fields.mode
    }
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
    pub(crate) fn links(&self) -> u16 {
        self.meta.lock().fields.links_count
    }
    /// Whether the inode has no name: it is deleted when its last user is gone.
    pub fn is_unlinked(&self) -> bool {
        self.links() == 0
    }
    pub(crate) fn set_links(&self, links: u16) {
        let mut meta = self.meta.lock();
        meta.fields.links_count = links;
        self.note_links(&meta);
    }
    /// The link count may have changed.
    fn note_links(&self, meta: &InodeMeta) {
        let nameless = meta.fields.links_count == 0;
        self.nameless.store(nameless, Ordering::Release);
    }
    /// Whether the inode may get a name while it has no links.
    pub(crate) fn first_link(&self) -> FirstLink {
        self.meta.lock().first_link
    }
    pub(crate) fn set_first_link(&self, first_link: FirstLink) {
        self.meta.lock().first_link = first_link;
    }
    pub(crate) fn insert_flags(&self, flags: InodeFlags) {
        self.meta.lock().fields.flags.insert(flags);
    }
    pub(crate) fn remove_flags(&self, flags: InodeFlags) {
        self.meta.lock().fields.flags.remove(flags);
    }
    pub(crate) fn set_mode(&self, mode: InodeMode) {
        self.meta.lock().fields.mode = mode;
    }
    /// The inode itself was changed.
    pub(crate) fn set_ctime(&self, now: Timestamp) {
        self.meta.lock().fields.ctime = now;
    }
    /// The contents were changed.
    pub(crate) fn set_mtime(&self, now: Timestamp) {
        let mut meta = self.meta.lock();
        meta.fields.mtime = now;
        meta.fields.ctime = now;
    }

    /// Sets the size of a directory or symbolic link, whose blocks are metadata.
    pub(crate) fn set_metadata_size(&self, size: u64) {
        let mut meta = self.meta.lock();
        meta.size = size;
        meta.fields.size = size;
    }
    /// Cuts a file off at `size`, or lets it grow to it, and sets its times.
    pub(crate) fn cut(&self, size: u64, now: Timestamp) {
        let mut meta = self.meta.lock();
        meta.cut_size(size, &self.mapping);
        meta.fields.mtime = now;
        meta.fields.ctime = now;
    }
    /// Empties the fields of an inode that is being deleted.
    pub(crate) fn clear_deleted(&self, now: Timestamp) {
        let mut meta = self.meta.lock();
        meta.size = 0;
        meta.fields.size = 0;
        meta.fields.links_count = 0;
        meta.fields.dtime = u32::try_from(now.secs).unwrap_or(u32::MAX).max(1);
        self.note_links(&meta);
    }
    /// `pages` have got blocks, which add `sectors` of 512 bytes to the inode. Both change at one
    /// moment, so that stat counts no page twice. Returns how many of the pages had a reservation.
    pub(crate) fn place_pages(&self, sectors: i64, pages: Range<PageIndex>) -> u64 {
        let mut meta = self.meta.lock();
        meta.fields.blocks = meta.fields.blocks.saturating_add_signed(sectors);
        self.mapping.end_delalloc(pages)
    }
    /// Counts blocks that were added to the inode, or taken from it, in units of 512 bytes.
    pub(crate) fn add_sectors(&self, sectors: i64) {
        let mut meta = self.meta.lock();
        meta.fields.blocks = meta.fields.blocks.saturating_add_signed(sectors);
    }

    /// Checks that the flags allow a write, and returns the size.
    ///
    /// # Errors
    /// As [`Inode::check_may_open_for_writing`].
    pub(crate) fn begin_write(&self, mode: WriteMode) -> Result<u64> {
        let meta = self.meta.lock();
        self.check_flags_allow_write(meta.fields.flags, mode)?;
        Ok(meta.size)
    }
    /// A write has stored its pages up to byte `end`. Raises the size and sets the times.
    pub(crate) fn end_write(&self, end: u64, now: Timestamp) -> AfterWrite {
        let mut meta = self.meta.lock();
        // The size on disk follows when the pages have completed, or now if they have.
        meta.size = meta.size.max(end);
        meta.fields.mtime = now;
        meta.fields.ctime = now;
        let after = AfterWrite {
            clears_privileges: without_privileges(meta.fields.mode) != meta.fields.mode,
            has_landed: !self.has_unlanded(),
            is_sync: meta.fields.flags.contains(InodeFlags::SYNC),
        };
        drop(meta);
        after
    }
    /// Clears set-user-ID and set-group-ID, as a write does.
    pub(crate) fn clear_privileges(&self) {
        let mode = &mut self.meta.lock().fields.mode;
        *mode = without_privileges(*mode);
    }

    /// Where the inode is recorded as an orphan.
    pub(crate) fn orphan_place(&self) -> Option<OrphanPlace> {
        self.meta.lock().orphan
    }
    pub(crate) fn set_orphan_place(&self, place: Option<OrphanPlace>) {
        self.meta.lock().orphan = place;
    }
    /// Sets the place on the orphan list together with `dtime`, which links the list on disk.
    pub(crate) fn set_orphan_link(&self, place: Option<OrphanPlace>, dtime: u32) {
        let mut meta = self.meta.lock();
        meta.orphan = place;
        meta.fields.dtime = dtime;
    }

    /// The bytes of in-inode extended attributes, if any are in use, and the attribute block
    /// (0: none).
    pub(crate) fn xattr_places(&self) -> (Option<Box<[u8]>>, FsBlock) {
        let meta = self.meta.lock();
        (meta.inline_xattrs.clone(), meta.fields.file_acl)
    }
    /// Whether the inode may have extended attributes.
    pub(crate) fn has_xattrs(&self) -> bool {
        self.meta.lock().has_xattrs()
    }
    pub(crate) fn set_inline_xattrs(&self, xattrs: Option<Box<[u8]>>) {
        self.meta.lock().inline_xattrs = xattrs;
    }
    /// Changes where the contents are, with the fields that say so, at one moment: a thread that
    /// reads the flags while it holds `i_block` sees both as they were or both as they are.
    pub(crate) fn change_places<T>(
        &self,
        change: impl FnOnce(&mut [u8; 60], &mut InodeMeta) -> T,
    ) -> T {
        let mut i_block = self.i_block.write();
        change(&mut i_block, &mut self.meta.lock())
    }
    /// The attribute block; 0: none.
    pub(crate) fn xattr_block(&self) -> FsBlock {
        self.meta.lock().fields.file_acl
    }
    /// Sets the attribute block, which adds `sectors` of 512 bytes to the inode.
    pub(crate) fn set_xattr_block(&self, place: FsBlock, sectors: i64) {
        let mut meta = self.meta.lock();
        meta.fields.file_acl = place;
        meta.fields.blocks = meta.fields.blocks.saturating_add_signed(sectors);
    }

    /// Whether a flag asks for changes of this directory's names to be synchronous.
    pub fn syncs_names(&self) -> bool {
        self.flags()
            .intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC)
    }

    /// Checks that the file may be opened for writes of this kind.
    ///
    /// # Errors
    /// `NotPermitted` for an immutable file, and for an append-only one unless `mode` is `Append`;
    /// `Encrypted`; `Verity` for a file whose contents have a hash tree.
    pub fn check_may_open_for_writing(&self, mode: WriteMode) -> Result<()> {
        self.check_flags_allow_write(self.flags(), mode)
    }

    /// Checks that the contents may be read.
    ///
    /// # Errors
    /// `Encrypted`.
    pub fn check_may_open_for_reading(&self) -> Result<()> {
        self.check_not_encrypted()
    }

    /// # Errors
    /// `Encrypted` for a file with encrypted contents, and for a directory with encrypted names.
    pub(crate) fn check_not_encrypted(&self) -> Result<()> {
        match self.is_encrypted {
            true => Err(Error::Encrypted { ino: self.ino }),
            false => Ok(()),
        }
    }

    fn check_flags_allow_write(&self, flags: InodeFlags, mode: WriteMode) -> Result<()> {
        let forbidden = match mode {
            WriteMode::Anywhere => InodeFlags::PROTECTING,
            WriteMode::Append => InodeFlags::IMMUTABLE,
        };
        if flags.intersects(forbidden) {
            return Err(Error::NotPermitted);
        }
        if flags.contains(InodeFlags::VERITY) {
            return Err(Error::Verity { ino: self.ino });
        }
        self.check_not_encrypted()
    }
}

impl InodeMeta {
    pub(super) fn has_xattrs(&self) -> bool {
        self.inline_xattrs.is_some() || self.fields.file_acl.0 != 0
    }
}

/// The mode after a write: no set-user-ID, and no set-group-ID (which without group execution means
/// mandatory locking and stays).
fn without_privileges(mode: InodeMode) -> InodeMode {
    let cleared = match mode.0 & GROUP_EXECUTE {
        0 => SET_UID,
        _ => SET_UID | SET_GID,
    };
    InodeMode(mode.0 & !cleared)
}
