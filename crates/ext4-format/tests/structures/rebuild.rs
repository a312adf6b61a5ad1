//! e2fsck accepts what this crate writes: directories are rebuilt as hash trees, entry by entry.

use crate::htree_leaf;

use std::fs;

use crate::common::{Image, RECIPES, Recipe, make_image};
use ext4_format::dir_entry::{self, Tail};
use ext4_format::htree::{self, NodeKind};
use ext4_format::inode::{self, FileType, InodeFlags};
use ext4_format::{Geometry, Seed, dirhash};
use testkit::needs::have_e2fsprogs;
use testkit::oracle::{debugfs_script, e2fsck};
use testkit::scratch::Scratch;
use units::{FileBlock, FsBlock, Ino};

/// A hash tree in memory, grown by the steps that a file system takes.
struct Tree<'a> {
    blocks: Vec<Vec<u8>>,
    geometry: &'a Geometry,
    tail: Tail,
    max_levels: u8,
}

impl Tree<'_> {
    fn new(geometry: &Geometry, ino: Ino, parent: Ino) -> Tree<'_> {
        let size = geometry.block_size as usize;
        let tail = if geometry.has_metadata_csum() {
            Tail::Checksum
        } else {
            Tail::None
        };
        let (mut root, mut leaf) = (vec![0; size], vec![0; size]);
        htree::init_root(
            &mut root,
            ino,
            parent,
            geometry.hash_version,
            tail,
            FileBlock(1),
        )
        .unwrap();
        dir_entry::init_empty(&mut leaf, tail);
        Tree {
            blocks: vec![root, leaf],
            geometry,
            tail,
            max_levels: htree::MAX_LEVELS,
        }
    }

    fn hash(&self, name: &[u8]) -> u32 {
        let version = self
            .geometry
            .dir_hash_version(self.geometry.hash_version)
            .unwrap();
        dirhash::hash(version, &self.geometry.hash_seed, name).major
    }

    /// The nodes from the root to the leaf's parent, each with the index taken.
    fn path(&self, hash: u32) -> Vec<(usize, usize)> {
        let (info, root) = htree::parse_root(&self.blocks[0], self.tail, self.max_levels).unwrap();
        let mut path = vec![(0, root.search(hash))];
        for _ in 0..info.indirect_levels {
            let (node, at) = *path.last().unwrap();
            let child = self.node(node).entry(at).unwrap().block.0 as usize;
            path.push((child, self.node(child).search(hash)));
        }
        path
    }

    fn node(&self, block: usize) -> htree::DxNode<'_> {
        if block == 0 {
            return htree::parse_root(&self.blocks[0], self.tail, self.max_levels)
                .unwrap()
                .1;
        }
        htree::parse_node(&self.blocks[block], self.tail).unwrap()
    }

    fn insert(&mut self, name: &[u8], ino: Ino, file_type: Option<FileType>) {
        let hash = self.hash(name);
        loop {
            let path = self.path(hash);
            let (parent, at) = *path.last().unwrap();
            let leaf = self.node(parent).entry(at).unwrap().block.0 as usize;
            if dir_entry::insert(&mut self.blocks[leaf], name, ino, file_type)
                .unwrap()
                .is_some()
            {
                return;
            }
            match path
                .iter()
                .rposition(|(node, _)| !self.node(*node).is_full())
            {
                Some(depth) if depth + 1 == path.len() => self.split_leaf(leaf, parent, at),
                Some(depth) => {
                    let (above, index) = path[depth];
                    self.split_node(path[depth + 1].0, above, index);
                }
                None => self.grow(),
            }
        }
    }

    fn fresh(&self) -> (Vec<u8>, FileBlock) {
        (
            vec![0; self.geometry.block_size as usize],
            FileBlock(self.blocks.len() as u32),
        )
    }

    fn split_leaf(&mut self, leaf: usize, parent: usize, at: usize) {
        let (mut fresh, number) = self.fresh();
        let version = self
            .geometry
            .dir_hash_version(self.geometry.hash_version)
            .unwrap();
        let seed = self.geometry.hash_seed;
        let hash_of = |name: &[u8]| dirhash::hash(version, &seed, name).major;
        let count = self.geometry.inodes_count;
        let hash = htree_leaf::split(
            &mut self.blocks[leaf],
            &mut fresh,
            count,
            self.tail,
            hash_of,
        )
        .unwrap();
        self.enter(parent, at, hash, number, fresh);
    }

    fn split_node(&mut self, full: usize, above: usize, at: usize) {
        let (mut fresh, number) = self.fresh();
        let hash = htree::split_node(
            &mut self.blocks[full],
            NodeKind::Interior,
            &mut fresh,
            self.tail,
        )
        .unwrap();
        self.enter(above, at, hash, number, fresh);
    }

    fn enter(&mut self, parent: usize, at: usize, hash: u32, number: FileBlock, fresh: Vec<u8>) {
        let kind = if parent == 0 {
            NodeKind::Root
        } else {
            NodeKind::Interior
        };
        htree::insert_entry(&mut self.blocks[parent], kind, at + 1, hash, number).unwrap();
        self.blocks.push(fresh);
    }

    fn grow(&mut self) {
        let (mut fresh, number) = self.fresh();
        htree::grow_root(
            &mut self.blocks[0],
            &mut fresh,
            number,
            self.tail,
            self.max_levels,
        )
        .unwrap();
        self.blocks.push(fresh);
    }

    /// Splits the fullest leaves until the tree has so many blocks: e2fsck wants every block used.
    fn pad_to(&mut self, blocks: usize) {
        while self.blocks.len() < blocks {
            let count = self.geometry.inodes_count;
            let leaves = (1..self.blocks.len())
                .filter(|at| htree::guess_kind(&self.blocks[*at], FileBlock(1)).is_none());
            let leaf = leaves
                .max_by_key(|at| dir_entry::count(&self.blocks[*at], count).unwrap())
                .unwrap();
            let first = dir_entry::entries(&self.blocks[leaf], count)
                .next()
                .unwrap()
                .unwrap();
            let path = self.path(self.hash(first.name));
            let (parent, at) = *path.last().unwrap();
            assert_eq!(self.node(parent).entry(at).unwrap().block.0 as usize, leaf);
            match path
                .iter()
                .rposition(|(node, _)| !self.node(*node).is_full())
            {
                Some(depth) if depth + 1 == path.len() => self.split_leaf(leaf, parent, at),
                Some(depth) => self.split_node(path[depth + 1].0, path[depth].0, path[depth].1),
                None => self.grow(),
            }
        }
    }

    fn seal(&mut self, seed: Option<Seed>) {
        let (root, rest) = self.blocks.split_first_mut().unwrap();
        htree::update_checksum(seed, root, NodeKind::Root);
        for block in rest {
            match htree::guess_kind(block, FileBlock(1)) {
                Some(kind) => htree::update_checksum(seed, block, kind),
                None => dir_entry::update_checksum(seed, block),
            }
        }
    }
}

