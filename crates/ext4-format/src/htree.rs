//! Hash tree nodes of large directories.
//!
//! ```text
//! root:  "." ".." info(8)  | limit count block | hash block | hash block | …   | tail(8)
//! node:  fake record (8)   | limit count block | hash block | hash block | …   | tail(8)
//! ```
//!
//! For readers that only know linear directories, a node is the slack of an unused record. Entry 0
//! has no hash of its own: it covers all hashes below entry 1, and its hash field holds limit and
//! count. An entry leads to the names with hashes from its own to its successor's. A set bit 0 in a
//! hash says that names with this hash already began in the block before (a collision was split).

use crate::bytes::{get_u16, get_u32, put, put_u16, put_u32};
use crate::checksum::{Seed, compare};
use crate::dir_entry::{self, Tail};
use crate::error::{FormatError, Result};
use units::{FileBlock, Ino};

/// The most levels of nodes below the root, with `large_dir`.
pub const MAX_LEVELS_LARGEDIR: u8 = 2;
/// The most levels of nodes below the root, without `large_dir`.
pub const MAX_LEVELS: u8 = 1;

const ENTRY: usize = 8;
const TAIL: usize = 8;
const INFO: usize = 0x18;
const INFO_LENGTH: u8 = 8;
const ROOT_ENTRIES: usize = 0x20;
const NODE_ENTRIES: usize = 8;
/// The bits of a child's block number; the others are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The two layouts of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// The first block of the directory.
    Root,
    /// Any other node.
    Interior,
}

impl NodeKind {
    /// Returns the offset of the entries, in bytes.
    const fn entries_offset(self) -> usize {
        match self {
            NodeKind::Root => ROOT_ENTRIES,
            NodeKind::Interior => NODE_ENTRIES,
        }
    }

    /// Returns how many entries fit, the first one included.
    #[must_use]
    pub fn limit(self, block_size: usize, tail: Tail) -> u16 {
        let reserved = if tail == Tail::Checksum { TAIL } else { 0 };
        let room = block_size
            .saturating_sub(self.entries_offset())
            .saturating_sub(reserved);
        u16::try_from(room / ENTRY).unwrap_or(u16::MAX)
    }
}

/// The properties of a tree, from its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootInfo {
    /// The hash version as stored, without signedness: see
    /// [`HashVersion::resolve`](crate::dirhash::HashVersion::resolve).
    pub hash_version: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
    /// Flags that nothing uses.
    pub unused_flags: u8,
}

/// An entry of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DxEntry {
    /// The lowest hash in the child, with the collision bit; 0 for entry 0.
    pub hash: u32,
    /// The child's block in the directory.
    pub block: FileBlock,
}

/// A checked node.
#[derive(Debug, Clone, Copy)]
pub struct DxNode<'a> {
    block: &'a [u8],
    entries_offset: usize,
    limit: u16,
    count: u16,
}

fn out_of_range(field: &'static str, value: impl Into<u64>) -> FormatError {
    FormatError::OutOfRange {
        structure: "htree root",
        field,
        value: value.into(),
    }
}

/// Checks the root of a directory and returns its properties and entries.
///
/// `max_levels` is [`MAX_LEVELS`] or [`MAX_LEVELS_LARGEDIR`].
///
/// # Errors
///
/// `OutOfRange` for a header that is not a root's, or one of [`parse_node`]'s.
pub fn parse_root(block: &[u8], tail: Tail, max_levels: u8) -> Result<(RootInfo, DxNode<'_>)> {
    let info = root_info(block)?;
    if info.indirect_levels > max_levels {
        return Err(out_of_range("indirect_levels", info.indirect_levels));
    }
    if info.unused_flags & 1 != 0 {
        return Err(out_of_range("unused_flags", info.unused_flags));
    }
    Ok((info, parse(block, NodeKind::Root, tail)?))
}

/// Reads the properties in a root, without its entries.
///
/// # Errors
///
/// `OutOfRange` for a header that is not a root's.
pub fn root_info(block: &[u8]) -> Result<RootInfo> {
    let truncated = FormatError::Truncated {
        structure: "htree root",
        need: ROOT_ENTRIES as u64,
        have: block.len() as u64,
    };
    let [
        z0,
        z1,
        z2,
        z3,
        hash_version,
        info_length,
        indirect_levels,
        unused_flags,
    ] = crate::bytes::get::<8>(block, INFO).ok_or(truncated)?;
    let reserved = u32::from_le_bytes([z0, z1, z2, z3]);
    if reserved != 0 {
        return Err(out_of_range("reserved_zero", reserved));
    }
    if info_length != INFO_LENGTH {
        return Err(out_of_range("info_length", info_length));
    }
    Ok(RootInfo {
        hash_version,
        indirect_levels,
        unused_flags,
    })
}

