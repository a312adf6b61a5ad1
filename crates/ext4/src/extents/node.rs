//! Entries of a node in place: the 12-byte header and the 12-byte entries of a root or of a block.
//!
//! The codec ([`ext4_format::extent`]) checks a whole node. That is done once for a block read from
//! the device. This module serves the accesses after that: a view checks the header only and reads
//! single entries, and changes move entries within the bytes. No content of a node makes this
//! module panic.

use crate::{Error, Result};
use ext4_format::error::FormatError;
use ext4_format::extent::{self, EXTENT_MAGIC, Extent, ExtentState, MAX_DEPTH};
use smallvec::SmallVec;
use units::{FileBlock, FsBlock};

/// Bytes of the header, and of an entry.
const SIZE: usize = 12;

/// An entry in its on-disk form. Its first four bytes are its file block, at every depth.
pub(super) type Raw = [u8; SIZE];
/// Entries to be stored in a node. Only splits have more than three.
pub(super) type Raws = SmallVec<[Raw; 4]>;

/// Returns the file block that an entry starts at.
pub(super) fn key(raw: &Raw) -> FileBlock {
    FileBlock(u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]))
}

/// Encodes an extent as an entry of a leaf.
pub(super) fn pack(extent: &Extent) -> Raw {
    let len = extent.state.raw_len(extent.len).to_le_bytes();
    let block = extent.file_block.0.to_le_bytes();
    let start = extent.start.0.to_le_bytes();
    [
        block[0], block[1], block[2], block[3], len[0], len[1], start[4], start[5], start[0],
        start[1], start[2], start[3],
    ]
}

/// Decodes an entry of a leaf.
pub(super) fn unpack(raw: &Raw) -> Extent {
    let (state, len) = ExtentState::of_raw_len(u16::from_le_bytes([raw[4], raw[5]]));
    Extent {
        file_block: key(raw),
        len,
        state,
        start: FsBlock(u64::from_le_bytes([
            raw[8], raw[9], raw[10], raw[11], raw[6], raw[7], 0, 0,
        ])),
    }
}

/// Encodes an entry that points to a child.
pub(super) fn pack_index(file_block: FileBlock, child: FsBlock) -> Raw {
    let block = file_block.0.to_le_bytes();
    let child = child.0.to_le_bytes();
    [
        block[0], block[1], block[2], block[3], child[0], child[1], child[2], child[3], child[4],
        child[5], 0, 0,
    ]
}

/// Decodes the child that an entry points to.
pub(super) fn unpack_child(raw: &Raw) -> FsBlock {
    FsBlock(u64::from_le_bytes([
        raw[4], raw[5], raw[6], raw[7], raw[8], raw[9], 0, 0,
    ]))
}

fn get_u16(bytes: &[u8], offset: usize) -> u16 {
    match bytes.get(offset..).and_then(|tail| tail.first_chunk()) {
        Some(two) => u16::from_le_bytes(*two),
        None => 0,
    }
}

fn put_u16(bytes: &mut [u8], offset: usize, value: u16) {
    if let Some(two) = bytes
        .get_mut(offset..)
        .and_then(|tail| tail.first_chunk_mut())
    {
        *two = value.to_le_bytes();
    }
}

/// A node whose header has been checked.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    entries: &'a [Raw],
    max: usize,
    depth: u16,
}

