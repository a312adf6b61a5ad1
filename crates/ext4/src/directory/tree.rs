//! Look-ups in hash trees: from the root down to the leaf of a hash, and on to the leaves that a
//! collision spills into.
//!
//! A path holds a node for each level and the entry taken in it. [`Path::advance`] moves to the
//! next leaf in hash order: up to the first level that has another entry, one on, and down along
//! first entries.

use super::block::{Dir, Kind};
use super::{At, Place};
use crate::{Error, Result};
use block::Buf;
use ext4_format::dir_entry::{self, Probe};
use ext4_format::dirhash::{self, DirHash, HashVersion};
use ext4_format::error::FormatError;
use ext4_format::htree::{self, NodeKind};
use jbd2::Buffer;
use smallvec::SmallVec;
use std::sync::Arc;

/// A node on the way to a leaf.
pub(super) struct Frame {
    pub buffer: Arc<Buffer>,
    /// The entry taken.
    pub index: usize,
}

/// The nodes from the root to the lowest one; empty for a directory without a tree.
pub(super) type Frames = SmallVec<[Frame; 3]>;

/// A way to a leaf.
#[derive(Default)]
pub(super) struct Path {
    pub frames: Frames,
    /// The hash of the next leaf, with the collision bit; `None` at the last leaf.
    pub next: Option<u32>,
}

/// The shape of the node at `level` (0 is the root).
pub(super) fn node_kind(level: usize) -> NodeKind {
    if level == 0 {
        NodeKind::Root
    } else {
        NodeKind::Interior
    }
}

/// Hashes a name as the directory whose root says `version` does; `None` for a version that is not
/// known.
pub(super) fn hash_version(dir: &Dir<'_>, version: u8) -> Option<HashVersion> {
    dir.fs.geo.dir_hash_version(version).ok()
}

/// A name's hash.
pub(super) fn hash(dir: &Dir<'_>, version: HashVersion, name: &[u8]) -> DirHash {
    let hash = dirhash::hash(version, &dir.fs.geo.hash_seed, name);
    #[cfg(test)]
    let hash = DirHash {
        major: hash.major & HASH_MASK.get(),
        minor: hash.minor & HASH_MASK.get(),
    };
    hash
}

#[cfg(test)]
thread_local! {
    /// Bits of hashes that are left; the others are 0, so that tests get collisions.
    pub(super) static HASH_MASK: std::cell::Cell<u32> = const { std::cell::Cell::new(!0) };
}

/// The root of a directory's tree.
pub(super) struct Root {
    pub buffer: Arc<Buffer>,
    pub version: HashVersion,
    /// Levels of nodes below it.
    pub levels: u8,
    data: Buf,
}

/// The root of a directory's tree; `None` if it has no tree, or one of an unknown hash.
pub(super) fn root(dir: &Dir<'_>) -> Result<Option<Root>> {
    if !dir.indexed {
        return Ok(None);
    }
    let buffer = dir.get(0, Kind::Node(NodeKind::Root))?;
    let data = buffer.data();
    let info = htree::root_info(&data).map_err(|e| dir.corrupt(&buffer, e))?;
    if info.indirect_levels > dir.max_levels() {
        let error = FormatError::OutOfRange {
            structure: "htree root",
            field: "indirect_levels",
            value: u64::from(info.indirect_levels),
        };
        return Err(dir.corrupt(&buffer, error));
    }
    Ok(hash_version(dir, info.hash_version).map(|version| Root {
        buffer,
        version,
        levels: info.indirect_levels,
        data,
    }))
}

impl Path {
    /// Levels.
    pub fn len(&self) -> usize {
        self.frames.len()
    }
    /// Whether the directory has no tree.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The way from `root` to the first leaf that may have `hash`, and that leaf's block.
    pub fn descend(dir: &Dir<'_>, root: Root, hash: u32) -> Result<(Path, u32)> {
        let mut path = Path::default();
        let (mut buffer, mut data) = (root.buffer, root.data);
        loop {
            let kind = node_kind(path.frames.len());
            let node = htree::open_node(&data, kind).map_err(|e| dir.corrupt(&buffer, e))?;
            let index = node.search(hash);
            if let Some(next) = node.entry(index + 1) {
                path.next = Some(next.hash);
            }
            let child = child_of(dir, &buffer, node.entry(index))?;
            path.frames.push(Frame { buffer, index });
            if path.frames.len() > usize::from(root.levels) {
                return Ok((path, child));
            }
            buffer = dir.get(child, Kind::Node(NodeKind::Interior))?;
            data = buffer.data();
        }
    }

    fn find_next(&self, dir: &Dir<'_>) -> Result<Option<u32>> {
        for (level, frame) in self.frames.iter().enumerate().rev() {
            let data = frame.buffer.data();
            let node = htree::open_node(&data, node_kind(level))
                .map_err(|e| dir.corrupt(&frame.buffer, e))?;
            if let Some(entry) = node.entry(frame.index.saturating_add(1)) {
                return Ok(Some(entry.hash));
            }
        }
        Ok(None)
    }

