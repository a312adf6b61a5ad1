//! No bytes of a hostile image make a codec panic.
//!
//! Each test damages real structures at random. The panic message names the seed, which replays.
//! Overflow checks are on in test builds, so arithmetic is covered too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{Image, RECIPES, make_image};
use ext4_format::acl::Acl;
use ext4_format::dir_entry::{self, Tail};
use ext4_format::extent::{self, Extent, ExtentIndex, ExtentNode, ExtentState};
use ext4_format::group_desc::{self, GroupDesc};
use ext4_format::htree::{self, NodeKind};
use ext4_format::inode::{self, DeviceNumber, FileType, InodeFields};
use ext4_format::{Geometry, Seed, Superblock};
use ext4_format::{orphan_file, symlink, xattr};
use testkit::needs::have_e2fsprogs;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use units::{FileBlock, FsBlock, GroupNo, Ino};

/// Flips bits, overwrites fields with special values, copies pieces over others, and may cut the
/// end.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    const TELLING: [u32; 8] = [
        0,
        1,
        4,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_fffc,
        0xffff_ffff,
        0x1_0000,
    ];
    for _ in 0..1 + rng.index(12) {
        let len = bytes.len();
        if len < 16 {
            return;
        }
        // Headers are at the front, where damage has more effect.
        let bound = if rng.index(2) == 0 { len.min(64) } else { len };
        let at = rng.index(bound - 4);
        match rng.index(5) {
            0 => bytes[at] ^= 1 << rng.index(8),
            1 => bytes[at] = rng.next_u64() as u8,
            2 => bytes[at..at + 4].copy_from_slice(&TELLING[rng.index(8)].to_le_bytes()),
            3 => {
                let value = TELLING[rng.index(8)] as u16;
                bytes[at & !1..][..2].copy_from_slice(&value.to_le_bytes());
            }
            _ => {
                let from = rng.index(len - 4);
                let count = 1 + rng.index(len - at.max(from));
                bytes.copy_within(from..from + count, at);
            }
        }
    }
    if rng.index(8) == 0 {
        bytes.truncate(rng.index(bytes.len() + 1));
    }
}

/// Passes the bytes to every decoder, and uses the results.
fn exercise(geometry: &Geometry, bytes: &[u8], rng: &mut Rng) {
    let seed = Some(Seed(rng.next_u64() as u32));
    let tail = if rng.index(2) == 0 {
        Tail::Checksum
    } else {
        Tail::None
    };
    let inodes = geometry.inodes_count;
    let mut copy = bytes.to_vec();

    let parsed = [
        Superblock::parse(bytes),
        Superblock::parse_unverified(bytes),
    ];
    for mut superblock in parsed.into_iter().flatten() {
        // The checksum is corrected, as an attacker would.
        superblock.update_checksum();
        if let Ok(superblock) = Superblock::parse(superblock.as_bytes()) {
            exercise_geometry(&Geometry::from_superblock(&superblock).unwrap(), rng);
        }
        let _ = (
            superblock.label(),
            superblock.groups_count(),
            superblock.csum_seed(),
        );
    }

    for desc_size in [0, 32, 64, 1024] {
        if let Ok(desc) = GroupDesc::decode(bytes, desc_size) {
            let _ = desc.validate(geometry, GroupNo(rng.next_u64() as u32));
            let _ = desc.verify_block_bitmap(geometry, GroupNo(0), bytes);
            let _ = desc.encode(&mut copy, desc_size);
        }
    }
    let _ = group_desc::verify_checksum(geometry, GroupNo(u32::MAX), bytes);
    group_desc::update_checksum(geometry, GroupNo(1), &mut copy);

    let _ = inode::verify_checksum(geometry, Ino(12), bytes);
    let _ = inode::update_checksum(geometry, Ino(12), &mut copy);
    if let Ok(fields) = InodeFields::decode(geometry, bytes) {
        let _ = (
            fields.file_type(),
            symlink::fast_target(&fields),
            DeviceNumber::decode(&fields.i_block),
        );
        let mut again = bytes.to_vec();
        if fields.encode(geometry, &mut again).is_ok() {
            assert_eq!(
                InodeFields::decode(geometry, &again).unwrap().size,
                fields.size
            );
        }
        if let Ok(root) = ExtentNode::parse_root(&fields.i_block) {
            exercise_extents(&root, rng);
        }
    }
    if let Ok(area) = inode::in_inode_xattr_area(geometry, bytes) {
        exercise_xattrs(xattr::parse_ibody(area).unwrap_or_default());
    }
    exercise_xattrs(xattr::parse_ibody(bytes).unwrap_or_default());
    exercise_xattrs(
        xattr::parse_block(bytes)
            .map(|parsed| parsed.1)
            .unwrap_or_default(),
    );
    let _ = xattr::verify_block_checksum(seed, bytes, FsBlock(u64::MAX));
    xattr::update_block_checksum(seed, &mut copy, FsBlock(1));

    for depth in 0..3 {
        if let Ok(node) = ExtentNode::parse(bytes, depth) {
            exercise_extents(&node, rng);
        }
    }
    let _ = extent::verify_checksum(seed, bytes, 1);
    extent::update_checksum(seed, &mut copy);
    let some = Extent {
        file_block: FileBlock(1),
        len: 2,
        state: ExtentState::Written,
        start: FsBlock(3),
    };
    let _ = extent::set_extents(&mut copy, &[some; 7]);
    let _ = extent::set_indexes(
        &mut copy,
        1,
        &[ExtentIndex {
            file_block: FileBlock(0),
            child: FsBlock(9),
        }; 3],
    );

    exercise_directory(bytes, inodes, tail, seed, rng);
    let _ = orphan_file::verify(seed, bytes, FsBlock(4));
    let _ = (
        orphan_file::slots(bytes).count(),
        orphan_file::free_slot(bytes),
    );
    for acl in [Acl::from_disk(bytes), Acl::from_xattr(bytes)]
        .into_iter()
        .flatten()
    {
        assert_eq!(Acl::from_disk(&acl.to_disk()).unwrap(), acl);
        let _ = (acl.equiv_mode(), acl.inherit(0o777, FileType::Directory));
    }
}

