//! New volumes, with the default features and the layout rules of mke2fs 1.47.
//!
//! [`mkfs`] works in four steps, a file each: `features` and `shape` turn the options into numbers,
//! `layout` places everything, `contents` makes inodes and directories, and here superblock and
//! descriptors are put together and written. Nothing is zeroed that need not be: groups that hold
//! nothing are marked uninitialised, which group checksums make safe, so that a volume of any size
//! takes little more than its descriptors' size in writes.
//!
//! The primary superblock is wiped first and written last, so that an interrupted run leaves no
//! volume that looks whole.

mod contents;
mod features;
mod layout;
mod shape;
mod write;
mod zeroed;

use crate::{Error, Result};
use block::{BufMut, Durability, Queue, Reason};
use contents::{Contents, ORPHAN_FILE, Placed};
use ext4_format::bitmap;
use ext4_format::features::CompatFeatures;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc, GroupFlags};
use ext4_format::inode::{InodeFields, Timestamp};
use ext4_format::superblock::{
    CHECKSUM_CRC32C, DefaultMountOpts, MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State,
    SuperFlags, Superblock,
};
use ext4_format::types::{GroupNo, Ino};
use layout::Layout;
use shape::{FIRST_INO, FLEX_BG_LOG, INODE_SIZE, Shape};
use write::Writer;
use zerocopy::FromZeros;
use zeroed::Zeroed;

/// What a new volume is to be; the defaults are mke2fs's.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Bytes in a block (4096).
    pub block_size: u32,
    /// Bytes per inode; `None`: by size as mke2fs.conf says (16384; 4096 below 512 MiB, 8192 below
    /// 3 MiB, 32768 from 4 TiB, 65536 from 16 TiB).
    pub inode_ratio: Option<u64>,
    /// Inodes; overrides the ratio.
    pub inodes: Option<u64>,
    /// Volume label (16 bytes at most).
    pub label: String,
    /// UUID; `None`: random.
    pub uuid: Option<[u8; 16]>,
    /// Percent of the blocks reserved for root.
    pub reserved_percent: u32,
    /// Journal size in bytes; `None`: by size as mke2fs does (no journal below 2048 blocks).
    pub journal_bytes: Option<u64>,
    /// Owner of the root directory.
    pub root_owner: (u32, u32),
    /// Features to add ("name") or leave out ("^name"), mke2fs -O; commas separate several in one
    /// string.
    pub features: Vec<String>,
    /// Discard the device first.
    pub discard: bool,
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            block_size: 4096,
            inode_ratio: None,
            inodes: None,
            label: String::new(),
            uuid: None,
            reserved_percent: 5,
            journal_bytes: None,
            root_owner: (0, 0),
            features: Vec::new(),
            discard: true,
        }
    }
}

/// What was made.
#[derive(Clone, Debug)]
pub struct MkfsReport {
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Groups.
    pub groups: u32,
    /// Journal blocks; 0 on a volume that is too small for a journal.
    pub journal_blocks: u32,
    /// UUID.
    pub uuid: [u8; 16],
}

