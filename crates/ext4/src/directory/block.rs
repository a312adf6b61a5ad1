//! A directory's blocks: reading with verification, changes with checksums, growth.

use crate::{Error, Fs, Inode, InodeDamage, Result, extents};
use ext4_format::Seed;
use ext4_format::dir_entry::{self, NameBytes, RecordRules, Tail};
use ext4_format::error::FormatError;
use ext4_format::features::{CompatFeatures, IncompatFeatures};
use ext4_format::htree::{self, NodeKind};
use ext4_format::inode::{FileType, InodeFlags};
use extents::{ExtentState, Map};
use jbd2::{Buffer, Handle, Seal};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;
use units::{FileBlock, FsBlock, Ino};

/// The kind of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// Entries.
    Leaf,
    /// A node of the hash tree.
    Node(NodeKind),
}

/// A locked directory during one operation.
pub(super) struct Dir<'a> {
    pub fs: &'a Fs,
    pub inode: &'a Inode,
    pub blocks: u32,
    /// Whether the inode has the index flag.
    pub has_index_flag: bool,
    /// Whether the inode has the index flag and the volume has `dir_index`.
    pub indexed: bool,
    /// Whether names are any bytes, and shown in another form ([`super::names`]).
    pub is_encrypted: bool,
    /// Whether the hashes of a tree are those of folded names.
    pub ignores_case: bool,
    /// The blocks found last. A search reads the root and a leaf, which often lie in one run.
    run: Cell<Option<Run>>,
}

/// Blocks of a directory that are adjacent on the volume, too.
#[derive(Clone, Copy)]
struct Run {
    first: FileBlock,
    start: FsBlock,
    len: u32,
}

impl Run {
    fn locate(self, at: FileBlock) -> Option<FsBlock> {
        let skip = at.checked_sub(self.first).filter(|skip| *skip < self.len)?;
        Some(self.start + u64::from(skip))
    }
}

fn seal_leaf(seed: u32, _block: FsBlock, bytes: &mut [u8]) {
    dir_entry::update_checksum(Some(Seed(seed)), bytes);
}
fn seal_root(seed: u32, _block: FsBlock, bytes: &mut [u8]) {
    htree::update_checksum(Some(Seed(seed)), bytes, NodeKind::Root);
}
fn seal_interior(seed: u32, _block: FsBlock, bytes: &mut [u8]) {
    htree::update_checksum(Some(Seed(seed)), bytes, NodeKind::Interior);
}

