//! Inodes in memory, and their way to and from the inode table.
//!
//! Lock ranks (see docs/LOCKING.md): `Fs::rename_lock` → `Inode::lock` (parents before children) → journal handle →
//! `Inode::i_block` → `Inode::meta` → group locks → buffer locks → mapping lock. `Inode::lock` is never taken while a
//! handle is held.

pub(crate) mod dirty;

use crate::writepages::Batch;
use crate::{Fs, Result};
use cache::{CachedInode, ErrSeq, Mapping, Pins};
use ext4_format::inode::{FileType, InodeFields, Timestamp};
use ext4_format::types::Ino;
use jbd2::Handle;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Weak};
use writeback::DirtyState;

/// A pinned inode.
pub type InodeRef = cache::InodeRef<Inode>;

/// What an inode says of itself, beside its map of blocks.
pub(crate) struct InodeMeta {
    /// The on-disk fields. `fields.size` is the size on disk: it never covers blocks whose data has not landed.
    /// `fields.i_block` is not used: see [`Inode::i_block`].
    pub fields: InodeFields,
    /// The size that users see.
    pub size: u64,
    /// The bytes after the extra fields (in-inode extended attributes), if any are in use.
    pub inline_xattrs: Option<Box<[u8]>>,
    /// On the orphan list (or in the orphan file), where.
    pub orphan: Option<crate::orphan::OrphanPlace>,
}

/// An inode in memory.
pub struct Inode {
    pub(crate) ino: Ino,
    pub(crate) fs: Weak<Fs>,
    pub(crate) pins: Pins,
    pub(crate) dirty_state: DirtyState,
    pub(crate) mapping: Mapping,
    pub(crate) errors: ErrSeq,
    /// Contents of a file, entries of a directory (rank 2): exclusive for changes, shared for directory reads.
    pub(crate) lock: RwLock<()>,
    /// The 60 bytes of i_block: the root of the extent tree, a fast symlink's target, or a device's number.
    pub(crate) i_block: RwLock<[u8; 60]>,
    /// Everything else that is on disk.
    pub(crate) meta: Mutex<InodeMeta>,
    /// Whether it is in [`dirty::DirtyInodes`].
    pub(crate) registered: AtomicBool,
    /// Transaction of the last metadata change, and of the last that fdatasync must wait for.
    pub(crate) tid: AtomicU32,
    pub(crate) datasync_tid: AtomicU32,
    /// Where the allocator should look first (file block, volume block of the last extent written).
    pub(crate) goal: Mutex<Option<(u32, u64)>>,
    /// Batches with I/O of this inode in flight.
    pub(crate) batches: Mutex<SmallVec<[Arc<Batch>; 2]>>,
    /// Serialises picking pages and blocks for writeback.
    pub(crate) writeback_lock: Mutex<()>,
}

/// What stat tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u32,
    /// Generation (for NFS-style handles).
    pub generation: u32,
    /// Type and permission bits.
    pub mode: u16,
    /// Type.
    pub kind: FileType,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as Linux's `dev_t` in 32 bits.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes, delayed allocation included.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth.
    pub crtime: Timestamp,
    /// Inode flags as of `FS_IOC_GETFLAGS`.
    pub flags: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The current time.
    Now,
    /// That time.
    At(Timestamp),
}

/// Attributes to set; `None` leaves one alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size (truncate).
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Inode flags (immutable, append-only, …).
    pub flags: Option<u32>,
    /// Birth time (for imports).
    pub crtime: Option<Timestamp>,
}

impl Inode {
    /// Its number.
    pub fn ino(&self) -> u32 {
        self.ino.0
    }
    /// Its type.
    pub fn kind(&self) -> FileType {
        todo!()
    }
    /// Its attributes.
    pub fn attr(&self) -> Attr {
        todo!()
    }
    /// Registers a change of `meta` or `i_block` made under `handle`: the inode will be serialised into its table
    /// block before the handle's transaction commits.
    pub(crate) fn mark_dirty(self: &Arc<Self>, fs: &Fs, handle: &Handle<'_>) {
        let _ = (fs, handle);
        todo!()
    }
    /// The seed of checksums of what belongs to this inode (extent blocks, directory blocks); 0 without metadata_csum.
    pub(crate) fn csum_seed(&self, fs: &Fs) -> u32 {
        let _ = fs;
        todo!()
    }
}

impl Fs {
    /// Builds the in-memory inode `ino` that `alloc_inode` just took, with a fresh generation and times of now (and an
    /// empty extent root for files and directories), puts it in the table and marks it dirty.
    pub(crate) fn new_inode(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        mode: u16,
        uid: u32,
        gid: u32,
    ) -> Result<InodeRef> {
        let _ = (handle, ino, mode, uid, gid);
        todo!()
    }
}

impl CachedInode for Inode {
    fn pins(&self) -> &Pins {
        &self.pins
    }
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }
    fn is_clean(&self) -> bool {
        todo!()
    }
    fn footprint(&self) -> usize {
        todo!()
    }
    fn last_unpinned(self: &Arc<Self>) {
        todo!()
    }
}
