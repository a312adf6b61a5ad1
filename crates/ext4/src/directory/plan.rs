//! Adding an entry to a full block. The change is planned as whole block images before the first
//! block changes.
//!
//! | directory | plan |
//! |---|---|
//! | leaf with unused space | its entries are packed, the block number stays |
//! | linear, one block, `dir_index` | root in block 0, two leaves after it |
//! | linear | one more block |
//! | htree | the leaf is split at the middle of its bytes in hash order; each full node above it is split in halves; a full root moves its entries to a new node, if the depth allows |
//!
//! The key of a leaf in an htree node is the lowest hash of the leaf. Its bit 0 is set if the leaf
//! before has names with that hash, too (see `ext4_format::htree`).

use super::Leaf;
use super::block::{BlockKind, Dir};
use super::hash;
use super::linear;
use super::tree::node_kind;
use crate::extents::INSERT_CREDITS;
use crate::{Error, Inode, Result};
use ext4_format::dir_entry::{self, rec_len_for};
use ext4_format::dirhash::HashVersion;
use ext4_format::error::FormatError;
use ext4_format::htree::{self, NodeKind};
use ext4_format::inode::{FileType, InodeFlags};
use jbd2::{Buffer, Handle};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use units::{FileBlock, Ino};

/// The entry to add.
pub(super) struct NewEntry<'a> {
    pub name: &'a [u8],
    pub ino: Ino,
    pub kind: Option<FileType>,
}

/// An existing block and its new content.
struct Changed {
    buffer: Arc<Buffer>,
    kind: BlockKind,
    image: Vec<u8>,
}

/// The new content of existing and new blocks.
#[derive(Default)]
pub(super) struct Plan {
    changed: SmallVec<[Changed; 4]>,
    /// New blocks in the order of their block numbers, from the directory's end on.
    fresh: SmallVec<[(BlockKind, Vec<u8>); 4]>,
    sets_index_flag: bool,
    clears_index_flag: bool,
}

/// Returns an upper bound of the blocks that a plan changes in a directory with `levels` levels of
/// nodes (0: linear).
pub(super) fn credits(levels: usize) -> u32 {
    let levels = levels.max(1) as u32;
    // The leaf and the nodes, each with a new sibling. Each new block may split extents.
    2 * (levels + 1) + (levels + 1) * INSERT_CREDITS
}

/// Plans the addition of `entry` at `leaf`, which has no room. Its live records need `used` bytes.
pub(super) fn add_entry(
    dir: &Dir<'_>,
    leaf: &Leaf,
    used: u32,
    entry: &NewEntry<'_>,
) -> Result<Plan> {
    let in_tree = !leaf.path.is_empty();
    let version = if in_tree {
        hash::root(dir)?.map(|root| root.version)
    } else if hash::may_become_tree(dir) {
        hash::default_hash(dir.fs)
    } else {
        None
    };
    let Some(version) = version else {
        return append(dir, entry);
    };
    let capacity = capacity(dir);
    let wanted = used.saturating_add(rec_len_for(entry.name.len()));
    // Packing must leave room for more entries. It may move entries, because readers' positions are
    // hashes.
    if wanted <= capacity / 4 * 3 {
        return compact(dir, leaf, entry);
    }
    if in_tree {
        split(dir, leaf, version, entry)
    } else {
        convert_to_htree(dir, leaf, version, entry)
    }
}

/// Returns the bytes for entries in a block.
fn capacity(dir: &Dir<'_>) -> u32 {
    let tail = match dir.tail() {
        dir_entry::Tail::Checksum => dir_entry::TAIL_SIZE,
        dir_entry::Tail::None => 0,
    };
    dir.block_size().saturating_sub(tail) as u32
}

/// A record that a split moves, in one word, so that a sort moves and compares words: its hash (32
/// bits), its offset in the old block (16 bits) and its length (16 bits), both in units of 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item(u64);

impl Item {
    /// The offset of the entry to add.
    const NEW: u32 = (u16::MAX as u32) << 2;

    fn new(hash: u32, offset: u32, len: u32) -> Item {
        Item(u64::from(hash) << 32 | u64::from(offset >> 2) << 16 | u64::from(len >> 2))
    }
    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }
    fn offset(self) -> u32 {
        ((self.0 >> 16) as u32 & 0xffff) << 2
    }
    fn len(self) -> u32 {
        (self.0 as u32 & 0xffff) << 2
    }
}