impl<'a> Dir<'a> {
    /// Opens a directory that has at least one block.
    pub fn open(fs: &'a Fs, inode: &'a Inode) -> Result<Dir<'a>> {
        let (size, flags) = inode.fields(|f| (f.size, f.flags));
        if flags.contains(InodeFlags::INLINE_DATA) {
            return Err(Error::Internal("the directory is in its inode"));
        }
        let blocks = u32::try_from(size >> fs.geo.block_bits).unwrap_or(u32::MAX);
        if blocks == 0 || !size.is_multiple_of(u64::from(fs.geo.block_size)) {
            let error = InodeDamage::DirectorySize { size }.of(inode.ino);
            return Err(fs.blame("directory_open", inode.ino, error));
        }
        // A directory has no holes, and a search without an index reads all its blocks.
        if u64::from(blocks) > fs.geo.blocks_count {
            let error = InodeDamage::DirectoryTooLarge {
                blocks,
                most: fs.geo.blocks_count,
            }
            .of(inode.ino);
            return Err(fs.blame("directory_open", inode.ino, error));
        }
        let has_index_flag = flags.contains(InodeFlags::INDEX);
        Ok(Dir {
            fs,
            inode,
            blocks,
            has_index_flag,
            // The tree of a directory that ignores case has the hashes of folded names. Names are
            // compared byte for byte here, so all of its blocks are read.
            indexed: has_index_flag
                && fs.geo.compat.contains(CompatFeatures::DIR_INDEX)
                && !flags.contains(InodeFlags::CASEFOLD),
            is_encrypted: flags.contains(InodeFlags::ENCRYPT),
            ignores_case: flags.contains(InodeFlags::CASEFOLD),
            run: Cell::new(None),
        })
    }
    /// Opens a new directory, which has no block.
    pub fn open_new(fs: &'a Fs, inode: &'a Inode) -> Dir<'a> {
        Dir {
            fs,
            inode,
            blocks: 0,
            has_index_flag: false,
            indexed: false,
            is_encrypted: false,
            ignores_case: false,
            run: Cell::new(None),
        }
    }

    /// Returns the block size in bytes.
    pub fn block_size(&self) -> usize {
        self.fs.geo.block_size as usize
    }
    /// Returns what live records may have.
    pub fn rules(&self) -> RecordRules {
        RecordRules {
            inodes_count: self.fs.geo.inodes_count,
            names: match self.is_encrypted {
                true => NameBytes::Any,
                false => NameBytes::Text,
            },
        }
    }
    /// Returns whether blocks end in a checksum.
    pub fn tail(&self) -> Tail {
        Tail::for_seed(self.fs.geo.csum_seed)
    }
    fn seed(&self) -> Option<Seed> {
        self.fs
            .geo
            .csum_seed
            .map(|_| Seed(self.inode.csum_seed(self.fs)))
    }
    /// Sets "." and ".." of a new first block, with types if the volume records them.
    pub fn set_dot_entries(&self, bytes: &mut [u8], parent: Ino) -> Result<(), FormatError> {
        let kind = entry_kind(self.fs, FileType::Directory);
        dir_entry::set_target(bytes, 0, self.inode.ino, kind)?;
        dir_entry::set_target(bytes, dir_entry::rec_len_for(1), parent, kind)
    }
    /// Returns the largest number of blocks that the directory can have.
    pub fn max_blocks(&self) -> u32 {
        if self.fs.geo.incompat.contains(IncompatFeatures::LARGEDIR) {
            // A tree's entries have 28 bits for a block number.
            1 << 28
        } else {
            u32::MAX >> self.fs.geo.block_bits
        }
    }

    /// Returns the error for a damaged block. It names the inode and the block.
    #[track_caller]
    pub fn corrupt(&self, buffer: &Buffer, error: FormatError) -> Error {
        let error = Error::CorruptDirectory {
            ino: self.inode.ino,
            block: buffer.block(),
            error,
        };
        self.fs.blame("directory_block", self.inode.ino, error)
    }

    /// Returns the volume block of file block `at`.
    pub fn locate(&self, at: FileBlock) -> Result<FsBlock> {
        let corrupt = |damage: InodeDamage| {
            let ino = self.inode.ino;
            let error = damage.of(ino);
            self.fs.blame("directory_locate", ino, error)
        };
        if at.0 >= self.blocks {
            return Err(corrupt(InodeDamage::IndexBeyondEnd {
                file_block: at,
                blocks: self.blocks,
            }));
        }
        if let Some(found) = self.run.get().and_then(|run| run.locate(at)) {
            return Ok(found);
        }
        match extents::lookup(self.fs, self.inode, at)? {
            Map::Mapped {
                start,
                len,
                state: ExtentState::Written,
            } => {
                let first = at;
                self.run.set(Some(Run { first, start, len }));
                Ok(start)
            }
            _ => Err(corrupt(InodeDamage::DirectoryHole { file_block: at })),
        }
    }
    /// Returns file block `at`, verified as a block of `kind`.
    pub fn get(&self, at: FileBlock, kind: BlockKind) -> Result<Arc<Buffer>> {
        let buffer = self.fs.journal.get(self.locate(at)?)?;
        buffer
            .verify_once(|bytes| self.verify(bytes, at, kind, buffer.block().0))
            .map_err(|e| self.corrupt(&buffer, e))?;
        Ok(buffer)
    }
    /// Returns file block `at` if it is a leaf; `None` for a tree's node. A walk over all blocks
    /// does not know the kind of a block before it is read.
    pub fn get_if_leaf(&self, at: FileBlock) -> Result<Option<Arc<Buffer>>> {
        if !self.has_index_flag {
            return self.get(at, BlockKind::Leaf).map(Some);
        }
        let buffer = self.fs.journal.get(self.locate(at)?)?;
        let node = htree::guess_kind(&buffer.data(), at);
        if node.is_none() {
            buffer
                .verify_once(|bytes| self.verify(bytes, at, BlockKind::Leaf, buffer.block().0))
                .map_err(|e| self.corrupt(&buffer, e))?;
        }
        Ok(node.is_none().then_some(buffer))
    }
    /// Starts reading blocks that are needed soon. Errors are reported by the reads that follow.
    pub fn prefetch(&self, blocks: impl Iterator<Item = FileBlock>) {
        let wanted: SmallVec<[FsBlock; 32]> =
            blocks.filter_map(|at| self.locate(at).ok()).collect();
        self.fs.journal.prefetch(&wanted);
    }

    /// Checks a whole block that was read from the volume block `place`.
    fn verify(
        &self,
        bytes: &[u8],
        at: FileBlock,
        kind: BlockKind,
        place: u64,
    ) -> Result<(), FormatError> {
        match kind {
            BlockKind::Leaf => {
                dir_entry::verify_checksum(self.seed(), bytes, place)?;
                for record in dir_entry::records(bytes, self.rules()) {
                    record?;
                }
                if at == FileBlock(0) {
                    check_dots(bytes, self.rules())?;
                }
            }
            BlockKind::Node(node) => {
                htree::verify_checksum(self.seed(), bytes, node, place)?;
                match node {
                    NodeKind::Root => {
                        check_dots(bytes, self.rules())?;
                        htree::parse_root(bytes, self.tail(), self.max_levels())?;
                    }
                    NodeKind::Interior => {
                        htree::parse_node(bytes, self.tail())?;
                    }
                }
            }
        }
        Ok(())
    }
    /// Returns the most levels of nodes below the root.
    pub fn max_levels(&self) -> u8 {
        if self.fs.geo.incompat.contains(IncompatFeatures::LARGEDIR) {
            htree::MAX_LEVELS_LARGEDIR
        } else {
            htree::MAX_LEVELS
        }
    }

    fn seal(&self, kind: BlockKind) -> Option<Seal> {
        let seal = match kind {
            BlockKind::Leaf => seal_leaf,
            BlockKind::Node(NodeKind::Root) => seal_root,
            BlockKind::Node(NodeKind::Interior) => seal_interior,
        };
        self.seed().map(|seed| Seal { seal, seed: seed.0 })
    }
    /// Changes a block of entries.
    pub fn change_leaf<R>(
        &self,
        handle: &Handle<'_>,
        buffer: &Arc<Buffer>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        handle.modify_last(buffer, self.seal(BlockKind::Leaf), change)
    }
    /// Changes the root of the tree.
    pub fn change_root<R>(
        &self,
        handle: &Handle<'_>,
        buffer: &Arc<Buffer>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        handle.modify_last(buffer, self.seal(BlockKind::Node(NodeKind::Root)), change)
    }
    /// Replaces a block's content.
    pub fn overwrite(
        &self,
        handle: &Handle<'_>,
        buffer: &Arc<Buffer>,
        kind: BlockKind,
        image: &[u8],
    ) {
        handle.modify_last(buffer, self.seal(kind), |bytes| {
            bytes.copy_from_slice(image);
        });
    }

    /// Appends blocks of zeroes. An error has changed nothing.
    pub fn append(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        count: usize,
    ) -> Result<SmallVec<[Arc<Buffer>; 4]>> {
        let mut added = SmallVec::new();
        if count == 0 {
            return Ok(added);
        }
        let mut goal = match self.blocks.checked_sub(1) {
            Some(last) => FsBlock(self.locate(FileBlock(last))?.0.saturating_add(1)),
            None => self.fs.groups.goal_for(inode.ino),
        };
        let blocks = self.blocks.saturating_add(count as u32);
        for at in (self.blocks..blocks).map(FileBlock) {
            match self.append_one(handle, inode, at, goal) {
                Ok(block) => {
                    goal = FsBlock(block.0.saturating_add(1));
                    added.push(handle.create(block));
                }
                Err(error) => {
                    self.unmap_appended(handle, inode, at);
                    return Err(error);
                }
            }
        }
        let size = u64::from(blocks) << self.fs.geo.block_bits;
        inode.set_metadata_size(size);
        inode.mark_dirty(self.fs, handle);
        Ok(added)
    }
    fn append_one(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        at: FileBlock,
        goal: FsBlock,
    ) -> Result<FsBlock> {
        if at.0 >= self.max_blocks() {
            return Err(Error::NoSpace);
        }
        extents::add_metadata_block(self.fs, handle, inode, at, goal)
    }
    /// Unmaps and frees the blocks between the directory's size and block `end`.
    fn unmap_appended(&self, handle: &Handle<'_>, inode: &Arc<Inode>, end: FileBlock) {
        if end.0 == self.blocks {
            return;
        }
        // They are few enough for one call.
        let mut left = FileBlock(self.blocks)..end;
        if let Err(error) = extents::remove(self.fs, handle, inode, &mut left) {
            // Nothing refers to the blocks; e2fsck finds them beyond the directory's size.
            tracing::error!(
                "inode {}: new directory blocks could not be freed; run e2fsck: {error}",
                inode.ino
            );
        }
    }

    /// Clears the index flag before a linear insert, as the kernel does.
    ///
    /// The directory then has an index that cannot be used (an unknown hash, or a volume without
    /// `dir_index`), and that index would not list the new entry.
    ///
    /// # Errors
    ///
    /// `Unsupported` with checksums: tree nodes, read as leaves, have no room for a leaf's
    /// checksum.
    pub fn clear_index_flag(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if !self.has_index_flag {
            return Ok(());
        }
        if self.tail() == Tail::Checksum {
            return Err(Error::Unsupported(format!(
                "adding a name to directory {}, whose index cannot be used",
                inode.ino
            )));
        }
        inode.remove_flags(InodeFlags::INDEX);
        inode.mark_dirty(self.fs, handle);
        Ok(())
    }
}

/// Returns the type for an entry; `None` if the volume does not record types.
pub(super) fn entry_kind(fs: &Fs, kind: FileType) -> Option<FileType> {
    let recorded = fs.geo.incompat.contains(IncompatFeatures::FILETYPE);
    recorded.then_some(kind)
}

/// Checks that a first block begins with "." and "..".
fn check_dots(bytes: &[u8], rules: RecordRules) -> Result<(), FormatError> {
    let mut records = dir_entry::records(bytes, rules);
    for expected in [&b"."[..], b".."] {
        let record = records
            .next()
            .unwrap_or(Err(FormatError::DirName { offset: 0 }))?;
        if record.name != expected || !record.is_live() {
            return Err(FormatError::DirName {
                offset: record.offset,
            });
        }
    }
    Ok(())
}
