//! The superblock: 1024 bytes at byte 1024 of the volume, with copies in some groups.

mod check;
mod flags;

pub use flags::{DefaultMountOpts, State, SuperFlags};

use zerocopy::byteorder::{LE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{hi32, join32, lo32};
use crate::checksum::{Seed, compare, crc32c};
use crate::error::Result;
use crate::features::{CompatFeatures, IncompatFeatures, RoCompatFeatures};

/// Where the primary superblock starts on the device, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// The size of a superblock in bytes.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// The magic number of ext2, ext3 and ext4.
pub const MAGIC: u16 = 0xef53;
/// The only checksum algorithm defined.
pub const CHECKSUM_CRC32C: u8 = 1;
/// The bytes that the superblock's checksum covers.
const CHECKSUM_OFFSET: usize = SUPERBLOCK_SIZE - 4;
/// The first inode that revision 1 allows to be used freely, at least.
const GOOD_OLD_FIRST_INO: u32 = 11;
/// The most blocks of a cluster, as a power of two: 2^32 bytes in blocks of 1 KiB.
const MAX_CLUSTER_BITS: u32 = 22;
/// An extent's physical address has 48 bits.
const MAX_BLOCKS: u64 = 1 << 48;

/// Whether the caller wants to write to the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// `struct ext4_super_block`, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// Number of inodes.
    pub inodes_count: U32<LE>,
    /// Number of blocks, low half.
    pub blocks_count_lo: U32<LE>,
    /// Blocks that only root may allocate, low half.
    pub reserved_blocks_count_lo: U32<LE>,
    /// Free blocks, low half.
    pub free_blocks_count_lo: U32<LE>,
    /// Free inodes.
    pub free_inodes_count: U32<LE>,
    /// The first block of group 0: 1 with 1 KiB blocks, else 0.
    pub first_data_block: U32<LE>,
    /// The block size is 1024 shifted left by this.
    pub log_block_size: U32<LE>,
    /// As `log_block_size`, for clusters; equal to it without bigalloc.
    pub log_cluster_size: U32<LE>,
    /// Blocks in each group but the last.
    pub blocks_per_group: U32<LE>,
    /// Clusters in a group; equal to `blocks_per_group` without bigalloc.
    pub clusters_per_group: U32<LE>,
    /// Inodes in each group.
    pub inodes_per_group: U32<LE>,
    /// Time of the last mount, low 32 bits.
    pub mtime: U32<LE>,
    /// Time of the last write, low 32 bits.
    pub wtime: U32<LE>,
    /// Mounts since the last check.
    pub mnt_count: U16<LE>,
    /// Mounts after which a check is due.
    pub max_mnt_count: U16<LE>,
    /// [`MAGIC`].
    pub magic: U16<LE>,
    /// [`State`] bits.
    pub state: U16<LE>,
    /// The reaction to errors: 1 continue, 2 remount read-only, 3 panic.
    pub errors: U16<LE>,
    /// Minor revision.
    pub minor_rev_level: U16<LE>,
    /// Time of the last check, low 32 bits.
    pub lastcheck: U32<LE>,
    /// Seconds between checks.
    pub checkinterval: U32<LE>,
    /// Operating system that made the volume; 0 is Linux.
    pub creator_os: U32<LE>,
    /// Revision: 1 for all volumes with variable inode sizes and features.
    pub rev_level: U32<LE>,
    /// The user who may use the reserved blocks.
    pub def_resuid: U16<LE>,
    /// The group that may use the reserved blocks.
    pub def_resgid: U16<LE>,
    /// The first inode that is not reserved.
    pub first_ino: U32<LE>,
    /// Size of an inode record in bytes.
    pub inode_size: U16<LE>,
    /// The group that this copy of the superblock is in.
    pub block_group_nr: U16<LE>,
    /// [`CompatFeatures`] bits.
    pub feature_compat: U32<LE>,
    /// [`IncompatFeatures`] bits.
    pub feature_incompat: U32<LE>,
    /// [`RoCompatFeatures`] bits.
    pub feature_ro_compat: U32<LE>,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The volume's label, padded with zeroes.
    pub volume_name: [u8; 16],
    /// Where the volume was last mounted, padded with zeroes.
    pub last_mounted: [u8; 64],
    /// Unused (compression).
    pub algorithm_usage_bitmap: U32<LE>,
    /// Unused (preallocation for files).
    pub prealloc_blocks: u8,
    /// Unused (preallocation for directories).
    pub prealloc_dir_blocks: u8,
    /// Blocks after the descriptor table that are kept for its growth.
    pub reserved_gdt_blocks: U16<LE>,
    /// UUID of an external journal.
    pub journal_uuid: [u8; 16],
    /// Inode of the journal.
    pub journal_inum: U32<LE>,
    /// Device number of an external journal.
    pub journal_dev: U32<LE>,
    /// Head of the linked list of orphan inodes.
    pub last_orphan: U32<LE>,
    /// Seed of the directory hash.
    pub hash_seed: [U32<LE>; 4],
    /// Hash version of new directories.
    pub def_hash_version: u8,
    /// 1 if `jnl_blocks` holds a copy of the journal inode's map.
    pub jnl_backup_type: u8,
    /// Size of a group descriptor under `64bit`.
    pub desc_size: U16<LE>,
    /// Default mount options.
    pub default_mount_opts: U32<LE>,
    /// First group of the first meta block group.
    pub first_meta_bg: U32<LE>,
    /// Time of creation, low 32 bits.
    pub mkfs_time: U32<LE>,
    /// The journal inode's `i_block`, and its size (high, low).
    pub jnl_blocks: [U32<LE>; 17],
    /// Number of blocks, high half.
    pub blocks_count_hi: U32<LE>,
    /// Blocks that only root may allocate, high half.
    pub reserved_blocks_count_hi: U32<LE>,
    /// Free blocks, high half.
    pub free_blocks_count_hi: U32<LE>,
    /// Every inode has at least so many extra bytes.
    pub min_extra_isize: U16<LE>,
    /// New inodes should have so many extra bytes.
    pub want_extra_isize: U16<LE>,
    /// [`SuperFlags`] bits.
    pub flags: U32<LE>,
    /// RAID stride in blocks.
    pub raid_stride: U16<LE>,
    /// Seconds between multi-mount protection checks.
    pub mmp_interval: U16<LE>,
    /// Block of the multi-mount protection record.
    pub mmp_block: U64<LE>,
    /// Blocks in a RAID stripe.
    pub raid_stripe_width: U32<LE>,
    /// Groups in a flex group, as a power of two.
    pub log_groups_per_flex: u8,
    /// Metadata checksum algorithm; 1 is crc32c.
    pub checksum_type: u8,
    /// Version of the encryption format.
    pub encryption_level: u8,
    /// Padding.
    pub reserved_pad: u8,
    /// KiB written to the volume in its life.
    pub kbytes_written: U64<LE>,
    /// Unused (snapshots).
    pub snapshot_inum: U32<LE>,
    /// Unused (snapshots).
    pub snapshot_id: U32<LE>,
    /// Unused (snapshots).
    pub snapshot_reserved_blocks_count: U64<LE>,
    /// Unused (snapshots).
    pub snapshot_list: U32<LE>,
    /// Errors seen since the last check.
    pub error_count: U32<LE>,
    /// Time of the first error, low 32 bits.
    pub first_error_time: U32<LE>,
    /// Inode of the first error.
    pub first_error_ino: U32<LE>,
    /// Block of the first error.
    pub first_error_block: U64<LE>,
    /// Function that met the first error.
    pub first_error_func: [u8; 32],
    /// Line that met the first error.
    pub first_error_line: U32<LE>,
    /// Time of the last error, low 32 bits.
    pub last_error_time: U32<LE>,
    /// Inode of the last error.
    pub last_error_ino: U32<LE>,
    /// Line that met the last error.
    pub last_error_line: U32<LE>,
    /// Block of the last error.
    pub last_error_block: U64<LE>,
    /// Function that met the last error.
    pub last_error_func: [u8; 32],
    /// Mount options as text.
    pub mount_opts: [u8; 64],
    /// Inode of the user quota file.
    pub usr_quota_inum: U32<LE>,
    /// Inode of the group quota file.
    pub grp_quota_inum: U32<LE>,
    /// Blocks of fixed metadata, if computed at creation.
    pub overhead_clusters: U32<LE>,
    /// Groups with backup superblocks under `sparse_super2`.
    pub backup_bgs: [U32<LE>; 2],
    /// Encryption algorithms in use.
    pub encrypt_algos: [u8; 4],
    /// Salt of the encryption passphrase.
    pub encrypt_pw_salt: [u8; 16],
    /// Inode of `lost+found`.
    pub lpf_ino: U32<LE>,
    /// Inode of the project quota file.
    pub prj_quota_inum: U32<LE>,
    /// The checksum seed under `metadata_csum_seed`.
    pub checksum_seed: U32<LE>,
    /// Time of the last write, bits 32 to 39.
    pub wtime_hi: u8,
    /// Time of the last mount, bits 32 to 39.
    pub mtime_hi: u8,
    /// Time of creation, bits 32 to 39.
    pub mkfs_time_hi: u8,
    /// Time of the last check, bits 32 to 39.
    pub lastcheck_hi: u8,
    /// Time of the first error, bits 32 to 39.
    pub first_error_time_hi: u8,
    /// Time of the last error, bits 32 to 39.
    pub last_error_time_hi: u8,
    /// Error code of the first error.
    pub first_error_errcode: u8,
    /// Error code of the last error.
    pub last_error_errcode: u8,
    /// Character set of file names under `casefold`.
    pub encoding: U16<LE>,
    /// Flags of that character set.
    pub encoding_flags: U16<LE>,
    /// Inode of the orphan file.
    pub orphan_file_inum: U32<LE>,
    /// Padding to the checksum.
    pub reserved: [U32<LE>; 94],
    /// crc32c of everything before, under `metadata_csum`.
    pub checksum: U32<LE>,
}

