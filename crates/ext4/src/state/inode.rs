//! Inodes in memory, and their way to and from the inode table.
//!
//! docs/LOCKING.md has the order of the locks.

use super::durability::Durability;
use super::{NodePromise, OrphanPlace, ParentHint, Readahead};
use crate::{Error, Fs, InodeDamage, Result, SyncKind};
use cache::{Budget, CachedInode, ErrSeq, Mapping, Pins};
use ext4_format::inode::{
    DeviceNumber, FileType, InodeFields, InodeFlags, InodeMode, Timestamp, in_inode_xattr_area,
    verify_checksum,
};
use jbd2::Handle;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, Rank, RwLock};
use units::{FileBlock, FsBlock, Ino, PageIndex, page};
use writeback::DirtyState;

/// Units of 512 bytes, as `st_blocks` counts, in a page.
const SECTORS_PER_PAGE: u64 = page::BYTES / 512;

/// A pinned inode.
pub type InodeRef = cache::InodeRef<Inode>;

/// The fields of an inode but its map of blocks.
pub(crate) struct InodeMeta {
    /// The on-disk fields. `fields.size` is the size on disk, which follows `size` (see
    /// `durability.rs`). `fields.i_block` is not used: see [`Inode::i_block`].
    pub fields: InodeFields,
    /// The size that users see.
    pub size: u64,
    /// Truncations since the inode was loaded, modulo 2^32.
    pub cuts: u32,
    /// The in-inode extended attributes (the bytes after the extra fields), if there are any.
    pub inline_xattrs: Option<Box<[u8]>>,
    /// Its place on the orphan list or in the orphan file.
    pub orphan: Option<OrphanPlace>,
}

/// An inode in memory.
pub struct Inode {
    pub(crate) ino: Ino,
    /// Checked when the inode was loaded or made; never changes.
    pub(super) kind: FileType,
    pub(crate) fs: Weak<Fs>,
    pub(crate) pins: Pins,
    /// Contents of a file, entries of a directory: exclusive for changes, shared for
    /// directory reads.
    pub(crate) lock: RwLock<()>,
    /// The contents of a file.
    pub(crate) data: FileData,
    /// The 60 bytes of i_block: the root of the extent tree, a fast symlink's target, or a device's
    /// number.
    pub(crate) i_block: RwLock<[u8; 60]>,
    /// Everything else that is on disk. Other modules use the methods of `inode_fields`.
    pub(super) meta: Mutex<InodeMeta>,
    /// Whether it is in [`super::ChangedInodes`].
    pub(crate) registered: AtomicBool,
    /// Time stamps were changed in memory only. The next change that marks the inode dirty includes
    /// them.
    pub(crate) lazy_times: AtomicBool,
    /// The directory that it has a name in.
    pub(crate) parent: ParentHint,
}

/// The contents of a file, from the page cache to the device.
pub(crate) struct FileData {
    pub mapping: Mapping,
    /// Its place on the dirty lists of writeback.
    pub dirty_state: DirtyState,
    /// Whether it is in [`super::UnlandedFiles`].
    pub unlanded_listed: AtomicBool,
    /// Data and metadata that are not durable yet.
    pub durability: Durability,
    pub errors: ErrSeq,
    /// A write in place has failed, and not all pages were written since. Such pages do not go
    /// through the log: a block that cannot be written home from there would stop the journal.
    pub write_failed: AtomicBool,
    /// Held while pages are gathered and blocks are picked for writeback. Contains the page after
    /// the flusher's last slice.
    pub writeback_lock: Mutex<PageIndex>,
    /// Where the allocator looks first: file block and volume block behind the last extent written.
    pub goal: Mutex<Option<(FileBlock, FsBlock)>>,
    /// Blocks that unrecorded pages may need for nodes of the extent tree.
    pub nodes: NodePromise,
    /// State of sequential reading.
    pub readahead: Readahead,
    /// It was truncated to zero, and its new contents may not be recorded
    /// ([`Fs::write_truncated_files`]).
    pub truncated: AtomicBool,
    /// Bytes behind the end of the file are not zero on the device (another system left them). The
    /// next change that makes the file longer zeroes them first.
    pub stale_tail: AtomicBool,
}

