//! Blocks that are promised for nodes of a file's extent tree, or for indirect blocks of its block
//! map (`extents::promise`, `extents::block_map::promise`), and with `bigalloc` the clusters for
//! its pages (`extents::clusters`).

use ext4_format::block_map::Path;
use std::collections::{BTreeMap, BTreeSet};
use units::{FileBlock, FileCluster, FsBlock};

/// The promise of one inode.
#[derive(Default)]
pub(crate) struct Promised {
    pub nodes: u32,
    /// The indirect blocks that are promised, of a file with a block map: there are `nodes`.
    pub indirect: BTreeSet<NodeKey>,
    /// With `bigalloc`: the clusters of the file that have pages and no block in the map. For each
    /// one, a cluster of the volume is promised, or picked: the value is its first block then.
    pub clusters: BTreeMap<FileCluster, Option<FsBlock>>,
    /// `extents::Changes` that exist. While there are any the promise is not lowered.
    pub users: u32,
}

/// The place of an indirect block in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeKey {
    /// The first file block that it covers.
    first: u64,
    /// The file blocks that it covers.
    covered: u64,
}

impl NodeKey {
    /// Returns the indirect block at `depth` of the path to `block`.
    pub fn on(path: &Path, depth: u8, block: FileBlock, block_size: u32) -> NodeKey {
        let (first, covered) = path.covered_by(depth, block, block_size);
        NodeKey { first, covered }
    }
}
