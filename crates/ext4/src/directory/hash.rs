//! The hashes of names: of a tree, of a directory of one block, and of none.

use super::block::{BlockKind, Dir};
use crate::{Fs, Result};
use block::Buf;
use ext4_format::dirhash::{self, DirHash, HashVersion};
use ext4_format::error::FormatError;
use ext4_format::features::CompatFeatures;
use ext4_format::htree::{self, NodeKind};
use jbd2::Buffer;
use std::sync::Arc;
use units::FileBlock;

/// Returns the hash function for the version in a tree's root; `None` for an unknown version.
fn hash_version(fs: &Fs, version: u8) -> Option<HashVersion> {
    fs.geo.dir_hash_version(version).ok()
}

/// Returns the hash of new trees on this volume; `None` for an unknown version.
pub(super) fn default_hash(fs: &Fs) -> Option<HashVersion> {
    hash_version(fs, fs.geo.hash_version)
}

/// Returns the hash of a name as it is stored.
pub(super) fn hash(fs: &Fs, version: HashVersion, name: &[u8]) -> DirHash {
    masked(dirhash::hash(version, &fs.geo.hash_seed, name))
}

/// Returns the hashes of names.
pub(super) fn hash_all(fs: &Fs, version: HashVersion, names: &[&[u8]]) -> Vec<DirHash> {
    let hashes = dirhash::hash_all(version, &fs.geo.hash_seed, names);
    hashes.into_iter().map(masked).collect()
}

#[cfg(not(test))]
fn masked(hash: DirHash) -> DirHash {
    hash
}

#[cfg(test)]
fn masked(hash: DirHash) -> DirHash {
    DirHash {
        major: hash.major & HASH_MASK.get(),
        minor: hash.minor & HASH_MASK.get(),
    }
}

#[cfg(test)]
thread_local! {
    /// The bits of hashes to keep. Tests clear the others to cause collisions.
    pub(super) static HASH_MASK: std::cell::Cell<u32> = const { std::cell::Cell::new(!0) };
}

/// The root of a directory's tree.
pub(super) struct Root {
    pub buffer: Arc<Buffer>,
    pub version: HashVersion,
    /// Levels of nodes below the root.
    pub levels: u8,
    pub data: Buf,
}

/// Reads the root of a directory's tree; `None` if it has no tree or a tree with an unknown hash.
pub(super) fn root(dir: &Dir<'_>) -> Result<Option<Root>> {
    if !dir.indexed {
        return Ok(None);
    }
    let buffer = dir.get(FileBlock(0), BlockKind::Node(NodeKind::Root))?;
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
    Ok(hash_version(dir.fs, info.hash_version).map(|version| Root {
        buffer,
        version,
        levels: info.indirect_levels,
        data,
    }))
}

/// Returns whether a directory has one block that is converted to a tree when it is full. Such a
/// directory is read in the order of hashes. A directory that ignores case has hashes of folded
/// names, which are not computed.
pub(super) fn may_become_tree(dir: &Dir<'_>) -> bool {
    let possible = dir.fs.geo.compat.contains(CompatFeatures::DIR_INDEX) && !dir.ignores_case;
    possible && !dir.has_index_flag && dir.blocks == 1
}

/// The parameters for reading a directory by hash.
pub(super) struct HashOrder {
    pub version: HashVersion,
    /// The root of the tree; `None` for a single block.
    pub tree: Option<Root>,
}

/// Returns how to read a directory by hash; `None` for a directory that is read by offset.
pub(super) fn hash_order(dir: &Dir<'_>) -> Result<Option<HashOrder>> {
    if dir.indexed {
        return Ok(root(dir)?.map(|root| HashOrder {
            version: root.version,
            tree: Some(root),
        }));
    }
    if !may_become_tree(dir) {
        return Ok(None);
    }
    Ok(default_hash(dir.fs).map(|version| HashOrder {
        version,
        tree: None,
    }))
}
