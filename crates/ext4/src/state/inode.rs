//! Inodes in memory, and their way to and from the inode table.
//!
//! Lock ranks (see docs/LOCKING.md): `Fs::rename_lock` → `Inode::lock` (parents before children) →
//! journal handle → `Inode::i_block` → `Inode::meta` → group locks → buffer locks → mapping lock.
//! `Inode::lock` is never taken while a handle is held.

use super::durability::Durability;
use super::{NodePromise, OrphanPlace, ParentHint, Readahead};
use crate::{Error, Fs, Result};
use cache::{CachedInode, ErrSeq, Mapping, Pins};
use ext4_format::inode::{
    DeviceNumber, FileType, InodeFields, InodeFlags, InodeMode, Timestamp, in_inode_xattr_area,
    verify_checksum,
};
use ext4_format::types::Ino;
use jbd2::Handle;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, RwLock};
use writeback::DirtyState;

/// Units of 512 bytes, as `st_blocks` counts, in a page.
const SECTORS_PER_PAGE: u64 = block::PAGE_SIZE as u64 / 512;

/// A pinned inode.
pub type InodeRef = cache::InodeRef<Inode>;

/// What an inode says of itself, beside its map of blocks.
pub(crate) struct InodeMeta {
    /// The on-disk fields. `fields.size` is the size on disk, which follows `size` (see
    /// `durability.rs`). `fields.i_block` is not used: see [`Inode::i_block`].
    pub fields: InodeFields,
    /// The size that users see.
    pub size: u64,
    /// How often the file was cut off since it was loaded, modulo 2^32.
    pub cuts: u32,
    /// The bytes after the extra fields (in-inode extended attributes), if any are in use.
    pub inline_xattrs: Option<Box<[u8]>>,
    /// On the orphan list (or in the orphan file), where.
    pub orphan: Option<OrphanPlace>,
}

/// An inode in memory.
pub struct Inode {
    pub(crate) ino: Ino,
    pub(crate) fs: Weak<Fs>,
    pub(crate) pins: Pins,
    pub(crate) dirty_state: DirtyState,
    pub(crate) mapping: Mapping,
    pub(crate) errors: ErrSeq,
    /// A write in place has failed, and not everything has landed since. Such data is not entrusted
    /// to the log: what cannot be written home from there would stop the journal, and this is one
    /// file's misfortune.
    pub(crate) write_failed: AtomicBool,
    /// Contents of a file, entries of a directory (rank 2): exclusive for changes, shared for
    /// directory reads.
    pub(crate) lock: RwLock<()>,
    /// The 60 bytes of i_block: the root of the extent tree, a fast symlink's target, or a device's
    /// number.
    pub(crate) i_block: RwLock<[u8; 60]>,
    /// Blocks for nodes of the extent tree that pages which have not landed may need.
    pub(crate) nodes: NodePromise,
    /// Everything else that is on disk.
    pub(crate) meta: Mutex<InodeMeta>,
    /// Whether it is in [`dirty::ChangedInodes`].
    pub(crate) registered: AtomicBool,
    /// What is not durable yet.
    pub(crate) durability: Durability,
    /// It was truncated to zero, and its new contents may not be recorded
    /// ([`Fs::write_truncated_files`]).
    pub(crate) truncated: AtomicBool,
    /// Bytes behind the end of the file were not zero on the device (another system left them): the
    /// next change that makes the file longer zeroes them there first.
    pub(crate) stale_tail: AtomicBool,
    /// Whether it is in [`unlanded_files::UnlandedFiles`].
    pub(crate) unlanded_listed: AtomicBool,
    /// A directory that it has a name in.
    pub(crate) parent: ParentHint,
    /// Where the allocator should look first (file block, volume block of the last extent written).
    pub(crate) goal: Mutex<Option<(u32, u64)>>,
    /// State of sequential reading.
    pub(crate) readahead: Readahead,
    /// Time stamps changed in memory only; the next thing that marks the inode dirty carries them.
    pub(crate) lazy_times: AtomicBool,
    /// Serialises picking pages and blocks for writeback. Holds the page at which the flusher goes
    /// on.
    pub(crate) writeback_lock: Mutex<u32>,
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
    /// Project.
    pub projid: u32,
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
    /// Inode flags (immutable, append-only, …), all of them. Those that cannot be set on this type
    /// of file, or that this volume does not have, are refused as ext4 does.
    pub flags: Option<u32>,
    /// Project; other than 0 only on volumes with the feature `project`.
    pub projid: Option<u32>,
    /// Birth time (for imports).
    pub crtime: Option<Timestamp>,
}