/// Checks an interior node.
///
/// # Errors
///
/// `Truncated`, or `HtreeCount` if the limit is not the block's, or the entries are out of order.
pub fn parse_node(block: &[u8], tail: Tail) -> Result<DxNode<'_>> {
    parse(block, NodeKind::Interior, tail)
}

/// Reads a node that [`parse_root`] or [`parse_node`] has accepted before. It checks only the
/// bounds of the entries again, so the time of a look-up does not depend on the number of entries.
///
/// # Errors
///
/// `Truncated` or `HtreeCount` if the entries would not lie in the block.
#[inline]
pub fn open_node(block: &[u8], kind: NodeKind) -> Result<DxNode<'_>> {
    let entries_offset = kind.entries_offset();
    let (limit, count) = header(block, entries_offset).ok_or(FormatError::Truncated {
        structure: "htree node",
        need: entries_offset.saturating_add(ENTRY) as u64,
        have: block.len() as u64,
    })?;
    let node = DxNode {
        block,
        entries_offset,
        limit,
        count,
    };
    if count == 0 || count > limit || count > kind.limit(block.len(), Tail::None) {
        return Err(no_room(count, limit));
    }
    Ok(node)
}

fn parse(block: &[u8], kind: NodeKind, tail: Tail) -> Result<DxNode<'_>> {
    let entries_offset = kind.entries_offset();
    let truncated = FormatError::Truncated {
        structure: "htree node",
        need: entries_offset.saturating_add(ENTRY) as u64,
        have: block.len() as u64,
    };
    let limit = get_u16(block, entries_offset).ok_or_else(|| truncated.clone())?;
    let count = get_u16(block, entries_offset.saturating_add(2)).ok_or(truncated)?;
    if limit != kind.limit(block.len(), tail) || count == 0 || count > limit {
        return Err(FormatError::HtreeCount { count, limit });
    }
    let node = DxNode {
        block,
        entries_offset,
        limit,
        count,
    };
    let mut hashes = node.entries().skip(1).map(|entry| entry.hash);
    let mut previous = hashes.next().unwrap_or(0);
    for hash in hashes {
        if hash < previous {
            return Err(FormatError::HtreeCount { count, limit });
        }
        previous = hash;
    }
    Ok(node)
}

impl<'a> DxNode<'a> {
    /// Returns the number of entries, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the number of entries that fit.
    #[must_use]
    pub fn limit(&self) -> usize {
        usize::from(self.limit)
    }

    /// Returns whether another entry does not fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    /// Returns the entry at `index`.
    #[must_use]
    pub fn entry(&self, index: usize) -> Option<DxEntry> {
        if index >= self.count() {
            return None;
        }
        let offset = index.checked_mul(ENTRY)?.checked_add(self.entries_offset)?;
        let hash = if index == 0 {
            0
        } else {
            get_u32(self.block, offset)?
        };
        let block = get_u32(self.block, offset.checked_add(4)?)?;
        Some(DxEntry {
            hash,
            block: FileBlock(block & BLOCK_MASK),
        })
    }

    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = DxEntry> + use<'a> {
        let node = *self;
        (0..node.count()).map_while(move |index| node.entry(index))
    }

    /// The index of the entry whose child is the first that may have `hash`: the last entry whose
    /// hash is not above it, by binary search.
    #[must_use]
    pub fn search(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1usize, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle).is_some_and(|entry| entry.hash <= hash) {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    /// Returns whether names with `hash` continue in the entry after `index`.
    ///
    /// `None` means that `index` is the last entry. The caller then asks for the parent's next
    /// entry.
    #[must_use]
    pub fn continues_after(&self, index: usize, hash: u32) -> Option<bool> {
        let next = self.entry(index.checked_add(1)?)?;
        Some(continues(next.hash, hash))
    }
}

