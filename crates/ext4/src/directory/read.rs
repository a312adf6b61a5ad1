//! Reading directories: one leaf at a time, at positions that stay valid while entries come and go.
//!
//! On volumes with `dir_index` a directory is read in the order of its names' hashes, whether it is
//! a tree yet or still has one block, so that a position survives the change from one to the other,
//! splits and packing. A position is
//!
//! ```text
//!   0: "."   1: ".."   2 + (major hash / 2) << 32 | minor hash, cut by 12 bits | rank among names with equal bits
//! ```
//!
//! Names with equal bits are ordered by their bytes; their rank tells them apart, so that a reader
//! whose buffer ends between them neither skips nor repeats one. All leaves that a collision spans
//! are therefore gathered together. The legacy hash has no minor bits of its own; half MD4 lends
//! them.
//!
//! Other directories (no `dir_index`, or linear with several blocks, or of an unknown hash) are
//! read by byte offset: removal only merges records, so an offset stays a valid place to go on
//! from.
//!
//! Entries are gathered under the directory's lock and given out without it: whoever reads may
//! change the directory.

use super::block::Dir;
use super::tree::{self, Path, circle};
use super::{DirEntry, linear, plan};
use crate::{Error, Fs, Inode, Result};
use block::Buf;
use ext4_format::dir_entry;
use ext4_format::dirhash::{self, HashVersion};
use ext4_format::error::FormatError;
use ext4_format::inode::FileType;

/// Bits of a position that number the names whose hashes do not differ.
const RANK_BITS: u32 = 12;
const RANK_MAX: u64 = (1 << RANK_BITS) - 1;
/// The position of the first hash.
const FIRST_HASH: u64 = 2;
/// Leaves that names with one hash may span. So many names with one hash are an attack on the hash.
const MAX_COLLISION_LEAVES: usize = 1024;
/// Leaves that are read ahead.
const READ_AHEAD_LEAVES: usize = 32;

/// Entries gathered under the lock.
#[derive(Default)]
struct Chunk {
    leaves: Vec<Buf>,
    entries: Vec<Gathered>,
}

/// An entry in one of a chunk's leaves.
#[derive(Clone, Copy)]
struct Gathered {
    /// While gathering by hash: where it sorts. Then: the position after it.
    pos: u64,
    leaf: u32,
    /// Of its name in the leaf.
    name: u32,
    name_len: u8,
    kind: Option<FileType>,
    ino: u32,
}

impl Chunk {
    fn push(&mut self, pos: u64, entry: &dir_entry::DirEntryRef<'_>) {
        self.entries.push(Gathered {
            pos,
            leaf: self.leaves.len() as u32,
            name: entry.offset + dir_entry::HEADER as u32,
            name_len: entry.name.len() as u8,
            kind: entry.file_type,
            ino: entry.ino.0,
        });
    }
    fn name<'a>(leaves: &'a [Buf], entry: &Gathered) -> &'a [u8] {
        let start = entry.name as usize;
        let leaf = leaves.get(entry.leaf as usize);
        leaf.and_then(|leaf| leaf.get(start..start + usize::from(entry.name_len)))
            .unwrap_or_default()
    }
    /// Orders what was gathered by hash, numbers what collides and drops what lies before `from`.
    fn order(&mut self, from: u64) {
        let Chunk { leaves, entries } = self;
        entries.sort_unstable_by(|a, b| {
            let by_name = || Chunk::name(leaves, a).cmp(Chunk::name(leaves, b));
            a.pos.cmp(&b.pos).then_with(by_name)
        });
        let mut rank = 0;
        for index in 0..entries.len() {
            let key = entries[index].pos;
            entries[index].pos = key | rank;
            let follows = entries.get(index + 1).is_some_and(|next| next.pos == key);
            rank = if follows { (rank + 1).min(RANK_MAX) } else { 0 };
        }
        entries.retain(|entry| entry.pos >= from);
        for index in 0..entries.len() {
            let pos = entries[index].pos;
            // Names beyond the last rank share it, and are given out again together.
            let shared = entries.get(index + 1).is_some_and(|next| next.pos == pos);
            entries[index].pos = if shared { pos } else { pos + 1 };
        }
        for entry in entries {
            entry.pos += FIRST_HASH;
        }
    }
}

