//! A directory's blocks: from file block to verified buffer, changes with the right seal, growth.

use crate::{Error, Fs, Inode, Result, extents};
use ext4_format::Seed;
use ext4_format::dir_entry::{self, Tail};
use ext4_format::error::FormatError;
use ext4_format::features::{CompatFeatures, IncompatFeatures};
use ext4_format::htree::{self, NodeKind};
use ext4_format::inode::{FileType, InodeFlags};
use ext4_format::types::{FileBlock, FsBlock, Ino};
use extents::Map;
use jbd2::{Buffer, Handle, Seal};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a block of a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Entries.
    Leaf,
    /// A node of the hash tree.
    Node(NodeKind),
}

/// A directory under its lock, for the length of one operation.
pub(super) struct Dir<'a> {
    pub fs: &'a Fs,
    pub inode: &'a Inode,
    /// Blocks.
    pub blocks: u32,
    /// The inode says that it is a hash tree.
    pub flagged: bool,
    /// It says so, and the volume has hash trees.
    pub indexed: bool,
}

fn seal_leaf(seed: u32, _block: u64, bytes: &mut [u8]) {
    dir_entry::update_checksum(Some(Seed(seed)), bytes);
}
fn seal_root(seed: u32, _block: u64, bytes: &mut [u8]) {
    htree::update_checksum(Some(Seed(seed)), bytes, NodeKind::Root);
}
fn seal_interior(seed: u32, _block: u64, bytes: &mut [u8]) {
    htree::update_checksum(Some(Seed(seed)), bytes, NodeKind::Interior);
}