/// Returns whether names with an entry's hash also are in the block of the entry before it.
#[must_use]
pub fn continues(entry_hash: u32, hash: u32) -> bool {
    entry_hash & 1 != 0 && entry_hash & !1 == hash & !1
}

fn no_room(count: u16, limit: u16) -> FormatError {
    FormatError::HtreeCount { count, limit }
}

fn put_entry(block: &mut [u8], offset: usize, hash: u32, child: FileBlock) -> Option<()> {
    put_u32(block, offset, hash)?;
    put_u32(block, offset.checked_add(4)?, child.0)
}

/// Inserts an entry so that it comes at `index`, which is at least 1.
///
/// # Errors
///
/// `HtreeCount` if the node is full or has no place `index`.
pub fn insert_entry(
    block: &mut [u8],
    kind: NodeKind,
    index: usize,
    hash: u32,
    child: FileBlock,
) -> Result<()> {
    let base = kind.entries_offset();
    let (limit, count) = header(block, base).ok_or(no_room(0, 0))?;
    let error = no_room(count, limit);
    if count >= limit || index == 0 || index > usize::from(count) {
        return Err(error);
    }
    let mut write = || {
        let at = index.checked_mul(ENTRY)?.checked_add(base)?;
        let end = usize::from(count).checked_mul(ENTRY)?.checked_add(base)?;
        let moved_end = end.checked_add(ENTRY).filter(|end| *end <= block.len())?;
        block
            .get_mut(at..moved_end)?
            .copy_within(..end.checked_sub(at)?, ENTRY);
        put_entry(block, at, hash, child)?;
        put_u16(block, base.checked_add(2)?, count.checked_add(1)?)
    };
    write().ok_or(error)
}

fn header(block: &[u8], base: usize) -> Option<(u16, u16)> {
    Some((get_u16(block, base)?, get_u16(block, base.checked_add(2)?)?))
}

/// Makes `block` an interior node with one entry, which leads to `first_child`.
///
/// # Errors
///
/// `Truncated` for a block that holds no entry.
pub fn init_node(block: &mut [u8], tail: Tail, first_child: FileBlock) -> Result<()> {
    dir_entry::init_empty(block, Tail::None);
    init_entries(block, NodeKind::Interior, tail, first_child)
}

fn init_entries(
    block: &mut [u8],
    kind: NodeKind,
    tail: Tail,
    first_child: FileBlock,
) -> Result<()> {
    let base = kind.entries_offset();
    let error = FormatError::Truncated {
        structure: "htree node",
        need: base.saturating_add(ENTRY) as u64,
        have: block.len() as u64,
    };
    let limit = kind.limit(block.len(), tail);
    let mut write = || {
        put_u16(block, base, limit)?;
        put_u16(block, base.checked_add(2)?, 1)?;
        put_u32(block, base.checked_add(4)?, first_child.0)
    };
    write().ok_or(error)
}

/// Makes `block` the root of a tree without levels, whose only leaf is `first_leaf`.
///
/// # Errors
///
/// `Truncated` for a block that holds no entry.
pub fn init_root(
    block: &mut [u8],
    ino: Ino,
    parent: Ino,
    hash_version: u8,
    tail: Tail,
    first_leaf: FileBlock,
) -> Result<()> {
    // The tree lies in the slack of "..", which has the rest of the block.
    dir_entry::init_dot_dotdot(block, ino, parent, Tail::None);
    init_entries(block, NodeKind::Root, tail, first_leaf)?;
    let truncated = FormatError::Truncated {
        structure: "htree root",
        need: ROOT_ENTRIES as u64,
        have: block.len() as u64,
    };
    put(block, INFO, [0, 0, 0, 0, hash_version, INFO_LENGTH, 0, 0]).ok_or(truncated)
}

/// Moves the upper half of `full`'s entries to `fresh`, which becomes an interior node, and returns
/// the hash under which `fresh` must be entered in the parent.
///
/// # Errors
///
/// `HtreeCount` if `full` has fewer than two entries, or the blocks differ in size.
pub fn split_node(full: &mut [u8], kind: NodeKind, fresh: &mut [u8], tail: Tail) -> Result<u32> {
    let node = parse(full, kind, tail)?;
    let (count, limit) = (node.count, node.limit);
    let error = no_room(count, limit);
    let keep = count / 2;
    let moved: Vec<DxEntry> = node.entries().skip(usize::from(keep)).collect();
    let first = *moved
        .first()
        .filter(|_| keep > 0)
        .ok_or_else(|| error.clone())?;
    if full.len() != fresh.len() {
        return Err(error);
    }
    fill_node(fresh, tail, &moved)?;
    let base = kind.entries_offset();
    put_u16(full, base.saturating_add(2), keep).ok_or(error)?;
    Ok(first.hash)
}