impl Inode {
    /// Puts the parts together.
    fn assemble(fs: &Fs, ino: Ino, fields: InodeFields, inline_xattrs: Option<Box<[u8]>>) -> Inode {
        Inode {
            ino,
            fs: fs.me.clone(),
            pins: Pins::default(),
            dirty_state: DirtyState::default(),
            mapping: Mapping::new(fs.budget.clone()),
            errors: ErrSeq::default(),
            write_failed: AtomicBool::new(false),
            lock: RwLock::new(()),
            i_block: RwLock::new(fields.i_block),
            nodes: NodePromise::default(),
            meta: Mutex::new(InodeMeta {
                size: fields.size,
                cuts: 0,
                fields,
                inline_xattrs,
                orphan: None,
            }),
            registered: AtomicBool::new(false),
            durability: Durability::default(),
            truncated: AtomicBool::new(false),
            stale_tail: AtomicBool::new(false),
            unlanded_listed: AtomicBool::new(false),
            parent: ParentHint::default(),
            goal: Mutex::new(None),
            writeback_lock: Mutex::new(0),
            readahead: Readahead::default(),
            lazy_times: AtomicBool::new(false),
        }
    }

    /// Its number.
    pub fn ino(&self) -> u32 {
        self.ino.0
    }

    /// Its type.
    pub fn kind(&self) -> FileType {
        // The type was checked when the inode was loaded or made, and never changes.
        self.meta
            .lock()
            .fields
            .file_type()
            .unwrap_or(FileType::Regular)
    }

    /// Its attributes.
    pub fn attr(&self) -> Attr {
        let (rdev, meta) = {
            let i_block = self.i_block.read();
            let meta = self.meta.lock();
            let rdev = match meta.fields.file_type() {
                Ok(FileType::CharDevice | FileType::BlockDevice) => {
                    encode_rdev(DeviceNumber::decode(&i_block))
                }
                _ => 0,
            };
            (rdev, meta)
        };
        let f = &meta.fields;
        // The pages of a new file have no blocks yet, but will. Programs take a file without blocks
        // for a hole.
        let unplaced = match f.blocks {
            0 => self.mapping.unlanded_pages().min(self.mapping.pages()),
            _ => 0,
        };
        Attr {
            ino: self.ino.0,
            generation: f.generation,
            mode: f.mode.0,
            kind: f.file_type().unwrap_or(FileType::Regular),
            nlink: u32::from(f.links_count),
            uid: f.uid,
            gid: f.gid,
            rdev,
            size: meta.size,
            blocks: f.blocks + unplaced * SECTORS_PER_PAGE,
            atime: f.atime,
            mtime: f.mtime,
            ctime: f.ctime,
            crtime: f.crtime.unwrap_or(f.ctime),
            flags: (f.flags & InodeFlags::USER_VISIBLE).bits(),
            projid: f.projid,
        }
    }

    /// The size that users see, in bytes.
    pub fn size(&self) -> u64 {
        self.meta.lock().size
    }

    /// Bytes of its contents that are in memory only.
    pub fn unwritten_bytes(&self) -> u64 {
        self.mapping.dirty_pages() * block::PAGE_SIZE as u64
    }

    /// Registers a change of `meta` or `i_block` made under `handle`: the inode will be serialised
    /// into its table block before the handle's transaction commits. To be called *after* the
    /// change, or with the lock of `meta` held: a commit may serialise the inode at any moment
    /// after the call.
    pub(crate) fn mark_dirty(self: &Arc<Self>, fs: &Fs, handle: &Handle<'_>) {
        self.durability.changed_in(handle.tid(), true);
        self.register_dirty(fs);
    }

    /// [`Inode::mark_dirty`] for a change that fdatasync need not wait for (times, owner, mode).
    pub(crate) fn mark_dirty_attributes(self: &Arc<Self>, fs: &Fs, handle: &Handle<'_>) {
        self.durability.changed_in(handle.tid(), false);
        self.register_dirty(fs);
    }

    fn register_dirty(self: &Arc<Self>, fs: &Fs) {
        self.lazy_times.store(false, Ordering::Relaxed);
        if !self.registered.swap(true, Ordering::AcqRel) {
            fs.changed_inodes.add(fs, self);
        }
    }

    /// The seed of checksums of what belongs to this inode (extent blocks, directory blocks); 0
    /// without metadata_csum.
    pub(crate) fn csum_seed(&self, fs: &Fs) -> u32 {
        let generation = self.meta.lock().fields.generation;
        fs.geo
            .inode_csum_seed(self.ino, generation)
            .map_or(0, |seed| seed.0)
    }

    /// Whether a flag asks for changes of this directory's names to be synchronous.
    pub fn syncs_names(&self) -> bool {
        let flags = self.meta.lock().fields.flags;
        flags.intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC)
    }

    /// Whether the file may be opened for writing; `append` says that all writes go to its end.
    ///
    /// # Errors
    /// `NotPermitted` for an immutable file, and for an append-only one without `append`.
    pub fn check_may_open_for_writing(&self, append: bool) -> Result<()> {
        self.check_may_write(append)
    }

    /// `Err(NotPermitted)` where a flag forbids changes of contents (`append` says that it is one
    /// at the end).
    pub(crate) fn check_may_write(&self, append: bool) -> Result<()> {
        let flags = self.meta.lock().fields.flags;
        if flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !append)
        {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }
}