/// Formats a device. What was on it is lost.
///
/// # Errors
/// `Invalid` where the options make no volume of this device (too small, too many inodes …),
/// `Unsupported` with the name of a feature, or the device's.
pub fn mkfs(queue: &Queue, options: &MkfsOptions) -> Result<MkfsReport> {
    if options.label.len() > 16 || options.label.contains('\0') {
        return Err(Error::Invalid("a label has at most 16 bytes and no NUL"));
    }
    let shape = Shape::compute(queue.capacity(), options)?;
    let mut superblock = new_superblock(&shape, options);
    let geo = Geometry::from_superblock(&superblock)?;
    let mut layout = Layout::new(&geo)?;
    let files = Files::place(&shape, &geo, &mut layout)?;
    let inodes = if shape.orphan_blocks > 0 {
        ORPHAN_FILE.0
    } else {
        FIRST_INO
    };
    layout.finish(&geo, inodes, 2);

    // Only advice: a device that cannot discard is as good.
    let discarded = options.discard && queue.discard(0, queue.capacity() & !511).is_ok();
    wipe_old_signatures(queue)?;
    let zeroed = Zeroed::probe(queue, discarded);
    zero_tables(queue, &geo, &mut layout, &zeroed)?;
    zero_runs(queue, &geo, &zeroed, files.journal_runs())?;

    let mut writer = Writer::new(queue, geo.block_size);
    let now = now();
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
        note_journal(&mut superblock, &fields);
    }
    contents.finish(&mut writer, &mut layout.descs[0], inodes)?;
    write_bitmaps(&mut writer, &geo, &mut layout);

    superblock
        .set_free_blocks_count(geo.blocks_count - geo.first_data_block - layout.used_blocks());
    superblock.set_free_inodes_count(geo.inodes_count - inodes);
    superblock.overhead_clusters = (files.fixed_blocks.min(u64::from(u32::MAX)) as u32).into();
    write_descriptors_and_backups(&mut writer, &geo, &layout.descs, &mut superblock)?;
    writer.finish()?;

    superblock.block_group_nr = 0.into();
    superblock.update_checksum();
    write_primary(queue, &geo, &superblock)?;
    Ok(MkfsReport {
        blocks: geo.blocks_count,
        inodes: u64::from(geo.inodes_count),
        groups: geo.groups,
        journal_blocks: shape.journal_blocks,
        uuid: geo.uuid,
    })
}

/// Where the files of a new volume lie.
struct Files {
    root: Placed,
    lost_found: Placed,
    double_indirect: Option<u64>,
    orphan_file: Option<Placed>,
    journal: Option<Placed>,
    /// Blocks that can never hold a user's data.
    fixed_blocks: u64,
}

/// lost+found is made so large that e2fsck need not allocate when it is needed most.
const LOST_FOUND_BYTES: u32 = 16 << 10;

impl Files {
    fn place(shape: &Shape, geo: &Geometry, layout: &mut Layout) -> Result<Files> {
        let mut fixed_blocks = layout.used_blocks() + geo.first_data_block;
        let front = geo.first_data_block;
        let one = |layout: &mut Layout| Ok::<_, Error>(layout.allocate(front, 1)?[0].0);
        let double_indirect = match geo.compat.contains(CompatFeatures::RESIZE_INODE) {
            true => Some(one(layout)?),
            false => None,
        };
        let root = place(layout, front, 1)?;
        // A directory without an index block map: at most twelve blocks, as mke2fs makes it.
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
        fixed_blocks += u64::from(shape.journal_blocks);
        Ok(Files {
            root,
            lost_found,
            double_indirect,
            orphan_file,
            journal,
            fixed_blocks,
        })
    }

    fn journal_runs(&self) -> &[layout::Run] {
        self.journal.as_ref().map_or(&[], |placed| &placed.runs)
    }
}

fn place(layout: &mut Layout, goal: u64, blocks: u32) -> Result<Placed> {
    let runs = layout.allocate(goal, u64::from(blocks))?;
    let longest = u64::from(ext4_format::extent::MAX_WRITTEN_LEN);
    let extents: u64 = runs.iter().map(|(_, len)| len.div_ceil(longest)).sum();
    let node = match extents > u64::from(ext4_format::extent::ROOT_CAPACITY) {
        true => Some(layout.allocate(goal, 1)?[0].0),
        false => None,
    };
    Ok(Placed { runs, node })
}

fn now() -> Timestamp {
    let since = sync::time::system_now().duration_since(std::time::UNIX_EPOCH);
    Timestamp {
        secs: since.map_or(0, |d| d.as_secs() as i64),
        nanos: 0,
    }
}

