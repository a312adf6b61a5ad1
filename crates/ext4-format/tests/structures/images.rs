//! Every structure of images made by mke2fs decodes, verifies and encodes to the same bytes.

use crate::common::{Image, RECIPES, Recipe, make_image};
use ext4_format::dir_entry::{self, Tail};
use ext4_format::extent::{self, ExtentNode};
use ext4_format::group_desc::{self, GroupDesc, GroupFlags};
use ext4_format::htree;
use ext4_format::inode::{self, DeviceNumber, FileType, InodeFields, InodeFlags};
use ext4_format::{Superblock, bitmap, dirhash, orphan_file, symlink, xattr};
use testkit::needs::have_e2fsprogs;
use testkit::scratch::Scratch;
use units::{FileBlock, FsBlock, GroupNo, Ino};

/// Counts of a walk. The test fails if a walk visits nothing.
#[derive(Default, Debug)]
struct Seen {
    directories: usize,
    entries: usize,
    roots: usize,
    extent_blocks: usize,
    xattrs: usize,
    xattr_blocks: usize,
    orphan_blocks: usize,
}

fn check(recipe: &Recipe) {
    let scratch = Scratch::new();
    let image = Image::open(&make_image(&scratch, recipe, true));
    let mut seen = Seen::default();
    check_superblocks(&image);
    check_groups(&image);
    for ino in image.used_inodes() {
        check_inode(&image, ino, &mut seen);
    }
    check_orphan_file(&image, &mut seen);
    check_special(&image);
    eprintln!("{}: {seen:?}", recipe.name);
    assert!(seen.directories >= 5 && seen.entries > recipe.names as usize);
    assert!(seen.roots >= 1, "the large directory is indexed");
    assert!(seen.xattrs >= 4);
    let has_extents = image
        .geometry
        .incompat
        .contains(ext4_format::features::IncompatFeatures::EXTENTS);
    assert!(!has_extents || recipe.name.starts_with("64k") || seen.extent_blocks >= 1);
    let orphan_ino = image.superblock.orphan_file_inum.get();
    assert_eq!(seen.orphan_blocks > 0, orphan_ino != 0);
}

fn check_superblocks(image: &Image) {
    let geometry = &image.geometry;
    let mut superblock = image.superblock.clone();
    superblock.checksum = 0.into();
    superblock.update_checksum();
    assert!(superblock.as_bytes() == &image.bytes[1024..2048]);
    for group in (1..geometry.groups)
        .map(GroupNo)
        .filter(|group| geometry.has_super(*group))
    {
        let backup = image.block(geometry.group_first_block(group));
        let backup = Superblock::parse(backup).unwrap();
        assert_eq!(u32::from(backup.block_group_nr.get()), group.0);
    }
    image
        .superblock
        .check_features(ext4_format::superblock::Access::ReadWrite)
        .unwrap();
    assert_eq!(image.superblock.blocks_count(), geometry.blocks_count);
}

fn check_groups(image: &Image) {
    let geometry = &image.geometry;
    let (mut free_blocks, mut free_inodes) = (0u64, 0u32);
    for (group, desc) in (0..).map(GroupNo).zip(&image.groups) {
        let raw = image.raw_desc(group);
        group_desc::verify_checksum(geometry, group, raw).unwrap();
        desc.validate(geometry, group).unwrap();

        let mut copy = vec![0; raw.len()];
        let unsummed = GroupDesc {
            checksum: 0,
            ..desc.clone()
        };
        unsummed.encode(&mut copy, geometry.desc_size).unwrap();
        group_desc::update_checksum(geometry, group, &mut copy);
        assert_eq!(copy, raw);

        let blocks = geometry.blocks_in_group(group);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let map = image.block(desc.block_bitmap);
            desc.verify_block_bitmap(geometry, group, map).unwrap();
            assert_eq!(bitmap::count_zeros(map, 0, blocks), desc.free_blocks_count);
            let mut copy = desc.clone();
            copy.block_bitmap_csum = 0;
            copy.update_block_bitmap_csum(geometry, map);
            assert!(!geometry.has_metadata_csum() || copy == *desc);
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let map = image.block(desc.inode_bitmap);
            desc.verify_inode_bitmap(geometry, group, map).unwrap();
            let zeros = bitmap::count_zeros(map, 0, geometry.inodes_per_group);
            assert_eq!(zeros, desc.free_inodes_count);
        }
        free_blocks += u64::from(desc.free_blocks_count);
        free_inodes += desc.free_inodes_count;
    }
    assert_eq!(free_blocks, image.superblock.free_blocks_count());
    assert_eq!(free_inodes, image.superblock.free_inodes_count.get());
}

