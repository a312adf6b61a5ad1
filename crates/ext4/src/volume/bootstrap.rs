//! Finding the journal: the super block, one group descriptor, the journal's inode and its extents
//! are read directly from the device, because blocks are otherwise read through the journal.

use crate::{Error, InodeDamage, Result};
use block::{Buf, Class, PAGE_SIZE, Queue, Reason};
use ext4_format::block_map;
use ext4_format::error::FormatError;
use ext4_format::extent::{self, ExtentNode};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc};
use ext4_format::inode::{InodeFields, InodeFlags, verify_checksum};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use jbd2::JournalExtent;
use std::ops::Range;
use units::{FileBlock, FsBlock, Ino};

/// Extents that a journal may have; mke2fs makes a handful.
const MAX_EXTENTS: usize = 4096;
/// Blocks of its extent tree. [`MAX_EXTENTS`] extents need thirteen.
const MAX_NODES: u32 = 1024;

/// Reads and checks the super block.
pub(crate) fn read_superblock(queue: &Queue) -> Result<Superblock> {
    let need = SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64;
    if queue.capacity() < need {
        return Err(Error::Unsupported(format!(
            "{} has fewer than {need} bytes, too few for an ext4 volume; make one with `sluice \
             mkfs`",
            queue.name(),
        )));
    }
    Superblock::parse(&superblock_bytes(queue)?).map_err(|error| match error {
        FormatError::BadMagic { .. } => Error::Unsupported(format!(
            "{} holds no ext2, ext3 or ext4 file system; make one with `sluice mkfs`",
            queue.name()
        )),
        error => error.into(),
    })
}

/// Reads the bytes of the super block. There are none if the device is too short.
pub(super) fn superblock_bytes(queue: &Queue) -> Result<Vec<u8>> {
    let place = SUPERBLOCK_OFFSET as usize..SUPERBLOCK_OFFSET as usize + SUPERBLOCK_SIZE;
    let len = (PAGE_SIZE as u64).min(queue.capacity()) as usize;
    let bufs = queue.read(0, len, PAGE_SIZE, Class::Metadata, Reason::MetadataRead)?;
    let bytes = bufs.first().and_then(|buf| buf.get(place));
    Ok(bytes.unwrap_or_default().to_vec())
}

fn read_block(queue: &Queue, geo: &Geometry, block: FsBlock) -> Result<Buf> {
    let size = geo.block_size as usize;
    let mut bufs = queue.read(
        block.offset(geo.block_size),
        size,
        size,
        Class::Metadata,
        Reason::MetadataRead,
    )?;
    bufs.pop()
        .ok_or(Error::Internal("a read of the device returned no buffer"))
}

/// The blocks of the journal inode `ino`.
pub(crate) fn journal_extents(
    queue: &Queue,
    geo: &Geometry,
    ino: Ino,
) -> Result<Vec<JournalExtent>> {
    let corrupt = |damage: InodeDamage| damage.of(ino);
    let (group, _) = geo.inode_group(ino)?;
    let (block, offset) = geo.group_desc_location(group);
    let data = read_block(queue, geo, block)?;
    let raw = data
        .get(offset as usize..offset as usize + usize::from(geo.desc_size))
        .ok_or(Error::Internal("a group descriptor lies beyond its block"))?;
    group_desc::verify_checksum(geo, group, raw)?;
    let desc = GroupDesc::decode(raw, geo.desc_size)?;
    desc.validate_places(geo)?;
    let (block, offset) = geo.inode_location(ino, desc.inode_table)?;
    let data = read_block(queue, geo, block)?;
    let raw = data
        .get(offset as usize..offset as usize + usize::from(geo.inode_size))
        .ok_or(Error::Internal("an inode lies beyond its block"))?;
    verify_checksum(geo, ino, raw)?;
    let fields = InodeFields::decode(geo, raw)?;
    let mut walk = Walk {
        queue,
        geo,
        ino,
        generation: fields.generation,
        nodes: 0,
        extents: Vec::new(),
    };
    if fields.flags.contains(InodeFlags::EXTENTS) {
        let root = ExtentNode::parse_root(&fields.i_block)?;
        walk.collect(&root, root.depth())?;
    } else {
        let blocks = fields.size.div_ceil(u64::from(geo.block_size));
        for root in 0..block_map::ROOTS {
            let (levels, first) = block_map::root_pointer(root, geo.block_size);
            let pointer = block_map::get(&fields.i_block, root);
            walk.collect_map(pointer, levels, first..blocks)?;
        }
    }
    let extents = walk.extents;
    let blocks: u64 = extents
        .iter()
        .map(|e: &JournalExtent| u64::from(e.len))
        .sum();
    let mut end = FileBlock::FIRST;
    for extent in &extents {
        if extent.logical != end {
            return Err(corrupt(InodeDamage::JournalHole { file_block: end }));
        }
        end = end.saturating_add(extent.len);
    }
    if blocks * u64::from(geo.block_size) < fields.size || blocks > u64::from(u32::MAX) {
        return Err(corrupt(InodeDamage::JournalSize {
            blocks,
            size: fields.size,
        }));
    }
    Ok(extents)
}