const _: () = assert!(size_of::<Superblock>() == SUPERBLOCK_SIZE);

impl Superblock {
    /// Verifies the checksum, if the volume has metadata checksums.
    ///
    /// # Errors
    ///
    /// `Checksum`, or `OutOfRange` for an unknown checksum algorithm.
    pub fn verify_checksum(&self) -> Result<()> {
        if !self.has_metadata_csum() {
            return Ok(());
        }
        check::check(
            self.checksum_type == CHECKSUM_CRC32C,
            "checksum_type",
            self.checksum_type,
        )?;
        compare(
            "superblock",
            0,
            self.checksum.get(),
            self.compute_checksum(),
        )
    }

    fn compute_checksum(&self) -> u32 {
        let covered = self.as_bytes().get(..CHECKSUM_OFFSET).unwrap_or_default();
        crc32c(Seed::INITIAL, covered)
    }

    /// Computes and sets the checksum, if the volume has metadata checksums.
    pub fn update_checksum(&mut self) {
        if self.has_metadata_csum() {
            self.checksum = self.compute_checksum().into();
        }
    }

    /// Returns the superblock as it goes to disk.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    fn has_metadata_csum(&self) -> bool {
        self.ro_compat().contains(RoCompatFeatures::METADATA_CSUM)
    }

    fn has_bigalloc(&self) -> bool {
        self.ro_compat().contains(RoCompatFeatures::BIGALLOC)
    }

    /// Returns the blocks of a cluster as a power of two, 0 without `bigalloc`; `None` if the field
    /// is out of range.
    #[must_use]
    pub fn cluster_bits(&self) -> Option<u32> {
        // Revision 0 had the size of fragments here, which is that of blocks.
        let log = self.log_cluster_size.get();
        let bits = log.checked_sub(self.log_block_size.get())?;
        (bits <= MAX_CLUSTER_BITS).then_some(bits)
    }

    /// Returns whether the volume has the revision without a variable size of inodes.
    #[must_use]
    pub fn is_original_revision(&self) -> bool {
        self.rev_level.get() == 0
    }

    /// Makes the revision one that has features, with the sizes of the original one.
    fn raise_revision(&mut self) {
        if self.is_original_revision() {
            (self.inode_size, self.first_ino) = (self.inode_size().into(), self.first_ino().into());
            self.rev_level = 1.into();
        }
    }

    /// Returns the size of an inode in bytes.
    #[must_use]
    pub fn inode_size(&self) -> u16 {
        match self.is_original_revision() {
            true => 128,
            false => self.inode_size.get(),
        }
    }

    /// Returns the first inode that is not reserved.
    #[must_use]
    pub fn first_ino(&self) -> u32 {
        match self.is_original_revision() {
            true => GOOD_OLD_FIRST_INO,
            false => self.first_ino.get(),
        }
    }

    fn is_64bit(&self) -> bool {
        self.incompat().contains(IncompatFeatures::SIXTY_FOUR_BIT)
    }

    /// Returns the compatible features, unknown bits included.
    #[must_use]
    pub fn compat(&self) -> CompatFeatures {
        CompatFeatures::from_bits_retain(self.feature_compat.get())
    }

    /// Returns the incompatible features, unknown bits included.
    #[must_use]
    pub fn incompat(&self) -> IncompatFeatures {
        IncompatFeatures::from_bits_retain(self.feature_incompat.get())
    }

    /// Returns the read-only compatible features, unknown bits included.
    #[must_use]
    pub fn ro_compat(&self) -> RoCompatFeatures {
        RoCompatFeatures::from_bits_retain(self.feature_ro_compat.get())
    }

    /// Replaces the compatible features.
    pub fn set_compat(&mut self, features: CompatFeatures) {
        if self.compat() != features {
            self.raise_revision();
        }
        self.feature_compat = features.bits().into();
    }

    /// Replaces the incompatible features.
    pub fn set_incompat(&mut self, features: IncompatFeatures) {
        if self.incompat() != features {
            self.raise_revision();
        }
        self.feature_incompat = features.bits().into();
    }

    /// Replaces the read-only compatible features.
    pub fn set_ro_compat(&mut self, features: RoCompatFeatures) {
        if self.ro_compat() != features {
            self.raise_revision();
        }
        self.feature_ro_compat = features.bits().into();
    }

    /// Returns the state bits.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_bits_retain(self.state.get())
    }

    /// Replaces the state bits.
    pub fn set_state(&mut self, state: State) {
        self.state = state.bits().into();
    }

    /// Returns the block size in bytes, or 1024 if the field is out of range.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1024u32
            .checked_shl(self.log_block_size.get().min(31))
            .filter(|size| *size > 0)
            .unwrap_or(1024)
    }

    /// Returns the number of blocks on the volume.
    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.blocks_count_hi, self.blocks_count_lo)
    }

    /// The number of blocks that only root may allocate.
    #[must_use]
    pub fn reserved_blocks_count(&self) -> u64 {
        self.wide(self.reserved_blocks_count_hi, self.reserved_blocks_count_lo)
    }

    /// Returns the number of free blocks.
    #[must_use]
    pub fn free_blocks_count(&self) -> u64 {
        self.wide(self.free_blocks_count_hi, self.free_blocks_count_lo)
    }

    fn wide(&self, hi: U32<LE>, lo: U32<LE>) -> u64 {
        join32(if self.is_64bit() { hi.get() } else { 0 }, lo.get())
    }

    /// Sets the number of blocks.
    pub fn set_blocks_count(&mut self, blocks: u64) {
        self.blocks_count_lo = lo32(blocks).into();
        self.blocks_count_hi = hi32(blocks).into();
    }

    /// Sets the number of blocks that only root may allocate.
    pub fn set_reserved_blocks_count(&mut self, blocks: u64) {
        self.reserved_blocks_count_lo = lo32(blocks).into();
        self.reserved_blocks_count_hi = hi32(blocks).into();
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.free_blocks_count_lo = lo32(blocks).into();
        self.free_blocks_count_hi = hi32(blocks).into();
    }

    /// Sets the number of free inodes.
    pub fn set_free_inodes_count(&mut self, inodes: u32) {
        self.free_inodes_count = inodes.into();
    }

    /// Returns the number of block groups, or 0 if there are no blocks per group.
    #[must_use]
    pub fn groups_count(&self) -> u64 {
        let per_group = u64::from(self.blocks_per_group.get());
        let blocks = self
            .blocks_count()
            .saturating_sub(u64::from(self.first_data_block.get()));
        if per_group == 0 {
            0
        } else {
            blocks.div_ceil(per_group)
        }
    }

    /// Returns the size of a group descriptor in bytes.
    #[must_use]
    pub fn group_desc_size(&self) -> u16 {
        if self.is_64bit() {
            self.desc_size.get()
        } else {
            32
        }
    }

    /// The seed of all metadata checksums, or `None` if the volume has none.
    #[must_use]
    pub fn csum_seed(&self) -> Option<Seed> {
        self.has_metadata_csum().then(|| self.value_seed())
    }

    /// Returns the seed of the hashes of attribute values in inodes: that of metadata checksums,
    /// also on a volume without these.
    #[must_use]
    pub fn value_seed(&self) -> Seed {
        match self.incompat().contains(IncompatFeatures::CSUM_SEED) {
            true => Seed(self.checksum_seed.get()),
            false => Seed::INITIAL.extend(&self.uuid),
        }
    }

    /// Returns the time of the last mount, in seconds since the epoch.
    #[must_use]
    pub fn mount_time(&self) -> u64 {
        join32(u32::from(self.mtime_hi), self.mtime.get())
    }

    /// Returns the time of the last write, in seconds since the epoch.
    #[must_use]
    pub fn write_time(&self) -> u64 {
        join32(u32::from(self.wtime_hi), self.wtime.get())
    }

    /// Sets the time of the last mount, in seconds since the epoch (40 bits are kept).
    pub fn set_mount_time(&mut self, seconds: u64) {
        (self.mtime, self.mtime_hi) = (lo32(seconds).into(), (hi32(seconds) & 0xff) as u8);
    }

    /// Sets the time of the last write, in seconds since the epoch (40 bits are kept).
    pub fn set_write_time(&mut self, seconds: u64) {
        (self.wtime, self.wtime_hi) = (lo32(seconds).into(), (hi32(seconds) & 0xff) as u8);
    }

    /// Returns the volume's label without its padding.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let end = self.volume_name.iter().position(|byte| *byte == 0);
        self.volume_name
            .get(..end.unwrap_or(self.volume_name.len()))
            .unwrap_or_default()
    }
}
