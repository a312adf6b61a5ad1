//! Formatting a device, step by step.

use crate::contents::{Contents, ORPHAN_FILE, Placed, inode_bitmap};
use crate::features::is_journal_device;
use crate::journal_device::{self, Unused};
use crate::layout::{Layout, Run};
use crate::shape::{FIRST_INO, JournalPlace, Shape};
use crate::superblock;
use crate::write::Writer;
use crate::zeroed::{Zeroed, clear, zero_runs};
use crate::{Error, MkfsOptions, MkfsReport, Result};
use block::{BufMut, Queue, Reason};
use ext4_format::features::CompatFeatures;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc, GroupFlags};
use ext4_format::superblock::{SUPERBLOCK_SIZE, Superblock};
use ext4_format::{bitmap, extent};
use units::{FsBlock, GroupNo};

/// Formats a device. Its contents are lost.
///
/// # Errors
/// `Invalid` if the options do not fit the device (too small, too many inodes …), `Unsupported`
/// with the name of a feature, `Io` if the device fails.
pub fn format(queue: &Queue, options: &MkfsOptions) -> Result<MkfsReport> {
    check(queue, options)?;
    match is_journal_device(&options.features)? {
        true => journal_device::format(queue, options),
        false => format_volume(queue, None, options),
    }
}

/// Formats a device. The volume's journal is the device `journal`, which [`format()`] has made a
/// journal and which no volume uses.
///
/// # Errors
/// As [`format()`]; `Journal` if `journal` is no such device.
pub fn format_with_journal(
    queue: &Queue,
    journal: &Queue,
    options: &MkfsOptions,
) -> Result<MkfsReport> {
    check(queue, options)?;
    if is_journal_device(&options.features)? {
        return Err(Error::Invalid("a journal device has no journal"));
    }
    let found = Unused::read(journal, options.block_size)?;
    format_volume(queue, Some(&found), options)
}

fn check(queue: &Queue, options: &MkfsOptions) -> Result<()> {
    if options.label.len() > 16 || options.label.contains('\0') {
        return Err(Error::Invalid("a label has at most 16 bytes and no NUL"));
    }
    if queue.device().sector_size() > u64::from(options.block_size) {
        return Err(Error::Invalid(
            "the blocks of a volume cannot be smaller than the sectors of its device",
        ));
    }
    Ok(())
}

fn format_volume(
    queue: &Queue,
    journal: Option<&Unused<'_>>,
    options: &MkfsOptions,
) -> Result<MkfsReport> {
    let place = match journal {
        Some(_) => JournalPlace::OnDevice,
        None => JournalPlace::OnVolume,
    };
    let shape = Shape::compute(queue.capacity(), options, place)?;
    let now = superblock::now();
    let mut superblock = superblock::new(&shape, options, now);
    let geo = Geometry::from_superblock(&superblock)?;
    let mut layout = Layout::new(&geo)?;
    let files = Files::place(&shape, &geo, &mut layout)?;
    let inodes = if shape.orphan_blocks > 0 {
        ORPHAN_FILE.0
    } else {
        FIRST_INO
    };
    layout.finish(&geo, inodes, 2);

    let zeroed = clear(queue, options)?;
    zero_tables(queue, &geo, &mut layout, &zeroed)?;
    zero_runs(queue, geo.block_size, &zeroed, files.journal_runs())?;

    let mut writer = Writer::new(queue, geo.block_size);
    let mut contents = Contents::new(&geo, now, inodes);
    contents.directories(
        &mut writer,
        options.root_owner,
        &files.root,
        &files.lost_found,
    )?;
    if let Some(block) = files.double_indirect {
        contents.resize_inode(&mut writer, block)?;
    }
    if let Some(placed) = &files.orphan_file {
        contents.orphan_file(&mut writer, placed)?;
    }
    if let Some(placed) = &files.journal {
        let fields = contents.journal(&mut writer, placed)?;
        superblock::set_journal(&mut superblock, &fields);
    }
    if let Some(journal) = journal {
        superblock.journal_uuid = journal.uuid();
        superblock.journal_dev = journal.number().to_bits().into();
    }
    contents.finish(&mut writer, &mut layout.descs[0], inodes)?;
    write_bitmaps(&mut writer, &geo, &mut layout);

    superblock
        .set_free_blocks_count(geo.blocks_count - geo.first_data_block - layout.used_blocks());
    superblock.set_free_inodes_count(geo.inodes_count - inodes);
    superblock.overhead_clusters = (files.fixed_clusters.min(u64::from(u32::MAX)) as u32).into();
    write_descriptors_and_backups(&mut writer, &geo, &layout.descs, &mut superblock)?;
    writer.finish()?;

    superblock.block_group_nr = 0.into();
    superblock.update_checksum();
    if let Some(journal) = journal {
        journal.set_user(geo.uuid)?;
    }
    superblock::write_primary(queue, &superblock)?;
    Ok(MkfsReport {
        blocks: geo.blocks_count,
        inodes: u64::from(geo.inodes_count),
        groups: geo.groups,
        journal_blocks: journal.map_or(shape.journal_blocks, Unused::blocks),
        uuid: geo.uuid,
    })
}

/// The blocks of a new volume's files.
struct Files {
    root: Placed,
    lost_found: Placed,
    /// The resize inode's only block.
    double_indirect: Option<FsBlock>,
    orphan_file: Option<Placed>,
    journal: Option<Placed>,
    /// Clusters that can never hold file data.
    fixed_clusters: u64,
}

/// `lost+found` is large enough for e2fsck to use it on a full volume.
const LOST_FOUND_BYTES: u32 = 16 << 10;

