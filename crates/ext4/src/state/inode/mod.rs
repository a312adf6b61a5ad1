//! Inodes in memory.
//!
//! | file | what it holds |
//! |---|---|
//! | `fields` | methods on the fields of an inode |
//! | `attr` | the attributes that stat returns |
//! | `durability` | which pages and changes of an inode are not durable |
//! | `batch` | I/O in flight of many inodes |
//! | `io` | what only I/O needs, made at the first I/O |
//! | `readahead` | sequential reading of a file |
//! | `node_promise` | blocks that are promised for nodes of an extent tree or block map |
//! | `parent_hint` | the directory of a file |
//!
//! docs/LOCKING.md has the order of the locks.

mod attr;
mod batch;
mod durability;
mod fields;
mod io;
mod node_promise;
mod parent_hint;
mod readahead;

pub use attr::{Attr, SetAttr, SetTime};
pub(crate) use attr::{decode_rdev, rdev_of};
pub use batch::Route;
pub(crate) use batch::{Batch, LOGGED_PAGES, Outcome, Range, Record};
pub use durability::SyncKind;
pub(crate) use durability::{Needed, SizeToSync};
pub(crate) use fields::AfterWrite;
pub use fields::{FirstLink, NamesVersion, WriteMode};
pub(crate) use io::FileIo;
pub(crate) use node_promise::{NodeKey, Promised};
pub(crate) use readahead::{Arrival, is_stale_behind, live_bytes};

use super::Fs;
use cache::{CachedInode, ErrSeq, Mapping, Pins, heap_bytes};
use durability::Durability;
use ext4_format::inode::{FileType, InodeFields, InodeFlags};
use io::IoSlot;
use jbd2::Handle;
use parent_hint::ParentHint;
use std::mem::offset_of;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, Rank, RwLock};
use units::Ino;
use writeback::DirtyState;

/// A pinned inode.
pub type InodeRef = cache::InodeRef<Inode>;

/// The fields of an inode but its map of blocks. They are in this order: a read needs the first.
#[repr(C)]
pub(crate) struct InodeMeta {
    /// The size that users see.
    pub size: u64,
    /// The on-disk fields. `fields.size` is the size on disk, which follows `size` (see
    /// `durability.rs`). `i_block` is apart from them: see [`Inode::i_block`].
    pub fields: InodeFields<()>,
    /// The in-inode extended attributes (the bytes after the extra fields), if there are any.
    pub inline_xattrs: Option<Box<[u8]>>,
    /// Truncations since the inode was loaded, modulo 2^32.
    pub cuts: u32,
    /// Links, unlinks and renames of the inode since it was loaded, modulo 2^32.
    pub name_changes: u32,
    /// Its place on the orphan list or in the orphan file.
    pub orphan: Option<OrphanPlace>,
    /// Not on disk: an unnamed file is pinned until it has a name, and gone after a crash.
    pub first_link: FirstLink,
}

/// Where an orphan is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanPlace {
    /// On the linked list of the super block.
    List,
    /// In a slot of the orphan file.
    File {
        /// Block of the orphan file.
        block: u16,
        slot: u16,
    },
}

/// An inode in memory. Its fields are in this order: a look-up and stat read the first
/// `HOT_BYTES`, which lie in a few lines of the processor's cache. An open needs the first line of
/// them, and a read of cached pages the second, too.
#[repr(C)]
pub struct Inode {
    pub(crate) pins: Pins,
    pub(crate) ino: Ino,
    /// The directory that it has a name in.
    pub(crate) parent: ParentHint,
    /// Checked when the inode was loaded or made; never changes.
    pub(super) kind: FileType,
    /// Whether the contents or names are encrypted; never changes. An open asks for it, and so
    /// needs no other line of the inode.
    is_encrypted: bool,
    /// Whether the link count is 0; changed with it, under the lock of `meta`.
    nameless: AtomicBool,
    /// Whether it is in [`super::ChangedInodes`].
    pub(crate) registered: AtomicBool,
    /// The pages of a file.
    pub(crate) mapping: Mapping,
    /// Everything on disk but `i_block`. Other modules use the methods of `fields`.
    pub(super) meta: Mutex<InodeMeta>,
    /// The state of writeback.
    pub(crate) data: FileData,
    /// The 60 bytes of i_block: the root of the extent tree, a fast symlink's target, or a device's
    /// number.
    pub(crate) i_block: RwLock<[u8; 60]>,
    /// Contents of a file, entries of a directory: exclusive for changes, shared for
    /// directory reads.
    pub(crate) lock: RwLock<()>,
    pub(crate) fs: Weak<Fs>,
}