/// Everything of the superblock that does not depend on where things are.
fn new_superblock(shape: &Shape, options: &MkfsOptions) -> Superblock {
    let uuid = options
        .uuid
        .unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes());
    let seconds = now().secs.max(0) as u64;
    let (seconds_lo, seconds_hi) = (seconds as u32, (seconds >> 32) as u8);
    let is_flex = shape
        .features
        .incompat
        .contains(ext4_format::features::IncompatFeatures::FLEX_BG);
    let mut sb = Superblock::new_zeroed();
    sb.inodes_count = (shape.inodes_per_group * shape.groups).into();
    sb.set_blocks_count(shape.blocks);
    sb.set_reserved_blocks_count(shape.root_blocks);
    sb.first_data_block = shape.first_data_block.into();
    sb.log_block_size = (shape.block_size.trailing_zeros() - 10).into();
    sb.log_cluster_size = sb.log_block_size;
    sb.blocks_per_group = shape.blocks_per_group.into();
    sb.clusters_per_group = shape.blocks_per_group.into();
    sb.inodes_per_group = shape.inodes_per_group.into();
    (sb.wtime, sb.wtime_hi) = (seconds_lo.into(), seconds_hi);
    (sb.lastcheck, sb.lastcheck_hi) = (seconds_lo.into(), seconds_hi);
    (sb.mkfs_time, sb.mkfs_time_hi) = (seconds_lo.into(), seconds_hi);
    sb.max_mnt_count = u16::MAX.into();
    sb.magic = MAGIC.into();
    sb.set_state(State::VALID);
    sb.errors = 1.into();
    sb.rev_level = 1.into();
    sb.first_ino = FIRST_INO.into();
    sb.inode_size = (INODE_SIZE as u16).into();
    sb.set_compat(shape.features.compat);
    sb.set_incompat(shape.features.incompat);
    sb.set_ro_compat(shape.features.ro_compat);
    sb.uuid = uuid;
    sb.volume_name[..options.label.len()].copy_from_slice(options.label.as_bytes());
    sb.reserved_gdt_blocks = (shape.reserved_gdt_blocks as u16).into();
    sb.desc_size = if shape.desc_size > 32 {
        shape.desc_size.into()
    } else {
        0.into()
    };
    let hash_seed = uuid::Uuid::new_v4().into_bytes();
    for (word, bytes) in sb.hash_seed.iter_mut().zip(hash_seed.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
    }
    // half_md4; names are hashed with the signedness that the platform's `char` has.
    sb.def_hash_version = 1;
    let flags = if std::ffi::c_char::MIN == 0 {
        SuperFlags::UNSIGNED_HASH
    } else {
        SuperFlags::SIGNED_HASH
    };
    sb.flags = flags.bits().into();
    sb.default_mount_opts = (DefaultMountOpts::XATTR_USER | DefaultMountOpts::ACL)
        .bits()
        .into();
    sb.min_extra_isize = ext4_format::inode::FULL_EXTRA_ISIZE.into();
    sb.want_extra_isize = ext4_format::inode::FULL_EXTRA_ISIZE.into();
    sb.log_groups_per_flex = if is_flex { FLEX_BG_LOG } else { 0 };
    if shape
        .features
        .ro_compat
        .contains(ext4_format::features::RoCompatFeatures::METADATA_CSUM)
    {
        sb.checksum_type = CHECKSUM_CRC32C;
    }
    if shape
        .features
        .incompat
        .contains(ext4_format::features::IncompatFeatures::CSUM_SEED)
    {
        sb.checksum_seed = ext4_format::checksum::Seed::INITIAL.extend(&uuid).0.into();
    }
    if shape.orphan_blocks > 0 {
        sb.orphan_file_inum = ORPHAN_FILE.0.into();
    }
    sb
}