impl FileData {
    fn new(budget: &Arc<Budget>) -> FileData {
        FileData {
            mapping: Mapping::new(budget.clone()),
            dirty_state: DirtyState::default(),
            unlanded_listed: AtomicBool::new(false),
            durability: Durability::default(),
            errors: ErrSeq::default(),
            write_failed: AtomicBool::new(false),
            writeback_lock: Rank::InodeWriteback.mutex(PageIndex::FIRST),
            goal: Rank::InodeGoal.mutex(None),
            nodes: NodePromise::default(),
            readahead: Readahead::default(),
            truncated: AtomicBool::new(false),
            stale_tail: AtomicBool::new(false),
        }
    }
}

/// The attributes that stat returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Generation, for NFS file handles.
    pub generation: u32,
    /// Type and permission bits.
    pub mode: u16,
    /// File type.
    pub kind: FileType,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as Linux's `dev_t` in 32 bits.
    pub rdev: u32,
    /// Size in bytes.
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
    /// The given time.
    At(Timestamp),
}

/// Attributes to set; `None` leaves one unchanged.
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
    /// All inode flags (immutable, append-only, …). Flags that this type of file or this volume
    /// cannot have are refused as in ext4.
    pub flags: Option<u32>,
    /// Project ID; only 0 without the feature `project`.
    pub projid: Option<u32>,
    /// Birth time (for imports).
    pub crtime: Option<Timestamp>,
}