/// Bytes at the start of an inode that a look-up and stat read.
pub(crate) const HOT_BYTES: usize = offset_of!(Inode, data);

/// A cached inode takes at most 512 bytes, with its entry in the table and one name. Debug builds
/// have larger locks.
#[cfg(not(any(debug_assertions, explore)))]
const _: () = assert!(cache::InodeTable::<Inode>::INODE_BYTES + cache::NAME_BYTES <= 512);

/// The state of writeback of a file's pages.
pub(crate) struct FileData {
    /// Its place on the dirty lists of writeback.
    pub dirty_state: DirtyState,
    /// Data and metadata that are not durable yet.
    pub durability: Durability,
    pub errors: ErrSeq,
    /// The state that only I/O needs (`io`).
    io: IoSlot,
    has_io: AtomicBool,
    /// Whether it is in [`super::UnlandedFiles`].
    pub unlanded_listed: AtomicBool,
    /// A write in place has failed, and not all pages were written since. Such pages do not go
    /// through the log: a block that cannot be written home from there would stop the journal.
    pub write_failed: AtomicBool,
    /// It was truncated to zero, and its new contents may not be recorded
    /// ([`Fs::write_truncated_files`]).
    pub truncated: AtomicBool,
    /// Bytes behind the end of the file are not zero on the device (another system left them). The
    /// next change that makes the file longer zeroes them first.
    pub stale_tail: AtomicBool,
}

impl FileData {
    fn new() -> FileData {
        FileData {
            dirty_state: DirtyState::default(),
            unlanded_listed: AtomicBool::new(false),
            durability: Durability::default(),
            errors: ErrSeq::default(),
            write_failed: AtomicBool::new(false),
            io: io::empty_slot(),
            has_io: AtomicBool::new(false),
            truncated: AtomicBool::new(false),
            stale_tail: AtomicBool::new(false),
        }
    }
}

impl Inode {
    pub(super) fn assemble(
        fs: &Fs,
        ino: Ino,
        kind: FileType,
        fields: InodeFields,
        inline_xattrs: Option<Box<[u8]>>,
    ) -> Inode {
        let (fields, i_block) = fields.replace_i_block(());
        let nameless = AtomicBool::new(fields.links_count == 0);
        let is_encrypted = fields.flags.contains(InodeFlags::ENCRYPT);
        Inode {
            ino,
            kind,
            fs: fs.me.clone(),
            pins: Pins::default(),
            lock: match kind {
                FileType::Directory => Rank::Directory.rw_lock(()),
                _ => Rank::FileContents.rw_lock(()),
            },
            mapping: Mapping::new(fs.budget.clone(), fs.page_size),
            data: FileData::new(),
            i_block: Rank::InodeBlocks.rw_lock(i_block),
            meta: Rank::InodeMeta.mutex(InodeMeta {
                size: fields.size,
                cuts: 0,
                name_changes: 0,
                fields,
                inline_xattrs,
                orphan: None,
                first_link: FirstLink::default(),
            }),
            is_encrypted,
            nameless,
            registered: AtomicBool::new(false),
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

    /// Bytes of dirty pages.
    pub fn unwritten_bytes(&self) -> u64 {
        self.mapping.dirty_bytes()
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

    /// Drops the state that only I/O needs, unless it or the inode is in use. Called after each of
    /// the events that may have been the last use. If two of them are concurrent and each finds the
    /// other's use, a later unpin or the eviction drops it.
    pub(super) fn drop_idle_io(&self) {
        if self.data.has_io() && self.pins.count() == 0 && !self.has_unlanded() {
            self.data.drop_idle_io();
        }
    }

    fn register_dirty(self: &Arc<Self>, fs: &Fs) {
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

    fn more_bytes(&self) -> usize {
        let inline = self
            .meta
            .try_lock()
            .and_then(|m| m.inline_xattrs.as_ref().map(|x| x.len()));
        inline.map_or(0, heap_bytes)
    }

    fn last_unpinned(self: &Arc<Self>) {
        self.drop_idle_io();
        // A thread that changes the link count has a pin, so the last unpin sees the change.
        if self.nameless.load(Ordering::Acquire)
            && let Some(fs) = self.fs.upgrade()
        {
            fs.unlinked.push(self.clone());
            // Most callers delete it at once. For the others the flusher's tick does.
            fs.bdi.ensure_flusher();
        }
    }
}
