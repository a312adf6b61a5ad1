//! The checks of a superblock: magic, geometry and features.

use super::{Access, GOOD_OLD_FIRST_INO, MAGIC, MAX_BLOCKS, SUPERBLOCK_SIZE, Superblock};
use crate::error::{FormatError, Result};
use crate::features::IncompatFeatures;
use zerocopy::FromBytes;

fn out_of_range(field: &'static str, value: impl Into<u64>) -> FormatError {
    FormatError::OutOfRange {
        structure: "superblock",
        field,
        value: value.into(),
    }
}

pub(super) fn check(holds: bool, field: &'static str, value: impl Into<u64>) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(out_of_range(field, value))
    }
}

impl Superblock {
    /// Reads a superblock and checks its magic, its checksum and its geometry.
    ///
    /// Of the features, it checks only those that change the meaning of the geometry. The caller
    /// checks the others with [`Superblock::check_features`].
    ///
    /// # Errors
    ///
    /// `Truncated`, `BadMagic`, `Checksum`, `UnsupportedFeatures` for features that change the
    /// meaning of the geometry, or `OutOfRange` with the first bad field.
    pub fn parse(bytes: &[u8]) -> Result<Superblock> {
        let superblock = Superblock::parse_unverified(bytes)?;
        superblock.verify_checksum()?;
        superblock.check_geometry_features()?;
        superblock.check_geometry()?;
        Ok(superblock)
    }

    /// Reads a superblock and checks only its magic, for tools that examine damaged volumes.
    ///
    /// # Errors
    ///
    /// `Truncated` or `BadMagic`.
    pub fn parse_unverified(bytes: &[u8]) -> Result<Superblock> {
        let Ok((superblock, _)) = Superblock::read_from_prefix(bytes) else {
            return Err(FormatError::Truncated {
                structure: "superblock",
                need: SUPERBLOCK_SIZE as u64,
                have: bytes.len() as u64,
            });
        };
        let found = superblock.magic.get();
        if found != MAGIC {
            return Err(FormatError::BadMagic {
                structure: "superblock",
                expected: u32::from(MAGIC),
                found: u32::from(found),
            });
        }
        Ok(superblock)
    }

    /// Refuses unknown incompatible features: with them, the fields of the geometry may have
    /// another meaning. Without this check a sound volume would be reported as damaged.
    fn check_geometry_features(&self) -> Result<()> {
        if self.incompat().bits() & !IncompatFeatures::all().bits() == 0 {
            return Ok(());
        }
        // The error names all unsupported features, not only these.
        let names = self.incompat().unreadable().names();
        Err(FormatError::UnsupportedFeatures { names })
    }

    /// Checks the fields that later computations rely on.
    fn check_geometry(&self) -> Result<()> {
        check(
            self.log_block_size.get() <= 6,
            "log_block_size",
            self.log_block_size.get(),
        )?;
        let block_size = self.block_size();
        let bits_per_block = block_size.saturating_mul(8);

        let per_group = self.blocks_per_group.get();
        let log_cluster_size = self.log_cluster_size.get();
        let cluster_bits = self.cluster_bits();
        check(
            cluster_bits == Some(0) || self.has_bigalloc() && cluster_bits.is_some(),
            "log_cluster_size",
            log_cluster_size,
        )?;
        let clusters = self.clusters_per_group.get();
        check(
            clusters > 0 && clusters.is_multiple_of(8) && clusters <= bits_per_block,
            "clusters_per_group",
            clusters,
        )?;
        let blocks_in_clusters = u64::from(clusters) << cluster_bits.unwrap_or(0);
        check(
            blocks_in_clusters == u64::from(per_group),
            "blocks_per_group",
            per_group,
        )?;
        let first_data_block = self.first_data_block.get();
        check(
            first_data_block == u32::from(block_size == 1024 && cluster_bits == Some(0)),
            "first_data_block",
            first_data_block,
        )?;
        let blocks = self.blocks_count();
        check(
            blocks > u64::from(first_data_block) && blocks <= MAX_BLOCKS,
            "blocks_count",
            blocks,
        )?;
        let free = self.free_blocks_count();
        check(free <= blocks, "free_blocks_count", free)?;
        let reserved = self.reserved_blocks_count();
        check(reserved <= blocks, "reserved_blocks_count", reserved)?;

        let inode_size = self.inode_size();
        check(
            inode_size.is_power_of_two()
                && inode_size >= 128
                && u32::from(inode_size) <= block_size,
            "inode_size",
            inode_size,
        )?;
        let inodes_per_group = self.inodes_per_group.get();
        check(
            inodes_per_group > 0
                && inodes_per_group.is_multiple_of(8)
                && inodes_per_group <= bits_per_block,
            "inodes_per_group",
            inodes_per_group,
        )?;
        let groups = self.groups_count();
        let inodes = groups.checked_mul(u64::from(inodes_per_group));
        check(
            inodes == Some(u64::from(self.inodes_count.get())),
            "inodes_count",
            self.inodes_count.get(),
        )?;
        let free_inodes = self.free_inodes_count.get();
        check(
            free_inodes <= self.inodes_count.get(),
            "free_inodes_count",
            free_inodes,
        )?;
        let first_ino = self.first_ino();
        check(
            (GOOD_OLD_FIRST_INO..=self.inodes_count.get()).contains(&first_ino),
            "first_ino",
            first_ino,
        )?;

        if self.incompat().contains(IncompatFeatures::SIXTY_FOUR_BIT) {
            let desc_size = self.desc_size.get();
            check(
                desc_size.is_power_of_two() && (64..=1024).contains(&desc_size),
                "desc_size",
                desc_size,
            )?;
        }
        let flex = self.log_groups_per_flex;
        check(flex < 32, "log_groups_per_flex", flex)?;
        let reserved_gdt = self.reserved_gdt_blocks.get();
        check(
            u32::from(reserved_gdt) <= block_size / 4,
            "reserved_gdt_blocks",
            reserved_gdt,
        )?;
        if self.incompat().contains(IncompatFeatures::META_BG) {
            let first = self.first_meta_bg.get();
            check(u64::from(first) <= groups, "first_meta_bg", first)?;
        }
        let extra_max = inode_size.saturating_sub(128);
        let want_extra = self.want_extra_isize.get();
        check(
            inode_size == 128 || want_extra <= extra_max,
            "want_extra_isize",
            want_extra,
        )?;
        let min_extra = self.min_extra_isize.get();
        check(
            inode_size == 128 || min_extra <= extra_max,
            "min_extra_isize",
            min_extra,
        )?;
        Ok(())
    }

    /// Checks that all features of the volume are supported.
    ///
    /// # Errors
    ///
    /// `UnsupportedFeatures`, or `ReadOnlyFeatures` if `access` is [`Access::ReadWrite`].
    pub fn check_features(&self, access: Access) -> Result<()> {
        let incompat = self.incompat().unreadable();
        if !incompat.is_empty() {
            return Err(FormatError::UnsupportedFeatures {
                names: incompat.names(),
            });
        }
        let mut names = self.incompat().unwritable().names();
        names.extend(self.ro_compat().unwritable().names());
        if access == Access::ReadWrite && !names.is_empty() {
            return Err(FormatError::ReadOnlyFeatures { names });
        }
        Ok(())
    }
}
