//! Extent tree nodes: a 12-byte header and 12-byte entries, in `i_block` (the root) or in a block.
//!
//! Depth 0 is a leaf, whose entries map runs of file blocks; deeper nodes have entries that point
//! to child blocks. A node is checked once, when it is parsed; the view then reads without failing.

mod entry;
mod state;

pub use state::ExtentState;

use crate::bytes::{get_u16, get_u32, hi32, join32, lo16, lo32, put_u16, put_u32};
use crate::checksum::{Seed, compare, crc32c};
use crate::error::{FormatError, Result};
use crate::inode::I_BLOCK_SIZE;
use units::{FileBlock, FsBlock};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xf30a;
/// The deepest tree that ext4 builds.
pub const MAX_DEPTH: u16 = 5;
/// The longest written extent, in blocks.
pub const MAX_WRITTEN_LEN: u32 = 32_768;
/// The longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN_LEN: u32 = 32_767;
/// Entries in the root inside an inode.
pub const ROOT_CAPACITY: u16 = 4;

const HEADER: usize = 12;
const ENTRY: usize = 12;
const MAX_FS_BLOCK: FsBlock = FsBlock(1 << 48);

/// A run of file blocks mapped to a run of volume blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First file block.
    pub file_block: FileBlock,
    /// Length in blocks.
    pub len: u32,
    /// Whether the blocks hold data.
    pub state: ExtentState,
    /// First volume block.
    pub start: FsBlock,
}

impl Extent {
    /// Returns the last file block of the extent.
    #[must_use]
    pub fn last(&self) -> FileBlock {
        self.file_block.saturating_add(self.len.saturating_sub(1))
    }

    /// Returns the file block after the extent: of a valid one [`FileBlock::END`] at most.
    #[must_use]
    pub fn end(&self) -> FileBlock {
        self.file_block.saturating_add(self.len)
    }

    /// Returns whether `file_block` lies in the extent.
    #[must_use]
    pub fn contains(&self, file_block: FileBlock) -> bool {
        (self.file_block..self.end()).contains(&file_block)
    }

    /// Returns the volume block of `file_block`, or `None` outside the extent.
    #[must_use]
    pub fn map(&self, file_block: FileBlock) -> Option<FsBlock> {
        let offset = file_block
            .checked_sub(self.file_block)
            .filter(|offset| *offset < self.len)?;
        self.start.checked_add(u64::from(offset))
    }

    /// Returns whether length and addresses are valid. As in Linux, none is [`FileBlock::END`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let disk_end = self.start.checked_add(u64::from(self.len));
        (1..=self.state.max_len()).contains(&self.len)
            && self.file_block.checked_add(self.len).is_some()
            && disk_end.is_some_and(|end| end <= MAX_FS_BLOCK)
    }
}

/// An entry that points to a child node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentIndex {
    /// The first file block that the child covers.
    pub file_block: FileBlock,
    /// The child's volume block.
    pub child: FsBlock,
}

/// Returns how many entries fit in a node of `bytes` bytes: 4 in a root, 340 in a block of 4 KiB.
#[must_use]
pub fn capacity(bytes: usize) -> u16 {
    u16::try_from(bytes.saturating_sub(HEADER) / ENTRY).unwrap_or(u16::MAX)
}

/// A checked node.
#[derive(Debug, Clone, Copy)]
pub struct ExtentNode<'a> {
    bytes: &'a [u8],
    entries: u16,
    max: u16,
    depth: u16,
    generation: u32,
}

