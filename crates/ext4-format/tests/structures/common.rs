//! Images made by mke2fs, and a small reader over them that uses only the crate's public codecs.

use std::fs;
use std::path::{Path, PathBuf};

use ext4_format::extent::{Extent, ExtentNode};
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::{InodeFields, InodeFlags};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{Geometry, Superblock};
use testkit::needs::run_ok;
use testkit::oracle::{debugfs_script, repair, text};
use testkit::scratch::Scratch;
use units::{FsBlock, GroupNo, Ino};

/// Arguments of an image.
pub struct Recipe {
    pub name: &'static str,
    pub args: &'static [&'static str],
    pub size: &'static str,
    /// Names in the large directory.
    pub names: u32,
}

/// The shapes of volume that the tests cover.
pub const RECIPES: &[Recipe] = &[
    Recipe {
        name: "4k, current features",
        args: &[
            "-b",
            "4096",
            "-I",
            "256",
            "-O",
            "metadata_csum,64bit,metadata_csum_seed,orphan_file",
        ],
        size: "96M",
        names: 3000,
    },
    Recipe {
        name: "1k, small descriptors, checksums",
        args: &[
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "metadata_csum,^64bit,^metadata_csum_seed,^orphan_file",
        ],
        size: "48M",
        names: 6000,
    },
    Recipe {
        name: "2k, crc16 descriptors, small inodes, block maps",
        args: &[
            "-b",
            "2048",
            "-I",
            "128",
            "-O",
            "^metadata_csum,uninit_bg,^64bit,^extent,^orphan_file,^metadata_csum_seed",
        ],
        size: "64M",
        names: 800,
    },
    Recipe {
        name: "4k, crc16 descriptors of 64 bytes, large inodes",
        args: &[
            "-b",
            "4096",
            "-I",
            "1024",
            "-O",
            "^metadata_csum,uninit_bg,64bit,^orphan_file,^metadata_csum_seed",
        ],
        size: "64M",
        names: 300,
    },
    Recipe {
        name: "64k blocks",
        args: &[
            "-b",
            "65536",
            "-N",
            "8192",
            "-I",
            "256",
            "-O",
            "metadata_csum,64bit,^has_journal",
        ],
        size: "64M",
        names: 3000,
    },
];

/// Fills a directory with the files of an image.
fn populate(root: &Path, names: u32) {
    let many = root.join("many");
    fs::create_dir_all(&many).unwrap();
    for number in 0..names {
        fs::write(
            many.join(format!(
                "file number {number:05} with a name of some length"
            )),
            b"",
        )
        .unwrap();
    }
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::write(root.join("a/b/small"), b"small").unwrap();
    fs::write(root.join("a/large"), vec![0x5a; 3 << 20]).unwrap();
    // A file with a hole after every block makes an extent tree of two levels.
    let mut sparse = vec![0u8; 8 << 20];
    for block in sparse.chunks_mut(8192) {
        block[..4096].fill(1);
    }
    fs::write(root.join("a/sparse"), sparse).unwrap();
    std::os::unix::fs::symlink("short target", root.join("short")).unwrap();
    std::os::unix::fs::symlink("long/".repeat(30), root.join("long")).unwrap();
}

/// Makes an image; its directories are indexed by `e2fsck -D`.
pub fn make_image(scratch: &Scratch, recipe: &Recipe, index: bool) -> PathBuf {
    let tree = scratch.join("tree");
    let image = scratch.join("image");
    populate(&tree, recipe.names);
    let mut args = vec!["-t", "ext4", "-q", "-F"];
    args.extend(recipe.args);
    args.extend(["-d", text(&tree), text(&image), recipe.size]);
    run_ok("mke2fs", &args);
    let large = "v".repeat(600);
    let commands = [
        "ea_set /a/b/small user.one value".to_owned(),
        "ea_set /a/b/small security.selinux label".to_owned(),
        format!("ea_set /a/b/small user.large {large}"),
        "ea_set /a/b/small trusted.x y".to_owned(),
        "ea_set /a user.empty \"\"".to_owned(),
        "mknod fifo p".to_owned(),
        "mknod null c 1 3".to_owned(),
        "mknod wide b 300 60000".to_owned(),
    ];
    debugfs_script(&image, &commands.join("\n"));
    repair(&image, if index { "-fyD" } else { "-fy" });
    image
}

/// An image in memory.
pub struct Image {
    pub bytes: Vec<u8>,
    pub superblock: Superblock,
    pub geometry: Geometry,
    pub groups: Vec<GroupDesc>,
}