impl<'a> View<'a> {
    /// Returns the view of a node. With `depth` it checks the node's depth; a root, whose depth is
    /// not known, has `None`.
    #[inline]
    pub fn new(bytes: &'a [u8], depth: Option<u16>) -> Result<View<'a>> {
        // Each look-up comes here: one load, and one branch below.
        let header = bytes.first_chunk().map_or(0, |h| u64::from_le_bytes(*h));
        let [magic, entries, max, found] = [0, 16, 32, 48].map(|shift| (header >> shift) as u16);
        let good = (magic == EXTENT_MAGIC)
            & (found == depth.unwrap_or(found))
            & (found <= MAX_DEPTH)
            & (entries <= max)
            & (max <= extent::capacity(bytes.len()))
            & ((entries > 0) | (found == 0));
        match bytes.get(SIZE..SIZE + usize::from(entries) * SIZE) {
            Some(area) if good => Ok(View {
                entries: area.as_chunks().0,
                max: usize::from(max),
                depth: found,
            }),
            _ => Err(bad_header(bytes, depth)),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Returns the number of entries that the node has room for.
    pub fn max(&self) -> usize {
        self.max
    }
    /// Returns the number of levels below the node.
    pub fn depth(&self) -> u16 {
        self.depth
    }
    pub fn raws(&self) -> &'a [Raw] {
        self.entries
    }
    pub fn raw(&self, at: usize) -> Option<&'a Raw> {
        self.entries.get(at)
    }
    /// Returns the first file block of entry `at`.
    pub fn key(&self, at: usize) -> Option<FileBlock> {
        self.entries.get(at).map(key)
    }
    pub fn extent(&self, at: usize) -> Option<Extent> {
        self.entries.get(at).map(unpack)
    }
    /// Returns the number of entries that start at or before `block`. The last of these is the only
    /// one that can contain it.
    #[inline]
    pub fn rank(&self, block: FileBlock) -> usize {
        self.entries.partition_point(|raw| key(raw) <= block)
    }
}

/// Returns the error for a header that [`View::new`] refuses.
#[cold]
fn bad_header(bytes: &[u8], depth: Option<u16>) -> Error {
    let (magic, found) = (get_u16(bytes, 0), get_u16(bytes, 6));
    let expected = depth.unwrap_or(found).min(MAX_DEPTH);
    let error = if magic != EXTENT_MAGIC {
        FormatError::BadMagic {
            structure: "extent node",
            expected: u32::from(EXTENT_MAGIC),
            found: u32::from(magic),
        }
    } else if found != expected {
        FormatError::ExtentDepth { expected, found }
    } else {
        FormatError::ExtentCount {
            entries: get_u16(bytes, 2),
            max: get_u16(bytes, 4),
            capacity: extent::capacity(bytes.len()),
        }
    };
    Error::Corrupt(error)
}

/// Replaces `old` entries from index `at` on by `new`. The caller has checked that there is room.
pub(super) fn splice(bytes: &mut [u8], at: usize, old: usize, new: &[Raw]) {
    let entries = usize::from(get_u16(bytes, 2));
    let Some((_, area)) = bytes.split_at_mut_checked(SIZE) else {
        return;
    };
    let slots = area.as_chunks_mut().0;
    let (tail, end) = (at + old, entries + new.len() - old.min(entries));
    if tail > entries || end > slots.len() {
        return;
    }
    slots.copy_within(tail..entries, at + new.len());
    slots[at..at + new.len()].copy_from_slice(new);
    put_u16(bytes, 2, end as u16);
}

/// Sets the first file block of entry `at`.
pub(super) fn set_key(bytes: &mut [u8], at: usize, key: FileBlock) {
    let offset = SIZE + at * SIZE;
    if let Some(four) = bytes
        .get_mut(offset..)
        .and_then(|tail| tail.first_chunk_mut())
    {
        *four = key.0.to_le_bytes();
    }
}

/// Makes `bytes` a node at `depth` with these entries. Returns whether they fit.
pub(super) fn fill(bytes: &mut [u8], depth: u16, entries: &[Raw]) -> bool {
    if entries.len() > usize::from(extent::capacity(bytes.len())) {
        return false;
    }
    if extent::init(bytes, depth).is_err() {
        return false;
    }
    splice(bytes, 0, 0, entries);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(block: u32, len: u32, state: ExtentState) -> Extent {
        Extent {
            file_block: FileBlock(block),
            len,
            state,
            start: FsBlock(0x1234_5678_9abc),
        }
    }

    #[test]
    fn extents_read_as_the_codec_reads_them() {
        let mut bytes = [0; 60];
        let extents = [
            sample(0, 32_768, ExtentState::Written),
            sample(40_000, 32_767, ExtentState::Unwritten),
            sample(u32::MAX - 9, 9, ExtentState::Unwritten),
        ];
        let raws: Vec<Raw> = extents.iter().map(pack).collect();
        assert!(fill(&mut bytes, 0, &raws));
        let node = extent::ExtentNode::parse(&bytes, 0).unwrap();
        assert!(node.extents().eq(extents));
        let view = View::new(&bytes, Some(0)).unwrap();
        assert!((0..3).all(|at| view.extent(at) == Some(extents[at])));
        let blocks = [0, 39_999, 40_000].map(FileBlock);
        assert_eq!(blocks.map(|block| view.rank(block)), [1, 1, 2]);
    }

    #[test]
    fn indexes_read_as_the_codec_reads_them() {
        let mut bytes = [0; 60];
        let child = FsBlock(0xabcd_1234_5678);
        assert!(fill(&mut bytes, 2, &[pack_index(FileBlock(7), child)]));
        let node = extent::ExtentNode::parse(&bytes, 2).unwrap();
        let index = node.index(0).unwrap();
        assert_eq!((index.file_block, index.child), (FileBlock(7), child));
        let view = View::new(&bytes, None).unwrap();
        assert_eq!(view.raw(0).map(unpack_child), Some(child));
    }

    #[test]
    fn a_splice_moves_the_entries_after_it() {
        let mut bytes = [0; 60];
        let raw = |n| pack(&sample(n, 1, ExtentState::Written));
        assert!(fill(&mut bytes, 0, &[raw(1), raw(5)]));
        splice(&mut bytes, 1, 0, &[raw(3), raw(4)]);
        splice(&mut bytes, 0, 2, &[raw(2)]);
        let view = View::new(&bytes, Some(0)).unwrap();
        let keys: Vec<_> = view.raws().iter().map(|raw| key(raw).0).collect();
        assert_eq!(keys, [2, 4, 5]);
    }

    #[test]
    fn bad_headers_are_refused() {
        let mut bytes = [0; 60];
        assert!(View::new(&bytes, None).is_err());
        assert!(fill(&mut bytes, 0, &[]));
        assert!(View::new(&bytes, None).is_ok());
        assert!(View::new(&bytes, Some(1)).is_err());
        for (offset, value) in [(2, 5), (4, 5), (6, 6), (6, 1)] {
            let mut bad = bytes;
            put_u16(&mut bad, offset, value);
            assert!(View::new(&bad, None).is_err(), "{offset} {value}");
        }
        assert!(View::new(&bytes[..8], None).is_err());
    }
}
