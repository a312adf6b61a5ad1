//! Directories without a usable hash tree: every look-up may walk all blocks.

use super::block::{Dir, Kind};
use super::tree::{self, Path, probe};
use super::{At, Place};
use crate::{Error, Result};
use ext4_format::dir_entry;
use ext4_format::htree::NodeKind;
use jbd2::Buffer;
use std::sync::Arc;

/// Blocks that a walk reads ahead.
const READ_AHEAD_BLOCKS: u32 = 16;

/// Finds `name`, or the first room for it.
pub(super) fn find(dir: &Dir<'_>, name: &[u8]) -> Result<Place> {
    let mut room = None;
    let mut last = None;
    for at in 0..dir.blocks {
        read_ahead(dir, at);
        let Some(leaf) = dir.get_leaf_of_any(at)? else {
            continue;
        };
        let found = probe(dir, &leaf, name)?;
        let place = Place {
            path: Path::default(),
            leaf,
            leaf_at: at,
            at: found,
        };
        match found {
            At::Entry { .. } => return Ok(place),
            At::Room { .. } if room.is_none() => room = Some(place),
            At::Room { .. } => {}
            At::Full { .. } => last = Some(place),
        }
    }
    room.or(last).ok_or_else(|| {
        let error = Error::CorruptInode {
            ino: dir.inode.ino.0,
            what: "the directory has no block of entries",
        };
        dir.fs.blame("directory_find", dir.inode.ino, error)
    })
}

/// The block that "." and ".." are in. As a list of entries it has no others in a hashed directory.
pub(super) fn first_block(dir: &Dir<'_>) -> Result<Arc<Buffer>> {
    let kind = if dir.flagged {
        Kind::Node(NodeKind::Root)
    } else {
        Kind::Leaf
    };
    dir.get(0, kind)
}

/// Finds "..", which is always the second entry of the first block.
pub(super) fn find_parent(dir: &Dir<'_>) -> Result<Place> {
    let leaf = first_block(dir)?;
    let at = probe(dir, &leaf, b"..")?;
    match at {
        At::Entry { .. } => Ok(Place {
            path: Path::default(),
            leaf,
            leaf_at: 0,
            at,
        }),
        _ => {
            let error = Error::CorruptInode {
                ino: dir.inode.ino.0,
                what: "the directory has no \"..\"",
            };
            Err(dir.fs.blame("directory_find_parent", dir.inode.ino, error))
        }
    }
}

/// Whether no block has an entry beside "." and "..".
pub(super) fn is_empty(dir: &Dir<'_>) -> Result<bool> {
    for at in 0..dir.blocks {
        read_ahead(dir, at);
        let Some(leaf) = dir.get_leaf_of_any(at)? else {
            continue;
        };
        let empty = dir_entry::is_empty(&leaf.data(), dir.inodes_count());
        if !empty.map_err(|e| dir.corrupt(&leaf, e))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the next blocks of a walk in large requests.
pub(super) fn read_ahead(dir: &Dir<'_>, at: u32) {
    if dir.blocks > 1 && at.is_multiple_of(READ_AHEAD_BLOCKS) {
        let end = at.saturating_add(READ_AHEAD_BLOCKS).min(dir.blocks);
        dir.prefetch(at..end);
    }
}

/// The hash of names in `dir`, as the volume's new trees have it; `None` for an unknown version.
pub(super) fn default_hash(dir: &Dir<'_>) -> Option<ext4_format::dirhash::HashVersion> {
    tree::hash_version(dir, dir.fs.geo.hash_version)
}