impl Inode {
    fn assemble(
        fs: &Fs,
        ino: Ino,
        kind: FileType,
        fields: InodeFields,
        inline_xattrs: Option<Box<[u8]>>,
    ) -> Inode {
        Inode {
            ino,
            kind,
            fs: fs.me.clone(),
            pins: Pins::default(),
            lock: match kind {
                FileType::Directory => Rank::Directory.rw_lock(()),
                _ => Rank::FileContents.rw_lock(()),
            },
            data: FileData::new(&fs.budget),
            i_block: Rank::InodeBlocks.rw_lock(fields.i_block),
            meta: Rank::InodeMeta.mutex(InodeMeta {
                size: fields.size,
                cuts: 0,
                fields,
                inline_xattrs,
                orphan: None,
            }),
            registered: AtomicBool::new(false),
            lazy_times: AtomicBool::new(false),
            parent: ParentHint::default(),
        }
    }

    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The file type.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// The attributes that stat returns.
    pub fn attr(&self) -> Attr {
        let (rdev, meta) = {
            let i_block = self.i_block.read();
            let meta = self.meta.lock();
            let rdev = match self.kind {
                FileType::CharDevice | FileType::BlockDevice => {
                    encode_rdev(DeviceNumber::decode(&i_block))
                }
                _ => 0,
            };
            (rdev, meta)
        };
        let f = &meta.fields;
        // Delayed allocation: the pages of a new file have no blocks yet. Programs treat a file
        // without blocks as a hole, so the pages are counted.
        let unplaced = match f.blocks {
            0 => self
                .data
                .mapping
                .unlanded_pages()
                .min(self.data.mapping.pages()),
            _ => 0,
        };
        Attr {
            ino: self.ino,
            generation: f.generation,
            mode: f.mode.0,
            kind: self.kind,
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

    /// Bytes of dirty pages.
    pub fn unwritten_bytes(&self) -> u64 {
        self.data.mapping.dirty_pages() * page::BYTES
    }

    /// Registers a change of `meta` or `i_block` made under `handle`: the inode is serialised into
    /// its table block before the handle's transaction commits. Call it *after* the change, or with
    /// the lock of `meta` held: a commit may serialise the inode at any moment after the call.
    pub(crate) fn mark_dirty(self: &Arc<Self>, fs: &Fs, handle: &Handle<'_>) {
        self.data
            .durability
            .changed_in(handle.tid(), SyncKind::Fdatasync);
        self.register_dirty(fs);
    }

    /// [`Inode::mark_dirty`] for a change that fdatasync does not wait for (times, owner, mode).
    pub(crate) fn mark_dirty_attributes(self: &Arc<Self>, fs: &Fs, handle: &Handle<'_>) {
        self.data
            .durability
            .changed_in(handle.tid(), SyncKind::Fsync);
        self.register_dirty(fs);
    }

    fn register_dirty(self: &Arc<Self>, fs: &Fs) {
        self.lazy_times.store(false, Ordering::Relaxed);
        if !self.registered.swap(true, Ordering::AcqRel) {
            fs.changed_inodes.add(fs, self);
        }
    }

    /// The seed of the checksums of this inode's extent and directory blocks; 0 without
    /// metadata_csum.
    pub(crate) fn csum_seed(&self, fs: &Fs) -> u32 {
        let generation = self.meta.lock().fields.generation;
        fs.geo
            .inode_csum_seed(self.ino, generation)
            .map_or(0, |seed| seed.0)
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
    /// the table and marks it dirty.
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

    /// An inode that a directory entry names. The caller has locked the directory.
    ///
    /// # Errors
    /// `CorruptInode` for a deleted inode: the entry is damage.
    pub(crate) fn named_inode(&self, ino: Ino) -> Result<InodeRef> {
        self.inode(ino).map_err(|error| match error {
            Error::Stale => {
                let damage = InodeDamage::NamedButDeleted;
                self.blame("named_inode", ino, error.stale_is_damage(ino, damage))
            }
            other => other,
        })
    }

    /// An inode by number, loaded if necessary. Refuses numbers that no directory entry can have.
    ///
    /// # Errors
    /// `Stale` for a deleted inode: the number is from an old handle.
    pub fn inode(&self, ino: Ino) -> Result<InodeRef> {
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
            let buffer = self.journal.get(block)?;
            let data = buffer.data();
            let raw = data
                .get(offset..offset + usize::from(self.geo.inode_size))
                .ok_or(Error::Internal("an inode lies beyond its block"))?;
            verify_checksum(&self.geo, ino, raw)?;
            let fields = InodeFields::decode(&self.geo, raw)?;
            if fields.links_count == 0 && links == Links::Required {
                return Err(Error::Stale);
            }
            let kind = fields.file_type()?;
            if kind != FileType::Directory && fields.size > self.geo.max_file_size() {
                return Err(InodeDamage::Size {
                    size: fields.size,
                    most: self.geo.max_file_size(),
                }
                .of(ino));
            }
            let area = in_inode_xattr_area(&self.geo, raw)?;
            let inline = area.iter().any(|&b| b != 0).then(|| area.into());
            let inode = Inode::assemble(self, ino, kind, fields, inline);
            // It may have been written to and evicted before.
            inode.data.durability.written_up_to(self.queue.written());
            Ok(inode)
        });
        self.witness("load_inode", ino, loaded)
    }

    /// A value for `i_generation` that differs from that of the number's last user.
    fn next_generation(&self) -> u32 {
        self.generation.fetch_add(0x9e37_79b1, Ordering::Relaxed)
    }
}

impl CachedInode for Inode {
    fn pins(&self) -> &Pins {
        &self.pins
    }

    fn mapping(&self) -> &Mapping {
        &self.data.mapping
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
        // The inode, its Arc's counts, and its entries in the table and on the LRU list.
        size_of::<Inode>() + 16 + 80 + inline.unwrap_or(0)
    }

    fn last_unpinned(self: &Arc<Self>) {
        if self.meta.lock().fields.links_count == 0
            && let Some(fs) = self.fs.upgrade()
        {
            fs.unlinked.lock().push(self.clone());
            // Most callers delete it at once. For the others the flusher's tick does.
            fs.bdi.ensure_flusher();
        }
    }
}