fn exercise_geometry(geometry: &Geometry, rng: &mut Rng) {
    let (block, ino) = (FsBlock(rng.next_u64()), Ino(rng.next_u64() as u32));
    let group = GroupNo(rng.next_u64() as u32);
    let _ = (
        geometry.group_of_block(block),
        geometry.locate_block(FsBlock(block.0 >> 40)),
    );
    let _ = (
        geometry.group_first_block(group),
        geometry.blocks_in_group(group),
    );
    let _ = (
        geometry.has_super(group),
        geometry.super_blocks_in_group(group),
    );
    let _ = (
        geometry.group_desc_location(group),
        geometry.inode_group(ino),
    );
    let _ = (
        geometry.inode_location(ino, block),
        geometry.ino_at(group, ino.0),
    );
    let _ = (geometry.itable_blocks_per_group(), geometry.max_file_size());
    let _ = geometry.contains_blocks(block, rng.next_u64());
}

fn exercise_extents(node: &ExtentNode<'_>, rng: &mut Rng) {
    for extent in node.extents() {
        let _ = (
            extent.last(),
            extent.end(),
            extent.map(FileBlock(rng.next_u64() as u32)),
            extent.contains(FileBlock(9)),
        );
    }
    let _ = (
        node.indexes().count(),
        node.search(FileBlock(rng.next_u64() as u32)),
    );
    let _ = (node.extent(usize::MAX), node.index(usize::MAX));
}

fn exercise_xattrs(entries: Vec<xattr::XattrEntry<'_>>) {
    let owned: Vec<xattr::Xattr<'_>> = entries.iter().map(|entry| (*entry).into()).collect();
    for entry in entries {
        let _ = (
            entry.verify_hash(),
            xattr::full_name(entry.index, entry.name),
        );
    }
    let mut block = vec![0; 4096];
    if xattr::build_block(&owned, 1, &mut block).is_ok() {
        assert_eq!(xattr::parse_block(&block).unwrap().1.len(), owned.len());
    }
    let _ = xattr::build_ibody(&owned, &mut block[..96]);
}