/// Keeps a copy of the journal's map in the superblock, from which e2fsck can restore the inode.
fn note_journal(sb: &mut Superblock, fields: &InodeFields) {
    sb.journal_inum = Ino::JOURNAL.0.into();
    sb.jnl_backup_type = 1;
    for (word, bytes) in sb.jnl_blocks.iter_mut().zip(fields.i_block.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
    }
    sb.jnl_blocks[15] = ((fields.size >> 32) as u32).into();
    sb.jnl_blocks[16] = (fields.size as u32).into();
}

/// Removes what other file systems, RAID and partition tables leave at both ends of a device, the
/// old superblock included.
fn wipe_old_signatures(queue: &Queue) -> Result<()> {
    const ENDS: u64 = 64 << 10;
    let capacity = queue.capacity() & !4095;
    let page = BufMut::zeroed(block::PAGE_SIZE).freeze();
    let head = capacity.min(ENDS);
    let pages = |len: u64| vec![page.clone(); (len / 4096) as usize];
    queue.write(
        0,
        &pages(head),
        block::Class::Metadata,
        Reason::Format,
        Durability::Cached,
    )?;
    if capacity > 2 * ENDS {
        let last = capacity - ENDS;
        queue.write(
            last,
            &pages(ENDS),
            block::Class::Metadata,
            Reason::Format,
            Durability::Cached,
        )?;
    }
    queue.flush(Reason::Format)?;
    Ok(())
}

/// Zeroes the inode tables where nothing else says that they are unused, and marks those that are
/// zero.
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

/// Zeroes runs of blocks that are not zero already. An old journal's blocks could pass for the new
/// one's.
fn zero_runs(queue: &Queue, geo: &Geometry, zeroed: &Zeroed, runs: &[layout::Run]) -> Result<()> {
    let block_size = u64::from(geo.block_size);
    for (start, len) in runs {
        let (offset, bytes) = (start * block_size, len * block_size);
        if !zeroed.covers(offset, bytes) {
            queue.write_zeroes(offset, bytes, Reason::Format)?;
        }
    }
    Ok(())
}

/// Writes the bitmaps of groups that are initialised and takes over their checksums.
fn write_bitmaps(writer: &mut Writer<'_>, geo: &Geometry, layout: &mut Layout) {
    let empty = contents::inode_bitmap(geo, 0);
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
            writer.put(desc.block_bitmap.0, &map);
            desc.update_block_bitmap_csum(geo, &map);
        }
        // The first group's inode bitmap is written with its inodes.
        if index > 0 && !flags.contains(GroupFlags::INODE_UNINIT) {
            let desc = &mut layout.descs[index];
            writer.put_buf(desc.inode_bitmap.0, empty_buf.clone());
            desc.update_inode_bitmap_csum(geo, &empty);
        }
    }
}

/// Writes the descriptor table and the backups of both; the primary superblock is left to the
/// caller.
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
        let first = geo.group_first_block(group).0;
        if group.0 > 0 {
            superblock.block_group_nr = (group.0 as u16).into();
            superblock.update_checksum();
            block[..SUPERBLOCK_SIZE].copy_from_slice(superblock.as_bytes());
            writer.put(first, &block);
        }
        for (nth, buf) in (1..).zip(&blocks) {
            writer.put_buf(first + nth, buf.clone());
        }
    }
    Ok(())
}

fn write_primary(queue: &Queue, geo: &Geometry, superblock: &Superblock) -> Result<()> {
    let mut block = BufMut::zeroed(geo.block_size as usize);
    // Blocks of 1 KiB have the superblock in block 1, larger ones within block 0.
    let offset = SUPERBLOCK_OFFSET as usize % block.len();
    block[offset..offset + SUPERBLOCK_SIZE].copy_from_slice(superblock.as_bytes());
    let at = geo.first_data_block * u64::from(geo.block_size);
    queue.write(
        at,
        &[block.freeze()],
        block::Class::Metadata,
        Reason::Format,
        Durability::Cached,
    )?;
    queue.flush(Reason::Format)?;
    Ok(())
}
