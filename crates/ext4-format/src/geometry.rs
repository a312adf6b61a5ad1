//! The volume's shape in native integers: where groups, tables and inodes lie.
//!
//! A [`Geometry`] is made from a superblock that passed [`Superblock::parse`], so that its numbers
//! agree with each other; its functions still check the numbers they are given, as those come from
//! disk too.

use crate::block_map;
use crate::checksum::Seed;
use crate::dirhash::{Chars, HashVersion};
use crate::error::{FormatError, Result};
use crate::features::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
use crate::superblock::{SUPERBLOCK_OFFSET, SuperFlags, Superblock};
use units::{ClusterSize, FsBlock, GroupNo, Ino};

/// The shape of a volume.
#[derive(Debug, Clone)]
pub struct Geometry {
    /// Block size in bytes, a power of two from 1024 to 65536.
    pub block_size: u32,
    /// `block_size` as a power of two.
    pub block_bits: u32,
    /// Blocks on the volume.
    pub blocks_count: u64,
    /// The first block of group 0.
    pub first_data_block: u64,
    /// Blocks in each group but the last.
    pub blocks_per_group: u32,
    /// Blocks of a cluster, the unit of allocation, as a power of two; 0 without `bigalloc`.
    pub cluster_bits: u32,
    /// Inodes in each group.
    pub inodes_per_group: u32,
    /// Inodes on the volume.
    pub inodes_count: u32,
    /// Size of an inode record in bytes.
    pub inode_size: u16,
    /// Size of a group descriptor in bytes.
    pub desc_size: u16,
    /// Number of block groups.
    pub groups: u32,
    /// Groups in a flex group, as a power of two; 0 without `flex_bg`.
    pub flex_bg_log: u8,
    /// Blocks of the group descriptor table.
    pub gdt_blocks: u32,
    /// Blocks of the table that follow the superblock. Under `meta_bg` the others are in the groups
    /// that they describe.
    pub contiguous_gdt_blocks: u32,
    /// Blocks kept after the descriptor table for its growth.
    pub reserved_gdt_blocks: u32,
    /// Compatible features.
    pub compat: CompatFeatures,
    /// Incompatible features.
    pub incompat: IncompatFeatures,
    /// Read-only compatible features.
    pub ro_compat: RoCompatFeatures,
    /// Seed of metadata checksums; `None` without `metadata_csum`.
    pub csum_seed: Option<Seed>,
    /// Seed of the hashes of attribute values that are in inodes of their own.
    pub value_seed: Seed,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// Hash version of new directories, as stored (without signedness).
    pub hash_version: u8,
    /// How directory hashes take bytes.
    pub hash_chars: Chars,
    /// The first inode that is not reserved.
    pub first_ino: Ino,
    /// Extra inode bytes that new inodes should have.
    pub want_extra_isize: u16,
    /// Groups with backups under `sparse_super2`.
    pub backup_groups: [u32; 2],
}

fn out_of_range(structure: &'static str, field: &'static str, value: u64) -> FormatError {
    FormatError::OutOfRange {
        structure,
        field,
        value,
    }
}