impl Files {
    fn place(shape: &Shape, geo: &Geometry, layout: &mut Layout) -> Result<Files> {
        let size = geo.cluster();
        let mut fixed_clusters = size.clusters_for(layout.used_blocks() + geo.first_data_block);
        let front = geo.first_data_block;
        let double_indirect = match geo.compat.contains(CompatFeatures::RESIZE_INODE) {
            true => Some(layout.allocate_one(front)?),
            false => None,
        };
        let root = place(layout, front, 1)?;
        // mke2fs limits it to the twelve direct blocks of a block map.
        let lost_found_blocks = (LOST_FOUND_BYTES / geo.block_size).clamp(2, 12);
        let lost_found = place(layout, front, lost_found_blocks)?;
        let orphan_file = match shape.orphan_blocks {
            0 => None,
            blocks => Some(place(layout, front, blocks)?),
        };
        let journal = match shape.journal_blocks {
            0 => None,
            blocks => Some(place(layout, layout.journal_goal(geo), blocks)?),
        };
        fixed_clusters += size.clusters_for(shape.journal_blocks.into());
        Ok(Files {
            root,
            lost_found,
            double_indirect,
            orphan_file,
            journal,
            fixed_clusters,
        })
    }

    fn journal_runs(&self) -> &[Run] {
        self.journal.as_ref().map_or(&[], |placed| &placed.runs)
    }
}

/// Allocates the blocks of a file, and an extent node if the inode's root is too small.
fn place(layout: &mut Layout, goal: u64, blocks: u32) -> Result<Placed> {
    let runs = layout.allocate(goal, u64::from(blocks))?;
    let longest = u64::from(extent::MAX_WRITTEN_LEN);
    let extents: u64 = runs.iter().map(|(_, len)| len.div_ceil(longest)).sum();
    let node = match extents > u64::from(extent::ROOT_CAPACITY) {
        true => Some(layout.allocate_one(goal)?),
        false => None,
    };
    Ok(Placed { runs, node })
}

/// Zeroes the inode tables if groups have no "uninitialised" flag, and flags those that are zero.
fn zero_tables(queue: &Queue, geo: &Geometry, layout: &mut Layout, zeroed: &Zeroed) -> Result<()> {
    let lazy = geo.has_group_csum();
    let block_size = u64::from(geo.block_size);
    let len = u64::from(geo.itable_blocks_per_group()) * block_size;
    for desc in &mut layout.descs {
        let offset = desc.inode_table.0 * block_size;
        let mut is_zero = zeroed.covers(offset, len);
        if !is_zero && !lazy {
            queue.write_zeroes(offset, len, Reason::Format)?;
            is_zero = true;
        }
        desc.flags.set(GroupFlags::INODE_ZEROED, is_zero && lazy);
    }
    Ok(())
}

/// Writes the bitmaps of initialised groups and stores their checksums in the descriptors.
fn write_bitmaps(writer: &mut Writer<'_>, geo: &Geometry, layout: &mut Layout) {
    let empty = inode_bitmap(geo, 0);
    let empty_buf = BufMut::copy_of(&empty).freeze();
    for index in 0..layout.descs.len() {
        let flags = layout.descs[index].flags;
        if !flags.contains(GroupFlags::BLOCK_UNINIT) {
            let map = layout.block_bitmap(geo, GroupNo(index as u32));
            let desc = &mut layout.descs[index];
            debug_assert_eq!(
                bitmap::count_zeros(&map, 0, u32::MAX),
                desc.free_blocks_count
            );
            writer.put(desc.block_bitmap, &map);
            desc.update_block_bitmap_csum(geo, &map);
        }
        // The first group's inode bitmap is written with its inodes.
        if index > 0 && !flags.contains(GroupFlags::INODE_UNINIT) {
            let desc = &mut layout.descs[index];
            writer.put_buf(desc.inode_bitmap, empty_buf.clone());
            desc.update_inode_bitmap_csum(geo, &empty);
        }
    }
}

/// Writes the descriptor table and the backups of superblock and table. The caller writes the
/// primary superblock, which must be last.
fn write_descriptors_and_backups(
    writer: &mut Writer<'_>,
    geo: &Geometry,
    descs: &[GroupDesc],
    superblock: &mut Superblock,
) -> Result<()> {
    let block_size = geo.block_size as usize;
    let size = usize::from(geo.desc_size);
    let mut table = vec![0; geo.gdt_blocks as usize * block_size];
    for (group, (desc, raw)) in (0..).zip(descs.iter().zip(table.chunks_exact_mut(size))) {
        desc.encode(raw, geo.desc_size)?;
        group_desc::update_checksum(geo, GroupNo(group), raw);
    }
    let blocks: Vec<_> = table
        .chunks_exact(block_size)
        .map(|bytes| BufMut::copy_of(bytes).freeze())
        .collect();
    let mut block = vec![0; block_size];
    for group in (0..geo.groups)
        .map(GroupNo)
        .filter(|group| geo.has_super(*group))
    {
        let first = match group.0 {
            0 => geo.superblock_block(),
            _ => geo.group_first_block(group),
        };
        if group.0 > 0 {
            superblock.block_group_nr = (group.0 as u16).into();
            superblock.update_checksum();
            block[..SUPERBLOCK_SIZE].copy_from_slice(superblock.as_bytes());
            writer.put(first, &block);
        }
        for (nth, buf) in (1..).zip(&blocks) {
            writer.put_buf(FsBlock(first.0 + nth), buf.clone());
        }
    }
    Ok(())
}