fn check_inode(image: &Image, ino: Ino, seen: &mut Seen) {
    let geometry = &image.geometry;
    let raw = image.raw_inode(ino);
    let fields = image.inode(ino);
    // Reserved inodes that were never used have no checksum.
    if raw.iter().any(|byte| *byte != 0) {
        inode::verify_checksum(geometry, ino, raw).unwrap();
    }
    let mut copy = raw.to_vec();
    fields.encode(geometry, &mut copy).unwrap();
    assert!(copy == raw, "inode {ino}");
    if raw.iter().any(|byte| *byte != 0) && geometry.has_metadata_csum() {
        copy[0x7c..0x7e].fill(0xee);
        inode::update_checksum(geometry, ino, &mut copy).unwrap();
        assert!(copy == raw, "inode {ino}");
    }
    // Unknown fields are kept, so an inode that is encoded into zeroes differs only there.
    let mut fresh = vec![0; raw.len()];
    fields.encode(geometry, &mut fresh).unwrap();
    assert_eq!(InodeFields::decode(geometry, &fresh).unwrap(), fields);

    let seed = geometry.inode_csum_seed(ino, fields.generation);
    if fields.flags.contains(InodeFlags::EXTENTS) {
        let root = ExtentNode::parse_root(&fields.i_block).unwrap();
        let mut tree = Vec::new();
        image.extents(&root, &mut tree);
        let mut root_copy = fields.i_block;
        rewrite_extents(&root, &mut root_copy);
        assert_eq!(root_copy, fields.i_block);
        for (block, depth) in tree {
            let bytes = image.block(block);
            extent::verify_checksum(seed, bytes, block.0).unwrap();
            let node = ExtentNode::parse(bytes, depth).unwrap();
            let mut copy = bytes.to_vec();
            rewrite_extents(&node, &mut copy);
            extent::update_checksum(seed, &mut copy);
            assert!(copy == bytes, "block round trip");
            seen.extent_blocks += 1;
        }
    }
    if fields.mode.is_dir() {
        check_directory(image, ino, &fields, seen);
    }
    check_xattrs(image, raw, &fields, seen);
}

fn rewrite_extents(node: &ExtentNode<'_>, copy: &mut [u8]) {
    let (extents, indexes): (Vec<_>, Vec<_>) = (node.extents().collect(), node.indexes().collect());
    match node.depth() {
        0 => extent::set_extents(copy, &extents).unwrap(),
        depth => extent::set_indexes(copy, depth, &indexes).unwrap(),
    }
    for (position, extent) in extents.iter().enumerate() {
        assert_eq!(node.search(extent.file_block), Some(position));
        assert_eq!(node.search(extent.last()), Some(position));
    }
}

fn check_directory(image: &Image, ino: Ino, fields: &InodeFields, seen: &mut Seen) {
    let geometry = &image.geometry;
    let seed = geometry.inode_csum_seed(ino, fields.generation);
    let blocks = image.file_blocks(fields);
    let indexed = fields.flags.contains(InodeFlags::INDEX);
    seen.directories += 1;
    for (at, block) in (0..).map(FileBlock).zip(&blocks) {
        let bytes = image.block(*block);
        for entry in dir_entry::entries(bytes, geometry.inodes_count) {
            let entry = entry.unwrap();
            let found = dir_entry::find(bytes, entry.name, geometry.inodes_count).unwrap();
            assert_eq!(found, Some(entry));
            seen.entries += 1;
        }
        let mut copy = bytes.to_vec();
        match htree::guess_kind(bytes, at).filter(|_| indexed) {
            Some(kind) => {
                htree::verify_checksum(seed, bytes, kind, block.0).unwrap();
                htree::update_checksum(seed, &mut copy, kind);
            }
            None => {
                dir_entry::verify_checksum(seed, bytes, block.0).unwrap();
                dir_entry::update_checksum(seed, &mut copy);
            }
        }
        assert!(copy == bytes, "block round trip");
    }
    if indexed {
        check_htree(image, seed, &blocks, seen);
    }
}

/// Every name is found in the leaf that its hash leads to.
fn check_htree(
    image: &Image,
    seed: Option<ext4_format::Seed>,
    blocks: &[FsBlock],
    seen: &mut Seen,
) {
    let geometry = &image.geometry;
    let tail = Tail::for_seed(seed);
    let (info, root) = htree::parse_root(image.block(blocks[0]), tail, htree::MAX_LEVELS).unwrap();
    let version = geometry.dir_hash_version(info.hash_version).unwrap();
    let hash_of = |name: &[u8]| dirhash::hash(version, &geometry.hash_seed, name).major;
    seen.roots += 1;
    for block in blocks {
        for entry in dir_entry::entries(image.block(*block), geometry.inodes_count) {
            let entry = entry.unwrap();
            if entry.is_dot_or_dotdot() {
                continue;
            }
            let hash = hash_of(entry.name);
            let mut node = root;
            for _ in 0..info.indirect_levels {
                let child = node.entry(node.search(hash)).unwrap().block;
                node = htree::parse_node(image.block(blocks[child.0 as usize]), tail).unwrap();
            }
            let mut at = node.search(hash);
            loop {
                let leaf = image.block(blocks[node.entry(at).unwrap().block.0 as usize]);
                if dir_entry::find(leaf, entry.name, geometry.inodes_count)
                    .unwrap()
                    .is_some()
                {
                    break;
                }
                assert_eq!(node.continues_after(at, hash), Some(true));
                at += 1;
            }
        }
    }
    let last = root.entry(root.count() - 1).unwrap();
    assert_eq!(root.search(u32::MAX), root.count() - 1);
    assert!(root.entry(root.count()).is_none() && last.block.0 > 0);
}