/// Returns `entry` and the live records of `block` except "." and "..".
fn collect(
    dir: &Dir<'_>,
    block: &[u8],
    version: HashVersion,
    entry: &NewEntry<'_>,
) -> Result<Vec<Item>, FormatError> {
    // Most records have 16 bytes or more.
    let room = block.len() / 16;
    let (mut names, mut offsets) = (Vec::with_capacity(room), Vec::with_capacity(room));
    names.push(entry.name);
    offsets.push(Item::NEW);
    for old in dir_entry::entries(block, dir.rules()) {
        let old = old?;
        if !old.is_dot_or_dotdot() {
            names.push(old.name);
            offsets.push(old.offset);
        }
    }
    let hashes = hash::hash_all(dir.fs, version, &names);
    Ok((names.iter().zip(offsets).zip(hashes))
        .map(|((name, offset), hash)| Item::new(hash.major, offset, rec_len_for(name.len())))
        .collect())
}

/// Returns the image of a leaf with `items`, copied from `source`.
fn leaf_image(
    dir: &Dir<'_>,
    source: &[u8],
    items: &[Item],
    entry: &NewEntry<'_>,
) -> Result<Vec<u8>, FormatError> {
    let mut image = vec![0; dir.block_size()];
    let old = (items.iter().map(|item| item.offset())).filter(|&offset| offset != Item::NEW);
    let last = dir_entry::pack(&mut image, dir.tail(), source, old)?;
    if items.iter().any(|item| item.offset() == Item::NEW) {
        insert_entry(&mut image, last, entry)?;
    }
    Ok(image)
}

/// Inserts `entry` behind the record at `last`, which has all slack of `image`.
fn insert_entry(image: &mut [u8], last: u32, entry: &NewEntry<'_>) -> Result<(), FormatError> {
    dir_entry::insert_at(image, last, entry.name, entry.ino, entry.kind).map(|_| ())
}

fn bytes(items: &[Item]) -> u32 {
    items.iter().map(|item| item.len()).sum()
}

/// Moves the items of the lower leaf before those of the upper one. Returns how many they are. No
/// hash of the lower leaf is greater than one of the upper leaf, whose first item has its lowest.
///
/// Names mostly have similar lengths, so the middle of the items is near the middle of the bytes.
/// It is found without a sort.
fn divide(items: &mut [Item], capacity: u32) -> usize {
    let middle = items.len() / 2;
    if middle > 0 {
        let (lower, first, above) = items.select_nth_unstable(middle);
        let (before, after) = (bytes(lower), first.len() + bytes(above));
        let fits = before.max(after) <= capacity;
        let even = before.abs_diff(after) <= (before + after) / 8;
        if fits && even && lower.iter().all(|item| item.hash() != first.hash()) {
            return middle;
        }
    }
    items.sort_unstable();
    split_index(items, capacity)
}

/// Returns the index at which to split sorted `items`: the first item of the upper leaf. It is the
/// boundary between two hashes closest to the middle of the bytes at which both leaves fit. A
/// boundary within a hash is used only if there is no other.
fn split_index(items: &[Item], capacity: u32) -> usize {
    let total = bytes(items);
    let (mut best, mut best_score) = (items.len() / 2, u32::MAX);
    let mut before = 0;
    for (index, pair) in items.windows(2).enumerate() {
        before += pair[0].len();
        if before > capacity || total - before > capacity {
            continue;
        }
        // A split within a hash makes look-ups read a second leaf.
        let collision = if pair[0].hash() == pair[1].hash() {
            1 << 20
        } else {
            0
        };
        let score = before.abs_diff(total - before) + collision;
        if score < best_score {
            (best, best_score) = (index + 1, score);
        }
    }
    best
}

/// Splits a leaf. Returns the images of the lower and upper leaf, and the key of the upper leaf.
fn split_leaf(
    dir: &Dir<'_>,
    source: &[u8],
    version: HashVersion,
    entry: &NewEntry<'_>,
) -> Result<(Vec<u8>, Vec<u8>, u32), FormatError> {
    let mut items = collect(dir, source, version, entry)?;
    let count = divide(&mut items, capacity(dir));
    let (lower, upper) = items.split_at(count);
    let (Some(first), false) = (upper.first(), lower.is_empty()) else {
        return Err(FormatError::NoRoom {
            structure: "directory block",
            need: u64::from(rec_len_for(entry.name.len())),
            have: u64::from(capacity(dir)),
        });
    };
    let is_shared = lower.iter().any(|item| item.hash() == first.hash());
    let hash = first.hash() | u32::from(is_shared);
    Ok((
        leaf_image(dir, source, lower, entry)?,
        leaf_image(dir, source, upper, entry)?,
        hash,
    ))
}

