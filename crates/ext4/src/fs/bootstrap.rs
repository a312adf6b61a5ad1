//! Finding the journal before there is a journal to read blocks through: the super block, one group descriptor, the
//! journal's inode and its extents, straight from the device.

use crate::{Error, Result};
use block::{Buf, Class, PAGE_SIZE, Queue};
use ext4_format::error::FormatError;
use ext4_format::extent::{self, ExtentNode};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc};
use ext4_format::inode::{InodeFields, InodeFlags, verify_checksum};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use ext4_format::types::Ino;
use jbd2::JournalExtent;

/// Extents that a journal may have; mke2fs makes a handful.
const MAX_EXTENTS: usize = 4096;

/// Reads and checks the super block.
pub(crate) fn read_superblock(queue: &Queue) -> Result<Superblock> {
    let need = SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64;
    if queue.capacity() < need {
        return Err(Error::Unsupported(format!(
            "{} has {} bytes, too few for an ext4 volume; make one with `sluice mkfs`",
            queue.name(),
            queue.capacity()
        )));
    }
    let len = (PAGE_SIZE as u64).min(queue.capacity()) as usize;
    let bufs = queue.read(0, len, PAGE_SIZE, Class::Metadata)?;
    let bytes = bufs
        .first()
        .and_then(|b| b.get(SUPERBLOCK_OFFSET as usize..need as usize));
    Superblock::parse(bytes.unwrap_or(&[])).map_err(|error| match error {
        FormatError::BadMagic { .. } => Error::Unsupported(format!(
            "{} holds no ext2, ext3 or ext4 file system; make one with `sluice mkfs`",
            queue.name()
        )),
        error => error.into(),
    })
}

fn read_block(queue: &Queue, geo: &Geometry, block: u64) -> Result<Buf> {
    let size = geo.block_size as usize;
    let mut bufs = queue.read(block * size as u64, size, size, Class::Metadata)?;
    bufs.pop()
        .ok_or(Error::Invalid("the device returned nothing"))
}

/// Where the journal inode `ino` lies on the volume.
pub(crate) fn journal_extents(
    queue: &Queue,
    geo: &Geometry,
    ino: Ino,
) -> Result<Vec<JournalExtent>> {
    let corrupt = |what| Error::CorruptInode { ino: ino.0, what };
    let (group, _) = geo.inode_group(ino)?;
    let (block, offset) = geo.group_desc_location(group);
    let data = read_block(queue, geo, block.0)?;
    let raw = data
        .get(offset as usize..offset as usize + usize::from(geo.desc_size))
        .ok_or(corrupt("its group descriptor lies beyond its block"))?;
    group_desc::verify_checksum(geo, group, raw)?;
    let desc = GroupDesc::decode(raw, geo.desc_size)?;
    desc.validate(geo, group)?;
    let (block, offset) = geo.inode_location(ino, desc.inode_table)?;
    let data = read_block(queue, geo, block.0)?;
    let raw = data
        .get(offset as usize..offset as usize + usize::from(geo.inode_size))
        .ok_or(corrupt("lies beyond its table"))?;
    verify_checksum(geo, ino, raw)?;
    let fields = InodeFields::decode(geo, raw)?;
    if !fields.flags.contains(InodeFlags::EXTENTS) {
        return Err(Error::Unsupported(
            "a journal without extents (ext3 block map)".into(),
        ));
    }
    let mut extents = Vec::new();
    let root = ExtentNode::parse_root(&fields.i_block)?;
    let depth = root.depth();
    collect(
        queue,
        geo,
        ino,
        fields.generation,
        &root,
        depth,
        &mut extents,
    )?;
    let blocks: u64 = extents
        .iter()
        .map(|e: &JournalExtent| u64::from(e.len))
        .sum();
    let contiguous = extents.iter().try_fold(0u64, |at, e| {
        (u64::from(e.logical) == at).then_some(at + u64::from(e.len))
    });
    if contiguous.is_none()
        || blocks * u64::from(geo.block_size) < fields.size
        || blocks > u64::from(u32::MAX)
    {
        return Err(corrupt("the journal has holes"));
    }
    Ok(extents)
}

fn collect(
    queue: &Queue,
    geo: &Geometry,
    ino: Ino,
    generation: u32,
    node: &ExtentNode<'_>,
    depth: u16,
    extents: &mut Vec<JournalExtent>,
) -> Result<()> {
    if depth == 0 {
        for e in node.extents() {
            if !geo.contains_blocks(ext4_format::types::FsBlock(e.start), u64::from(e.len))
                || extents.len() == MAX_EXTENTS
            {
                return Err(Error::CorruptInode {
                    ino: ino.0,
                    what: "the journal has impossible extents",
                });
            }
            extents.push(JournalExtent {
                logical: e.file_block,
                physical: e.start,
                len: e.len,
            });
        }
        return Ok(());
    }
    for index in node.indexes() {
        if !geo.contains_blocks(ext4_format::types::FsBlock(index.child), 1) {
            return Err(Error::CorruptInode {
                ino: ino.0,
                what: "an extent index points beyond the volume",
            });
        }
        let data = read_block(queue, geo, index.child)?;
        extent::verify_checksum(geo.inode_csum_seed(ino, generation), &data, index.child)?;
        let child = ExtentNode::parse(&data, depth - 1)?;
        collect(queue, geo, ino, generation, &child, depth - 1, extents)?;
    }
    Ok(())
}