/// Collects the extents of the journal. The number of nodes is bounded: a damaged tree may contain
/// a circle.
struct Walk<'a> {
    queue: &'a Queue,
    geo: &'a Geometry,
    ino: Ino,
    generation: u32,
    /// Nodes below the root that were read.
    nodes: u32,
    extents: Vec<JournalExtent>,
}

impl Walk<'_> {
    fn corrupt(&self, damage: InodeDamage) -> Error {
        damage.of(self.ino)
    }

    fn collect(&mut self, node: &ExtentNode<'_>, depth: u16) -> Result<()> {
        if depth == 0 {
            return self.collect_leaf(node);
        }
        let seed = self.geo.inode_csum_seed(self.ino, self.generation);
        for index in node.indexes() {
            let block = index.child;
            if !self.geo.contains_blocks(block, 1) {
                return Err(self.corrupt(InodeDamage::NodeBlock { block }));
            }
            self.count_node()?;
            let data = read_block(self.queue, self.geo, index.child)?;
            extent::verify_checksum(seed, &data, index.child.0)?;
            let child = ExtentNode::parse(&data, depth - 1)?;
            self.collect(&child, depth - 1)?;
        }
        Ok(())
    }

    /// Collects what a pointer of a block map covers, as far as it is in `range`, which begins with
    /// the first file block that the pointer covers.
    fn collect_map(&mut self, pointer: u32, levels: u8, range: Range<u64>) -> Result<()> {
        if range.is_empty() || pointer == 0 {
            // A hole is found when all extents are compared.
            return Ok(());
        }
        let block = FsBlock(pointer.into());
        let file_block = FileBlock(u32::try_from(range.start).unwrap_or(u32::MAX));
        if !self.geo.contains_blocks(block, 1) {
            return Err(self.corrupt(InodeDamage::MappedBlock { file_block, block }));
        }
        let Some(below) = levels.checked_sub(1) else {
            return self.push(JournalExtent {
                logical: file_block,
                physical: block,
                len: 1,
            });
        };
        self.count_node()?;
        let data = read_block(self.queue, self.geo, block)?;
        let covered = block_map::covered(self.geo.block_size, below);
        for slot in 0..block_map::pointers(self.geo.block_size) {
            let first = range.start + u64::from(slot) * covered;
            let pointer = block_map::get(&data, slot as usize);
            self.collect_map(pointer, below, first..range.end)?;
        }
        Ok(())
    }

    fn count_node(&mut self) -> Result<()> {
        self.nodes += 1;
        match self.nodes > MAX_NODES {
            true => Err(self.corrupt(InodeDamage::TooManyNodes { most: MAX_NODES })),
            false => Ok(()),
        }
    }

    /// Adds an extent. It is merged with the last one if they are contiguous.
    fn push(&mut self, extent: JournalExtent) -> Result<()> {
        if let Some(last) = self.extents.last_mut()
            && last.logical.saturating_add(last.len) == extent.logical
            && last.physical.saturating_add(u64::from(last.len)) == extent.physical
            && let Some(len) = last.len.checked_add(extent.len)
        {
            last.len = len;
            return Ok(());
        }
        if self.extents.len() == MAX_EXTENTS {
            return Err(self.corrupt(InodeDamage::TooManyExtents {
                most: MAX_EXTENTS as u32,
            }));
        }
        self.extents.push(extent);
        Ok(())
    }

    fn collect_leaf(&mut self, node: &ExtentNode<'_>) -> Result<()> {
        for e in node.extents() {
            if !self.geo.contains_blocks(e.start, u64::from(e.len)) {
                return Err(self.corrupt(InodeDamage::Extent {
                    file_block: e.file_block,
                    start: e.start,
                    len: e.len,
                }));
            }
            self.push(JournalExtent {
                logical: e.file_block,
                physical: e.start,
                len: e.len,
            })?;
        }
        Ok(())
    }
}