fn exercise_directory(bytes: &[u8], inodes: u32, tail: Tail, seed: Option<Seed>, rng: &mut Rng) {
    let names: Vec<(u32, Vec<u8>)> = dir_entry::entries(bytes, inodes)
        .map_while(Result::ok)
        .map(|entry| (entry.offset, entry.name.to_vec()))
        .collect();
    let _ = (
        dir_entry::count(bytes, inodes),
        dir_entry::is_empty(bytes, inodes),
    );
    let _ = dir_entry::find(bytes, b"no such name", inodes);
    let _ = dir_entry::verify_checksum(seed, bytes, 3);
    let mut copy = bytes.to_vec();
    dir_entry::update_checksum(seed, &mut copy);
    let _ = dir_entry::insert(&mut copy, b"fresh", Ino(12), None);
    let _ = dir_entry::insert(&mut copy, &[b'x'; 255], Ino(12), None);
    for (offset, _) in names.iter().take(3) {
        let _ = dir_entry::remove(&mut copy, *offset);
    }
    let _ = dir_entry::remove(&mut copy, rng.next_u64() as u32);
    let _ = dir_entry::set_target(&mut copy, rng.next_u64() as u32, Ino(1), None);

    let _ = (
        dir_entry::probe(bytes, b"fresh", inodes),
        dir_entry::used_bytes(bytes),
    );
    let mut copy = bytes.to_vec();
    let _ = dir_entry::insert_at(&mut copy, rng.next_u64() as u32, b"fresh", Ino(12), None);
    let _ = dir_entry::insert_at(&mut copy, 4 * rng.index(64) as u32, b"fresh", Ino(12), None);
    let offsets = names.iter().map(|(offset, _)| *offset).chain([u32::MAX, 6]);
    let _ = dir_entry::pack(&mut copy, tail, bytes, offsets);

    let mut fresh = vec![0; bytes.len()];
    let _ = htree::guess_kind(bytes, FileBlock(0));
    let _ = htree::guess_kind(bytes, FileBlock(1));
    let mut copy = bytes.to_vec();
    let hash = rng.next_u64() as u32;
    if let Ok((_, node)) = htree::parse_root(bytes, tail, 2) {
        let _ = (
            node.entries().count(),
            node.continues_after(node.search(hash), hash),
        );
        let _ = htree::grow_root(&mut copy, &mut fresh, FileBlock(9), tail, 2);
    }
    for kind in [NodeKind::Root, NodeKind::Interior] {
        let _ = htree::verify_checksum(seed, bytes, kind, 0);
        if let Ok(node) = htree::open_node(bytes, kind) {
            let _ = (node.search(hash), node.entries().count());
        }
        htree::update_checksum(seed, &mut copy, kind);
        let _ = htree::insert_entry(&mut copy, kind, 1 + rng.index(4), hash, FileBlock(5));
        let _ = htree::split_node(&mut copy, kind, &mut fresh, tail);
    }
    if let Ok(node) = htree::parse_node(bytes, tail) {
        let _ = (node.search(hash), node.entry(usize::MAX), node.is_full());
    }
}

/// One of each structure, from a real image.
fn samples(image: &Image) -> Vec<Vec<u8>> {
    let mut samples = vec![
        image.bytes[1024..2048].to_vec(),
        image.raw_desc(GroupNo(0)).to_vec(),
        image.raw_inode(image.lookup("a/sparse")).to_vec(),
        image.raw_inode(image.lookup("a/b/small")).to_vec(),
        image.raw_inode(image.lookup("short")).to_vec(),
        Acl::from_mode(0o755).to_disk(),
        Acl::from_mode(0o755).to_xattr(),
    ];
    let mut tree = Vec::new();
    let sparse = image.inode(image.lookup("a/sparse"));
    image.extents(&ExtentNode::parse_root(&sparse.i_block).unwrap(), &mut tree);
    let many = image.file_blocks(&image.inode(image.lookup("many")));
    let small = image.inode(image.lookup("a/b/small"));
    let blocks = tree
        .iter()
        .map(|(block, _)| *block)
        .chain([many[0], many[1], small.file_acl]);
    samples.extend(blocks.map(|block| image.block(block).to_vec()));
    samples
}

#[test]
fn damaged_structures_never_panic() {
    if !have_e2fsprogs("hostile images") {
        return;
    }
    let rounds: u64 = std::env::var("HOSTILE_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3000);
    for recipe in &RECIPES[..2] {
        let scratch = Scratch::new();
        let image = Image::open(&make_image(&scratch, recipe, true));
        for (number, sample) in samples(&image).iter().enumerate() {
            for seed in 0..rounds {
                let mut rng = Rng::from_seed(seed);
                let mut bytes = sample.clone();
                damage(&mut bytes, &mut rng);
                let attempt = AssertUnwindSafe(|| exercise(&image.geometry, &bytes, &mut rng));
                if catch_unwind(attempt).is_err() {
                    panic!("{}: sample {number}, seed {seed}", recipe.name);
                }
            }
        }
    }
}

#[test]
fn noise_never_panics() {
    if !have_e2fsprogs("hostile images") {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::open(&make_image(&scratch, &RECIPES[0], true));
    for seed in 0..2000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes: Vec<u8> = (0..rng.index(4097)).map(|_| rng.next_u64() as u8).collect();
        exercise(&image.geometry, &bytes, &mut rng);
        bytes.fill(if seed % 2 == 0 { 0xff } else { 0 });
        exercise(&image.geometry, &bytes, &mut rng);
    }
}