/// Calls `each` with the entries from position `pos` (0 at the start; otherwise a `next` of an
/// earlier call) until it returns false; the entry that it refuses is not taken, and reading goes
/// on at the `next` of the one before. Takes the directory's lock, but not while it calls `each`.
///
/// # Errors
///
/// `Corrupt…` with the place; entries before it have been given out.
pub(crate) fn read(
    fs: &Fs,
    inode: &Inode,
    mut pos: u64,
    each: &mut dyn FnMut(DirEntry<'_>) -> bool,
) -> Result<()> {
    let mut chunk = Chunk::default();
    loop {
        chunk.leaves.clear();
        chunk.entries.clear();
        let (dots, next) = {
            let _shared = inode.lock.read();
            if inode.links() == 0 {
                return Err(Error::NotFound);
            }
            let dir = Dir::open(fs, inode)?;
            match hash_order(&dir)? {
                Some(order) => (
                    dots(&dir, pos)?,
                    gather_hashed(&dir, order, pos, &mut chunk)?,
                ),
                None => (None, gather_linear(&dir, pos, &mut chunk)?),
            }
        };
        for (at, name) in [(0, &b"."[..]), (1, b"..")] {
            if let Some(parent) = dots
                && pos <= at
                && !each(DirEntry {
                    ino: if at == 0 { inode.ino.0 } else { parent },
                    kind: FileType::Directory,
                    name,
                    next: at + 1,
                })
            {
                return Ok(());
            }
        }
        for entry in &chunk.entries {
            let kind = entry
                .kind
                .or_else(|| Some(fs.inode(entry.ino).ok()?.kind()));
            let more = each(DirEntry {
                ino: entry.ino,
                kind: kind.unwrap_or(FileType::Regular),
                name: Chunk::name(&chunk.leaves, entry),
                next: entry.pos,
            });
            if !more {
                return Ok(());
            }
        }
        match next {
            None => return Ok(()),
            Some(next) if next > pos => pos = next,
            Some(_) => return Err(circle(&Dir::open(fs, inode)?)),
        }
    }
}

/// How a directory is read by hash.
struct HashOrder {
    version: HashVersion,
    /// The tree; `None` for a single block.
    tree: Option<tree::Root>,
}

/// `None` for a directory that is read by offset.
fn hash_order(dir: &Dir<'_>) -> Result<Option<HashOrder>> {
    if dir.indexed {
        return Ok(tree::root(dir)?.map(|root| HashOrder {
            version: root.version,
            tree: Some(root),
        }));
    }
    if !plan::hash_ordered(dir) {
        return Ok(None);
    }
    Ok(linear::default_hash(dir).map(|version| HashOrder {
        version,
        tree: None,
    }))
}

/// The parent's inode number, if "." or ".." is still to be given out.
fn dots(dir: &Dir<'_>, pos: u64) -> Result<Option<u32>> {
    if pos >= FIRST_HASH {
        return Ok(None);
    }
    Ok(linear::find_parent(dir)?.ino().map(|ino| ino.0))
}

/// Where a name sorts.
fn key(dir: &Dir<'_>, version: HashVersion, name: &[u8]) -> u64 {
    let hash = tree::hash(dir, version, name);
    let minor = match version {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => {
            dirhash::hash(HashVersion::HalfMd4, &dir.fs.geo.hash_seed, name).minor
        }
        _ => hash.minor,
    };
    (u64::from(hash.major >> 1) << 32) | (u64::from(minor) & !RANK_MAX)
}

/// Gathers the leaf at a position, and the leaves that its last hash goes on in. Returns where the
/// next one begins.
fn gather_hashed(
    dir: &Dir<'_>,
    order: HashOrder,
    pos: u64,
    chunk: &mut Chunk,
) -> Result<Option<u64>> {
    let from = pos.saturating_sub(FIRST_HASH);
    let Some(root) = order.tree else {
        gather_leaf(dir, order.version, 0, from, chunk)?;
        chunk.order(from);
        return Ok(None);
    };
    let Ok(major) = u32::try_from(from >> 32) else {
        return Ok(None);
    };
    let (mut path, mut leaf) = Path::descend(dir, root, major << 1)?;
    let turning = path
        .frames
        .last()
        .is_some_and(|frame| frame.index.is_multiple_of(READ_AHEAD_LEAVES));
    if turning || pos <= FIRST_HASH {
        let following = path.following(READ_AHEAD_LEAVES);
        dir.prefetch(std::iter::once(leaf).chain(following));
    }
    loop {
        gather_leaf(dir, order.version, leaf, from, chunk)?;
        let next = path.next;
        match next {
            Some(hash) if hash & 1 != 0 => {}
            _ => {
                chunk.order(from);
                return Ok(next.map(|hash| (u64::from(hash >> 1) << 32) + FIRST_HASH));
            }
        }
        if chunk.leaves.len() >= MAX_COLLISION_LEAVES {
            return Err(Error::CorruptInode {
                ino: dir.inode.ino.0,
                what: "the directory has too many names of one hash",
            });
        }
        leaf = path.advance(dir)?.ok_or_else(|| circle(dir))?;
    }
}

fn gather_leaf(
    dir: &Dir<'_>,
    version: HashVersion,
    at: u32,
    from: u64,
    chunk: &mut Chunk,
) -> Result<()> {
    let leaf = dir.get(at, super::block::Kind::Leaf)?;
    let data = leaf.data();
    let mut gather = || -> Result<(), FormatError> {
        for entry in dir_entry::entries(&data, dir.inodes_count()) {
            let entry = entry?;
            if entry.is_dot_or_dotdot() {
                continue;
            }
            let key = key(dir, version, entry.name);
            // The whole of a collision is needed for its ranks.
            if key | RANK_MAX >= from {
                chunk.push(key, &entry);
            }
        }
        Ok(())
    };
    gather().map_err(|e| dir.corrupt(&leaf, e))?;
    chunk.leaves.push(data);
    Ok(())
}

/// Gathers the block at a byte offset. Returns the next block's offset.
fn gather_linear(dir: &Dir<'_>, pos: u64, chunk: &mut Chunk) -> Result<Option<u64>> {
    let bits = dir.fs.geo.block_bits;
    let Some(at) = u32::try_from(pos >> bits)
        .ok()
        .filter(|&at| at < dir.blocks)
    else {
        return Ok(None);
    };
    linear::read_ahead(dir, at);
    let base = u64::from(at) << bits;
    let leaf = match at {
        0 => Some(linear::first_block(dir)?),
        _ => dir.get_leaf_of_any(at)?,
    };
    if let Some(leaf) = leaf {
        let data = leaf.data();
        let from = (pos - base) as u32;
        for entry in dir_entry::entries_from(&data, dir.inodes_count(), from) {
            let entry = entry.map_err(|e| dir.corrupt(&leaf, e))?;
            chunk.push(base + u64::from(entry.offset + entry.rec_len), &entry);
        }
        chunk.leaves.push(data);
    }
    Ok(Some(base + (1 << bits)))
}
