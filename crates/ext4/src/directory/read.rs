//! Reading directories: one leaf at a time, at positions that stay valid while entries change.
//!
//! On volumes with `dir_index` a directory is read in the order of its names' hashes, as a tree and
//! also while it has one block. So a position stays valid when the block is converted to a tree,
//! when leaves split and when they are packed. A position is
//!
//! ```text
//!   0: "."   1: ".."   2 + (major hash / 2) << 32 | minor hash, cut by 12 bits | rank among names with equal bits
//! ```
//!
//! Names with equal hash bits are ordered by their bytes and numbered by rank. So a reader whose
//! buffer ends between them neither skips nor repeats a name. Where names with equal bits are more
//! than the ranks, they take the next positions of the same major hash, and the names there move
//! on. All leaves of one major hash are collected together to compute the positions. The legacy
//! hash has no minor hash; the one of half MD4 is used.
//!
//! Other directories (no `dir_index`, linear with several blocks, or an unknown hash) are read by
//! byte offset. A removal only merges records, so reading can continue at any offset of an entry.
//!
//! Entries are collected under the directory's lock and passed to the caller without it, so the
//! caller may change the directory.

use super::block::{BlockKind, Dir};
use super::hash::{self, HashOrder, hash_order};
use super::names::Shown;
use super::tree::{Path, cycle_error};
use super::{DirEntry, inline, linear, read_ahead};
use crate::inline_data;
use crate::{Error, Fs, Inode, InodeDamage, Result};
use block::{Buf, BufMut};
use ext4_format::dir_entry;
use ext4_format::dirhash::{self, DirHash, HashVersion};
use ext4_format::error::FormatError;
use ext4_format::inode::FileType;
use units::{FileBlock, Ino};

/// The bits of a position for the rank among names with equal hash bits.
const RANK_BITS: u32 = 12;
const RANK_MAX: u64 = (1 << RANK_BITS) - 1;
/// The bits of a position below the major hash.
const MAJOR_SHIFT: u32 = 32;
/// The position of the first hash.
const FIRST_HASH: u64 = 2;
/// The most leaves that names with one hash may span. More such names are an attack on the hash.
const MAX_COLLISION_LEAVES: usize = 1024;
const READ_AHEAD_LEAVES: usize = 32;

/// Entries collected under the lock.
#[derive(Default)]
struct Chunk {
    leaves: Vec<Buf>,
    entries: Vec<ChunkEntry>,
    /// How names are shown; `None`: as they are stored.
    shown: Option<Shown>,
}

/// An entry in one of a chunk's leaves.
#[derive(Clone, Copy)]
struct ChunkEntry {
    /// The sort key until [`Chunk::sort_and_rank`], then the position after the entry.
    pos: u64,
    /// The index in `Chunk::leaves`.
    leaf: u32,
    /// The offset of the name in the leaf.
    name: u32,
    name_len: u8,
    kind: Option<FileType>,
    ino: Ino,
}

impl Chunk {
    fn push(&mut self, pos: u64, entry: &dir_entry::DirEntryRef<'_>) {
        self.entries.push(ChunkEntry {
            pos,
            leaf: self.leaves.len() as u32,
            name: entry.offset + dir_entry::HEADER as u32,
            name_len: entry.name.len() as u8,
            kind: entry.file_type,
            ino: entry.ino,
        });
    }
    fn name<'a>(leaves: &'a [Buf], entry: &ChunkEntry) -> &'a [u8] {
        let start = entry.name as usize;
        let leaf = leaves.get(entry.leaf as usize);
        leaf.and_then(|leaf| leaf.get(start..start + usize::from(entry.name_len)))
            .unwrap_or_default()
    }
    /// Returns the name that an entry is shown by, if that is not the stored one.
    fn shown_name(&self, fs: &Fs, entry: &ChunkEntry, stored: &[u8]) -> Option<Vec<u8>> {
        let leaf = self.leaves.get(entry.leaf as usize)?;
        self.shown?.name(fs, leaf, entry.name, stored)
    }
    /// Sorts the entries by hash and name, gives each a position of its own, drops those before
    /// `from` and sets the position after each entry. The chunk has all names of a major hash, or
    /// none.
    fn sort_and_rank(&mut self, from: u64) {
        let Chunk {
            leaves, entries, ..
        } = self;
        entries.sort_unstable_by(|a, b| {
            let by_name = || Chunk::name(leaves, a).cmp(Chunk::name(leaves, b));
            a.pos.cmp(&b.pos).then_with(by_name)
        });
        for names in entries.chunk_by_mut(|a, b| major(a.pos) == major(b.pos)) {
            let end = (major(names[0].pos) + 1) << MAJOR_SHIFT;
            let (mut free, mut left) = (0, names.len() as u64);
            for entry in names {
                // The first position that is free, and leaves one for each of the other names.
                entry.pos = entry.pos.max(free).min(end - left);
                free = entry.pos + 1;
                left -= 1;
            }
        }
        entries.retain(|entry| entry.pos >= from);
        for entry in entries {
            entry.pos += 1 + FIRST_HASH;
        }
    }
}

