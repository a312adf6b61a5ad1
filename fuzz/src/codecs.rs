//! Each codec reads the input as its structure, and the result is used.

use crate::bytes::Bytes;
use ext4_format::acl::Acl;
use ext4_format::dir_entry::{self, Tail};
use ext4_format::extent::{self, ExtentNode};
use ext4_format::group_desc::GroupDesc;
use ext4_format::htree::{self, NodeKind};
use ext4_format::inode::{self, DeviceNumber, FileType, InodeFields};
use ext4_format::superblock::Access;
use ext4_format::{Geometry, Seed, Superblock};
use ext4_format::{bitmap as bits, orphan_file as orphans, symlink, xattr as xattrs};
use std::sync::LazyLock;
use units::{FileBlock, FsBlock, GroupNo, Ino};

const SEED: Option<Seed> = Some(Seed(0x1234_5678));
const INODES: u32 = 4096;

/// The geometry for the other structures: 4 KiB blocks, checksums, 64 bits.
static GEOMETRY: LazyLock<Geometry> = LazyLock::new(|| {
    let base = &crate::bases::all()[0];
    base.geometry.clone()
});

/// A superblock, its features and geometry.
pub fn superblock(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.resize(1024, 0);
    bytes[56..58].copy_from_slice(&0xef53u16.to_le_bytes());
    let mut superblock = Superblock::parse_unverified(&bytes).expect("the magic is there");
    superblock.update_checksum();
    let Ok(superblock) = Superblock::parse(superblock.as_bytes()) else {
        return;
    };
    let _ = superblock.check_features(Access::ReadOnly);
    let _ = superblock.check_features(Access::ReadWrite);
    let Ok(geometry) = Geometry::from_superblock(&superblock) else {
        return;
    };
    for group in [0, 1, geometry.groups / 2, geometry.groups - 1, u32::MAX].map(GroupNo) {
        let first = geometry.group_first_block(group);
        let _ = geometry.locate_block(first).map(|(found, bit)| {
            assert_eq!((found, bit), (group, 0));
        });
        let _ = geometry.super_blocks_in_group(group);
        let _ = geometry.group_desc_location(group);
        let _ = geometry.blocks_in_group(group);
        if let Some(ino) = geometry.ino_at(group, 0) {
            assert_eq!(geometry.inode_group(ino).expect("it has one").0, group);
            let _ = geometry.inode_location(ino, first);
        }
    }
    let _ = (geometry.max_file_size(), geometry.itable_blocks_per_group());
}

/// A group descriptor. Decoding reverses encoding.
pub fn group_desc(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.resize(64, 0);
    for size in [32, 64] {
        let desc = GroupDesc::decode(&bytes, size).expect("long enough");
        let _ = desc.validate(&GEOMETRY, GroupNo(0));
        let mut again = bytes.clone();
        desc.encode(&mut again, size).expect("long enough");
        assert_eq!(GroupDesc::decode(&again, size).expect("encoded"), desc);
        let _ = desc.verify_block_bitmap(&GEOMETRY, GroupNo(0), data);
        let _ = desc.verify_inode_bitmap(&GEOMETRY, GroupNo(0), data);
    }
}

/// An inode, the structure in its `i_block`, and its attributes.
pub fn inode(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.resize(256, 0);
    let _ = inode::update_checksum(&GEOMETRY, Ino(12), &mut bytes);
    let Ok(fields) = InodeFields::decode(&GEOMETRY, &bytes) else {
        return;
    };
    let _ = (fields.file_type(), fields.is_fast_symlink());
    let _ = (
        symlink::fast_target(&fields),
        DeviceNumber::decode(&fields.i_block),
    );
    let mut again = bytes.clone();
    if fields.encode(&GEOMETRY, &mut again).is_ok() {
        let decoded = InodeFields::decode(&GEOMETRY, &again).expect("encoded");
        assert_eq!((decoded.size, decoded.mode), (fields.size, fields.mode));
    }
    if let Ok(root) = ExtentNode::parse_root(&fields.i_block) {
        use_node(&root, 7);
    }
    if let Ok(area) = inode::in_inode_xattr_area(&GEOMETRY, &bytes) {
        let _ = xattrs::parse_ibody(area).map(|entries| use_xattrs(&entries));
    }
}

