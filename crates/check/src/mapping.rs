//! The blocks of an inode: extent trees, and the block maps of ext2 and ext3.

use crate::finding::describe;
use crate::volume::Volume;
use block::IoError;
use ext4_format::extent::{self, ExtentNode, ExtentState};
use ext4_format::inode::{InodeFields, InodeFlags};
use std::ops::Range;
use units::{FileBlock, FsBlock, Ino};

/// Most messages about one inode's mapping. A damaged tree may cause thousands.
const MESSAGES: usize = 32;

/// Receives the blocks of an inode from [`walk`].
pub(crate) trait Sink {
    /// Receives a block of the tree or map itself. Returns `false` if the walk must not read it,
    /// because it was read before (a loop or a shared block).
    fn node(&mut self, block: FsBlock) -> bool;
    /// Receives a run of data blocks of the volume.
    fn data(&mut self, file_block: FileBlock, start: FsBlock, len: u32, state: ExtentState);
    /// Receives damage in this block of the tree, or in the inode itself.
    fn wrong(&mut self, block: Option<FsBlock>, message: String);
}

struct Walk<'a, S: Sink> {
    v: &'a Volume,
    ino: Ino,
    fields: &'a InodeFields,
    sink: &'a mut S,
    said: usize,
}

/// Walks an inode's extent tree or block map.
pub(crate) fn walk<S: Sink>(
    v: &Volume,
    ino: Ino,
    fields: &InodeFields,
    sink: &mut S,
) -> Result<(), IoError> {
    let mut walk = Walk {
        v,
        ino,
        fields,
        sink,
        said: 0,
    };
    if fields.flags.contains(InodeFlags::EXTENTS) {
        walk.extents()
    } else {
        walk.block_map()
    }
}

impl<S: Sink> Walk<'_, S> {
    fn wrong(&mut self, block: Option<FsBlock>, message: String) {
        self.said += 1;
        if self.said <= MESSAGES {
            self.sink.wrong(block, message);
        }
    }

    fn extents(&mut self) -> Result<(), IoError> {
        let i_block = self.fields.i_block;
        match ExtentNode::parse_root(&i_block) {
            Ok(root) => self.extent_node(&root, None, FileBlock::FIRST..FileBlock::END),
            Err(error) => {
                self.wrong(None, describe(&error));
                Ok(())
            }
        }
    }

    /// Walks a node that covers the file blocks of `range`.
    fn extent_node(
        &mut self,
        node: &ExtentNode<'_>,
        block: Option<FsBlock>,
        range: Range<FileBlock>,
    ) -> Result<(), IoError> {
        if node.depth() == 0 {
            for extent in node.extents() {
                let first = extent.file_block;
                if first < range.start || extent.end() > range.end {
                    self.wrong(
                        block,
                        format!(
                            "the extent of file blocks {first} to {} is outside of its leaf's range",
                            extent.last()
                        ),
                    );
                }
                if !self.v.contains(extent.start, u64::from(extent.len)) {
                    self.wrong(
                        block,
                        format!(
                            "the extent of file block {first} maps blocks {} to {}, which are not on the volume",
                            extent.start,
                            extent.start.0 + u64::from(extent.len) - 1
                        ),
                    );
                    continue;
                }
                self.sink
                    .data(first, extent.start, extent.len, extent.state);
            }
            return Ok(());
        }
        let count = node.len();
        for at in 0..count {
            let Some(entry) = node.index(at) else { break };
            let first = entry.file_block;
            let next = node.index(at + 1).map_or(range.end, |next| next.file_block);
            if first < range.start || next > range.end {
                self.wrong(
                    block,
                    format!("the index entry of file block {first} is outside of its node's range"),
                );
            }
            let child = entry.child;
            if !self.v.contains(child, 1) {
                self.wrong(
                    block,
                    format!("the index leads to block {child}, which is not on the volume"),
                );
                continue;
            }
            if !self.sink.node(child) {
                continue;
            }
            let bytes = self.v.read_block(child)?;
            let seed = self.v.geo.inode_csum_seed(self.ino, self.fields.generation);
            if let Err(error) = extent::verify_checksum(seed, &bytes, child.0) {
                self.wrong(Some(child), describe(&error));
            }
            match ExtentNode::parse(&bytes, node.depth() - 1) {
                Ok(parsed) => {
                    let starts = match parsed.depth() {
                        0 => parsed.extent(0).map(|e| e.file_block),
                        _ => parsed.index(0).map(|e| e.file_block),
                    };
                    if let Some(starts) = starts
                        && starts != first
                    {
                        self.wrong(
                            Some(child),
                            format!(
                                "the node begins with file block {starts}, its parent says {first}"
                            ),
                        );
                    }
                    if parsed.is_empty() {
                        self.wrong(Some(child), "the leaf is empty".to_owned());
                    }
                    let range = first.max(range.start)..next.min(range.end);
                    self.extent_node(&parsed, Some(child), range)?;
                }
                Err(error) => self.wrong(Some(child), describe(&error)),
            }
        }
        Ok(())
    }

    fn block_map(&mut self) -> Result<(), IoError> {
        let i_block = self.fields.i_block;
        let per_block = self.v.geo.block_size / 4;
        let mut file_block = FileBlock::FIRST;
        for (slot, entry) in i_block.chunks_exact(4).enumerate() {
            let block = le32(entry);
            let (levels, covers) = match slot {
                0..12 => (0, 1),
                12 => (1, per_block),
                13 => (2, per_block * per_block),
                _ => (3, per_block * per_block * per_block),
            };
            self.mapped(None, block, levels, file_block)?;
            file_block = file_block.saturating_add(covers);
        }
        Ok(())
    }

    fn mapped(
        &mut self,
        within: Option<FsBlock>,
        block: u32,
        levels: u32,
        file_block: FileBlock,
    ) -> Result<(), IoError> {
        if block == 0 {
            return Ok(());
        }
        let block = FsBlock(block.into());
        if !self.v.contains(block, 1) {
            self.wrong(
                within,
                format!(
                    "file block {file_block} is mapped to block {block}, which is not on the volume"
                ),
            );
            return Ok(());
        }
        if levels == 0 {
            self.sink.data(file_block, block, 1, ExtentState::Written);
            return Ok(());
        }
        if !self.sink.node(block) {
            return Ok(());
        }
        let bytes = self.v.read_block(block)?;
        let covers = (self.v.geo.block_size / 4).pow(levels - 1);
        for (nth, entry) in (0..).zip(bytes.chunks_exact(4)) {
            self.mapped(
                Some(block),
                le32(entry),
                levels - 1,
                file_block.saturating_add(nth * covers),
            )?;
        }
        Ok(())
    }
}

fn le32(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
