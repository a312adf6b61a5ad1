//! The changes of fast commits, made by the operations of the engine.
//!
//! Algorithm:
//!
//! 1. The blocks of all added ranges are set aside, so that no directory block or extent node takes
//!    one of them.
//! 2. The changes are made in their order. Each has no effect where the volume has its result. An
//!    inode number may be free, of the same file, or of a file that was deleted: the generation
//!    tells.
//! 3. New inodes and inodes that lost names are deleted if they have no name. An inode that had no
//!    name before is an orphan on disk. The orphan recovery of the mount deletes it, because only
//!    that finds its record.
//!
//! Of an inode's fields, the links follow the names, the blocks follow the map, and the attribute
//! block stays: a change of attributes is never a fast commit. The contents of a directory are its
//! names, so the ranges of directories are ignored.

use super::unsupported;
use crate::alloc::BlockRun;
use crate::extents::{self, ExtentState, INSERT_CREDITS, Map};
use crate::inline_data::{self, is_inline};
use crate::state::Links;
use crate::{Error, Fs, InodeDamage, InodeRef, Result};
use ext4_format::error::FormatError;
use ext4_format::extent::Extent;
use ext4_format::fast_commit::{Change, FastCommits, Name};
use ext4_format::features::IncompatFeatures;
use ext4_format::inode::{
    FileType, GOOD_OLD_INODE_SIZE, InodeFields, InodeFlags, in_inode_xattr_area,
};
use jbd2::JournalError;
use std::collections::{BTreeMap, BTreeSet};
use units::{FileBlock, FsBlock, Ino};

/// Credits for a change of an inode alone.
const INODE_CREDITS: u32 = 8;
/// Inodes in memory take at most this part of the memory budget, and may take [`PINNED_LEAST`].
const PINNED_PART: u64 = 4;
const PINNED_LEAST: u64 = 4 << 20;
/// Bytes of an inode in memory.
const INODE_BYTES: u64 = 512;
/// Flags that say where the contents of an inode are.
const PLACES: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INDEX)
    .union(InodeFlags::INLINE_DATA);

/// The inodes of all changes. Without a pin, one without a name would be deleted.
pub(super) type Pinned = BTreeMap<Ino, InodeRef>;

/// Makes the changes and commits them. Returns their number. `pinned` is empty; the caller drops it
/// when the volume makes no more changes.
pub(super) fn replay(fs: &Fs, commits: &FastCommits, pinned: &mut Pinned) -> Result<u64> {
    for change in commits.changes() {
        if let Change::AddRange(_, Extent { start, len, .. }) = change? {
            fs.groups.set_aside(BlockRun { start, len })?;
        }
    }
    let mut replay = Replay {
        fs,
        pinned,
        maybe_nameless: BTreeSet::new(),
        orphans: BTreeSet::new(),
    };
    let mut count = 0;
    for change in commits.changes() {
        replay.make(change?)?;
        count += 1;
    }
    replay.delete_nameless()?;
    {
        let handle = fs.journal.start(INODE_CREDITS)?;
        fs.mark_superblock_dirty(&handle);
    }
    fs.journal.commit(fs.journal.running_tid())?;
    Ok(count)
}

struct Replay<'a> {
    fs: &'a Fs,
    pinned: &'a mut Pinned,
    maybe_nameless: BTreeSet<Ino>,
    /// Inodes that had no links before the replay.
    orphans: BTreeSet<Ino>,
}