/// Packs a leaf, or the only block of a directory. "." and ".." stay first.
fn compact(dir: &Dir<'_>, leaf: &Leaf, entry: &NewEntry<'_>) -> Result<Plan> {
    let source = leaf.buffer.data();
    let pack = || {
        let mut offsets = Vec::new();
        for old in dir_entry::entries(&source, dir.rules()) {
            offsets.push(old?.offset);
        }
        let mut image = vec![0; dir.block_size()];
        let last = dir_entry::pack(&mut image, dir.tail(), &source, offsets)?;
        insert_entry(&mut image, last, entry)?;
        Ok(image)
    };
    let image = pack().map_err(|e| dir.corrupt(&leaf.buffer, e))?;
    Ok(Plan {
        changed: smallvec![Changed::leaf(leaf, image)],
        ..Plan::default()
    })
}

/// Appends a block to a linear directory.
fn append(dir: &Dir<'_>, entry: &NewEntry<'_>) -> Result<Plan> {
    let mut image = vec![0; dir.block_size()];
    dir_entry::init_empty(&mut image, dir.tail());
    insert_entry(&mut image, 0, entry)?;
    Ok(Plan {
        fresh: smallvec![(BlockKind::Leaf, image)],
        clears_index_flag: dir.has_index_flag,
        ..Plan::default()
    })
}

/// Converts a directory of one block to an htree.
fn convert_to_htree(
    dir: &Dir<'_>,
    leaf: &Leaf,
    version: HashVersion,
    entry: &NewEntry<'_>,
) -> Result<Plan> {
    let parent = linear::find_parent(dir)?.ino().unwrap_or(Ino::ROOT);
    let source = leaf.buffer.data();
    let images = || {
        let (lower, upper, hash) = split_leaf(dir, &source, version, entry)?;
        let mut root = vec![0; dir.block_size()];
        let stored = dir.fs.geo.hash_version;
        htree::init_root(
            &mut root,
            dir.inode.ino,
            parent,
            stored,
            dir.tail(),
            FileBlock(1),
        )?;
        htree::insert_entry(&mut root, NodeKind::Root, 1, hash, FileBlock(2))?;
        dir.set_dot_entries(&mut root, parent)?;
        Ok((root, lower, upper))
    };
    let (root, lower, upper) = images().map_err(|e| dir.corrupt(&leaf.buffer, e))?;
    Ok(Plan {
        changed: smallvec![Changed {
            kind: BlockKind::Node(NodeKind::Root),
            ..Changed::leaf(leaf, root)
        }],
        fresh: smallvec![(BlockKind::Leaf, lower), (BlockKind::Leaf, upper)],
        sets_index_flag: true,
        clears_index_flag: false,
    })
}

/// Splits a leaf, and the nodes above it that have no room for one more child.
fn split(dir: &Dir<'_>, leaf: &Leaf, version: HashVersion, entry: &NewEntry<'_>) -> Result<Plan> {
    let mut plan = Plan::default();
    let source = leaf.buffer.data();
    let (lower, upper, mut hash) =
        split_leaf(dir, &source, version, entry).map_err(|e| dir.corrupt(&leaf.buffer, e))?;
    plan.changed.push(Changed::leaf(leaf, lower));
    let mut child = plan.push_fresh(dir, BlockKind::Leaf, upper);
    for (level, frame) in leaf.path.frames.iter().enumerate().rev() {
        let kind = node_kind(level);
        let corrupt = |e| dir.corrupt(&frame.buffer, e);
        let mut image = frame.buffer.data().to_vec();
        let node = htree::open_node(&image, kind).map_err(corrupt)?;
        let (count, full) = (node.count(), node.is_full());
        let index = frame.index + 1;
        if !full {
            htree::insert_entry(&mut image, kind, index, hash, child).map_err(corrupt)?;
            plan.change_node(&frame.buffer, kind, image);
            return Ok(plan);
        }
        let mut fresh = vec![0; dir.block_size()];
        if level == 0 {
            if leaf.path.len() > usize::from(dir.max_levels()) {
                return Err(Error::NoSpace);
            }
            let at = plan.next_fresh(dir);
            htree::grow_root(&mut image, &mut fresh, at, dir.tail(), dir.max_levels())
                .map_err(corrupt)?;
            htree::insert_entry(&mut fresh, NodeKind::Interior, index, hash, child)
                .map_err(corrupt)?;
            plan.change_node(&frame.buffer, kind, image);
            plan.push_fresh(dir, BlockKind::Node(NodeKind::Interior), fresh);
            return Ok(plan);
        }
        let keep = count / 2;
        let fresh_hash =
            htree::split_node(&mut image, kind, &mut fresh, dir.tail()).map_err(corrupt)?;
        if frame.index >= keep {
            htree::insert_entry(&mut fresh, kind, index - keep, hash, child)
        } else {
            htree::insert_entry(&mut image, kind, index, hash, child)
        }
        .map_err(corrupt)?;
        plan.change_node(&frame.buffer, kind, image);
        child = plan.push_fresh(dir, BlockKind::Node(NodeKind::Interior), fresh);
        hash = fresh_hash;
    }
    Err(Error::Internal(
        "a split of a directory index did not end at the root",
    ))
}