fn check_xattrs(image: &Image, raw: &[u8], fields: &InodeFields, seen: &mut Seen) {
    let geometry = &image.geometry;
    let area = inode::in_inode_xattr_area(geometry, raw).unwrap();
    let entries = xattr::parse_ibody(area).unwrap();
    let owned: Vec<xattr::Xattr<'_>> = entries.iter().map(|entry| (*entry).into()).collect();
    for entry in &entries {
        entry.verify_hash().unwrap();
        seen.xattrs += 1;
    }
    let mut copy = vec![0xaa; area.len()];
    assert!(xattr::fits_ibody(&owned, area.len()));
    xattr::build_ibody(&owned, &mut copy).unwrap();
    let mut again: Vec<xattr::Xattr<'_>> = xattr::parse_ibody(&copy)
        .unwrap()
        .into_iter()
        .map(Into::into)
        .collect();
    let mut expected = owned.clone();
    again.sort_by_key(|attribute| (attribute.index, attribute.name));
    expected.sort_by_key(|attribute| (attribute.index, attribute.name));
    assert_eq!(again, expected);

    if fields.file_acl.0 == 0 {
        return;
    }
    let block = image.block(fields.file_acl);
    xattr::verify_block_checksum(geometry.csum_seed, block, fields.file_acl).unwrap();
    let (header, entries) = xattr::parse_block(block).unwrap();
    for entry in &entries {
        entry.verify_hash().unwrap();
        seen.xattrs += 1;
    }
    let owned: Vec<xattr::Xattr<'_>> = entries.iter().map(|entry| (*entry).into()).collect();
    let mut copy = vec![0; block.len()];
    xattr::build_block(&owned, header.refcount, &mut copy).unwrap();
    assert_eq!(
        xattr::parse_block(&copy).unwrap().0.hash,
        xattr::block_hash(&owned)
    );
    // libext2fs leaves the block's hash 0, which only costs sharing; the kernel fills it in.
    assert_eq!(header.hash, 0);
    copy[0xc..0x10].fill(0);
    xattr::update_block_checksum(geometry.csum_seed, &mut copy, fields.file_acl);
    // libext2fs gives empty values an offset too, where this crate and the kernel write 0.
    let has_empty = owned.iter().any(|attribute| attribute.value.is_empty());
    assert!(
        has_empty || copy == block,
        "xattr block {}",
        fields.file_acl
    );
    seen.xattr_blocks += 1;
}

fn check_orphan_file(image: &Image, seen: &mut Seen) {
    let ino = Ino(image.superblock.orphan_file_inum.get());
    if ino.0 == 0 {
        return;
    }
    let fields = image.inode(ino);
    let seed = image.geometry.inode_csum_seed(ino, fields.generation);
    for block in image.file_blocks(&fields) {
        let bytes = image.block(block);
        orphan_file::verify(seed, bytes, block).unwrap();
        assert_eq!(orphan_file::slots(bytes).count(), 0);
        let mut copy = vec![0xff; bytes.len()];
        orphan_file::init(&mut copy).unwrap();
        orphan_file::set_slot(&mut copy, 7, Some(Ino(12))).unwrap();
        assert_eq!(
            orphan_file::slots(&copy).collect::<Vec<_>>(),
            [(7, Ino(12))]
        );
        assert_eq!(orphan_file::free_slot(&copy), Some(0));
        orphan_file::set_slot(&mut copy, 7, None).unwrap();
        orphan_file::update_checksum(seed, &mut copy, block).unwrap();
        assert!(copy == bytes, "block round trip");
        seen.orphan_blocks += 1;
    }
}

fn check_special(image: &Image) {
    let short = image.inode(image.lookup("short"));
    assert!(short.is_fast_symlink());
    assert_eq!(symlink::fast_target(&short).unwrap(), b"short target");
    assert_eq!(symlink::fast_i_block(b"short target"), Some(short.i_block));
    let long = image.inode(image.lookup("long"));
    assert!(!long.is_fast_symlink() && long.mode.is_symlink());
    assert_eq!(
        image.inode(image.lookup("fifo")).file_type().unwrap(),
        FileType::Fifo
    );
    let null = DeviceNumber { major: 1, minor: 3 };
    let wide = DeviceNumber {
        major: 300,
        minor: 60000,
    };
    for (name, number) in [("null", null), ("wide", wide)] {
        let device = image.inode(image.lookup(name));
        assert_eq!(DeviceNumber::decode(&device.i_block), number);
        assert_eq!(number.encode(), device.i_block);
    }
    let large = image.inode(image.lookup("a/large"));
    assert_eq!(large.size, 3 << 20);
    assert!(large.blocks >= (3 << 20) / 512);
    assert!(large.mtime.secs > 1_500_000_000);
}

#[test]
fn every_structure_round_trips() {
    if !have_e2fsprogs("images by mke2fs") {
        return;
    }
    for recipe in RECIPES {
        check(recipe);
    }
}
