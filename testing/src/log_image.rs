//! Logs as an attacker would write them: their claims do not match the image.

use ext4_format::extent::ExtentNode;
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::InodeFields;
use ext4_format::{Geometry, Superblock};
use jbd2::Tid;
use jbd2::format::{Layout, commit, descriptor, put_u32, revoke};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;
use units::{FsBlock, GroupNo, Ino, Span};

const BLOCK: usize = 4096;
/// Offsets in the journal's super block.
const SEQUENCE: usize = 0x18;
const START: usize = 0x1C;
/// `s_feature_incompat` and its bit for a log that has to be replayed.
const INCOMPAT: usize = 1024 + 0x60;
const RECOVER: u32 = 4;

/// Writes the log of an image, one block after another.
pub struct LogWriter {
    file: File,
    /// The volume blocks of the journal, in order.
    homes: Vec<FsBlock>,
    layout: Layout,
    at: usize,
}

impl LogWriter {
    /// Opens a volume by mke2fs with 4 KiB blocks and no checksums (`^metadata_csum`), whose
    /// journal is clean.
    ///
    /// # Panics
    /// If the image is no such volume.
    pub fn new(image: &Path) -> LogWriter {
        let file = File::options().read(true).write(true).open(image);
        let file = file.expect("an image");
        let homes = journal_blocks(&file);
        LogWriter {
            file,
            homes,
            layout: Layout {
                block_size: BLOCK,
                bits64: false,
                checksums: jbd2::format::Checksums::None,
                seed: 0,
            },
            at: 1,
        }
    }

    /// Free log blocks.
    pub fn left(&self) -> usize {
        self.homes.len() - self.at
    }

    /// Blocks of the volume that belong to the journal.
    pub fn journal(&self) -> &[FsBlock] {
        &self.homes
    }

    fn put(&mut self, block: &[u8]) {
        let offset = self.homes[self.at].offset(BLOCK as u32);
        self.file.write_all_at(block, offset).expect("a log block");
        self.at += 1;
    }

    /// Writes a descriptor of at most 508 blocks, whose copies are holes of the image.
    pub fn descriptor(&mut self, homes: &[FsBlock]) {
        let tags: Vec<_> = homes
            .iter()
            .map(|&block| descriptor::Tag {
                block,
                content: descriptor::CopyContent::Verbatim,
                deleted: false,
                checksum: 0,
            })
            .collect();
        let mut block = vec![0; BLOCK];
        descriptor::write(&self.layout, Tid(1), &tags, &[0; 16], &mut block);
        self.put(&block);
        self.at += homes.len();
    }

    /// Writes a revoke block of at most 1020 blocks.
    pub fn revoke(&mut self, blocks: &[FsBlock]) {
        let mut block = vec![0; BLOCK];
        revoke::write(&self.layout, Tid(1), blocks, &mut block);
        self.put(&block);
    }

    /// Writes the commit block, and super blocks that request replay.
    pub fn finish(mut self) {
        let mut block = vec![0; BLOCK];
        commit::write(&self.layout, Tid(1), UNIX_EPOCH, 0, &mut block);
        self.put(&block);
        let offset = self.homes[0].offset(BLOCK as u32);
        let mut head = vec![0; BLOCK];
        self.file
            .read_exact_at(&mut head, offset)
            .expect("a journal");
        put_u32(&mut head, START, 1);
        put_u32(&mut head, SEQUENCE, 1);
        self.file.write_all_at(&head, offset).expect("a journal");
        let mut incompat = [0; 4];
        self.file
            .read_exact_at(&mut incompat, INCOMPAT as u64)
            .expect("a super block");
        let incompat = u32::from_le_bytes(incompat) | RECOVER;
        self.file
            .write_all_at(&incompat.to_le_bytes(), INCOMPAT as u64)
            .expect("a super block");
    }
}

/// The volume blocks of the journal, in order.
fn journal_blocks(file: &File) -> Vec<FsBlock> {
    let read = |offset: u64, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset).expect("the image");
        bytes
    };
    let superblock = Superblock::parse(&read(1024, 1024)).expect("a super block");
    let geo = Geometry::from_superblock(&superblock).expect("a geometry");
    let (block, offset) = geo.group_desc_location(GroupNo(0));
    let raw = read(
        block.offset(BLOCK as u32) + u64::from(offset),
        usize::from(geo.desc_size),
    );
    let desc = GroupDesc::decode(&raw, geo.desc_size).expect("a descriptor");
    let (block, offset) = geo
        .inode_location(Ino(8), desc.inode_table)
        .expect("the journal's inode");
    let raw = read(
        block.offset(BLOCK as u32) + u64::from(offset),
        usize::from(geo.inode_size),
    );
    let fields = InodeFields::decode(&geo, &raw).expect("the journal's inode");
    let root = ExtentNode::parse_root(&fields.i_block).expect("extents");
    let mut leaves = Vec::new();
    for index in root.indexes() {
        leaves.push(read(index.child.offset(BLOCK as u32), BLOCK));
    }
    let nodes: Vec<ExtentNode<'_>> = match root.depth() {
        0 => vec![root],
        1 => leaves
            .iter()
            .map(|leaf| ExtentNode::parse(leaf, 0).expect("a leaf"))
            .collect(),
        depth => panic!("an extent tree of depth {depth}"),
    };
    let extents = nodes.iter().flat_map(ExtentNode::extents);
    let runs = extents.map(|e| e.start..e.start + u64::from(e.len));
    runs.flat_map(|run| run.numbers()).collect()
}