/// Calls `each` with the entries from position `pos` on until it returns false.
///
/// `pos` is 0 at the start and otherwise a `next` of an earlier call. If `each` returns false for
/// an entry, reading continues at the `next` of the entry before it. The directory's lock is taken,
/// but not held while `each` runs.
///
/// # Errors
///
/// `NotDirectory`; `NotFound` for a removed directory; `Corrupt…` with the damaged block. `each`
/// has been called with the entries before it.
pub(crate) fn read(
    fs: &Fs,
    inode: &Inode,
    mut pos: u64,
    each: &mut dyn FnMut(DirEntry<'_>) -> bool,
) -> Result<()> {
    if !inode.is_dir() {
        return Err(Error::NotDirectory);
    }
    let mut chunk = Chunk::default();
    loop {
        chunk.leaves.clear();
        chunk.entries.clear();
        let (dots, next) = {
            let _shared = inode.lock.read();
            if inode.links() == 0 {
                return Err(Error::NotFound);
            }
            match inline_data::is_in_inode(fs, inode) {
                true => (collect_inline(fs, inode, pos, &mut chunk)?, None),
                false => collect(fs, inode, pos, &mut chunk)?,
            }
        };
        if let Some(parent) = dots
            && !read_dots(inode, parent, pos, each)
        {
            return Ok(());
        }
        for entry in &chunk.entries {
            let kind = entry
                .kind
                .or_else(|| Some(fs.inode(entry.ino).ok()?.kind()));
            let stored = Chunk::name(&chunk.leaves, entry);
            let shown = chunk.shown_name(fs, entry, stored);
            let more = each(DirEntry {
                ino: entry.ino,
                kind: kind.unwrap_or(FileType::Regular),
                name: shown.as_deref().unwrap_or(stored),
                next: entry.pos,
            });
            if !more {
                return Ok(());
            }
        }
        match next {
            None => return Ok(()),
            Some(next) if next > pos => pos = next,
            Some(_) => return Err(cycle_error(&Dir::open(fs, inode)?)),
        }
    }
}

/// Collects the entries of one or more blocks from a position on. Returns the inode of ".." if
/// "." and ".." are to be returned apart from them, and the position of the next block.
fn collect(
    fs: &Fs,
    inode: &Inode,
    pos: u64,
    chunk: &mut Chunk,
) -> Result<(Option<Ino>, Option<u64>)> {
    let dir = Dir::open(fs, inode)?;
    if pos == 0 {
        read_ahead::begin(&dir);
    }
    chunk.shown = Shown::of(&dir)?;
    Ok(match hash_order(&dir)? {
        Some(order) => (
            parent_for_dots(&dir, pos)?,
            collect_hashed(&dir, order, pos, chunk)?,
        ),
        None => (None, collect_linear(&dir, pos, chunk)?),
    })
}

/// [`collect`] of all entries of a directory in its inode, which is read as the block that it
/// becomes.
fn collect_inline(fs: &Fs, inode: &Inode, pos: u64, chunk: &mut Chunk) -> Result<Option<Ino>> {
    let data = BufMut::copy_of(&inline::image(fs, inode)?).freeze();
    let mut dir = Dir::open_new(fs, inode);
    dir.blocks = 1;
    let Some(order) = hash_order(&dir)? else {
        let from = u32::try_from(pos).unwrap_or(u32::MAX);
        collect_offsets(&dir, data, 0, from, chunk)?;
        return Ok(None);
    };
    let from = pos.saturating_sub(FIRST_HASH);
    collect_keys(&dir, order.version, data, from, chunk)?;
    chunk.sort_and_rank(from);
    Ok(match pos < FIRST_HASH {
        true => inline_data::parent(inode),
        false => None,
    })
}

/// Calls `each` with "." and ".." from position `pos` on. Returns whether it returned true.
fn read_dots(
    inode: &Inode,
    parent: Ino,
    pos: u64,
    each: &mut dyn FnMut(DirEntry<'_>) -> bool,
) -> bool {
    let dots = [(0, &b"."[..], inode.ino), (1, b"..", parent)];
    dots.into_iter()
        .filter(|(at, ..)| pos <= *at)
        .all(|(at, name, ino)| {
            each(DirEntry {
                ino,
                kind: FileType::Directory,
                name,
                next: at + 1,
            })
        })
}

/// Returns the parent's inode number if `pos` is before the end of "." and "..".
fn parent_for_dots(dir: &Dir<'_>, pos: u64) -> Result<Option<Ino>> {
    if pos >= FIRST_HASH {
        return Ok(None);
    }
    Ok(linear::find_parent(dir)?.ino())
}

/// Returns the sort keys of names.
fn keys(dir: &Dir<'_>, version: HashVersion, names: &[&[u8]]) -> Vec<u64> {
    let hashes = hash::hash_all(dir.fs, version, names);
    let is_legacy = matches!(version, HashVersion::Legacy | HashVersion::LegacyUnsigned);
    let others =
        is_legacy.then(|| dirhash::hash_all(HashVersion::HalfMd4, &dir.fs.geo.hash_seed, names));
    let minors = others.as_ref().unwrap_or(&hashes);
    let key = |(hash, other): (&DirHash, &DirHash)| {
        (u64::from(hash.major >> 1) << MAJOR_SHIFT) | (u64::from(other.minor) & !RANK_MAX)
    };
    hashes.iter().zip(minors).map(key).collect()
}

/// The major hash in a sort key or a position without [`FIRST_HASH`].
fn major(key: u64) -> u64 {
    key >> MAJOR_SHIFT
}

/// Whether a name with this sort key decides about positions from `from` on.
fn matters(key: u64, from: u64) -> bool {
    major(key) >= major(from)
}

/// Collects the entries of the leaf at a position, and of the leaves in which its last hash
/// continues. Returns the position of the next leaf.
fn collect_hashed(
    dir: &Dir<'_>,
    order: HashOrder,
    pos: u64,
    chunk: &mut Chunk,
) -> Result<Option<u64>> {
    let from = pos.saturating_sub(FIRST_HASH);
    let Some(root) = order.tree else {
        collect_leaf(dir, order.version, FileBlock(0), from, chunk)?;
        chunk.sort_and_rank(from);
        return Ok(None);
    };
    // Positions behind the last hash come from callers only.
    let Some(major) = u32::try_from(major(from))
        .ok()
        .filter(|major| *major <= u32::MAX >> 1)
    else {
        return Ok(None);
    };
    let (mut path, mut leaf) = Path::descend(dir, root, major << 1)?;
    let at_read_ahead = path
        .frames
        .last()
        .is_some_and(|frame| frame.index.is_multiple_of(READ_AHEAD_LEAVES));
    if at_read_ahead || pos <= FIRST_HASH {
        let following = path.following(READ_AHEAD_LEAVES);
        read_ahead::leaves(dir, std::iter::once(leaf).chain(following));
    }
    loop {
        collect_leaf(dir, order.version, leaf, from, chunk)?;
        let next = path.next;
        match next {
            Some(hash) if hash & 1 != 0 => {}
            _ => {
                chunk.sort_and_rank(from);
                return Ok(next.map(|hash| (u64::from(hash >> 1) << MAJOR_SHIFT) + FIRST_HASH));
            }
        }
        if chunk.leaves.len() >= MAX_COLLISION_LEAVES {
            return Err(InodeDamage::Collisions {
                leaves: MAX_COLLISION_LEAVES as u32,
            }
            .of(dir.inode.ino));
        }
        leaf = path.advance(dir)?.ok_or_else(|| cycle_error(dir))?;
    }
}

fn collect_leaf(
    dir: &Dir<'_>,
    version: HashVersion,
    at: FileBlock,
    from: u64,
    chunk: &mut Chunk,
) -> Result<()> {
    let leaf = dir.get(at, BlockKind::Leaf)?;
    collect_keys(dir, version, leaf.data(), from, chunk).map_err(|e| dir.corrupt(&leaf, e))
}

/// Collects the entries of a leaf that matter from the sort key `from` on.
fn collect_keys(
    dir: &Dir<'_>,
    version: HashVersion,
    data: Buf,
    from: u64,
    chunk: &mut Chunk,
) -> Result<(), FormatError> {
    let found = dir_entry::named(&data, dir.rules())?;
    let names: Vec<&[u8]> = found.iter().map(|entry| entry.name).collect();
    for (entry, key) in found.iter().zip(keys(dir, version, &names)) {
        if matters(key, from) {
            chunk.push(key, entry);
        }
    }
    chunk.leaves.push(data);
    Ok(())
}

/// Collects the entries of a leaf from byte `from` on. `base` is the position of its first byte.
fn collect_offsets(
    dir: &Dir<'_>,
    data: Buf,
    base: u64,
    from: u32,
    chunk: &mut Chunk,
) -> Result<(), FormatError> {
    for entry in dir_entry::entries_from(&data, dir.rules(), from) {
        let entry = entry?;
        chunk.push(base + u64::from(entry.offset + entry.rec_len), &entry);
    }
    chunk.leaves.push(data);
    Ok(())
}

/// Collects the entries of the block at a byte offset. Returns the next block's offset.
fn collect_linear(dir: &Dir<'_>, pos: u64, chunk: &mut Chunk) -> Result<Option<u64>> {
    let bits = dir.fs.geo.block_bits;
    let Some(at) = u32::try_from(pos >> bits)
        .ok()
        .filter(|&at| at < dir.blocks)
        .map(FileBlock)
    else {
        return Ok(None);
    };
    linear::read_ahead(dir, at);
    let base = u64::from(at) << bits;
    let leaf = match at {
        FileBlock(0) => Some(linear::first_block(dir)?),
        _ => dir.get_if_leaf(at)?,
    };
    if let Some(leaf) = leaf {
        collect_offsets(dir, leaf.data(), base, (pos - base) as u32, chunk)
            .map_err(|e| dir.corrupt(&leaf, e))?;
    }
    Ok(Some(base + (1 << bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries with these sort keys as far as they matter from `from` on, each with a name of four
    /// bytes, in a shuffled order.
    fn chunk(keys: &[u64], from: u64) -> Chunk {
        const NAMES: usize = 1024;
        let leaf = |at: usize| {
            let mut bytes = BufMut::zeroed(4 * NAMES);
            for (name, number) in bytes.chunks_exact_mut(4).zip(at as u32 * NAMES as u32..) {
                name.copy_from_slice(&number.to_be_bytes());
            }
            bytes.freeze()
        };
        let mut chunk = Chunk::default();
        for (at, &pos) in keys.iter().enumerate() {
            chunk.entries.push(ChunkEntry {
                pos,
                leaf: (at / NAMES) as u32,
                name: (at % NAMES * 4) as u32,
                name_len: 4,
                kind: None,
                ino: Ino(at as u32),
            });
        }
        chunk.leaves = (0..keys.len().div_ceil(NAMES)).map(leaf).collect();
        chunk.entries.retain(|entry| matters(entry.pos, from));
        chunk.entries.sort_by_key(|entry| entry.ino.0 % 7);
        chunk
    }

    /// The inode numbers that a reader gets whose buffer has room for `room` entries.
    fn read_all(keys: &[u64], room: usize) -> Vec<u32> {
        let (mut found, mut pos) = (Vec::new(), FIRST_HASH);
        loop {
            let mut chunk = chunk(keys, pos - FIRST_HASH);
            chunk.sort_and_rank(pos - FIRST_HASH);
            let Some(last) = chunk.entries.iter().take(room).next_back() else {
                return found;
            };
            assert!(last.pos > pos);
            pos = last.pos;
            found.extend(chunk.entries.iter().take(room).map(|entry| entry.ino.0));
        }
    }

    #[test]
    fn names_beyond_the_last_rank_are_neither_repeated_nor_skipped() {
        let at = |major: u64, minor: u64| (major << MAJOR_SHIFT) | (minor & !RANK_MAX);
        let last = u64::from(u32::MAX);
        let ranks = RANK_MAX + 1;
        // The names of each group, and the start of the next group among its positions.
        let groups = [
            (at(5, 7 * ranks), 2 * ranks + 100),
            (at(5, 8 * ranks), 50),
            (at(5, last), ranks + 900),
            (at(6, 0), 3),
            (at(7, last), ranks),
        ];
        let keys: Vec<u64> = groups
            .iter()
            .flat_map(|&(key, names)| (0..names).map(move |_| key))
            .collect();
        for room in [1000, 997, 4096, 4097, keys.len()] {
            let mut found = read_all(&keys, room);
            assert_eq!(found.len(), keys.len(), "{room}");
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), keys.len(), "{room}");
        }
    }

    #[test]
    fn few_names_with_equal_bits_have_positions_by_rank() {
        let keys = [1 << RANK_BITS, 3 << RANK_BITS, 1 << RANK_BITS];
        let mut chunk = chunk(&keys, 0);
        chunk.sort_and_rank(0);
        let after = |pos: u64| pos + 1 + FIRST_HASH;
        let found: Vec<u64> = chunk.entries.iter().map(|entry| entry.pos).collect();
        let expected = [keys[0], keys[0] + 1, keys[1]];
        assert_eq!(found, expected.map(after));
    }
}