impl<'a> Dir<'a> {
    /// Looks at a directory that has its first block.
    pub fn open(fs: &'a Fs, inode: &'a Inode) -> Result<Dir<'a>> {
        let (size, flags) = inode.fields(|f| (f.size, f.flags));
        let blocks = u32::try_from(size >> fs.geo.block_bits).unwrap_or(u32::MAX);
        if blocks == 0 || !size.is_multiple_of(u64::from(fs.geo.block_size)) {
            let error = Error::CorruptInode {
                ino: inode.ino.0,
                what: "the directory's size is not a positive multiple of the block size",
            };
            return Err(fs.blame("directory_open", inode.ino, error));
        }
        // A directory has no holes. Searching one without an index reads all that its size claims.
        if u64::from(blocks) > fs.geo.blocks_count {
            return Err(Error::CorruptInode {
                ino: inode.ino.0,
                what: "the directory is larger than the volume",
            });
        }
        let flagged = flags.contains(InodeFlags::INDEX);
        Ok(Dir {
            fs,
            inode,
            blocks,
            flagged,
            indexed: flagged && fs.geo.compat.contains(CompatFeatures::DIR_INDEX),
        })
    }
    /// Looks at a directory that has no block yet.
    pub fn open_new(fs: &'a Fs, inode: &'a Inode) -> Dir<'a> {
        Dir {
            fs,
            inode,
            blocks: 0,
            flagged: false,
            indexed: false,
        }
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> usize {
        self.fs.geo.block_size as usize
    }
    /// Inodes on the volume; an entry's number cannot be above.
    pub fn inodes_count(&self) -> u32 {
        self.fs.geo.inodes_count
    }
    /// Whether blocks end in a checksum.
    pub fn tail(&self) -> Tail {
        Tail::for_seed(self.fs.geo.csum_seed)
    }
    fn seed(&self) -> Option<Seed> {
        self.fs
            .geo
            .csum_seed
            .map(|_| Seed(self.inode.csum_seed(self.fs)))
    }
    /// The type as an entry records it.
    pub fn entry_kind(&self, kind: FileType) -> Option<FileType> {
        let recorded = self.fs.geo.incompat.contains(IncompatFeatures::FILETYPE);
        recorded.then_some(kind)
    }
    /// "." and ".." of a first block that was just made, as the volume records types.
    pub fn fix_dots(&self, bytes: &mut [u8], parent: Ino) -> Result<(), FormatError> {
        let kind = self.entry_kind(FileType::Directory);
        dir_entry::set_target(bytes, 0, self.inode.ino, kind)?;
        dir_entry::set_target(bytes, dir_entry::rec_len_for(1), parent, kind)
    }
    /// The largest number of blocks that the directory can have.
    pub fn max_blocks(&self) -> u32 {
        if self.fs.geo.incompat.contains(IncompatFeatures::LARGEDIR) {
            // A tree's entries have 28 bits for a block number.
            1 << 28
        } else {
            u32::MAX >> self.fs.geo.block_bits
        }
    }

    /// What is wrong with `buffer`, as an error that names the inode and the block.
    #[track_caller]
    pub fn corrupt(&self, buffer: &Buffer, error: FormatError) -> Error {
        let error = Error::CorruptDirectory {
            ino: self.inode.ino.0,
            block: buffer.block(),
            error,
        };
        self.fs.blame("directory_block", self.inode.ino, error)
    }

    /// The volume block of block `at`.
    pub fn locate(&self, at: u32) -> Result<FsBlock> {
        let corrupt = |what| {
            let ino = self.inode.ino;
            let error = Error::CorruptInode { ino: ino.0, what };
            self.fs.blame("directory_locate", ino, error)
        };
        if at >= self.blocks {
            return Err(corrupt(
                "the directory's index leads beyond the directory's end",
            ));
        }
        match extents::lookup(self.fs, self.inode, FileBlock(at))? {
            Map::Mapped {
                start,
                unwritten: false,
                ..
            } => Ok(start),
            _ => Err(corrupt("the directory has a hole")),
        }
    }
    /// Block `at`, verified as what `kind` says.
    pub fn get(&self, at: u32, kind: Kind) -> Result<Arc<Buffer>> {
        let buffer = self.fs.journal.get(self.locate(at)?.0)?;
        buffer
            .verify_once(|bytes| self.verify(bytes, at, kind, buffer.block()))
            .map_err(|e| self.corrupt(&buffer, e))?;
        Ok(buffer)
    }
    /// Block `at` for a walk over all blocks, which learns only from the block what it is: `None`
    /// for a tree's node.
    pub fn get_leaf_of_any(&self, at: u32) -> Result<Option<Arc<Buffer>>> {
        if !self.flagged {
            return self.get(at, Kind::Leaf).map(Some);
        }
        let buffer = self.fs.journal.get(self.locate(at)?.0)?;
        let node = htree::guess_kind(&buffer.data(), FileBlock(at));
        if node.is_none() {
            buffer
                .verify_once(|bytes| self.verify(bytes, at, Kind::Leaf, buffer.block()))
                .map_err(|e| self.corrupt(&buffer, e))?;
        }
        Ok(node.is_none().then_some(buffer))
    }
    /// Starts reading blocks that are needed soon. Errors are met when they are.
    pub fn prefetch(&self, blocks: impl Iterator<Item = u32>) {
        let wanted: SmallVec<[u64; 32]> = blocks
            .filter_map(|at| self.locate(at).ok())
            .map(|block| block.0)
            .collect();
        self.fs.journal.prefetch(&wanted);
    }

    /// Checks a whole block: once for each time that it is read from the device.
    fn verify(&self, bytes: &[u8], at: u32, kind: Kind, place: u64) -> Result<(), FormatError> {
        match kind {
            Kind::Leaf => {
                dir_entry::verify_checksum(self.seed(), bytes, place)?;
                for record in dir_entry::records(bytes, self.inodes_count()) {
                    record?;
                }
                if at == 0 {
                    check_dots(bytes, self.inodes_count())?;
                }
            }
            Kind::Node(node) => {
                htree::verify_checksum(self.seed(), bytes, node, place)?;
                match node {
                    NodeKind::Root => {
                        check_dots(bytes, self.inodes_count())?;
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
    /// The most levels of nodes below the root.
    pub fn max_levels(&self) -> u8 {
        if self.fs.geo.incompat.contains(IncompatFeatures::LARGEDIR) {
            htree::MAX_LEVELS_LARGEDIR
        } else {
            htree::MAX_LEVELS
        }
    }

    fn seal(&self, kind: Kind) -> Option<Seal> {
        let seal = match kind {
            Kind::Leaf => seal_leaf,
            Kind::Node(NodeKind::Root) => seal_root,
            Kind::Node(NodeKind::Interior) => seal_interior,
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
        handle.modify(buffer, self.seal(Kind::Leaf), change)
    }
    /// Changes the root of the tree.
    pub fn change_root<R>(
        &self,
        handle: &Handle<'_>,
        buffer: &Arc<Buffer>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        handle.modify(buffer, self.seal(Kind::Node(NodeKind::Root)), change)
    }
    /// Replaces a block's content.
    pub fn overwrite(&self, handle: &Handle<'_>, buffer: &Arc<Buffer>, kind: Kind, image: &[u8]) {
        handle.modify(buffer, self.seal(kind), |bytes| {
            bytes.copy_from_slice(image);
        });
    }

    /// Adds blocks of zeroes at the end. An error has changed nothing.
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
            Some(last) => FsBlock(self.locate(last)?.0.saturating_add(1)),
            None => self.fs.groups.goal_for(inode.ino),
        };
        let blocks = self.blocks.saturating_add(count as u32);
        for at in self.blocks..blocks {
            match self.append_one(handle, inode, at, goal) {
                Ok(block) => {
                    goal = FsBlock(block.0.saturating_add(1));
                    added.push(handle.create(block.0));
                }
                Err(error) => {
                    self.take_back(handle, inode, at);
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
        at: u32,
        goal: FsBlock,
    ) -> Result<FsBlock> {
        if at >= self.max_blocks() {
            return Err(Error::NoSpace);
        }
        let block = self.fs.groups.alloc_metadata_block(handle, goal)?;
        let mapped = extents::insert(self.fs, handle, inode, FileBlock(at), block, 1, false);
        if let Err(error) = mapped {
            let run = crate::alloc::BlockRun {
                start: block,
                len: 1,
            };
            self.fs.groups.free(handle, run)?;
            return Err(error);
        }
        Ok(block)
    }
    /// Unmaps and frees what lies beyond the directory's end, up to block `end`.
    fn take_back(&self, handle: &Handle<'_>, inode: &Arc<Inode>, end: u32) {
        if end == self.blocks {
            return;
        }
        let range = u64::from(self.blocks)..u64::from(end);
        if let Err(error) = extents::remove(self.fs, handle, inode, range) {
            // Nothing refers to the blocks; e2fsck finds them beyond the directory's size.
            tracing::error!("inode {}: new blocks are lost: {error}", inode.ino);
        }
    }

    /// Before a linear insert into a directory that claims an index which cannot be used (an
    /// unknown hash, or a volume without `dir_index`): the index will not list the new entry, so
    /// the claim goes, as in the kernel. With checksums this cannot be done, as nodes have no room
    /// for a leaf's.
    pub fn leave_index(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if !self.flagged {
            return Ok(());
        }
        if self.tail() == Tail::Checksum {
            let what = format!("a change of directory {} with its hash version", inode.ino);
            return Err(Error::Unsupported(what));
        }
        inode.remove_flags(InodeFlags::INDEX);
        inode.mark_dirty(self.fs, handle);
        Ok(())
    }
}

/// Checks that a first block begins with "." and "..".
fn check_dots(bytes: &[u8], inodes_count: u32) -> Result<(), FormatError> {
    let mut records = dir_entry::records(bytes, inodes_count);
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