impl Image {
    pub fn open(path: &Path) -> Image {
        let bytes = fs::read(path).unwrap();
        let start = SUPERBLOCK_OFFSET as usize;
        let superblock = Superblock::parse(&bytes[start..start + SUPERBLOCK_SIZE]).unwrap();
        let geometry = Geometry::from_superblock(&superblock).unwrap();
        let mut image = Image {
            bytes,
            superblock,
            geometry,
            groups: Vec::new(),
        };
        for group in 0..image.geometry.groups {
            let raw = image.raw_desc(GroupNo(group)).to_vec();
            image
                .groups
                .push(GroupDesc::decode(&raw, image.geometry.desc_size).unwrap());
        }
        image
    }

    pub fn block(&self, block: FsBlock) -> &[u8] {
        let size = self.geometry.block_size as usize;
        &self.bytes[block.0 as usize * size..][..size]
    }

    pub fn block_mut(&mut self, block: FsBlock) -> &mut [u8] {
        let size = self.geometry.block_size as usize;
        &mut self.bytes[block.0 as usize * size..][..size]
    }

    pub fn raw_desc(&self, group: GroupNo) -> &[u8] {
        let (block, offset) = self.geometry.group_desc_location(group);
        &self.block(block)[offset as usize..][..usize::from(self.geometry.desc_size)]
    }

    pub fn inode_place(&self, ino: Ino) -> (FsBlock, usize) {
        let (group, _) = self.geometry.inode_group(ino).unwrap();
        let table = self.groups[group.0 as usize].inode_table;
        let (block, offset) = self.geometry.inode_location(ino, table).unwrap();
        (block, offset as usize)
    }

    pub fn raw_inode(&self, ino: Ino) -> &[u8] {
        let (block, offset) = self.inode_place(ino);
        &self.block(block)[offset..][..usize::from(self.geometry.inode_size)]
    }

    pub fn inode(&self, ino: Ino) -> InodeFields {
        InodeFields::decode(&self.geometry, self.raw_inode(ino)).unwrap()
    }

    /// The extents below a node, and the blocks of the tree itself.
    pub fn extents(&self, node: &ExtentNode<'_>, tree: &mut Vec<(FsBlock, u16)>) -> Vec<Extent> {
        let mut extents: Vec<Extent> = node.extents().collect();
        for index in node.indexes() {
            let depth = node.depth() - 1;
            tree.push((index.child, depth));
            let child = ExtentNode::parse(self.block(index.child), depth).unwrap();
            extents.extend(self.extents(&child, tree));
        }
        extents
    }

    /// The volume block of each of a file's mapped blocks, in order. Of a block map only the inode
    /// and the first indirect block.
    pub fn file_blocks(&self, inode: &InodeFields) -> Vec<FsBlock> {
        if inode.flags.contains(InodeFlags::EXTENTS) {
            let root = ExtentNode::parse_root(&inode.i_block).unwrap();
            let extents = self.extents(&root, &mut Vec::new());
            return extents
                .iter()
                .flat_map(|extent| (0..extent.len).map(|n| extent.start + u64::from(n)))
                .collect();
        }
        let word =
            |bytes: &[u8], n: usize| u32::from_le_bytes(bytes[n * 4..][..4].try_into().unwrap());
        let mut blocks: Vec<u32> = (0..12).map(|n| word(&inode.i_block, n)).collect();
        let indirect = word(&inode.i_block, 12);
        if indirect != 0 {
            let block = self.block(FsBlock(u64::from(indirect)));
            blocks.extend((0..block.len() / 4).map(|n| word(block, n)));
        }
        blocks
            .into_iter()
            .filter(|block| *block != 0)
            .map(|block| FsBlock(block.into()))
            .collect()
    }

    /// The inodes that are marked in the bitmaps.
    pub fn used_inodes(&self) -> Vec<Ino> {
        let mut used = Vec::new();
        for (group, desc) in (0..).map(GroupNo).zip(&self.groups) {
            if desc
                .flags
                .contains(ext4_format::group_desc::GroupFlags::INODE_UNINIT)
            {
                continue;
            }
            let bitmap = self.block(desc.inode_bitmap);
            for index in 0..self.geometry.inodes_per_group {
                if ext4_format::bitmap::test(bitmap, index) {
                    used.push(self.geometry.ino_at(group, index).unwrap());
                }
            }
        }
        used
    }

    /// Follows a path from the root by linear search.
    pub fn lookup(&self, path: &str) -> Ino {
        path.split('/')
            .filter(|part| !part.is_empty())
            .fold(Ino::ROOT, |dir, part| {
                let blocks = self.file_blocks(&self.inode(dir));
                let found = blocks.iter().find_map(|block| {
                    ext4_format::dir_entry::find(
                        self.block(*block),
                        part.as_bytes(),
                        self.geometry.inodes_count,
                    )
                    .unwrap()
                });
                found.unwrap_or_else(|| panic!("{part} not found")).ino
            })
    }
}