    /// Moves to the next leaf in hash order and returns its block; `None` behind the last.
    pub fn advance(&mut self, dir: &Dir<'_>) -> Result<Option<u32>> {
        let depth = self.frames.len();
        while let Some(mut frame) = self.frames.pop() {
            frame.index = frame.index.saturating_add(1);
            let entry = {
                let data = frame.buffer.data();
                htree::open_node(&data, node_kind(self.frames.len()))
                    .map_err(|e| dir.corrupt(&frame.buffer, e))?
                    .entry(frame.index)
            };
            if entry.is_none() {
                continue;
            }
            let mut child = child_of(dir, &frame.buffer, entry)?;
            self.frames.push(frame);
            while self.frames.len() < depth {
                let buffer = dir.get(child, Kind::Node(NodeKind::Interior))?;
                let first = htree::open_node(&buffer.data(), NodeKind::Interior)
                    .map_err(|e| dir.corrupt(&buffer, e))?
                    .entry(0);
                child = child_of(dir, &buffer, first)?;
                self.frames.push(Frame { buffer, index: 0 });
            }
            self.next = self.find_next(dir)?;
            return Ok(Some(child));
        }
        Ok(None)
    }

    /// The blocks of the leaves that follow in the lowest node, `count` at most.
    pub fn following(&self, count: usize) -> SmallVec<[u32; 32]> {
        let Some(frame) = self.frames.last() else {
            return SmallVec::new();
        };
        let data = frame.buffer.data();
        let Ok(node) = htree::open_node(&data, node_kind(self.frames.len().saturating_sub(1)))
        else {
            return SmallVec::new();
        };
        (1..=count)
            .map_while(|step| node.entry(frame.index.saturating_add(step)))
            .map(|entry| entry.block.0)
            .collect()
    }
}

/// A child's block number. No child is the root.
fn child_of(dir: &Dir<'_>, buffer: &Buffer, entry: Option<htree::DxEntry>) -> Result<u32> {
    match entry {
        Some(entry) if entry.block.0 != 0 => Ok(entry.block.0),
        _ => Err(dir.corrupt(
            buffer,
            FormatError::OutOfRange {
                structure: "htree node",
                field: "block",
                value: 0,
            },
        )),
    }
}

/// More leaves were visited than there are: the tree leads in circles.
pub(super) fn circle(dir: &Dir<'_>) -> Error {
    let error = Error::CorruptInode {
        ino: dir.inode.ino.0,
        what: "the directory's index leads in circles",
    };
    dir.fs.blame("directory_index", dir.inode.ino, error)
}

/// Finds `name` in a hashed directory; `None` if it is not one (with a known hash).
///
/// A new name goes into the first leaf of its hash, where later look-ups begin.
pub(super) fn find(dir: &Dir<'_>, name: &[u8]) -> Result<Option<Place>> {
    let Some(root) = root(dir)? else {
        return Ok(None);
    };
    let hash = hash(dir, root.version, name).major;
    let (mut path, mut leaf_at) = Path::descend(dir, root, hash)?;
    let mut first = None;
    for _ in 0..dir.blocks {
        let leaf = dir.get(leaf_at, Kind::Leaf)?;
        let at = probe(dir, &leaf, name)?;
        let continues = match at {
            At::Entry { .. } => false,
            _ => path.next.is_some_and(|next| htree::continues(next, hash)),
        };
        if !continues {
            let here = Place {
                path,
                leaf,
                leaf_at,
                at,
            };
            return Ok(Some(match (first, at) {
                (Some(first), At::Room { .. } | At::Full { .. }) => first,
                _ => here,
            }));
        }
        let mut next = Path {
            frames: path
                .frames
                .iter()
                .map(|frame| Frame {
                    buffer: frame.buffer.clone(),
                    index: frame.index,
                })
                .collect(),
            next: path.next,
        };
        let Some(next_at) = next.advance(dir)? else {
            return Err(circle(dir));
        };
        let here = Place {
            path,
            leaf,
            leaf_at,
            at,
        };
        first.get_or_insert(here);
        (path, leaf_at) = (next, next_at);
    }
    Err(circle(dir))
}

/// Looks for `name` in a leaf.
pub(super) fn probe(dir: &Dir<'_>, leaf: &Arc<Buffer>, name: &[u8]) -> Result<At> {
    let data = leaf.data();
    let probed = dir_entry::probe(&data, name, dir.inodes_count());
    Ok(match probed.map_err(|e| dir.corrupt(leaf, e))? {
        Probe::Found(entry) => At::Entry {
            offset: entry.offset,
            ino: entry.ino,
            kind: entry.file_type,
        },
        Probe::Room { offset } => At::Room { offset },
        Probe::Full { used } => At::Full { used },
    })
}