fn use_node(node: &ExtentNode<'_>, block: u32) {
    let block = FileBlock(block);
    let mut end = FileBlock::FIRST;
    for extent in node.extents() {
        assert!(extent.file_block >= end && extent.is_valid());
        end = extent.end();
        assert_eq!(extent.map(block).is_some(), extent.contains(block));
    }
    let _ = (node.indexes().count(), node.search(block));
}

/// An extent node at any depth.
pub fn extent(data: &[u8]) {
    let mut input = Bytes(data);
    let (block, depth) = (input.u32(), input.u8() % 7);
    let mut bytes = input.0.to_vec();
    if bytes.len() > 12 && depth % 2 == 0 {
        bytes[..2].copy_from_slice(&extent::EXTENT_MAGIC.to_le_bytes());
    }
    for depth in [u16::from(depth), 0] {
        if let Ok(node) = ExtentNode::parse(&bytes, depth) {
            use_node(&node, block);
            let extents: Vec<_> = node.extents().collect();
            let mut again = bytes.clone();
            if depth == 0 && extent::set_extents(&mut again, &extents).is_ok() {
                let node = ExtentNode::parse(&again, 0).expect("encoded");
                assert!(node.extents().eq(extents));
            }
        }
    }
    extent::update_checksum(SEED, &mut bytes);
    let _ = extent::verify_checksum(SEED, &bytes, 1);
}

/// A directory block: searches, and changes. A changed block can be read.
pub fn dir_entry(data: &[u8]) {
    let mut input = Bytes(data);
    let (change, at) = (input.u8(), u32::from(input.u16()));
    let mut block = input.0.to_vec();
    block.resize(block.len().next_multiple_of(4).clamp(12, 4096), 0);
    let valid = dir_entry::records(&block, INODES).all(|record| record.is_ok());
    let names: Vec<(u32, Vec<u8>)> = dir_entry::entries(&block, INODES)
        .map_while(Result::ok)
        .map(|entry| (entry.offset, entry.name.to_vec()))
        .collect();
    let _ = (
        dir_entry::count(&block, INODES),
        dir_entry::is_empty(&block, INODES),
        dir_entry::used_bytes(&block),
        dir_entry::probe(&block, b"fresh", INODES),
    );
    for (_, name) in &names {
        let found = dir_entry::find(&block, name, INODES);
        assert!(!valid || matches!(found, Ok(Some(_))));
    }
    let changed = match change % 4 {
        0 => dir_entry::insert(&mut block, b"fresh", Ino(12), None).is_ok(),
        1 => names
            .get(at as usize % names.len().max(1))
            .is_none_or(|(offset, _)| dir_entry::remove(&mut block, *offset).is_ok()),
        2 => dir_entry::remove(&mut block, at).is_ok(),
        _ => dir_entry::insert_at(&mut block, at, b"fresh", Ino(12), None).is_ok(),
    };
    if valid && changed && change % 4 < 2 {
        assert!(dir_entry::records(&block, INODES).all(|record| record.is_ok()));
    }
    let offsets = names.iter().map(|(offset, _)| *offset);
    let mut packed = vec![0; block.len()];
    let _ = dir_entry::pack(&mut packed, Tail::Checksum, &block, offsets);
    dir_entry::update_checksum(SEED, &mut block);
    let _ = dir_entry::verify_checksum(SEED, &block, 1);
}

/// A node of a hash tree, as the root and as another node, and its growth.
pub fn htree(data: &[u8]) {
    let mut input = Bytes(data);
    let (hash, at) = (input.u32(), usize::from(input.u8()));
    let tail = match input.u8() % 2 {
        0 => Tail::None,
        _ => Tail::Checksum,
    };
    let mut block = input.0.to_vec();
    block.resize(4096, 0);
    let _ = (
        htree::guess_kind(&block, FileBlock(0)),
        htree::guess_kind(&block, FileBlock(1)),
    );
    for kind in [NodeKind::Root, NodeKind::Interior] {
        let mut copy = block.clone();
        let mut fresh = vec![0; 4096];
        if let Ok(node) = htree::open_node(&copy, kind) {
            let slot = node.search(hash);
            let _ = (
                node.continues_after(slot, hash),
                node.entries().count(),
                node.entry(at),
            );
        }
        let _ = htree::insert_entry(&mut copy, kind, at, hash, FileBlock(5));
        let _ = htree::split_node(&mut copy, kind, &mut fresh, tail);
        htree::update_checksum(SEED, &mut copy, kind);
        let _ = htree::verify_checksum(SEED, &copy, kind, 0);
    }
    if htree::parse_root(&block, tail, htree::MAX_LEVELS).is_ok() {
        let mut fresh = vec![0; 4096];
        let _ = htree::grow_root(
            &mut block,
            &mut fresh,
            FileBlock(9),
            tail,
            htree::MAX_LEVELS,
        );
    }
    let _ = htree::parse_node(&block, tail);
}

