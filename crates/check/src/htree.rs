//! A directory's hash tree: its nodes, and the range of hashes of each leaf.

use crate::Error;
use crate::finding::{Kind, Place, describe};
use crate::state::{Checker, Directory};
use ext4_format::checksum::Seed;
use ext4_format::dir_entry::Tail;
use ext4_format::dirhash::HashVersion;
use ext4_format::features::IncompatFeatures;
use ext4_format::htree::{self, DxNode, MAX_LEVELS, MAX_LEVELS_LARGEDIR, NodeKind};
use std::collections::HashMap;
use units::{FileBlock, FsBlock};

/// The role of a block in the tree.
#[derive(Clone, Copy)]
enum Role {
    Node,
    /// The lowest hash, and the lowest hash of the next leaf.
    Leaf(u32, Option<u32>),
}

/// A tree with a valid root.
pub(crate) struct Index {
    pub version: HashVersion,
    roles: HashMap<FileBlock, Role>,
}

impl Index {
    pub fn is_node(&self, file_block: FileBlock) -> bool {
        matches!(self.roles.get(&file_block), Some(Role::Node))
    }
    pub fn is_leaf(&self, file_block: FileBlock) -> bool {
        matches!(self.roles.get(&file_block), Some(Role::Leaf(..)))
    }
    /// Returns the range of hashes of a leaf.
    pub fn range(&self, file_block: FileBlock) -> Option<(u32, Option<u32>)> {
        match self.roles.get(&file_block) {
            Some(Role::Leaf(low, high)) => Some((*low, *high)),
            _ => None,
        }
    }
}

/// State of a walk over a tree.
struct Walk<'a> {
    dir: &'a Directory,
    /// File block and volume block, sorted by file block.
    map: &'a [(FileBlock, FsBlock)],
    seed: Option<Seed>,
    tail: Tail,
    roles: HashMap<FileBlock, Role>,
}

impl Checker<'_> {
    /// Reads the nodes of a directory's tree. Returns `None` if its root is not valid.
    pub fn load_index(
        &mut self,
        dir: &Directory,
        map: &[(FileBlock, FsBlock)],
        seed: Option<Seed>,
    ) -> Result<Option<Index>, Error> {
        let place = Place::inode(dir.ino);
        let Some(&(FileBlock::FIRST, block)) = map.first() else {
            return Ok(None);
        };
        let bytes = self.v.read_block(block)?;
        let place = place.at_block(block);
        let tail = Tail::for_seed(seed);
        let levels = match self.v.geo.incompat.contains(IncompatFeatures::LARGEDIR) {
            true => MAX_LEVELS_LARGEDIR,
            false => MAX_LEVELS,
        };
        let (info, root) = match htree::parse_root(&bytes, tail, levels) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.problem(Kind::HashTree, place, describe(&error));
                return Ok(None);
            }
        };
        if let Err(error) = htree::verify_checksum(seed, &bytes, NodeKind::Root, block.0) {
            self.problem(Kind::HashTree, place.clone(), describe(&error));
        }
        let version = match self.v.geo.dir_hash_version(info.hash_version) {
            Ok(version) => version,
            Err(error) => {
                self.problem(Kind::HashTree, place, describe(&error));
                return Ok(None);
            }
        };
        let mut walk = Walk {
            dir,
            map,
            seed,
            tail,
            roles: HashMap::from([(FileBlock::FIRST, Role::Node)]),
        };
        self.walk_index(&mut walk, &root, block, info.indirect_levels, (0, None))?;
        Ok(Some(Index {
            version,
            roles: walk.roles,
        }))
    }

    fn walk_index(
        &mut self,
        walk: &mut Walk<'_>,
        node: &DxNode<'_>,
        block: FsBlock,
        levels: u8,
        (low, high): (u32, Option<u32>),
    ) -> Result<(), Error> {
        let place = Place::inode(walk.dir.ino).at_block(block);
        let mut before = low;
        for at in 0..node.count() {
            let Some(entry) = node.entry(at) else { break };
            let from = if at == 0 { low } else { entry.hash };
            let to = node.entry(at + 1).map(|next| next.hash).or(high);
            if from < before || high.is_some_and(|high| from > high) {
                self.problem(
                    Kind::HashTree,
                    place.clone(),
                    format!("entry {at} has the hash {from:#x}, which is out of order"),
                );
            }
            before = from;
            let child = entry.block;
            let found = walk.map.binary_search_by_key(&child, |(block, _)| *block);
            let Some(&(_, child_block)) = found.ok().and_then(|at| walk.map.get(at)) else {
                self.problem(
                    Kind::HashTree,
                    place.clone(),
                    format!("entry {at} leads to file block {child}, which the directory has not"),
                );
                continue;
            };
            let role = match levels {
                0 => Role::Leaf(from, to),
                _ => Role::Node,
            };
            if walk.roles.insert(child, role).is_some() {
                self.problem(
                    Kind::HashTree,
                    place.clone(),
                    format!("file block {child} is led to twice"),
                );
                continue;
            }
            if levels == 0 {
                continue;
            }
            let bytes = self.v.read_block(child_block)?;
            let at_child = Place::inode(walk.dir.ino).at_block(child_block);
            match htree::parse_node(&bytes, walk.tail) {
                Ok(parsed) => {
                    let kind = NodeKind::Interior;
                    if let Err(error) =
                        htree::verify_checksum(walk.seed, &bytes, kind, child_block.0)
                    {
                        self.problem(Kind::HashTree, at_child, describe(&error));
                    }
                    self.walk_index(walk, &parsed, child_block, levels - 1, (from, to))?;
                }
                Err(error) => self.problem(Kind::HashTree, at_child, describe(&error)),
            }
        }
        Ok(())
    }
}