/// Linux's 32-bit `dev_t` (new encoding).
fn encode_rdev(number: DeviceNumber) -> u32 {
    (number.minor & 0xff) | (number.major << 8) | ((number.minor & !0xff) << 12)
}

/// The reverse of [`Attr::rdev`]'s encoding.
pub(crate) fn decode_rdev(rdev: u32) -> DeviceNumber {
    DeviceNumber {
        major: (rdev >> 8) & 0xfff,
        minor: (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00),
    }
}

impl Fs {
    /// Builds the in-memory inode `ino` that `alloc_inode` just took, with a fresh generation and
    /// times of now (and an empty extent root for files and directories), puts it in the table and
    /// marks it dirty.
    pub(crate) fn new_inode(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        mode: u16,
        uid: u32,
        gid: u32,
    ) -> Result<InodeRef> {
        let now = self.now();
        let mode = InodeMode(mode);
        let mut flags = InodeFlags::empty();
        let mut i_block = [0; 60];
        if mode.is_regular() || mode.is_dir() || mode.is_symlink() {
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
            file_acl: ext4_format::types::FsBlock(0),
            extra_isize,
            projid: 0,
        };
        self.budget.make_room();
        let inode = self
            .inodes
            .insert(ino.0, Inode::assemble(self, ino, fields, None));
        inode.mark_dirty(self, handle);
        Ok(inode)
    }

    /// An inode that a directory names, which the caller has locked.
    ///
    /// # Errors
    /// `CorruptInode` for a deleted one: the name is damage.
    pub(crate) fn named_inode(&self, ino: u32) -> Result<InodeRef> {
        self.inode(ino).map_err(|error| match error {
            Error::Stale => {
                let what = "is named by a directory but deleted";
                self.blame("named_inode", Ino(ino), error.stale_is_damage(ino, what))
            }
            other => other,
        })
    }

    /// An inode by number, loaded if need be. Numbers that no directory can name are refused.
    ///
    /// # Errors
    /// `Stale` for a deleted inode: the number comes from an old handle.
    pub fn inode(&self, ino: u32) -> Result<InodeRef> {
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        if ino != Ino::ROOT.0 && ino < self.geo.first_ino.0 {
            return Err(Error::CorruptInode {
                ino,
                what: "a reserved inode is used as a file",
            });
        }
        self.load_inode(Ino(ino), false)
    }

    /// Loads any inode, reserved ones included; `unlinked` says that one without links is expected
    /// (an orphan).
    pub(crate) fn load_inode(&self, ino: Ino, unlinked: bool) -> Result<InodeRef> {
        self.budget.make_room();
        let loaded = self.inodes.get_or_load(ino.0, || {
            let (block, offset) = self.groups.inode_location(ino)?;
            let buffer = self.journal.get(block.0)?;
            let data = buffer.data();
            let raw = data
                .get(offset..offset + usize::from(self.geo.inode_size))
                .ok_or(Error::CorruptInode {
                    ino: ino.0,
                    what: "lies beyond its table",
                })?;
            verify_checksum(&self.geo, ino, raw)?;
            let fields = InodeFields::decode(&self.geo, raw)?;
            if fields.links_count == 0 && !unlinked {
                return Err(Error::Stale);
            }
            fields.file_type()?;
            if fields.file_type()? != FileType::Directory && fields.size > self.geo.max_file_size()
            {
                return Err(Error::CorruptInode {
                    ino: ino.0,
                    what: "has an impossible size",
                });
            }
            let area = in_inode_xattr_area(&self.geo, raw)?;
            let inline = area.iter().any(|&b| b != 0).then(|| area.into());
            let inode = Inode::assemble(self, ino, fields, inline);
            // It may have been in memory before, and written to.
            inode.durability.written_up_to(self.queue.written());
            Ok(inode)
        });
        self.witness("load_inode", ino, loaded)
    }

    /// A number for `i_generation` that the last user of the same inode did not have.
    fn next_generation(&self) -> u32 {
        self.generation.fetch_add(0x9e37_79b1, Ordering::Relaxed)
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
        let fs = self.fs.upgrade();
        let journal = fs.as_ref().map(|fs| &*fs.journal);
        !self.registered.load(Ordering::Acquire) && self.is_durable(journal)
    }

    fn footprint(&self) -> usize {
        let inline = self
            .meta
            .try_lock()
            .and_then(|m| m.inline_xattrs.as_ref().map(|x| x.len()));
        // The value, its Arc's counts, and its entries in the table and on the LRU list.
        size_of::<Inode>() + 16 + 80 + inline.unwrap_or(0)
    }

    fn last_unpinned(self: &Arc<Self>) {
        if self.meta.lock().fields.links_count == 0
            && let Some(fs) = self.fs.upgrade()
        {
            fs.unlinked.lock().push(self.clone());
            // Most callers reap at once; for the others the flusher's tick does.
            fs.bdi.ensure_flusher();
        }
    }
}
