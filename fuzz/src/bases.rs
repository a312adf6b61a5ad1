//! The volumes that the fuzzer damages, and the kind of each of their blocks.
//!
//! The images are in the directory `SLUICE_FUZZ_BASES`; `scripts/fuzz.sh` makes them with mke2fs
//! and debugfs. The engine adds files to each of them. Each exists twice: clean, and as after a
//! crash.

use crate::cow::{BLOCK, Cow};
use ext4::{Fs, MountOptions, NewInode, SetXattrMode};
use ext4_format::block_map;
use ext4_format::extent::ExtentNode;
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::{FileType, InodeFields, InodeFlags};
use ext4_format::{Geometry, Superblock};
use mkfs::MkfsOptions;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use units::{GroupNo, Ino};

/// The kind of a block. It determines the block's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The super block.
    Super,
    /// Group descriptors, from this group on.
    Descs(u32),
    /// A group's block bitmap.
    BlockBitmap(u32),
    /// A group's inode bitmap.
    InodeBitmap(u32),
    /// Inodes, from this one on.
    Inodes(u32),
    /// A node of an inode's extent tree.
    Node(u32),
    /// An indirect block of an inode's block map.
    Indirect(u32),
    /// A directory's block; the second number is its place in the directory.
    Dir(u32, u32),
    /// Extended attributes.
    Xattr,
    /// A block of the orphan file, with the file's inode number.
    Orphans(u32),
    /// The journal's super block.
    JournalSuper,
    /// A block of the log, by its number in the journal.
    Log(u32),
}

/// A volume to damage.
pub struct Base {
    /// The image.
    pub image: Arc<Vec<u8>>,
    pub geometry: Geometry,
    /// The kinds of its blocks.
    pub roles: BTreeMap<u64, Role>,
    /// Blocks of metadata that are not zero: the ones to damage.
    pub targets: Vec<u64>,
    /// The journal's blocks in their order.
    pub journal: Vec<u64>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(load);

/// All base volumes. The first has checksums.
pub fn all() -> &'static [Base] {
    &BASES
}

fn load() -> Vec<Base> {
    let mut images = Vec::new();
    if let Ok(dir) = std::env::var("SLUICE_FUZZ_BASES") {
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{dir}: {e}"));
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        images.extend(
            paths
                .iter()
                .map(|path| std::fs::read(path).expect("an image")),
        );
    }
    if images.is_empty() {
        let empty = Cow::new(&Arc::new(vec![0; 8 << 20]));
        mkfs::format(&empty.queue(), &MkfsOptions::default()).expect("mkfs");
        images.push(flatten(&empty));
    }
    let mut bases = Vec::new();
    for image in images {
        for unclean in [false, true] {
            let device = Cow::new(&Arc::new(image.clone()));
            add_structures(&device, unclean);
            bases.push(Base::new(flatten(&device)));
        }
    }
    bases
}

fn flatten(device: &Cow) -> Vec<u8> {
    (0..device.blocks())
        .flat_map(|block| *device.get(block))
        .collect()
}

/// Adds structures that mke2fs and debugfs do not make: a hash tree, a fragmented file, orphans and
/// a log.
fn add_structures(device: &Cow, unclean: bool) {
    let options = MountOptions {
        memory: 16 << 20,
        ..MountOptions::default()
    };
    let fs = Fs::mount(device.queue(), options).expect("a base mounts");
    if fs.is_read_only() {
        // A format that is only read; mke2fs has made files.
        return fs.unmount().expect("unmount");
    }
    let root = fs.root().expect("a root");
    let new = |mode| NewInode {
        mode,
        ..NewInode::default()
    };
    let dir = fs.mkdir(&root, b"many", new(0o040_755)).expect("mkdir");
    for i in 0..90 {
        let name = format!("{i}-{}", "m".repeat(90));
        let file = fs.create(&dir, name.as_bytes(), new(0o100_644));
        if i < 12 {
            let value = vec![b'v'; i * 40];
            let set = fs.set_xattr(
                &file.expect("create"),
                b"user.value",
                &value,
                SetXattrMode::Any,
            );
            set.expect("set_xattr");
        }
    }
    let file = fs
        .create(&root, b"fragmented", new(0o100_644))
        .expect("create");
    for i in 0..40 {
        fs.write(&file, i * 8192, b"fragment").expect("write");
    }
    // A block map has indirect blocks of two and three levels here.
    for at in [3 << 20, 90 << 20, 9 << 30] {
        fs.write(&file, at, b"far").expect("write");
    }
    fs.symlink(&root, b"slow", &[b's'; 200], new(0o120_777))
        .expect("symlink");
    fs.sync().expect("sync");
    if unclean {
        fs.unlink(&root, b"fragmented").expect("unlink");
        for i in 30..40 {
            let name = format!("{i}-{}", "m".repeat(90));
            fs.unlink(&dir, name.as_bytes()).expect("unlink");
        }
        fs.sync().expect("sync");
        fs.crash();
        drop(file);
    } else {
        drop(file);
        fs.unmount().expect("unmount");
    }
}