impl<'a> ExtentNode<'a> {
    /// Checks the root in an inode's `i_block`.
    ///
    /// # Errors
    ///
    /// `Truncated`, `BadMagic`, or one of the `Extent…` errors.
    pub fn parse_root(i_block: &'a [u8; I_BLOCK_SIZE]) -> Result<ExtentNode<'a>> {
        let depth = get_u16(i_block, 6).unwrap_or(0);
        Self::parse(i_block, depth)
    }

    /// Checks a node that should be at `expected_depth`: one less than its parent's.
    ///
    /// # Errors
    ///
    /// `Truncated`, `BadMagic`, or one of the `Extent…` errors.
    pub fn parse(bytes: &'a [u8], expected_depth: u16) -> Result<ExtentNode<'a>> {
        let node = Self::parse_header(bytes)?;
        if node.depth != expected_depth || node.depth > MAX_DEPTH {
            let expected = expected_depth.min(MAX_DEPTH);
            return Err(FormatError::ExtentDepth {
                expected,
                found: node.depth,
            });
        }
        let capacity = capacity(bytes.len());
        let is_empty_index = node.depth > 0 && node.entries == 0;
        if node.max == 0 || node.max > capacity || node.entries > node.max || is_empty_index {
            return Err(FormatError::ExtentCount {
                entries: node.entries,
                max: node.max,
                capacity,
            });
        }
        if node.depth == 0 {
            node.check_leaf()?
        } else {
            node.check_index()?
        }
        Ok(node)
    }

    fn parse_header(bytes: &'a [u8]) -> Result<ExtentNode<'a>> {
        let truncated = FormatError::Truncated {
            structure: "extent node",
            need: HEADER as u64,
            have: bytes.len() as u64,
        };
        let read = || {
            let found = get_u16(bytes, 0)?;
            let node = ExtentNode {
                bytes,
                entries: get_u16(bytes, 2)?,
                max: get_u16(bytes, 4)?,
                depth: get_u16(bytes, 6)?,
                generation: get_u32(bytes, 8)?,
            };
            Some((found, node))
        };
        let (found, node) = read().ok_or(truncated)?;
        if found != EXTENT_MAGIC {
            return Err(FormatError::BadMagic {
                structure: "extent node",
                expected: u32::from(EXTENT_MAGIC),
                found: u32::from(found),
            });
        }
        Ok(node)
    }

    fn check_leaf(&self) -> Result<()> {
        let mut next = FileBlock::FIRST;
        for (index, extent) in (0..).zip(self.extents()) {
            let Extent {
                file_block, len, ..
            } = extent;
            if !extent.is_valid() {
                return Err(FormatError::ExtentLength {
                    index,
                    file_block,
                    len,
                });
            }
            if file_block < next {
                return Err(FormatError::ExtentOrder { index, file_block });
            }
            next = extent.end();
        }
        Ok(())
    }

    fn check_index(&self) -> Result<()> {
        let mut last = None;
        for (index, entry) in (0..).zip(self.indexes()) {
            if last >= Some(entry.file_block) {
                return Err(FormatError::ExtentOrder {
                    index,
                    file_block: entry.file_block,
                });
            }
            last = Some(entry.file_block);
        }
        Ok(())
    }

    /// Returns the node's height above the leaves.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.entries)
    }

    /// Returns whether there are no entries: only possible in a leaf.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the most entries that the node may hold, from its header.
    #[must_use]
    pub fn max(&self) -> usize {
        usize::from(self.max)
    }

    /// `eh_generation`.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    fn entry(&self, index: usize) -> Option<&'a [u8]> {
        let start = entry_offset(index)?;
        let end = start.checked_add(ENTRY)?;
        if index < self.len() {
            self.bytes.get(start..end)
        } else {
            None
        }
    }

    /// Returns the extent at `index` of a leaf.
    #[must_use]
    pub fn extent(&self, index: usize) -> Option<Extent> {
        Extent::decode(self.entry(index).filter(|_| self.depth == 0)?)
    }

    /// Returns the entry at `index` of a node above the leaves.
    #[must_use]
    pub fn index(&self, index: usize) -> Option<ExtentIndex> {
        let entry = self.entry(index).filter(|_| self.depth > 0)?;
        Some(ExtentIndex {
            file_block: FileBlock(get_u32(entry, 0)?),
            child: FsBlock(join32(u32::from(get_u16(entry, 8)?), get_u32(entry, 4)?)),
        })
    }

    /// Returns the extents of a leaf, in order; nothing for other nodes.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + use<'a> {
        let node = *self;
        (0..node.len()).map_while(move |index| node.extent(index))
    }