/// Rebuilds the large directory of an image, which has been thinned out so that there are blocks to
/// spare, and asks e2fsck.
fn rebuild(recipe: &Recipe, levels: u8) {
    let scratch = Scratch::new();
    let path = make_image(&scratch, recipe, false);
    let doomed = (0..recipe.names).filter(|number| number % 10 > 2);
    let commands: Vec<String> = doomed
        .map(|number| format!("rm \"many/file number {number:05} with a name of some length\""))
        .collect();
    debugfs_script(&path, &commands.join("\n"));

    let mut image = Image::open(&path);
    let dir = image.lookup("many");
    let mut fields = image.inode(dir);
    let places: Vec<FsBlock> = image.file_blocks(&fields);
    let mut tree = Tree::new(&image.geometry, dir, Ino::ROOT);
    for place in &places {
        for entry in dir_entry::entries(image.block(*place), image.geometry.inodes_count) {
            let entry = entry.unwrap();
            if !entry.is_dot_or_dotdot() {
                tree.insert(entry.name, entry.ino, entry.file_type);
            }
        }
    }
    assert!(
        tree.blocks.len() <= places.len(),
        "{} blocks of {}",
        tree.blocks.len(),
        places.len()
    );
    tree.pad_to(places.len());
    let (info, _) = htree::parse_root(&tree.blocks[0], tree.tail, tree.max_levels).unwrap();
    assert_eq!(info.indirect_levels, levels);
    tree.seal(image.geometry.inode_csum_seed(dir, fields.generation));

    let blocks = std::mem::take(&mut tree.blocks);
    for (place, block) in places.iter().zip(blocks) {
        image.block_mut(*place).copy_from_slice(&block);
    }
    fields.flags |= InodeFlags::INDEX;
    let (block, offset) = image.inode_place(dir);
    let geometry = image.geometry.clone();
    let raw = &mut image.block_mut(block)[offset..][..usize::from(geometry.inode_size)];
    fields.encode(&geometry, raw).unwrap();
    inode::update_checksum(&geometry, dir, raw).unwrap();
    fs::write(&path, &image.bytes).unwrap();

    let (code, said) = e2fsck(&path, "-fn");
    assert_eq!(code, 0, "{}: {said}", recipe.name);

    // A canary: a tree that hides one leaf from a search must not pass.
    let mut spoilt = Image::open(&path);
    let root = spoilt.block_mut(places[0]);
    let entry = 0x20 + 8;
    root[entry + 3] ^= 0x40;
    htree::update_checksum(
        geometry.inode_csum_seed(dir, fields.generation),
        root,
        NodeKind::Root,
    );
    fs::write(&path, &spoilt.bytes).unwrap();
    let (code, _) = e2fsck(&path, "-fn");
    assert_ne!(code, 0, "{}: e2fsck sees nothing", recipe.name);
}

#[test]
fn e2fsck_accepts_a_tree_of_one_level() {
    if have_e2fsprogs("rebuilt directories") {
        rebuild(&RECIPES[0], 0);
    }
}

#[test]
fn e2fsck_accepts_a_tree_of_two_levels() {
    if have_e2fsprogs("rebuilt directories") {
        rebuild(&RECIPES[1], 1);
    }
}