fn fill_node(block: &mut [u8], tail: Tail, entries: &[DxEntry]) -> Result<()> {
    let limit = NodeKind::Interior.limit(block.len(), tail);
    let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
    let first = entries
        .first()
        .filter(|_| count <= limit)
        .ok_or(no_room(count, limit))?;
    init_node(block, tail, first.block)?;
    for (index, entry) in entries.iter().enumerate().skip(1) {
        insert_entry(block, NodeKind::Interior, index, entry.hash, entry.block)?;
    }
    Ok(())
}

/// Makes the tree one level higher: all entries of the full root move to `fresh`, and the root
/// keeps one entry, which leads to `fresh` at `fresh_block`.
///
/// # Errors
///
/// `OutOfRange` if the tree has `max_levels` already; `HtreeCount` for a bad node.
pub fn grow_root(
    root: &mut [u8],
    fresh: &mut [u8],
    fresh_block: FileBlock,
    tail: Tail,
    max_levels: u8,
) -> Result<()> {
    let (info, node) = parse_root(root, tail, max_levels)?;
    if info.indirect_levels >= max_levels {
        return Err(out_of_range("indirect_levels", info.indirect_levels));
    }
    let entries: Vec<DxEntry> = node.entries().collect();
    fill_node(fresh, tail, &entries)?;
    init_entries(root, NodeKind::Root, tail, fresh_block)?;
    let levels = info.indirect_levels.saturating_add(1);
    put(root, INFO + 6, [levels]).ok_or(out_of_range("indirect_levels", levels))
}

/// Returns the layout of `block`, block `at` of an indexed directory, or `None` for a leaf.
///
/// An interior node looks like a block with one unused record, so the result can be wrong. Only a
/// walk of the tree is reliable. This function is for linear readers, to select the checksum to
/// verify.
#[must_use]
pub fn guess_kind(block: &[u8], at: FileBlock) -> Option<NodeKind> {
    if at.0 == 0 {
        return root_info(block).ok().map(|_| NodeKind::Root);
    }
    let mut records = dir_entry::records(block, u32::MAX);
    let first = records.next()?.ok()?;
    let hides_all = !first.is_live() && first.rec_len as usize == block.len();
    hides_all.then_some(NodeKind::Interior)
}

/// The stored checksum, the computed one, and where it is stored.
fn checksums(seed: Seed, block: &[u8], kind: NodeKind) -> Option<(u32, u32, usize)> {
    let base = kind.entries_offset();
    let (limit, count) = header(block, base)?;
    if count > limit {
        return None;
    }
    let tail = usize::from(limit).checked_mul(ENTRY)?.checked_add(base)?;
    let used = usize::from(count).checked_mul(ENTRY)?.checked_add(base)?;
    let reserved = block.get(tail..tail.checked_add(4)?)?;
    let at = tail.checked_add(4)?;
    let stored = get_u32(block, at)?;
    let computed = seed
        .extend(block.get(..used)?)
        .extend(reserved)
        .extend(&[0; 4])
        .0;
    Some((stored, computed, at))
}

/// Verifies a node's checksum. `seed` is the directory's inode's; `place` is for the error.
///
/// # Errors
///
/// `Checksum`, or `MissingTail` if the limit leaves no room for one.
pub fn verify_checksum(seed: Option<Seed>, block: &[u8], kind: NodeKind, place: u64) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    let missing = FormatError::MissingTail {
        structure: "htree node",
        place,
    };
    let (stored, computed, _) = checksums(seed, block, kind).ok_or(missing)?;
    compare("htree node", place, stored, computed)
}

/// Writes a node's checksum. Without a seed nothing changes.
pub fn update_checksum(seed: Option<Seed>, block: &mut [u8], kind: NodeKind) {
    let Some(seed) = seed else { return };
    if let Some((_, computed, at)) = checksums(seed, block, kind) {
        let _ = put_u32(block, at, computed);
    }
}