    /// Returns the entries of a node above the leaves, in order; nothing for leaves.
    pub fn indexes(&self) -> impl Iterator<Item = ExtentIndex> + use<'a> {
        let node = *self;
        (0..node.len()).map_while(move |index| node.index(index))
    }

    /// Returns the position of the last entry that starts at or before `file_block`, by binary
    /// search.
    ///
    /// Of a leaf this is the extent that contains the block, if any does; of another node, the
    /// child to descend to.
    #[must_use]
    pub fn search(&self, file_block: FileBlock) -> Option<usize> {
        let (mut low, mut high) = (0usize, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let first = entry_offset(middle).and_then(|offset| get_u32(self.bytes, offset))?;
            if FileBlock(first) <= file_block {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }
}

fn entry_offset(index: usize) -> Option<usize> {
    index.checked_mul(ENTRY)?.checked_add(HEADER)
}

fn no_room(need: usize, have: usize) -> FormatError {
    FormatError::NoRoom {
        structure: "extent node",
        need: need as u64,
        have: have as u64,
    }
}

/// Makes `bytes` an empty node at `depth` that may hold all the entries that fit.
///
/// # Errors
///
/// `NoRoom` if not even one entry fits.
pub fn init(bytes: &mut [u8], depth: u16) -> Result<()> {
    let max = capacity(bytes.len());
    if max == 0 {
        return Err(no_room(HEADER + ENTRY, bytes.len()));
    }
    bytes.fill(0);
    put_header(bytes, 0, max, depth, 0)
}

fn put_header(bytes: &mut [u8], entries: u16, max: u16, depth: u16, generation: u32) -> Result<()> {
    let have = bytes.len();
    let mut write = || {
        put_u16(bytes, 0, EXTENT_MAGIC)?;
        put_u16(bytes, 2, entries)?;
        put_u16(bytes, 4, max)?;
        put_u16(bytes, 6, depth)?;
        put_u32(bytes, 8, generation)
    };
    write().ok_or_else(|| no_room(HEADER, have))
}

/// Returns the header's maximum, limited to the entries that fit.
fn usable_max(bytes: &[u8]) -> Result<usize> {
    let node = ExtentNode::parse_header(bytes)?;
    Ok(node.max().min(usize::from(capacity(bytes.len()))))
}

/// Replaces all extents of a leaf. Bytes after the last entry are left as they are.
///
/// # Errors
///
/// `NoRoom` if there are more than the header's maximum, `ExtentLength` for one that the format
/// cannot hold, `BadMagic` if this is no node. Nothing is changed then.
pub fn set_extents(bytes: &mut [u8], extents: &[Extent]) -> Result<()> {
    let max = usable_max(bytes)?;
    for (index, extent) in (0..).zip(extents) {
        if !extent.is_valid() {
            let Extent {
                file_block, len, ..
            } = *extent;
            return Err(FormatError::ExtentLength {
                index,
                file_block,
                len,
            });
        }
    }
    let encode = |extent: &Extent, entry: &mut [u8]| {
        put_u32(entry, 0, extent.file_block.0)?;
        put_u16(entry, 4, extent.state.raw_len(extent.len))?;
        put_u16(entry, 6, lo16(hi32(extent.start.0)))?;
        put_u32(entry, 8, lo32(extent.start.0))
    };
    set_entries(bytes, max, extents, 0, encode)
}

/// Replaces all entries of a node above the leaves. Bytes after the last entry are left as they
/// are.
///
/// # Errors
///
/// `NoRoom` if there are more than the header's maximum, `ExtentDepth` for depth 0 or one too deep,
/// `BadMagic` if this is no node. Nothing is changed then.
pub fn set_indexes(bytes: &mut [u8], depth: u16, indexes: &[ExtentIndex]) -> Result<()> {
    if depth == 0 || depth > MAX_DEPTH {
        return Err(FormatError::ExtentDepth {
            expected: MAX_DEPTH,
            found: depth,
        });
    }
    let max = usable_max(bytes)?;
    let encode = |index: &ExtentIndex, entry: &mut [u8]| {
        put_u32(entry, 0, index.file_block.0)?;
        put_u32(entry, 4, lo32(index.child.0))?;
        put_u16(entry, 8, lo16(hi32(index.child.0)))?;
        put_u16(entry, 10, 0)
    };
    set_entries(bytes, max, indexes, depth, encode)
}

fn set_entries<T>(
    bytes: &mut [u8],
    max: usize,
    entries: &[T],
    depth: u16,
    encode: impl Fn(&T, &mut [u8]) -> Option<()>,
) -> Result<()> {
    let have = bytes.len();
    let error = || {
        no_room(
            entries.len().saturating_mul(ENTRY).saturating_add(HEADER),
            have,
        )
    };
    let count = u16::try_from(entries.len()).map_err(|_| error())?;
    if entries.len() > max {
        return Err(error());
    }
    let slots = bytes
        .get_mut(HEADER..)
        .ok_or_else(error)?
        .chunks_exact_mut(ENTRY);
    for (entry, slot) in entries.iter().zip(slots) {
        encode(entry, slot).ok_or_else(error)?;
    }
    put_u16(bytes, 2, count)
        .and_then(|()| put_u16(bytes, 6, depth))
        .ok_or_else(error)
}

/// Returns the offset of the checksum in a block's node: after the last entry that fits.
fn tail_offset(block: &[u8]) -> Option<usize> {
    let max = get_u16(block, 4)?;
    let offset = entry_offset(usize::from(max))?;
    (offset.checked_add(4)? <= block.len()).then_some(offset)
}

/// Verifies the checksum of a node that fills a block; roots are covered by their inode's.
///
/// `seed` is the inode's; `place` is the block's number, for the error.
///
/// # Errors
///
/// `Checksum`, or `MissingTail` if the header leaves no room for one.
pub fn verify_checksum(seed: Option<Seed>, block: &[u8], place: u64) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    let missing = FormatError::MissingTail {
        structure: "extent block",
        place,
    };
    let read = || {
        let offset = tail_offset(block)?;
        Some((get_u32(block, offset)?, crc32c(seed, block.get(..offset)?)))
    };
    let (stored, computed) = read().ok_or(missing)?;
    compare("extent block", place, stored, computed)
}