impl Changed {
    fn leaf(leaf: &Leaf, image: Vec<u8>) -> Changed {
        Changed {
            buffer: leaf.buffer.clone(),
            kind: BlockKind::Leaf,
            image,
        }
    }
}

impl Plan {
    fn change_node(&mut self, buffer: &Arc<Buffer>, kind: NodeKind, image: Vec<u8>) {
        self.changed.push(Changed {
            buffer: buffer.clone(),
            kind: BlockKind::Node(kind),
            image,
        });
    }
    /// Returns the file block of the next new block.
    fn next_fresh(&self, dir: &Dir<'_>) -> FileBlock {
        FileBlock(dir.blocks.saturating_add(self.fresh.len() as u32))
    }
    fn push_fresh(&mut self, dir: &Dir<'_>, kind: BlockKind, image: Vec<u8>) -> FileBlock {
        let at = self.next_fresh(dir);
        self.fresh.push((kind, image));
        at
    }

    /// Applies the plan. An error (no space) has changed nothing.
    pub fn apply(self, dir: &Dir<'_>, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        if self.clears_index_flag {
            dir.clear_index_flag(handle, inode)?;
        }
        let buffers = dir.append(handle, inode, self.fresh.len())?;
        for (buffer, (kind, image)) in buffers.iter().zip(&self.fresh) {
            dir.overwrite(handle, buffer, *kind, image);
        }
        for changed in &self.changed {
            dir.overwrite(handle, &changed.buffer, changed.kind, &changed.image);
        }
        if self.sets_index_flag {
            inode.insert_flags(InodeFlags::INDEX);
            inode.mark_dirty(dir.fs, handle);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPACITY: u32 = 4084;

    /// Returns the records of a full block and one more, from hashes and lengths.
    fn overfull(records: &[(u32, u32)]) -> Vec<Item> {
        let (mut items, mut total) = (Vec::new(), 0);
        for (offset, (hash, words)) in (0..).step_by(12).zip(records) {
            items.push(Item::new(hash << 1, offset, words * 4));
            total += words * 4;
            if total > CAPACITY {
                break;
            }
        }
        items
    }

    fn difference(items: &[Item], at: usize) -> u32 {
        let (lower, upper) = items.split_at(at);
        bytes(lower).abs_diff(bytes(upper))
    }

    proptest! {
        /// From one hash for all names to hashes that differ, from the shortest names to the
        /// longest ones.
        #[test]
        fn a_leaf_is_divided_between_two_hashes_near_its_middle(
            records in (0u32..400, 3u32..66).prop_flat_map(|(hashes, longest)| {
                prop::collection::vec((0..=hashes, 3..=longest), 350)
            })
        ) {
            let mut items = overfull(&records);
            let count = divide(&mut items, CAPACITY);
            let (lower, upper) = items.split_at(count);
            prop_assert!(bytes(lower).max(bytes(upper)) <= CAPACITY);
            let last = lower.iter().map(|item| item.hash()).max().unwrap();
            let first = upper.iter().map(|item| item.hash()).min().unwrap();
            prop_assert!(last <= first && upper[0].hash() == first);

            let mut sorted = items.clone();
            sorted.sort_unstable();
            let best = split_index(&sorted, CAPACITY);
            let best_shares = sorted[best - 1].hash() == sorted[best].hash();
            prop_assert_eq!(last == first, best_shares);
            let most = (bytes(&items) / 8).max(difference(&sorted, best));
            prop_assert!(difference(&items, count) <= most);
        }
    }
}