impl Replay<'_> {
    fn make(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::AddRange(ino, extent) => self.add_range(ino, &extent),
            Change::DelRange(ino, start, end) => self.del_range(ino, start, end),
            Change::Create(name) | Change::Link(name) => self.add_name(name),
            Change::Unlink(name) => self.remove_name(name),
            Change::Inode(ino, raw) => self.set_inode(ino, raw),
        }
    }

    /// Returns an inode that is in use.
    fn existing(&mut self, ino: Ino) -> Result<Option<InodeRef>> {
        if let Some(inode) = self.pinned.get(&ino) {
            return Ok(Some(inode.clone()));
        }
        let fs = self.fs;
        let is_reserved = ino != Ino::ROOT && ino < fs.geo.first_ino;
        let (orphan_file, journal) = {
            let superblock = fs.superblock.lock();
            (
                superblock.orphan_file_inum.get(),
                superblock.journal_inum.get(),
            )
        };
        let is_system = is_reserved || ino.0 == orphan_file || ino.0 == journal;
        if is_system || ino.0 > fs.geo.inodes_count {
            return Err(impossible("inode", u64::from(ino.0)));
        }
        if !fs.groups.inode_in_use(ino)? {
            return Ok(None);
        }
        let inode = fs.load_inode(ino, Links::Optional)?;
        if inode.links() == 0 {
            self.orphans.insert(ino);
        }
        self.pin(ino, inode.clone())?;
        Ok(Some(inode))
    }

    fn pin(&mut self, ino: Ino, inode: InodeRef) -> Result<()> {
        let most = (self.fs.budget.limit() / PINNED_PART).max(PINNED_LEAST);
        if (self.pinned.len() as u64 + 1) * INODE_BYTES > most {
            return Err(JournalError::LogNeedsMemory { most }.into());
        }
        self.pinned.insert(ino, inode);
        Ok(())
    }

    fn add_name(&mut self, name: Name<'_>) -> Result<()> {
        // A later deletion may have been part of the same fast commit.
        let (Some(dir), Some(inode)) = (self.existing(name.parent)?, self.existing(name.ino)?)
        else {
            return Ok(());
        };
        if dir.ino == inode.ino {
            return Err(InodeDamage::ContainsItself.of(dir.ino));
        }
        self.fs.replay_name(&dir, name.name, &inode)
    }

    fn remove_name(&mut self, name: Name<'_>) -> Result<()> {
        let (Some(dir), Some(inode)) = (self.existing(name.parent)?, self.existing(name.ino)?)
        else {
            return Ok(());
        };
        if dir.ino == inode.ino {
            return Err(InodeDamage::ContainsItself.of(dir.ino));
        }
        if self.fs.replay_removal(&dir, name.name, &inode)? {
            self.maybe_nameless.insert(inode.ino);
        }
        Ok(())
    }

    fn set_inode(&mut self, ino: Ino, raw: &[u8]) -> Result<()> {
        let geo = &self.fs.geo;
        let mut full = vec![0; usize::from(geo.inode_size)];
        let place = full
            .get_mut(..raw.len())
            .filter(|_| raw.len() >= GOOD_OLD_INODE_SIZE);
        place
            .ok_or_else(|| impossible("length of an inode", raw.len() as u64))?
            .copy_from_slice(raw);
        let fields = InodeFields::decode(geo, &full)?;
        let kind = self.fs.checked_kind(ino, &fields)?;
        let area = match fields.flags.contains(InodeFlags::INLINE_DATA) {
            true => Some(in_inode_xattr_area(geo, &full)?.into()),
            false => None,
        };
        if let Some(inode) = self.existing(ino)? {
            let same_file = inode.fields(|f| f.generation) == fields.generation;
            if same_file && inode.kind() == kind {
                return self.update(&inode, fields, area);
            }
            if inode.links() > 0 {
                return Err(InodeDamage::ReplayedOverFile.of(ino));
            }
            if self.orphans.contains(&ino) {
                let reason = format!("they reuse the number of orphan inode {ino}");
                return Err(unsupported(&self.fs.queue, &reason));
            }
            self.fs.delete_inode(&inode)?;
            self.pinned.remove(&ino);
        }
        self.create(ino, kind, fields, area)
    }

    fn create(
        &mut self,
        ino: Ino,
        kind: FileType,
        mut fields: InodeFields,
        area: Option<Box<[u8]>>,
    ) -> Result<()> {
        let fs = self.fs;
        let handle = fs.journal.start(INODE_CREDITS)?;
        if !fs.groups.claim_inode(&handle, ino, kind)? {
            return Err(impossible("inode", u64::from(ino.0)));
        }
        fields.links_count = 0;
        fields.blocks = 0;
        fields.file_acl = FsBlock(0);
        fields.dtime = 0;
        if kind == FileType::Directory {
            // Its contents are its names.
            let (flag, map) = extents::new_map(fs, None);
            fields.flags = (fields.flags - PLACES) | flag;
            fields.i_block = map;
            fields.size = 0;
        } else if !has_contents_in_inode(&fields, kind) {
            fields.i_block = empty_map(fs, fields.flags)?;
        }
        let area = area.filter(|_| kind != FileType::Directory);
        let inode = fs.adopt_inode(&handle, ino, fields, area)?;
        self.maybe_nameless.insert(ino);
        self.pin(ino, inode)
    }

    fn update(
        &mut self,
        inode: &InodeRef,
        fields: InodeFields,
        area: Option<Box<[u8]>>,
    ) -> Result<()> {
        let fs = self.fs;
        let kind = inode.kind();
        let is_dir = kind == FileType::Directory;
        if !is_dir {
            self.change_places(inode, fields.flags)?;
        }
        let in_inode = has_contents_in_inode(&fields, kind);
        let (new, i_block) = fields.replace_i_block(());
        let handle = fs.journal.start(INODE_CREDITS)?;
        inode.change_places(|root, meta| {
            let old = &meta.fields;
            meta.fields = InodeFields {
                links_count: old.links_count,
                blocks: old.blocks,
                file_acl: old.file_acl,
                extra_isize: old.extra_isize,
                dtime: old.dtime,
                size: if is_dir { old.size } else { new.size },
                version: if is_dir { old.version } else { new.version },
                flags: match is_dir {
                    true => (new.flags - PLACES) | (old.flags & PLACES),
                    false => new.flags,
                },
                ..new
            };
            meta.size = meta.fields.size;
            if in_inode {
                *root = i_block;
            }
            if !is_dir && area.is_some() {
                meta.inline_xattrs = area;
            }
        });
        inode.mark_dirty(fs, &handle);
        Ok(())
    }

    /// Moves the contents of a file to the place that the new flags say: in the inode, an extent
    /// tree or a block map. The new place is empty.
    fn change_places(&self, inode: &InodeRef, new: InodeFlags) -> Result<()> {
        let fs = self.fs;
        let places = InodeFlags::INLINE_DATA | InodeFlags::EXTENTS;
        if inode.flags() & places == new & places {
            return Ok(());
        }
        self.take_out_of_inode(inode)?;
        if inode.flags() & places == new & places {
            return Ok(());
        }
        if matches!(inode.kind(), FileType::Regular | FileType::Symlink) {
            fs.free_blocks(inode, FileBlock::FIRST..FileBlock::END)?;
        }
        let map = empty_map(fs, new)?;
        let handle = fs.journal.start(INODE_CREDITS)?;
        inode.change_places(|root, meta| {
            *root = map;
            meta.fields.flags = (meta.fields.flags - places) | (new & places);
        });
        inode.mark_dirty(fs, &handle);
        Ok(())
    }

    fn take_out_of_inode(&self, inode: &InodeRef) -> Result<()> {
        if is_inline(inode) {
            let handle = self.fs.journal.start(INODE_CREDITS)?;
            inline_data::move_out(self.fs, &handle, inode, None)?;
        }
        Ok(())
    }

    /// Returns an inode whose map a range belongs to; `None` if the range has no effect.
    fn mapped(&mut self, ino: Ino) -> Result<Option<InodeRef>> {
        let Some(inode) = self.existing(ino)? else {
            return Ok(None);
        };
        match inode.kind() {
            FileType::Directory => Ok(None),
            FileType::Regular => Ok(Some(inode)),
            FileType::Symlink if !inode.fields(InodeFields::is_fast_symlink) => Ok(Some(inode)),
            _ => Err(impossible("inode of a range", u64::from(ino.0))),
        }
    }

    fn del_range(&mut self, ino: Ino, start: FileBlock, end: FileBlock) -> Result<()> {
        match self.mapped(ino)?.filter(|inode| !is_inline(inode)) {
            Some(inode) => self.fs.free_blocks(&inode, start..end),
            None => Ok(()),
        }
    }

    fn add_range(&mut self, ino: Ino, extent: &Extent) -> Result<()> {
        let fs = self.fs;
        let Some(inode) = self.mapped(ino)? else {
            return Ok(());
        };
        self.take_out_of_inode(&inode)?;
        if extent.state == ExtentState::Unwritten && extents::has_block_map(fs, &inode) {
            return Err(impossible("unwritten range of inode", u64::from(ino.0)));
        }
        let mut at = extent.file_block;
        while at < extent.end() {
            let wanted = extent.start + u64::from(at - extent.file_block);
            let left = extent.end() - at;
            at = match extents::lookup(fs, &inode, at)? {
                Map::Hole { len } => {
                    let most = extents::most_at(fs, &inode, at).min(extent.state.max_len());
                    let len = len.min(left).min(most);
                    self.insert(&inode, at, wanted, len, extent.state)?;
                    at + len
                }
                Map::Mapped { start, len, state } if start == wanted => {
                    let end = at + len.min(left);
                    if state != extent.state {
                        self.convert(&inode, at, end, extent.state)?;
                    }
                    end
                }
                // The range has other blocks now. The next turn maps the hole.
                Map::Mapped { len, .. } => {
                    fs.free_blocks(&inode, at..at + len.min(left))?;
                    at
                }
            };
        }
        Ok(())
    }

    fn insert(
        &self,
        inode: &InodeRef,
        at: FileBlock,
        start: FsBlock,
        len: u32,
        state: ExtentState,
    ) -> Result<()> {
        let fs = self.fs;
        let groups = len / fs.geo.blocks_per_group.max(1) + 2;
        let handle = fs.journal.start(INSERT_CREDITS + 2 * groups)?;
        let run = BlockRun { start, len };
        fs.groups.claim_blocks(run)?;
        extents::insert_picked(fs, &handle, inode, at, run, state).map(drop)
    }

    fn convert(
        &self,
        inode: &InodeRef,
        start: FileBlock,
        end: FileBlock,
        state: ExtentState,
    ) -> Result<()> {
        let mut at = start;
        while at < end {
            let handle = self.fs.journal.start(INSERT_CREDITS)?;
            at = extents::convert(self.fs, &handle, inode, at..end, state, 0)?;
        }
        Ok(())
    }

    fn delete_nameless(&self) -> Result<()> {
        for ino in self.maybe_nameless.difference(&self.orphans) {
            if let Some(inode) = self.pinned.get(ino).filter(|inode| inode.links() == 0) {
                self.fs.delete_inode(inode)?;
            }
        }
        Ok(())
    }
}

fn impossible(field: &'static str, value: u64) -> Error {
    Error::Corrupt(FormatError::OutOfRange {
        structure: "fast commit",
        field,
        value,
    })
}

/// Returns whether `i_block` has the contents of an inode, and not a map.
fn has_contents_in_inode(fields: &InodeFields, kind: FileType) -> bool {
    let inline = fields.flags.contains(InodeFlags::INLINE_DATA);
    match kind {
        FileType::Directory => false,
        FileType::Regular => inline,
        FileType::Symlink => inline || fields.is_fast_symlink(),
        _ => true,
    }
}

/// Returns an empty map of the kind that the flags say.
fn empty_map(fs: &Fs, flags: InodeFlags) -> Result<[u8; 60]> {
    let mut map = [0; 60];
    if flags.contains(InodeFlags::EXTENTS) {
        if !fs.geo.incompat.contains(IncompatFeatures::EXTENTS) {
            return Err(impossible("flags of an inode", u64::from(flags.bits())));
        }
        ext4_format::extent::init(&mut map, 0)?;
    }
    Ok(map)
}