fn use_xattrs(entries: &[xattrs::XattrEntry<'_>]) {
    let owned: Vec<xattrs::Xattr<'_>> = entries.iter().map(|entry| (*entry).into()).collect();
    let mut block = vec![0; 4096];
    if xattrs::fits_block(&owned, block.len()) && xattrs::build_block(&owned, 1, &mut block).is_ok()
    {
        let (_, again) = xattrs::parse_block(&block).expect("built");
        assert_eq!(again.len(), entries.len());
    }
    let mut area = vec![0; 96];
    let _ = xattrs::build_ibody(&owned, &mut area);
    for entry in entries {
        let _ = entry.verify_hash();
    }
}

/// Extended attributes of a block and of an inode.
pub fn xattr(data: &[u8]) {
    let mut block = data.to_vec();
    block.resize(block.len().max(32), 0);
    let _ = xattrs::parse_ibody(&block).map(|entries| use_xattrs(&entries));
    block[..4].copy_from_slice(&0xea02_0000u32.to_le_bytes());
    let _ = xattrs::parse_block(&block).map(|(_, entries)| use_xattrs(&entries));
    let _ = xattrs::split_name(data).map(|(index, name)| xattrs::full_name(index, name));
    xattrs::update_block_checksum(SEED, &mut block, FsBlock(7));
}

/// Access control lists in both forms.
pub fn acl(data: &[u8]) {
    for acl in [Acl::from_disk(data), Acl::from_xattr(data)]
        .into_iter()
        .flatten()
    {
        assert_eq!(Acl::from_disk(&acl.to_disk()).expect("encoded"), acl);
        assert_eq!(Acl::from_xattr(&acl.to_xattr()).expect("encoded"), acl);
        let _ = (
            acl.equiv_mode(),
            acl.inherit(0o777, FileType::Directory),
            acl.inherit(0, FileType::Regular),
        );
        let mut changed = acl.clone();
        changed.chmod(0o640);
        changed.create_masq(0o751);
        changed.validate().expect("as it was");
    }
}

/// A block of the orphan file.
pub fn orphan_file(data: &[u8]) {
    let mut block = data.to_vec();
    block.resize(block.len().clamp(16, 4096), 0);
    let _ = orphans::update_checksum(SEED, &mut block, FsBlock(4));
    let _ = orphans::verify(SEED, &block, FsBlock(4));
    if let Some(slot) = orphans::free_slot(&block) {
        orphans::set_slot(&mut block, slot, Some(Ino(77))).expect("a free slot");
        assert!(orphans::slots(&block).any(|found| found == (slot, Ino(77))));
    }
}

/// Bitmaps, compared with a model.
pub fn bitmap(data: &[u8]) {
    let mut input = Bytes(data);
    let (start, len) = (u32::from(input.u16()), u32::from(input.u16()));
    let mut map = input.slice(64).to_vec();
    let total = map.len() as u32 * 8;
    if total == 0 {
        return;
    }
    let (start, end) = (start % total, (start % total + len % total).min(total));
    let model: Vec<bool> = (0..total).map(|bit| bits::test(&map, bit)).collect();
    let range = start as usize..end as usize;
    let zeros = model[range.clone()].iter().filter(|set| !**set).count();
    assert_eq!(bits::count_zeros(&map, start, end) as usize, zeros);
    let next = |wanted: bool| (start..end).find(|&bit| model[bit as usize] == wanted);
    assert_eq!(bits::find_next_zero(&map, start, end), next(false));
    assert_eq!(bits::find_next_set(&map, start, end), next(true));
    assert_eq!(bits::all_set(&map, start, end - start), zeros == 0);
    assert_eq!(
        bits::all_clear(&map, start, end - start),
        zeros == range.len()
    );
    let _ = bits::next_zero_run(&map, start, end);
    bits::set_range(&mut map, start, end - start);
    assert!(bits::all_set(&map, start, end - start));
    bits::clear_range(&mut map, start, end - start);
    for bit in 0..total {
        let expected = model[bit as usize] && !range.contains(&(bit as usize));
        assert_eq!(bits::test(&map, bit), expected);
    }
}