impl Geometry {
    /// Derives the geometry from a superblock.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if the volume has more groups than the format can number.
    pub fn from_superblock(superblock: &Superblock) -> Result<Geometry> {
        let block_size = superblock.block_size();
        let groups = superblock.groups_count();
        let groups = u32::try_from(groups)
            .ok()
            .filter(|groups| *groups > 0)
            .ok_or_else(|| out_of_range("superblock", "groups_count", groups))?;
        let desc_size = superblock.group_desc_size();
        let incompat = superblock.incompat();
        let gdt_bytes = u64::from(groups).saturating_mul(u64::from(desc_size));
        let gdt_blocks = gdt_bytes.div_ceil(u64::from(block_size));
        let gdt_blocks = u32::try_from(gdt_blocks)
            .map_err(|_| out_of_range("superblock", "gdt_blocks", gdt_blocks))?;
        let has_flex = incompat.contains(IncompatFeatures::FLEX_BG);
        let flags = SuperFlags::from_bits_retain(superblock.flags.get());
        let inode_size = superblock.inode_size();
        Ok(Geometry {
            block_size,
            block_bits: block_size.trailing_zeros(),
            blocks_count: superblock.blocks_count(),
            first_data_block: u64::from(superblock.first_data_block.get()),
            blocks_per_group: superblock.blocks_per_group.get(),
            cluster_bits: superblock.cluster_bits().unwrap_or(0),
            inodes_per_group: superblock.inodes_per_group.get(),
            inodes_count: superblock.inodes_count.get(),
            inode_size,
            desc_size,
            groups,
            flex_bg_log: if has_flex {
                superblock.log_groups_per_flex
            } else {
                0
            },
            gdt_blocks,
            contiguous_gdt_blocks: match incompat.contains(IncompatFeatures::META_BG) {
                true => superblock.first_meta_bg.get().min(gdt_blocks),
                false => gdt_blocks,
            },
            reserved_gdt_blocks: u32::from(superblock.reserved_gdt_blocks.get()),
            compat: superblock.compat(),
            incompat,
            ro_compat: superblock.ro_compat(),
            csum_seed: superblock.csum_seed(),
            value_seed: superblock.value_seed(),
            uuid: superblock.uuid,
            hash_seed: superblock.hash_seed.map(|word| word.get()),
            hash_version: superblock.def_hash_version,
            hash_chars: match flags.contains(SuperFlags::UNSIGNED_HASH) {
                true => Chars::Unsigned,
                false => Chars::Signed,
            },
            first_ino: Ino(superblock.first_ino()),
            want_extra_isize: superblock
                .want_extra_isize
                .get()
                .min(inode_size.saturating_sub(128)),
            backup_groups: superblock.backup_bgs.map(|group| group.get()),
        })
    }

    /// Returns whether the volume has metadata checksums.
    #[must_use]
    pub fn has_metadata_csum(&self) -> bool {
        self.csum_seed.is_some()
    }

    /// Returns whether group descriptors have a checksum of either kind, and groups may be
    /// uninitialised.
    #[must_use]
    pub fn has_group_csum(&self) -> bool {
        self.has_metadata_csum() || self.ro_compat.contains(RoCompatFeatures::GDT_CSUM)
    }

    /// The group that `block` lies in.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for a block before group 0 or past the volume's end.
    pub fn group_of_block(&self, block: FsBlock) -> Result<GroupNo> {
        self.locate_block(block).map(|(group, _)| group)
    }

    /// The group that `block` lies in and its bit in that group's block bitmap.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for a block before group 0 or past the volume's end.
    pub fn locate_block(&self, block: FsBlock) -> Result<(GroupNo, u32)> {
        let error = || out_of_range("block number", "block", block.0);
        if block.0 >= self.blocks_count {
            return Err(error());
        }
        let relative = block
            .0
            .checked_sub(self.first_data_block)
            .ok_or_else(error)?;
        let per_group = u64::from(self.blocks_per_group.max(1));
        let group = u32::try_from(relative / per_group).map_err(|_| error())?;
        let within = u32::try_from(relative % per_group).map_err(|_| error())?;
        Ok((GroupNo(group), self.cluster().number_of(within)))
    }

    /// Returns whether the blocks `start..start + len` all lie on the volume, behind the
    /// superblock.
    #[must_use]
    pub fn contains_blocks(&self, start: FsBlock, len: u64) -> bool {
        start.0 > self.first_data_block
            && start
                .0
                .checked_add(len)
                .is_some_and(|end| end <= self.blocks_count)
    }

    /// Returns the first block of `group`.
    #[must_use]
    pub fn group_first_block(&self, group: GroupNo) -> FsBlock {
        let offset = u64::from(group.0).saturating_mul(u64::from(self.blocks_per_group));
        FsBlock(self.first_data_block.saturating_add(offset))
    }

    /// Returns the number of blocks in `group`: fewer in the last group, none in a group that does
    /// not exist.
    #[must_use]
    pub fn blocks_in_group(&self, group: GroupNo) -> u32 {
        let left = self
            .blocks_count
            .saturating_sub(self.group_first_block(group).0);
        u32::try_from(left)
            .unwrap_or(u32::MAX)
            .min(self.blocks_per_group)
    }