impl Base {
    fn new(image: Vec<u8>) -> Base {
        let superblock = Superblock::parse(&image[1024..2048]).expect("a super block");
        let geometry = Geometry::from_superblock(&superblock).expect("a geometry");
        let mut base = Base {
            image: Arc::new(image),
            geometry,
            roles: BTreeMap::new(),
            targets: Vec::new(),
            journal: Vec::new(),
        };
        let first = base.geometry.first_data_block;
        base.roles.insert(first, Role::Super);
        let orphan_file = superblock.orphan_file_inum.get();
        for group in 0..base.geometry.groups {
            base.note_group(GroupNo(group), orphan_file);
        }
        let image = &base.image;
        let is_not_zero = |block: u64| {
            let size = base.block_size();
            image[block as usize * size..][..size]
                .iter()
                .any(|&b| b != 0)
        };
        base.targets = base
            .roles
            .keys()
            .copied()
            .filter(|&block| is_not_zero(block))
            .collect();
        base
    }

    /// Bytes of a block of the volume.
    pub fn block_size(&self) -> usize {
        self.geometry.block_size as usize
    }

    fn block(&self, block: u64) -> &[u8] {
        let size = self.block_size();
        let at = (block as usize).saturating_mul(size);
        let end = at.saturating_add(size);
        self.image.get(at..end).unwrap_or(&[0; BLOCK][..size])
    }

    fn note_group(&mut self, group: GroupNo, orphan_file: u32) {
        let geo = self.geometry.clone();
        let (place, offset) = geo.group_desc_location(group);
        let first = group.0 - offset / u32::from(geo.desc_size);
        self.roles.insert(place.0, Role::Descs(first));
        let raw = &self.block(place.0)[offset as usize..];
        let desc = GroupDesc::decode(raw, geo.desc_size).expect("a descriptor");
        self.roles
            .insert(desc.block_bitmap.0, Role::BlockBitmap(group.0));
        self.roles
            .insert(desc.inode_bitmap.0, Role::InodeBitmap(group.0));
        for index in 0..geo.inodes_per_group {
            let Some(ino) = geo.ino_at(group, index) else {
                break;
            };
            let (block, at) = geo
                .inode_location(ino, desc.inode_table)
                .expect("an inode's place");
            if at == 0 {
                self.roles.insert(block.0, Role::Inodes(ino.0));
            }
            let raw = &self.block(block.0)[at as usize..][..usize::from(geo.inode_size)];
            let Ok(fields) = InodeFields::decode(&geo, raw) else {
                continue;
            };
            if fields.mode.0 != 0 {
                self.note_inode(ino, &fields, orphan_file);
            }
        }
    }

    fn note_inode(&mut self, ino: Ino, fields: &InodeFields, orphan_file: u32) {
        if fields.file_acl.0 != 0 {
            self.roles.insert(fields.file_acl.0, Role::Xattr);
        }
        let mut blocks = Vec::new();
        let mut nodes = Vec::new();
        if fields.flags.contains(InodeFlags::EXTENTS) {
            let Ok(root) = ExtentNode::parse_root(&fields.i_block) else {
                return;
            };
            self.walk(&root, &mut nodes, &mut blocks);
            for node in nodes {
                self.roles.insert(node, Role::Node(ino.0));
            }
        } else if !fields.flags.contains(InodeFlags::INLINE_DATA)
            && matches!(
                fields.mode.file_type(),
                Some(FileType::Regular | FileType::Directory)
            )
        {
            for root in 0..block_map::ROOTS {
                let pointer = block_map::get(&fields.i_block, root);
                let size = self.geometry.block_size;
                let (levels, first) = block_map::root_pointer(root, size);
                self.follow(pointer, levels, first, &mut nodes, &mut blocks);
            }
            for node in nodes {
                self.roles.insert(node, Role::Indirect(ino.0));
            }
        }
        let is_dir = fields.mode.is_dir();
        for (logical, block) in blocks {
            let role = match ino.0 {
                8 if logical == 0 => Role::JournalSuper,
                8 => Role::Log(logical),
                n if n == orphan_file => Role::Orphans(n),
                n if is_dir => Role::Dir(n, logical),
                _ => continue,
            };
            self.roles.insert(block, role);
            if ino.0 == 8 {
                self.journal.push(block);
            }
        }
    }

    /// Follows a pointer of a block map.
    fn follow(
        &self,
        pointer: u32,
        levels: u8,
        first: u64,
        nodes: &mut Vec<u64>,
        blocks: &mut Vec<(u32, u64)>,
    ) {
        if pointer == 0 {
            return;
        }
        if levels == 0 {
            return blocks.push((first as u32, u64::from(pointer)));
        }
        nodes.push(u64::from(pointer));
        let size = self.geometry.block_size;
        let below = block_map::covered(size, levels - 1);
        for slot in 0..block_map::pointers(size) {
            let child = block_map::get(self.block(pointer.into()), slot as usize);
            let first = first + u64::from(slot) * below;
            self.follow(child, levels - 1, first, nodes, blocks);
        }
    }

    fn walk(&self, node: &ExtentNode<'_>, nodes: &mut Vec<u64>, blocks: &mut Vec<(u32, u64)>) {
        for extent in node.extents() {
            blocks.extend(
                (0..extent.len).map(|i| (extent.file_block.0 + i, extent.start.0 + u64::from(i))),
            );
        }
        for index in node.indexes() {
            nodes.push(index.child.0);
            let bytes = self.block(index.child.0);
            if let Ok(child) = ExtentNode::parse(bytes, node.depth() - 1) {
                self.walk(&child, nodes, blocks);
            }
        }
    }
}
