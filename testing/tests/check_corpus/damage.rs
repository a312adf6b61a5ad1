//! Kinds of damage: how to do each, and the object that the check has to name.
//!
//! Damage that is deeper than a checksum has its checksum corrected.

use crate::volumes::Volume;
use check::{Finding, Kind};
use ext4_format::checksum::Seed;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc};
use ext4_format::htree::NodeKind;
use ext4_format::inode::{self, InodeFields};
use ext4_format::superblock::Superblock;
use ext4_format::{dir_entry, extent, htree, orphan_file, xattr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use testkit::needs::run_ok;
use testkit::oracle::text;
use units::{FsBlock, GroupNo, Ino};

const BLOCK: u64 = 4096;

/// A kind of damage.
pub struct Damage {
    pub name: &'static str,
    pub make: fn(&mut Tested),
    pub expect: fn(&Tested, &Finding) -> bool,
}

/// The volume that is damaged.
pub struct Tested {
    path: PathBuf,
    geo: Geometry,
    /// The damaged inode.
    ino: u32,
    /// The damaged block.
    block: u64,
}

impl Tested {
    pub fn new(volume: &Volume, path: &Path) -> Tested {
        let bytes = read(&volume.path, 1024, 1024);
        let sb = Superblock::parse(&bytes).unwrap();
        Tested {
            path: path.to_owned(),
            geo: Geometry::from_superblock(&sb).unwrap(),
            ino: 0,
            block: 0,
        }
    }

    fn debugfs(&self, command: &str) -> String {
        run_ok("debugfs", &["-w", "-R", command, text(&self.path)])
    }

    /// Returns the inode of a path, and notes it as the damaged one.
    fn find(&mut self, path: &str) -> u32 {
        let said = self.debugfs(&format!("stat {path}"));
        let number = said.split("Inode: ").nth(1).expect("an inode");
        let number = number.split_whitespace().next().unwrap();
        self.ino = number.parse().unwrap();
        self.ino
    }

    /// The blocks of a path's data.
    fn blocks(&self, path: &str) -> Vec<u64> {
        let said = self.debugfs(&format!("blocks {path}"));
        said.lines()
            .find(|line| line.starts_with(|c: char| c.is_ascii_digit()))
            .expect("its blocks")
            .split_whitespace()
            .map(|block| block.parse().unwrap())
            .collect()
    }

    /// The block of a path's file block.
    fn bmap(&self, path: &str, file_block: usize) -> u64 {
        let said = self.debugfs(&format!("bmap {path} {file_block}"));
        let mut words = said.split_whitespace();
        words.find_map(|word| word.parse().ok()).expect("a block")
    }

    fn patch(&self, offset: u64, bytes: &[u8]) {
        let file = std::fs::File::options()
            .write(true)
            .open(&self.path)
            .unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    /// Changes a block without its checksum, and notes it as the damaged one.
    fn edit(&mut self, block: u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = read(&self.path, block * BLOCK, BLOCK as usize);
        change(&mut bytes);
        self.patch(block * BLOCK, &bytes);
        self.block = block;
    }

    fn inode_place(&self, ino: u32) -> u64 {
        let (group, _) = self.geo.inode_group(Ino(ino)).unwrap();
        let desc = self.descriptor(group.0);
        let (block, offset) = self.geo.inode_location(Ino(ino), desc.inode_table).unwrap();
        block.0 * BLOCK + u64::from(offset)
    }

    /// Changes an inode and mends its checksum.
    fn inode(&mut self, ino: u32, change: impl FnOnce(&mut [u8])) {
        let at = self.inode_place(ino);
        let mut raw = read(&self.path, at, usize::from(self.geo.inode_size));
        change(&mut raw);
        inode::update_checksum(&self.geo, Ino(ino), &mut raw).unwrap();
        self.patch(at, &raw);
        self.ino = ino;
    }

    fn seed(&self, ino: u32) -> Option<Seed> {
        let raw = read(
            &self.path,
            self.inode_place(ino),
            usize::from(self.geo.inode_size),
        );
        let fields = InodeFields::decode(&self.geo, &raw).unwrap();
        self.geo.inode_csum_seed(Ino(ino), fields.generation)
    }

    fn descriptor(&self, group: u32) -> GroupDesc {
        let (block, offset) = self.geo.group_desc_location(GroupNo(group));
        let at = block.0 * BLOCK + u64::from(offset);
        let raw = read(&self.path, at, usize::from(self.geo.desc_size));
        GroupDesc::decode(&raw, self.geo.desc_size).unwrap()
    }

    /// Changes a group descriptor and mends its checksum.
    fn group(&mut self, group: u32, change: impl FnOnce(&mut GroupDesc)) {
        let (block, offset) = self.geo.group_desc_location(GroupNo(group));
        let at = block.0 * BLOCK + u64::from(offset);
        let mut raw = read(&self.path, at, usize::from(self.geo.desc_size));
        let mut desc = GroupDesc::decode(&raw, self.geo.desc_size).unwrap();
        change(&mut desc);
        desc.encode(&mut raw, self.geo.desc_size).unwrap();
        group_desc::update_checksum(&self.geo, GroupNo(group), &mut raw);
        self.patch(at, &raw);
    }

    /// Changes a block bitmap and mends its checksum.
    fn block_bitmap(&mut self, group: u32, change: impl FnOnce(&mut [u8])) {
        let block = self.descriptor(group).block_bitmap.0;
        self.edit(block, change);
        let (bytes, geo) = (
            read(&self.path, block * BLOCK, BLOCK as usize),
            self.geo.clone(),
        );
        self.group(group, |desc| desc.update_block_bitmap_csum(&geo, &bytes));
    }

    /// Changes an inode bitmap and mends its checksum.
    fn inode_bitmap(&mut self, group: u32, change: impl FnOnce(&mut [u8])) {
        let block = self.descriptor(group).inode_bitmap.0;
        self.edit(block, change);
        let (bytes, geo) = (
            read(&self.path, block * BLOCK, BLOCK as usize),
            self.geo.clone(),
        );
        self.group(group, |desc| desc.update_inode_bitmap_csum(&geo, &bytes));
    }

    /// Changes block `nth` of a directory and mends its checksum.
    fn directory(&mut self, path: &str, nth: usize, change: impl FnOnce(&mut [u8])) {
        let ino = self.find(path);
        let (seed, block) = (self.seed(ino), self.bmap(path, nth));
        self.edit(block, |bytes| {
            change(bytes);
            dir_entry::update_checksum(seed, bytes);
        });
    }

    /// Changes the root of the hash tree of /big and mends its checksum.
    fn hash_root(&mut self, change: impl FnOnce(&mut [u8])) {
        let ino = self.find("/big");
        let (seed, block) = (self.seed(ino), self.bmap("/big", 0));
        self.edit(block, |bytes| {
            change(bytes);
            htree::update_checksum(seed, bytes, NodeKind::Root);
        });
    }

    /// Changes the first leaf of the extent tree of /sparse and mends its checksum.
    fn extent_leaf(&mut self, change: impl FnOnce(&mut [u8])) {
        let ino = self.find("/sparse");
        let (seed, block) = (self.seed(ino), self.extent_block(ino));
        self.edit(block, |bytes| {
            change(bytes);
            extent::update_checksum(seed, bytes);
        });
    }

    /// The block of the first leaf of an inode's extent tree.
    fn extent_block(&self, ino: u32) -> u64 {
        let raw = read(&self.path, self.inode_place(ino), 128);
        u64::from(u32::from_le_bytes(
            raw[0x28 + 16..0x28 + 20].try_into().unwrap(),
        ))
    }

    /// Changes the attribute block of /other and mends its checksum.
    fn attributes(&mut self, change: impl FnOnce(&mut [u8])) {
        let ino = self.find("/other");
        let raw = read(&self.path, self.inode_place(ino), 128);
        let block = u64::from(u32::from_le_bytes(raw[0x68..0x6c].try_into().unwrap()));
        let seed = self.geo.csum_seed;
        self.edit(block, |bytes| {
            change(bytes);
            xattr::update_block_checksum(seed, bytes, FsBlock(block));
        });
    }

    /// Changes the first block of the orphan file; mends its checksum if asked to.
    fn orphans(&mut self, mend: bool, change: impl FnOnce(&mut [u8])) {
        let ino = self.superblock().orphan_file_inum.get();
        self.ino = ino;
        let (seed, block) = (self.seed(ino), self.blocks(&format!("<{ino}>"))[0]);
        self.edit(block, |bytes| {
            change(bytes);
            if mend {
                orphan_file::update_checksum(seed, bytes, FsBlock(block)).unwrap();
            }
        });
    }

    fn superblock(&self) -> Superblock {
        Superblock::parse(&read(&self.path, 1024, 1024)).unwrap()
    }

    /// Changes the super block and mends its checksum.
    fn edit_superblock(&mut self, change: impl FnOnce(&mut Superblock)) {
        let mut sb = self.superblock();
        change(&mut sb);
        sb.update_checksum();
        self.patch(1024, sb.as_bytes());
    }
}

fn read(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// The offset of a name's record in a directory block.
fn record(bytes: &[u8], name: &[u8]) -> usize {
    let at = bytes.windows(name.len()).position(|window| window == name);
    at.expect("the name") - 8
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn super_block(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::SuperBlock
}
fn count(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::Count
}
fn descriptor(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::GroupDescriptor && f.place.group == Some(1)
}
fn block_bitmap(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::BlockBitmap && f.place.group.is_some()
}
fn inode_bitmap(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::InodeBitmap && f.place.group.is_some()
}
fn inode(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::Inode && f.place.inode == Some(t.ino)
}
fn mapping(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::Mapping && f.place.inode == Some(t.ino)
}
fn mapping_block(t: &Tested, f: &Finding) -> bool {
    mapping(t, f) && f.place.block == Some(t.block)
}
fn shared(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::SharedBlock && f.message.contains(&format!("inode {}", t.ino))
}
fn directory(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::Directory && f.place.inode == Some(t.ino)
}
fn directory_block(t: &Tested, f: &Finding) -> bool {
    directory(t, f) && f.place.block == Some(t.block)
}
fn entry(t: &Tested, f: &Finding) -> bool {
    directory_block(t, f) && f.place.entry.is_some()
}
fn hash_tree(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::HashTree && f.place.inode == Some(t.ino)
}
fn connectivity(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::Connectivity && f.place.inode == Some(t.ino)
}
fn link_count(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::LinkCount && f.place.inode == Some(t.ino)
}
fn attributes(t: &Tested, f: &Finding) -> bool {
    f.object == Kind::Attributes && f.place.inode == Some(t.ino)
}
fn journal(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::Journal
}
fn orphans(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::Orphans
}
fn resize_inode(_: &Tested, f: &Finding) -> bool {
    f.object == Kind::ResizeInode && f.place.inode == Some(7)
}

/// Sets a field of the inode of a path by debugfs.
macro_rules! field {
    ($path:literal, $field:literal, $value:expr) => {
        |t| {
            t.find($path);
            t.debugfs(&format!("set_inode_field {} {} {}", $path, $field, $value));
        }
    };
}

macro_rules! damages {
    ($($name:literal: $make:expr, $expect:expr;)*) => {
        /// All kinds of damage.
        pub const DAMAGES: &[Damage] = &[$(Damage { name: $name, make: $make, expect: $expect }),*];
    };
}

damages! {
    "super block: a bit flips": |t| t.patch(1024 + 0x90, b"X"), super_block;
    "super block: no magic": |t| t.patch(1024 + 0x38, &[0, 0]), super_block;
    "super block: free blocks": |t| { t.debugfs("set_super_value free_blocks_count 7"); }, count;
    "super block: free inodes": |t| { t.debugfs("set_super_value free_inodes_count 7"); }, count;
    "super block: the journal's inode": |t| t.edit_superblock(|sb| sb.journal_inum = 20.into()), super_block;

    "group descriptor: a bit flips": |t| {
        let (block, offset) = t.geo.group_desc_location(GroupNo(1));
        t.edit(block.0, |b| b[offset as usize + 0xc] ^= 1);
    }, descriptor;
    "group descriptor: block bitmap outside": |t| t.group(1, |d| d.block_bitmap.0 = 1 << 30), descriptor;
    "group descriptor: inode bitmap outside": |t| t.group(1, |d| d.inode_bitmap.0 = 1 << 30), descriptor;
    "group descriptor: inode table outside": |t| t.group(1, |d| d.inode_table.0 = 1 << 30), descriptor;
    "group descriptor: bitmap in another's place": |t| {
        let taken = t.descriptor(0).inode_table;
        t.group(1, |d| d.block_bitmap = taken);
    }, descriptor;
    "group descriptor: free blocks": |t| t.group(1, |d| d.free_blocks_count -= 5), count;
    "group descriptor: free inodes": |t| t.group(0, |d| d.free_inodes_count += 3), count;
    "group descriptor: directories": |t| t.group(0, |d| d.used_dirs_count += 3), count;

    "block bitmap: a used block is free": |t| {
        let block = t.blocks("/file")[2];
        t.debugfs(&format!("freeb {block}"));
    }, block_bitmap;
    "block bitmap: a free block is used": |t| {
        let last = t.geo.blocks_count - 5;
        t.debugfs(&format!("setb {last}"));
    }, block_bitmap;
    "block bitmap: a bit flips": |t| {
        let block = t.descriptor(0).block_bitmap.0;
        t.edit(block, |b| b[100] ^= 4);
    }, block_bitmap;
    "block bitmap: padding": |t| {
        let last = t.geo.groups - 1;
        t.block_bitmap(last, |b| b[4095] = 0);
        t.group(last, |d| d.flags -= ext4_format::group_desc::GroupFlags::BLOCK_UNINIT);
        t.block_bitmap(last, |b| b[4095] = 0);
    }, block_bitmap;
    "inode bitmap: a used inode is free": |t| { t.debugfs("freei /file"); }, inode_bitmap;
    "inode bitmap: a free inode is used": |t| { t.debugfs("seti <4090>"); }, inode_bitmap;
    "inode bitmap: a bit flips": |t| {
        let block = t.descriptor(0).inode_bitmap.0;
        t.edit(block, |b| b[100] ^= 4);
    }, inode_bitmap;
    "inode bitmap: padding": |t| t.inode_bitmap(0, |b| b[4095] = 0), inode_bitmap;

    "inode: a bit flips": |t| {
        let ino = t.find("/file");
        let at = t.inode_place(ino);
        t.patch(at + 8, b"Z");
    }, inode;
    "inode: mode without a type": field!("/file", "mode", "0170644"), inode;
    "inode: size below its blocks": field!("/file", "size", 100), inode;
    "inode: size of a directory": field!("/dir", "size", 8192), inode;
    "inode: size of a directory, not of blocks": field!("/dir", "size", 4000), inode;
    "inode: i_blocks": field!("/file", "blocks", 8), inode;
    "inode: deletion time": field!("/file", "dtime", 1_600_000_000), inode;
    "inode: link count": field!("/file", "links_count", 5), link_count;
    "inode: link count of a directory": field!("/dir", "links_count", 9), link_count;
    "inode: no links, but named": field!("/other", "links_count", 0), inode;
    "inode: extra size": field!("/file", "extra_isize", 254), inode;
    "inode: attribute block outside": field!("/file", "file_acl", 999_999_999), attributes;
    "inode: imagic flag": |t| { let i = t.find("/file"); t.inode(i, |b| put32(b, 0x20, 0x8_2000)); }, inode;
    "inode: hash tree of a file": |t| { let i = t.find("/file"); t.inode(i, |b| put32(b, 0x20, 0x8_1000)); }, inode;
    "inode: inline data without the feature": |t| {
        let i = t.find("/empty");
        t.inode(i, |b| put32(b, 0x20, 0x1008_0000));
    }, inode;
    "inode: a FIFO with a size": field!("/fifo", "size", 77), inode;
    "inode: i_faddr": |t| { let i = t.find("/file"); t.inode(i, |b| put32(b, 0x70, 5)); }, inode;
    "inode: cleared, but named": |t| { t.find("/"); t.block = t.blocks("/")[0]; t.debugfs("clri /file"); }, entry;
    "inode: a reserved one in use": |t| t.inode(9, |b| put16(b, 0, 0o100_644)), inode;
    "symbolic link: short target": field!("/fast", "size", 5), inode;
    "symbolic link: long target": field!("/slow", "size", 150), inode;

    "extent root: magic": |t| { let i = t.find("/file"); t.inode(i, |b| put16(b, 0x28, 7)); }, mapping;
    "extent root: depth": |t| { let i = t.find("/file"); t.inode(i, |b| put16(b, 0x2e, 9)); }, mapping;
    "extent root: too many entries": |t| { let i = t.find("/file"); t.inode(i, |b| put16(b, 0x2a, 5)); }, mapping;
    "extent: blocks outside": |t| { let i = t.find("/file"); t.inode(i, |b| put32(b, 0x3c, 1 << 30)); }, mapping;
    "extent: no length": |t| { let i = t.find("/file"); t.inode(i, |b| put16(b, 0x38, 0)); }, mapping;
    "extent block: a bit flips": |t| {
        let ino = t.find("/sparse");
        let block = t.extent_block(ino);
        t.edit(block, |b| b[20] ^= 1);
    }, mapping_block;
    "extent block: magic": |t| t.extent_leaf(|b| put16(b, 0, 7)), mapping_block;
    "extent block: order": |t| t.extent_leaf(|b| {
        let later = get32(b, 12 + 24);
        put32(b, 12 + 12, later + 1);
    }), mapping_block;
    "extent block: begins elsewhere": |t| t.extent_leaf(|b| put32(b, 12, 1)), mapping_block;
    "extent block: blocks outside": |t| t.extent_leaf(|b| put32(b, 12 + 8, 1 << 30)), mapping_block;
    "extent index: child outside": |t| { let i = t.find("/sparse"); t.inode(i, |b| put32(b, 0x28 + 16, 1 << 30)); }, mapping;

    "shared: a block of two files": |t| {
        let block = t.blocks("/other")[0] as u32;
        let ino = t.find("/file");
        t.inode(ino, |b| put32(b, 0x3c, block));
    }, shared;
    "shared: a file and an inode table": |t| {
        let block = t.descriptor(1).inode_table.0 as u32;
        let ino = t.find("/file");
        t.inode(ino, |b| put32(b, 0x3c, block));
    }, shared;
    "shared: a file and the descriptor table": |t| {
        let ino = t.find("/file");
        t.inode(ino, |b| put32(b, 0x3c, 1));
    }, shared;
    "shared: attributes and a file": |t| {
        let block = t.blocks("/other")[1];
        t.find("/file");
        t.debugfs(&format!("set_inode_field /file file_acl {block}"));
    }, shared;

    "directory block: a bit flips": |t| {
        t.find("/dir");
        let block = t.blocks("/dir")[0];
        t.edit(block, |b| { let at = record(b, b"inner"); b[at + 8] = b'x'; });
    }, directory_block;
    "directory: record length": |t| t.directory("/dir", 0, |b| { let at = record(b, b"inner"); put16(b, at + 4, 7); }), directory_block;
    "directory: \".\" leads elsewhere": |t| t.directory("/dir", 0, |b| put32(b, 0, 2)), entry;
    "directory: \"..\" leads elsewhere": |t| t.directory("/dir/sub", 0, |b| put32(b, 12, 2)), connectivity;
    "directory: no \".\"": |t| t.directory("/dir", 0, |b| b[8] = b'x'), entry;
    "directory: no \"..\"": |t| t.directory("/dir", 0, |b| b[12 + 8] = b'x'), entry;
    "directory: a slash in a name": |t| t.directory("/dir", 0, |b| { let at = record(b, b"inner"); b[at + 9] = b'/'; }), entry;
    "directory: an inode that does not exist": |t| t.directory("/dir", 0, |b| { let at = record(b, b"inner"); put32(b, at, 99_999_999); }), entry;
    "directory: an inode that is not in use": |t| t.directory("/dir", 0, |b| { let at = record(b, b"inner"); put32(b, at, 4000); }), entry;
    "directory: a reserved inode": |t| t.directory("/dir", 0, |b| { let at = record(b, b"inner"); put32(b, at, 8); }), entry;
    "directory: the root below itself": |t| t.directory("/dir", 0, |b| { let at = record(b, b"inner"); put32(b, at, 2); }), entry;
    "directory: file type": |t| t.directory("/dir", 0, |b| { let at = record(b, b"inner"); b[at + 7] = 2; }), entry;
    "directory: a name twice": |t| t.directory("/", 0, |b| {
        let at = record(b, b"fast");
        b[at + 8..at + 12].copy_from_slice(b"slow");
    }), entry;
    "directory: two names of a directory": |t| {
        let ino = t.find("/dir/sub");
        t.debugfs(&format!("ln <{ino}> /again"));
        t.find("/");
        t.block = 0;
    }, |_, f| f.object == Kind::Directory && f.message.contains("has a name in");
    "connectivity: a file without a name": |t| { t.find("/other"); t.debugfs("unlink /other"); }, connectivity;
    "connectivity: a directory without a name": |t| { t.find("/dir"); t.debugfs("unlink /dir"); }, connectivity;
    "connectivity: a loop": |t| {
        let ino = t.find("/dir");
        t.debugfs(&format!("ln <{ino}> /dir/sub/loop"));
        t.debugfs("unlink /dir");
    }, |_, f| f.object == Kind::Connectivity && f.message.contains("below itself");

    "hash tree: a bit flips in the root": |t| {
        t.find("/big");
        let block = t.bmap("/big", 0);
        t.edit(block, |b| b[0x38] ^= 2);
    }, hash_tree;
    "hash tree: limit": |t| t.hash_root(|b| put16(b, 0x20, 99)), hash_tree;
    "hash tree: version": |t| t.hash_root(|b| b[0x1c] = 77), hash_tree;
    "hash tree: order": |t| t.hash_root(|b| {
        let (first, second) = (get32(b, 0x28), get32(b, 0x30));
        put32(b, 0x28, second);
        put32(b, 0x30, first);
    }), hash_tree;
    "hash tree: a name in the wrong block": |t| t.hash_root(|b| {
        let hash = get32(b, 0x28);
        put32(b, 0x28, hash + 0x0200_0000);
    }), hash_tree;
    "hash tree: leads beyond the directory": |t| t.hash_root(|b| put32(b, 0x2c, 9999)), hash_tree;
    "hash tree: leads to a block twice": |t| t.hash_root(|b| {
        let block = get32(b, 0x34);
        put32(b, 0x2c, block);
    }), hash_tree;

    "attribute block: a bit flips": |t| {
        t.attributes(|_| {});
        let block = t.block;
        t.edit(block, |b| b[4000] ^= 1);
    }, attributes;
    "attribute block: magic": |t| t.attributes(|b| put32(b, 0, 7)), attributes;
    "attribute block: reference count": |t| t.attributes(|b| put32(b, 4, 3)), attributes;
    "attribute block: value outside": |t| t.attributes(|b| put16(b, 34, 4090)), attributes;
    "attribute block: hash": |t| t.attributes(|b| put32(b, 32 + 12, 0x1234_5678)), attributes;
    "attributes in an inode: value outside": |t| {
        let ino = t.find("/file");
        t.inode(ino, |b| put32(b, 128 + 32 + 4 + 8, 5000));
    }, attributes;

    "journal: magic": |t| {
        let block = t.blocks("<8>")[0];
        t.edit(block, |b| put32(b, 0, 7));
    }, journal;
    "journal: no file": |t| t.inode(8, |b| put16(b, 0, 0o040_755)), journal;
    "journal: a hole": |t| t.inode(8, |b| put32(b, 0x34, 500)), journal;
    "orphan file: a bit flips": |t| t.orphans(false, |b| b[4091] ^= 1), orphans;
    "orphan file: magic": |t| t.orphans(false, |b| put32(b, 4088, 9)), orphans;
    "orphan file: an orphan of a clean volume": |t| t.orphans(true, |b| put32(b, 0, 300)), orphans;
    "resize inode: map": |t| {
        let raw = read(&t.path, t.inode_place(7), 128);
        let block = u64::from(get32(&raw, 0x28 + 52));
        t.edit(block, |b| put32(b, 40, 12345));
    }, resize_inode;
}