    /// Returns whether `group` holds a copy of the superblock and the group descriptor table.
    #[must_use]
    pub fn has_super(&self, group: GroupNo) -> bool {
        if group.0 == 0 {
            return true;
        }
        if self.compat.contains(CompatFeatures::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group.0);
        }
        if !self.ro_compat.contains(RoCompatFeatures::SPARSE_SUPER) {
            return true;
        }
        is_sparse_super_group(group)
    }

    /// Blocks at the start of `group` that hold the superblock and descriptor table, growth
    /// included.
    #[must_use]
    pub fn super_blocks_in_group(&self, group: GroupNo) -> u32 {
        let superblock = u32::from(self.has_super(group));
        // Group 0 begins with the boot block if blocks have 1 KiB and clusters are larger.
        let boot = match group.0 {
            0 => self
                .superblock_block()
                .0
                .saturating_sub(self.first_data_block) as u32,
            _ => 0,
        };
        let index = self.gdt_index(group);
        if index < self.contiguous_gdt_blocks || !self.has_meta_bg() {
            let table = self
                .contiguous_gdt_blocks
                .saturating_add(self.reserved_gdt_blocks)
                .saturating_add(1);
            return superblock.saturating_mul(table).saturating_add(boot);
        }
        // The first, the second and the last group of a meta group have a copy of its block.
        let per_block = self.descs_per_block();
        let nth = group.0 % per_block;
        let has_copy = nth <= 1 || nth == per_block.saturating_sub(1);
        superblock
            .saturating_add(u32::from(has_copy))
            .saturating_add(boot)
    }

    fn has_meta_bg(&self) -> bool {
        self.incompat.contains(IncompatFeatures::META_BG)
    }

    /// Returns the number of descriptors in a block of the table.
    #[must_use]
    pub fn descs_per_block(&self) -> u32 {
        (self.block_size / u32::from(self.desc_size.max(1))).max(1)
    }

    /// Returns the number of the descriptor table's block that holds `group`'s descriptor.
    #[must_use]
    pub fn gdt_index(&self, group: GroupNo) -> u32 {
        group.0 / self.descs_per_block()
    }

    /// Returns the place of block `index` of the primary descriptor table.
    #[must_use]
    pub fn gdt_block(&self, index: u32) -> FsBlock {
        if index < self.contiguous_gdt_blocks || !self.has_meta_bg() {
            let first = self.superblock_block().saturating_add(1);
            return first.saturating_add(u64::from(index));
        }
        let group = GroupNo(index.saturating_mul(self.descs_per_block()));
        let start = match group.0 {
            0 => self.superblock_block(),
            _ => self.group_first_block(group),
        };
        start.saturating_add(u64::from(self.has_super(group)))
    }

    /// Returns the block that the resize inode maps as the copy, in `group`, of a reserved block of
    /// the descriptor table.
    ///
    /// It is as far from the start of its group as the reserved block is. Behind a boot block
    /// (1 KiB blocks with `bigalloc`) that is one block after the copy itself; the kernel and
    /// e2fsck want it all the same.
    #[must_use]
    pub fn nominal_copy(&self, reserved: FsBlock, group: GroupNo) -> FsBlock {
        let before = reserved.0.saturating_sub(self.first_data_block);
        self.group_first_block(group).saturating_add(before)
    }

    /// Returns the block that holds the primary superblock.
    #[must_use]
    pub fn superblock_block(&self) -> FsBlock {
        FsBlock(SUPERBLOCK_OFFSET / u64::from(self.block_size.max(1)))
    }

    /// Returns the block of the primary descriptor table that holds `group`'s descriptor, and the
    /// byte in it.
    #[must_use]
    pub fn group_desc_location(&self, group: GroupNo) -> (FsBlock, u32) {
        let block = self.gdt_block(self.gdt_index(group));
        let nth = group.0 % self.descs_per_block();
        (block, nth.saturating_mul(u32::from(self.desc_size)))
    }

    /// Returns the number of blocks in a cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterSize {
        ClusterSize::of_bits(self.cluster_bits)
    }

    /// Returns the size of a cluster in the unit of an inode's block count, 512 bytes.
    #[must_use]
    pub fn sectors_per_cluster(&self) -> u64 {
        self.cluster().blocks_in(u64::from(self.block_size / 512))
    }

    /// Returns the number of clusters in `group`, each of which has a bit in its block bitmap.
    #[must_use]
    pub fn clusters_in_group(&self, group: GroupNo) -> u32 {
        let blocks = self.blocks_in_group(group);
        self.cluster().clusters_for(blocks.into()) as u32
    }

    /// Returns the number of bits in a block bitmap: the clusters in each group but the last.
    #[must_use]
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits.min(31)
    }

    /// Returns the largest size in bytes of a file with a block map.
    ///
    /// Without `huge_file` the inode counts its blocks, the indirect ones too, in 32 bits of
    /// sectors. As in the kernel, a file leaves as many for these as if all others had data.
    #[must_use]
    pub fn max_block_map_size(&self) -> u64 {
        let mut blocks = block_map::max_blocks(self.block_size).min(u64::from(u32::MAX));
        if !self.ro_compat.contains(RoCompatFeatures::HUGE_FILE) {
            let most = u64::from(u32::MAX) >> self.block_bits.saturating_sub(9);
            let indirect = block_map::indirect_blocks(most, self.block_size);
            blocks = blocks.min(most.saturating_sub(indirect));
        }
        blocks << self.block_bits.min(16)
    }

    /// Returns the number of inodes in a block.
    #[must_use]
    pub fn inodes_per_block(&self) -> u32 {
        (self.block_size / u32::from(self.inode_size.max(1))).max(1)
    }

    /// Returns the number of blocks of a group's inode table.
    #[must_use]
    pub fn itable_blocks_per_group(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// The group of inode `ino` and its index there, which is its bit in the inode bitmap.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for an inode that the volume does not have.
    pub fn inode_group(&self, ino: Ino) -> Result<(GroupNo, u32)> {
        let index = ino.0.checked_sub(1).filter(|_| ino.0 <= self.inodes_count);
        let index = index.ok_or_else(|| out_of_range("inode number", "ino", u64::from(ino.0)))?;
        let per_group = self.inodes_per_group.max(1);
        Ok((GroupNo(index / per_group), index % per_group))
    }

    /// The number of the inode at `index` in `group`, or `None` if there is none.
    #[must_use]
    pub fn ino_at(&self, group: GroupNo, index: u32) -> Option<Ino> {
        if index >= self.inodes_per_group {
            return None;
        }
        let ino = group
            .0
            .checked_mul(self.inodes_per_group)?
            .checked_add(index)?
            .checked_add(1)?;
        (ino <= self.inodes_count).then_some(Ino(ino))
    }

    /// The block that holds inode `ino` and the byte in it, when its group's table is at
    /// `itable_start`.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for an inode that the volume does not have, or a table that leaves it.
    pub fn inode_location(&self, ino: Ino, itable_start: FsBlock) -> Result<(FsBlock, u32)> {
        let (_, index) = self.inode_group(ino)?;
        let per_block = self.inodes_per_block();
        let block = itable_start.0.saturating_add(u64::from(index / per_block));
        if !self.contains_blocks(FsBlock(block), 1) {
            return Err(out_of_range(
                "group descriptor",
                "inode_table",
                itable_start.0,
            ));
        }
        Ok((
            FsBlock(block),
            (index % per_block).saturating_mul(u32::from(self.inode_size)),
        ))
    }

    /// Returns the largest size in bytes of a file mapped by extents.
    ///
    /// File blocks are numbered with 32 bits, the last number being kept as a mark. Without
    /// `huge_file` the inode's 32-bit count of 512-byte sectors is the tighter limit.
    #[must_use]
    pub fn max_file_size(&self) -> u64 {
        let by_blocks = u64::from(u32::MAX) << self.block_bits.min(16);
        if self.ro_compat.contains(RoCompatFeatures::HUGE_FILE) {
            return by_blocks;
        }
        let block_mask = !u64::from(self.block_size.saturating_sub(1));
        by_blocks.min((u64::from(u32::MAX) << 9) & block_mask)
    }

    /// Returns the seed of the checksums of what belongs to an inode: itself, its extents, its
    /// directory.
    ///
    /// `None` without metadata checksums; the checksum functions then do nothing.
    #[must_use]
    pub fn inode_csum_seed(&self, ino: Ino, generation: u32) -> Option<Seed> {
        let seed = self.csum_seed?;
        Some(
            seed.extend(&ino.0.to_le_bytes())
                .extend(&generation.to_le_bytes()),
        )
    }

    /// Returns the hash function of a directory with `stored_version` in its root.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for a version that does not exist or is not supported.
    pub fn dir_hash_version(&self, stored_version: u8) -> Result<HashVersion> {
        HashVersion::resolve(stored_version, self.hash_chars)
    }
}

/// Returns whether `group` holds a copy of the superblock under `sparse_super`.
#[must_use]
pub fn is_sparse_super_group(group: GroupNo) -> bool {
    group.0 <= 1 || [3, 5, 7].iter().any(|base| is_power_of(group.0, *base))
}

fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use super::is_power_of;

    #[test]
    fn powers() {
        let powers: Vec<u32> = (1..400).filter(|n| is_power_of(*n, 7)).collect();
        assert_eq!(powers, [1, 7, 49, 343]);
    }
}