/// Writes the checksum of a node that fills a block. Without a seed nothing changes.
pub fn update_checksum(seed: Option<Seed>, block: &mut [u8]) {
    let Some(seed) = seed else { return };
    let Some(offset) = tail_offset(block) else {
        return;
    };
    let checksum = crc32c(seed, block.get(..offset).unwrap_or_default());
    let _ = put_u32(block, offset, checksum);
}

#[cfg(test)]
mod tests {
    use super::ExtentState::{Unwritten, Written};
    use super::*;

    fn extent(file_block: u32, len: u32, state: ExtentState) -> Extent {
        Extent {
            file_block: FileBlock(file_block),
            len,
            state,
            start: FsBlock(1 << 40),
        }
    }

    #[test]
    fn the_longest_extents_keep_their_kind() {
        let mut root = [0; I_BLOCK_SIZE];
        init(&mut root, 0).unwrap();
        let extents = [
            extent(0, MAX_WRITTEN_LEN, Written),
            extent(MAX_WRITTEN_LEN, MAX_UNWRITTEN_LEN, Unwritten),
            extent(u32::MAX - 1, 1, Unwritten),
        ];
        set_extents(&mut root, &extents).unwrap();
        let node = ExtentNode::parse_root(&root).unwrap();
        assert_eq!(node.extents().collect::<Vec<_>>(), extents);
        assert_eq!(node.max(), usize::from(ROOT_CAPACITY));
        assert_eq!(node.search(FileBlock(u32::MAX - 2)), Some(1));
        let too_long = extent(0, MAX_WRITTEN_LEN, Unwritten);
        assert!(set_extents(&mut root, &[too_long]).is_err());
        assert!(set_extents(&mut root, &[extent(0, 1, Written); 5]).is_err());
        assert!(set_extents(&mut root, &[extent(u32::MAX, 1, Written)]).is_err());
    }

    #[test]
    fn overlaps_and_disorder_are_found() {
        for starts in [[0, 1], [5, 0], [3, 3]] {
            let mut root = [0; I_BLOCK_SIZE];
            init(&mut root, 0).unwrap();
            set_extents(&mut root, &starts.map(|start| extent(start, 2, Written))).unwrap();
            let found = ExtentNode::parse_root(&root);
            assert!(
                matches!(found, Err(FormatError::ExtentOrder { index: 1, .. })),
                "{starts:?}"
            );
        }
    }

    #[test]
    fn blocks_of_every_size_have_room_for_the_checksum() {
        for size in [1024usize, 2048, 4096, 65_536] {
            let mut block = vec![0; size];
            init(&mut block, 1).unwrap();
            let seed = Some(Seed(7));
            let (file_block, child) = (FileBlock::FIRST, FsBlock(99));
            set_indexes(&mut block, 1, &[ExtentIndex { file_block, child }]).unwrap();
            update_checksum(seed, &mut block);
            verify_checksum(seed, &block, 5).unwrap();
            block[13] ^= 1;
            assert!(matches!(
                verify_checksum(seed, &block, 5),
                Err(FormatError::Checksum { place: 5, .. })
            ));
        }
    }
}
