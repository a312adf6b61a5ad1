//! The superblock of a new volume.

use crate::contents::ORPHAN_FILE;
use crate::shape::{FIRST_INO, FLEX_BG_LOG, INODE_SIZE, Shape};
use crate::{MkfsOptions, Result};
use block::{BufMut, Class, Durability, Queue, Reason};
use ext4_format::checksum::Seed;
use ext4_format::features::{IncompatFeatures, RoCompatFeatures};
use ext4_format::inode::{FULL_EXTRA_ISIZE, InodeFields, Timestamp};
use ext4_format::superblock::{
    CHECKSUM_CRC32C, DefaultMountOpts, MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State,
    SuperFlags, Superblock,
};
use units::Ino;
use zerocopy::FromZeros;

/// Returns the time of creation.
pub(crate) fn now() -> Timestamp {
    let since = sync::time::system_now().duration_since(std::time::UNIX_EPOCH);
    Timestamp {
        secs: since.map_or(0, |d| d.as_secs() as i64),
        nanos: 0,
    }
}

/// Returns all of the superblock that does not depend on the layout.
pub(crate) fn new(shape: &Shape, options: &MkfsOptions, now: Timestamp) -> Superblock {
    let mut sb = common(options, now);
    let features = shape.features;
    let is_flex = features.incompat.contains(IncompatFeatures::FLEX_BG);
    sb.inodes_count = (shape.inodes_per_group * shape.groups).into();
    sb.set_blocks_count(shape.blocks);
    sb.set_reserved_blocks_count(shape.root_blocks);
    sb.first_data_block = shape.first_data_block.into();
    sb.log_block_size = (shape.block_size.trailing_zeros() - 10).into();
    sb.log_cluster_size = (shape.block_size.trailing_zeros() - 10 + shape.cluster_bits).into();
    sb.blocks_per_group = shape.blocks_per_group.into();
    sb.clusters_per_group = (shape.blocks_per_group >> shape.cluster_bits).into();
    sb.inodes_per_group = shape.inodes_per_group.into();
    sb.set_compat(features.compat);
    sb.set_incompat(features.incompat);
    sb.set_ro_compat(features.ro_compat);
    sb.reserved_gdt_blocks = (shape.reserved_gdt_blocks as u16).into();
    sb.desc_size = if shape.desc_size > 32 {
        shape.desc_size.into()
    } else {
        0.into()
    };
    // The kernel hashes names with the signedness of the platform's `char`.
    let flags = if std::ffi::c_char::MIN == 0 {
        SuperFlags::UNSIGNED_HASH
    } else {
        SuperFlags::SIGNED_HASH
    };
    sb.flags = flags.bits().into();
    sb.log_groups_per_flex = if is_flex { FLEX_BG_LOG } else { 0 };
    if features.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
        sb.checksum_type = CHECKSUM_CRC32C;
    }
    if features.incompat.contains(IncompatFeatures::CSUM_SEED) {
        sb.checksum_seed = Seed::INITIAL.extend(&sb.uuid).0.into();
    }
    if shape.orphan_blocks > 0 {
        sb.orphan_file_inum = ORPHAN_FILE.0.into();
    }
    sb
}

/// Returns the super block of a device of `blocks` blocks that is a journal.
pub(crate) fn journal_device(blocks: u32, options: &MkfsOptions, now: Timestamp) -> Superblock {
    let block_size = options.block_size;
    let mut sb = common(options, now);
    sb.set_blocks_count(blocks.into());
    sb.first_data_block = u32::from(block_size == 1024).into();
    sb.log_block_size = (block_size.trailing_zeros() - 10).into();
    sb.log_cluster_size = sb.log_block_size;
    sb.blocks_per_group = (block_size * 8).into();
    sb.clusters_per_group = (block_size * 8).into();
    sb.set_incompat(IncompatFeatures::JOURNAL_DEV);
    sb
}

/// Returns the fields that volumes and journal devices have.
fn common(options: &MkfsOptions, now: Timestamp) -> Superblock {
    let seconds = now.secs.max(0) as u64;
    let (seconds_lo, seconds_hi) = (seconds as u32, (seconds >> 32) as u8);
    let mut sb = Superblock::new_zeroed();
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
    sb.uuid = options
        .uuid
        .unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes());
    sb.volume_name[..options.label.len()].copy_from_slice(options.label.as_bytes());
    let hash_seed = uuid::Uuid::new_v4().into_bytes();
    for (word, bytes) in sb.hash_seed.iter_mut().zip(hash_seed.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
    }
    // half_md4
    sb.def_hash_version = 1;
    sb.default_mount_opts = (DefaultMountOpts::XATTR_USER | DefaultMountOpts::ACL)
        .bits()
        .into();
    sb.min_extra_isize = FULL_EXTRA_ISIZE.into();
    sb.want_extra_isize = FULL_EXTRA_ISIZE.into();
    sb
}

/// Stores a copy of the journal's map in the superblock. e2fsck can restore the inode from it.
pub(crate) fn set_journal(sb: &mut Superblock, fields: &InodeFields) {
    sb.journal_inum = Ino::JOURNAL.0.into();
    sb.jnl_backup_type = 1;
    for (word, bytes) in sb.jnl_blocks.iter_mut().zip(fields.i_block.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
    }
    sb.jnl_blocks[15] = ((fields.size >> 32) as u32).into();
    sb.jnl_blocks[16] = (fields.size as u32).into();
}

/// Writes the primary superblock with its block, whose other bytes become zero.
pub(crate) fn write_primary(queue: &Queue, superblock: &Superblock) -> Result<()> {
    let mut block = BufMut::zeroed(superblock.block_size() as usize);
    // The superblock is block 1 if blocks have 1 KiB, else a part of block 0.
    let offset = SUPERBLOCK_OFFSET as usize % block.len();
    block[offset..offset + SUPERBLOCK_SIZE].copy_from_slice(superblock.as_bytes());
    let at = SUPERBLOCK_OFFSET - offset as u64;
    queue.write(
        at,
        &[block.freeze()],
        Class::Metadata,
        Reason::Format,
        Durability::Cached,
    )?;
    queue.flush(Reason::Format)?;
    Ok(())
}
