//! Inodes and directories that are read before they are needed.
//!
//! A walk of a tree reads a directory, then the inodes in it, then the directories among them, each
//! of which often has one block. The inodes of a directory are announced by the reader of its
//! entries ([`Fs::read_inodes_ahead`]). The blocks of directories are found here: a reader that
//! misses the first block of a directory looks through the table blocks near its inode that are
//! cached, for inodes of other directories, and starts to read these directories, too
//! ([`Fs::directories_near`]). Directories that were made one after another have inodes near each
//! other, and mostly adjacent blocks.
//!
//! All of this is a guess from bytes that may be old or damaged. A wrong guess reads a block that
//! nobody uses. Its buffer does no harm if the block gets other content later: metadata in a new
//! block replaces the whole content, and data does not pass through buffers.

use super::Inode;
use crate::Fs;
use crate::alloc::BlockRun;
use ext4_format::extent::{ExtentNode, ExtentState};
use ext4_format::inode::{FileType, InodeFields, InodeFlags, InodeMode};
use units::{FsBlock, Ino, Span};

/// Bytes of the table on each side of a directory's inode that are searched for directories.
const SEARCHED: u32 = 1 << 20;
/// Bytes of a directory that are read ahead with others.
const BYTES_OF_ONE: u64 = 32 << 10;
/// Bytes between two directories that are read, too, instead of starting another request. They are
/// often directories of another group.
const MAX_GAP: u64 = 64 << 10;

impl Fs {
    /// Starts to read inodes that are loaded soon, in the order of the device.
    pub fn read_inodes_ahead(&self, inos: impl IntoIterator<Item = Ino>) {
        let missing = inos.into_iter().filter(|ino| !self.is_in_memory(*ino));
        self.groups.read_tables_ahead(missing);
    }

    fn is_in_memory(&self, ino: Ino) -> bool {
        self.inodes.peek(ino).is_some()
    }

    /// Returns the blocks of directories with inodes near that of `dir`, whose first block is not
    /// cached. They ascend.
    pub(crate) fn directories_near(&self, dir: &Inode) -> Vec<FsBlock> {
        let mut found = Vec::new();
        let limit = self.journal.read_ahead_limit();
        let mut left = self.groups.directories_to_read(dir.ino).min(limit);
        if left == 0 {
            return found;
        }
        let searched = SEARCHED / self.geo.block_size;
        for block in self.groups.table_blocks_near(dir.ino, searched) {
            // The search ends where nothing was read.
            let Some(content) = self.journal.peek(block.block) else {
                continue;
            };
            let size = usize::from(self.geo.inode_size);
            for (ino, raw) in (block.first.0..).map(Ino).zip(content.chunks_exact(size)) {
                if ino == dir.ino || left == 0 {
                    continue;
                }
                let blocks = self.directory_blocks(ino, raw).unwrap_or_default();
                if blocks.iter().any(|block| !self.journal.is_cached(*block)) {
                    found.extend(blocks);
                    left -= 1;
                }
            }
            if left == 0 {
                break;
            }
        }
        with_gaps(found, MAX_GAP / u64::from(self.geo.block_size))
    }

    /// Returns the first blocks of a directory, from its inode in the table; `None` for another
    /// inode, and for a directory with a tree of extents.
    fn directory_blocks(&self, ino: Ino, raw: &[u8]) -> Option<Vec<FsBlock>> {
        let mode = InodeMode(u16::from_le_bytes(*raw.first_chunk()?));
        if !mode.is_dir() {
            return None;
        }
        let fields: InodeFields = self.decode_inode(ino, raw).ok()?;
        if fields.links_count == 0
            || fields.file_type().ok()? != FileType::Directory
            || !fields.flags.contains(InodeFlags::EXTENTS)
        {
            return None;
        }
        let root = ExtentNode::parse_root(&fields.i_block).ok()?;
        if root.depth() > 0 {
            return None;
        }
        let mut blocks = Vec::new();
        let most = BYTES_OF_ONE / u64::from(self.geo.block_size);
        for extent in root.extents() {
            let left = most.saturating_sub(blocks.len() as u64);
            let len = u64::from(extent.len).min(left) as u32;
            let start = extent.start;
            let is_valid = extent.state == ExtentState::Written
                && self.geo.contains_blocks(start, u64::from(len))
                && !self.groups.is_system(BlockRun { start, len });
            if len == 0 || !is_valid {
                break;
            }
            blocks.extend((start..start + u64::from(len)).numbers());
        }
        Some(blocks)
    }
}

/// Sorts blocks and fills the gaps between them that have at most `gap` blocks.
fn with_gaps(mut blocks: Vec<FsBlock>, gap: u64) -> Vec<FsBlock> {
    blocks.sort_unstable();
    blocks.dedup();
    let mut filled: Vec<FsBlock> = Vec::with_capacity(blocks.len());
    for block in blocks {
        if let Some(&last) = filled.last()
            && block.0 - last.0 <= gap + 1
        {
            filled.extend((last + 1..block).numbers());
        }
        filled.push(block);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_read_and_large_ones_are_not() {
        let blocks = [40, 10, 13, 10].map(FsBlock).to_vec();
        let expected = [10, 11, 12, 13, 40].map(FsBlock);
        assert_eq!(with_gaps(blocks, 16), expected);
        let blocks = [0, 17, 35].map(FsBlock).to_vec();
        assert_eq!(with_gaps(blocks, 16).len(), 19);
    }
}
