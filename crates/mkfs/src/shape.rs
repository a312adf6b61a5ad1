//! The numbers of groups, inodes, reserved blocks and journal blocks, by the rules of mke2fs.
//!
//! The rules depend on each other: a last group that is too small is dropped, which changes the
//! number of groups, which changes the number of inodes per group. So [`Shape::compute`] iterates
//! as mke2fs's library does.

use crate::features::Features;
use crate::usage::Usage;
use crate::{Error, MkfsOptions, Result};
use ext4_format::features::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
use ext4_format::geometry::is_sparse_super_group;
use units::{ClusterSize, FsBlock, GroupNo};

/// The first inode that is not reserved.
pub(crate) const FIRST_INO: u32 = 11;
/// Bytes in an inode.
pub(crate) const INODE_SIZE: u32 = 256;
/// Groups in a flex group, as a power of two.
pub(crate) const FLEX_BG_LOG: u8 = 4;
/// Blocks of the smallest volume.
const MIN_BLOCKS: u64 = 64;
/// Blocks of the smallest volume that gets a journal.
const MIN_BLOCKS_FOR_JOURNAL: u64 = 2048;
/// Blocks of the smallest journal that the kernel accepts.
pub(crate) const MIN_JOURNAL_BLOCKS: u64 = 1024;
/// Blocks that a last group must have beyond its own metadata.
const LAST_GROUP_SLACK: u64 = 50;

/// Where the journal of a new volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalPlace {
    OnVolume,
    OnDevice,
}

/// The numbers of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub features: Features,
    pub block_size: u32,
    pub first_data_block: u32,
    pub blocks: u64,
    /// Blocks of a cluster, as a power of two.
    pub cluster_bits: u32,
    pub blocks_per_group: u32,
    pub groups: u32,
    pub inodes_per_group: u32,
    pub desc_size: u16,
    pub gdt_blocks: u32,
    pub reserved_gdt_blocks: u32,
    pub root_blocks: u64,
    pub journal_blocks: u32,
    pub orphan_blocks: u32,
}

const TOO_SMALL: Error = Error::Invalid(
    "the device is too small: a volume needs at least 64 blocks (256 KiB with blocks of 4 KiB)",
);
pub(crate) const JOURNAL_TOO_SMALL: Error = Error::Invalid("a journal has at least 1024 blocks");
const TOO_MANY_INODES: Error = Error::Invalid("so many inodes do not fit a volume of this size");

impl Shape {
    /// Computes the numbers for a device of `capacity` bytes.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported`, with the reason.
    pub fn compute(capacity: u64, options: &MkfsOptions, place: JournalPlace) -> Result<Shape> {
        let mut features = Features::parse(&options.features)?;
        let block_size = check_block_size(options)?;
        if options.reserved_percent > 50 {
            return Err(Error::Invalid(
                "at most half of a volume can be reserved for root",
            ));
        }
        let cluster_bits = cluster_bits(features, options)?;
        let size = ClusterSize::of_bits(cluster_bits);
        let given_blocks = capacity / u64::from(block_size);
        // The last cluster is a whole one.
        let device_blocks = size.start_of(FsBlock(given_blocks)).0;
        if device_blocks < MIN_BLOCKS {
            return Err(TOO_SMALL);
        }
        let is_64bit = features.incompat.contains(IncompatFeatures::SIXTY_FOUR_BIT);
        if device_blocks > u64::from(u32::MAX) {
            if !is_64bit {
                return Err(Error::Invalid(
                    "a volume of more than 2^32 blocks needs the feature 64bit",
                ));
            }
            // The resize inode numbers blocks with 32 bits.
            features.compat.remove(CompatFeatures::RESIZE_INODE);
        }
        let wants_journal = features.compat.contains(CompatFeatures::HAS_JOURNAL);
        if place == JournalPlace::OnDevice {
            if !wants_journal {
                return Err(Error::Invalid(
                    "a journal device needs the feature has_journal",
                ));
            }
            if options.journal_bytes.is_some() {
                return Err(Error::Invalid("a journal device has a size of its own"));
            }
        } else if wants_journal && device_blocks < MIN_BLOCKS_FOR_JOURNAL {
            if options.journal_bytes.is_some() {
                return Err(Error::Invalid("the device is too small for a journal"));
            }
            features.compat.remove(CompatFeatures::HAS_JOURNAL);
            features.compat.remove(CompatFeatures::ORPHAN_FILE);
        }
        let mut shape = Shape {
            features,
            block_size,
            first_data_block: u32::from(block_size == 1024 && size.is_block()),
            blocks: device_blocks,
            cluster_bits,
            blocks_per_group: size.blocks_in(u64::from(block_size * 8)) as u32,
            groups: 0,
            inodes_per_group: 0,
            desc_size: if is_64bit { 64 } else { 32 },
            gdt_blocks: 0,
            reserved_gdt_blocks: 0,
            root_blocks: percent(given_blocks, options.reserved_percent),
            journal_blocks: 0,
            orphan_blocks: 0,
        };
        let cluster_size = size.blocks_in(u64::from(block_size));
        let inodes = wanted_inodes(given_blocks, cluster_size, options)?;
        let reserved = shape.root_blocks;
        shape.fit_groups(device_blocks, inodes, reserved)?;
        if place == JournalPlace::OnVolume {
            shape.journal_blocks = shape.wanted_journal(options)?;
        }
        shape.orphan_blocks = shape.wanted_orphan_file();
        Ok(shape)
    }

    /// Finds numbers of groups and of inodes per group that fit each other.
    fn fit_groups(&mut self, device_blocks: u64, inodes: u64, reserved: u64) -> Result<()> {
        let per_block = self.block_size / INODE_SIZE;
        let max_per_group = (self.block_size * 8).min((1 << 16) - per_block);
        loop {
            let group_blocks = self.blocks - u64::from(self.first_data_block);
            let groups = group_blocks.div_ceil(u64::from(self.blocks_per_group));
            self.groups = u32::try_from(groups)
                .map_err(|_| Error::Invalid("the device is too large for an ext4 volume"))?;
            let descs_per_block = u64::from(self.block_size / u32::from(self.desc_size));
            self.gdt_blocks = groups.div_ceil(descs_per_block) as u32;
            if self.gdt_blocks + 64 > self.blocks_per_group {
                return Err(Error::Unsupported(
                    "a volume whose group descriptors do not fit one group (meta_bg)".into(),
                ));
            }
            if groups == 0 {
                return Err(TOO_SMALL);
            }

            let mut per_group = inodes.div_ceil(groups);
            if per_group > u64::from(self.block_size) * 8 {
                // Smaller groups mean more groups. With bigalloc mke2fs keeps their size.
                let keeps = self.features.ro_compat.contains(RoCompatFeatures::BIGALLOC);
                if self.blocks_per_group < 512 || keeps {
                    return Err(TOO_MANY_INODES);
                }
                self.blocks_per_group -= 8;
                self.blocks = device_blocks;
                continue;
            }
            per_group = per_group.min(u64::from(max_per_group));
            self.inodes_per_group = loop {
                // Whole blocks of the inode table, and whole bytes of the bitmap.
                let rounded =
                    (per_group.div_ceil(u64::from(per_block)) * u64::from(per_block)).max(8) & !7;
                if rounded * groups <= u64::from(u32::MAX) {
                    break rounded as u32;
                }
                per_group -= 1;
            };
            self.reserved_gdt_blocks = self.wanted_reserved_gdt();

            let most = 3 + self.itable_blocks() + self.gdt_blocks + self.reserved_gdt_blocks;
            if most > self.blocks_per_group {
                return Err(TOO_MANY_INODES);
            }
            let mut overhead = u64::from(2 + self.itable_blocks());
            if self.has_super(self.groups - 1) {
                overhead += u64::from(1 + self.gdt_blocks + self.reserved_gdt_blocks);
            }
            let last = group_blocks % u64::from(self.blocks_per_group);
            if last == 0 {
                return Ok(());
            }
            if self.groups == 1 {
                // 18 more blocks are for the root directory, lost+found and the resize inode.
                return if last < overhead + 18 {
                    Err(TOO_SMALL)
                } else {
                    Ok(())
                };
            }
            if last >= overhead + LAST_GROUP_SLACK {
                return Ok(());
            }
            self.blocks -= last;
            // The reserved part shrinks in proportion.
            let scaled = u128::from(reserved) * u128::from(self.blocks) / u128::from(device_blocks);
            self.root_blocks = scaled as u64;
        }
    }

    /// Returns the blocks of a group's inode table.
    pub fn itable_blocks(&self) -> u32 {
        (self.inodes_per_group * INODE_SIZE).div_ceil(self.block_size)
    }

    fn has_super(&self, group: u32) -> bool {
        let sparse = self
            .features
            .ro_compat
            .contains(RoCompatFeatures::SPARSE_SUPER);
        !sparse || is_sparse_super_group(GroupNo(group))
    }

    /// Returns the blocks that let the volume grow to 1024 times its size, or as many as the resize
    /// inode can address.
    fn wanted_reserved_gdt(&self) -> u32 {
        if !self.features.compat.contains(CompatFeatures::RESIZE_INODE) {
            return 0;
        }
        let most = self.blocks.saturating_mul(1024).min(u64::from(u32::MAX));
        let groups =
            (most - u64::from(self.first_data_block)).div_ceil(u64::from(self.blocks_per_group));
        let gdt = groups.div_ceil(u64::from(self.block_size / u32::from(self.desc_size)));
        let addresses = u64::from(self.block_size / 4);
        gdt.saturating_sub(u64::from(self.gdt_blocks))
            .min(addresses) as u32
    }

    fn wanted_journal(&self, options: &MkfsOptions) -> Result<u32> {
        if !self.features.compat.contains(CompatFeatures::HAS_JOURNAL) {
            return Ok(0);
        }
        let Some(bytes) = options.journal_bytes else {
            return Ok(default_journal_blocks(self.blocks));
        };
        let blocks = bytes / u64::from(self.block_size);
        if blocks < MIN_JOURNAL_BLOCKS {
            return Err(JOURNAL_TOO_SMALL);
        }
        if blocks > 10_240_000 {
            return Err(Error::Invalid("a journal has at most 10240000 blocks"));
        }
        if blocks > self.blocks / 2 {
            return Err(Error::Invalid(
                "the journal would take more than half of the volume",
            ));
        }
        Ok(blocks as u32)
    }

    fn wanted_orphan_file(&self) -> u32 {
        if !self.features.compat.contains(CompatFeatures::ORPHAN_FILE) {
            return 0;
        }
        match self.blocks {
            0..131_072 => 32,
            131_072..2_097_152 => (self.blocks / 4096) as u32,
            // The kernel mounts no volume with a larger one.
            _ => 512,
        }
    }
}

/// Returns the default blocks of a journal, from mke2fs's table.
fn default_journal_blocks(blocks: u64) -> u32 {
    const TABLE: &[(u64, u32)] = &[
        (32_768, 1024),
        (256 << 10, 4096),
        (512 << 10, 8192),
        (4096 << 10, 16_384),
        (8192 << 10, 32_768),
        (16_384 << 10, 65_536),
        (32_768 << 10, 131_072),
    ];
    let row = TABLE.iter().find(|(below, _)| blocks < *below);
    row.map_or(262_144, |(_, journal)| *journal)
}

fn wanted_inodes(blocks: u64, cluster_size: u64, options: &MkfsOptions) -> Result<u64> {
    let bytes = blocks * u64::from(options.block_size);
    let ratio = options.inode_ratio.unwrap_or_else(|| {
        let usage = options.usage.unwrap_or_else(|| Usage::of_size(bytes));
        usage.inode_ratio().max(cluster_size)
    });
    if options.inode_ratio.is_some() && !(1024..=64 << 20).contains(&ratio) {
        return Err(Error::Invalid(
            "the inode ratio must be from 1 KiB to 64 MiB",
        ));
    }
    let inodes = options.inodes.unwrap_or(bytes / ratio);
    if options.inodes.is_some() && inodes > u64::from(u32::MAX) {
        return Err(Error::Invalid("a volume has at most 2^32 - 1 inodes"));
    }
    Ok(inodes.clamp(u64::from(FIRST_INO) + 2, u64::from(u32::MAX)))
}

/// Returns the block size.
///
/// # Errors
/// `Unsupported` for other sizes than 1, 2 and 4 KiB.
pub(crate) fn check_block_size(options: &MkfsOptions) -> Result<u32> {
    match options.block_size {
        size @ (1024 | 2048 | 4096) => Ok(size),
        size => Err(Error::Unsupported(format!("blocks of {size} bytes"))),
    }
}

/// Returns the blocks of a cluster as a power of two: 0 without `bigalloc`.
fn cluster_bits(features: Features, options: &MkfsOptions) -> Result<u32> {
    let block_size = u64::from(options.block_size);
    if !features.ro_compat.contains(RoCompatFeatures::BIGALLOC) {
        return match options.cluster_size {
            None => Ok(0),
            Some(_) => Err(Error::Invalid("a cluster size needs the feature bigalloc")),
        };
    }
    let bytes = options.cluster_size.unwrap_or(16 * block_size);
    // The largest group of such clusters has 2^31 blocks.
    let allowed = block_size.max(2048)..=block_size << 16;
    if !bytes.is_power_of_two() || !allowed.contains(&bytes) {
        return Err(Error::Invalid(
            "the cluster size must be a power of two: at least 2 KiB and a block, at most 65536 blocks",
        ));
    }
    Ok(bytes.trailing_zeros() - options.block_size.trailing_zeros())
}

fn percent(blocks: u64, percent: u32) -> u64 {
    (u128::from(blocks) * u128::from(percent) / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(mib: u64) -> Shape {
        Shape::compute(mib << 20, &MkfsOptions::default(), JournalPlace::OnVolume).unwrap()
    }

    /// The figures are from `dumpe2fs -h` of images by mke2fs 1.47.0.
    #[test]
    fn agrees_with_mke2fs() {
        let row = |mib| {
            let s = shape(mib);
            let inodes = u64::from(s.inodes_per_group) * u64::from(s.groups);
            (
                s.blocks,
                inodes,
                s.blocks_per_group,
                s.reserved_gdt_blocks,
                s.root_blocks,
                s.journal_blocks,
            )
        };
        assert_eq!(row(1), (256, 128, 32768, 0, 12, 0));
        assert_eq!(row(2), (512, 256, 32768, 0, 25, 0));
        assert_eq!(row(8), (2048, 2048, 32768, 0, 102, 1024));
        assert_eq!(row(9), (2304, 2304, 32768, 1, 115, 1024));
        assert_eq!(row(64), (16384, 16384, 32768, 7, 819, 1024));
        assert_eq!(row(129), (33024, 33024, 31920, 16, 1596, 4096));
        assert_eq!(row(130), (33280, 33280, 32168, 16, 1608, 4096));
        assert_eq!(row(131), (33536, 33536, 32416, 16, 1620, 4096));
        assert_eq!(row(160), (40960, 40960, 32768, 19, 2048, 4096));
        assert_eq!(row(511), (130816, 130816, 32768, 63, 6540, 4096));
        assert_eq!(row(1024), (262144, 65536, 32768, 127, 13107, 8192));
        assert_eq!(row(20480), (5242880, 1310720, 32768, 1024, 262144, 32768));
        assert_eq!(
            row(1 << 20),
            (268435456, 67108864, 32768, 1024, 13421772, 262144)
        );
    }

    /// As above, with `-b 1024` and `-b 2048`.
    #[test]
    fn agrees_with_mke2fs_on_small_blocks() {
        let row = |block_size, mib: u64| {
            let options = MkfsOptions {
                block_size,
                ..MkfsOptions::default()
            };
            let s = Shape::compute(mib << 20, &options, JournalPlace::OnVolume).unwrap();
            let inodes = u64::from(s.inodes_per_group) * u64::from(s.groups);
            (
                s.blocks,
                inodes,
                s.blocks_per_group,
                s.reserved_gdt_blocks,
                s.root_blocks,
                s.journal_blocks,
            )
        };
        assert_eq!(row(1024, 1), (1024, 128, 8192, 7, 51, 0));
        assert_eq!(row(1024, 2), (2048, 256, 8192, 15, 102, 1024));
        assert_eq!(row(1024, 8), (8192, 2048, 8192, 63, 409, 1024));
        assert_eq!(row(1024, 9), (9216, 2304, 8192, 71, 460, 1024));
        assert_eq!(row(1024, 64), (65536, 16384, 8192, 256, 3276, 4096));
        assert_eq!(row(1024, 129), (132096, 33048, 8192, 256, 6604, 4096));
        assert_eq!(row(1024, 511), (523264, 130560, 8192, 256, 26163, 8192));
        assert_eq!(row(1024, 5120), (5242880, 327680, 8192, 256, 262144, 32768));
        assert_eq!(row(2048, 1), (512, 128, 16384, 0, 25, 0));
        assert_eq!(row(2048, 8), (4096, 2048, 16384, 7, 204, 1024));
        assert_eq!(row(2048, 64), (32768, 16384, 16384, 63, 1638, 4096));
        assert_eq!(row(2048, 129), (65536, 33024, 16384, 127, 3276, 4096));
        assert_eq!(row(2048, 511), (261632, 130816, 16384, 510, 13081, 4096));
        assert_eq!(
            row(2048, 5120),
            (2621440, 327680, 16384, 512, 131072, 16384)
        );
    }

    #[test]
    fn impossible_options_are_refused() {
        let refused = |capacity, options: MkfsOptions| {
            let shape = Shape::compute(capacity, &options, JournalPlace::OnVolume);
            assert!(shape.is_err(), "{options:?}");
        };
        let defaults = MkfsOptions::default;
        refused(0, defaults());
        refused(100 << 10, defaults());
        refused(
            1 << 20,
            MkfsOptions {
                inodes: Some(1 << 20),
                ..defaults()
            },
        );
        refused(
            1 << 20,
            MkfsOptions {
                journal_bytes: Some(4 << 20),
                ..defaults()
            },
        );
        refused(
            64 << 20,
            MkfsOptions {
                journal_bytes: Some(1 << 40),
                ..defaults()
            },
        );
        refused(
            64 << 20,
            MkfsOptions {
                block_size: 512,
                ..defaults()
            },
        );
        refused(
            64 << 20,
            MkfsOptions {
                reserved_percent: 90,
                ..defaults()
            },
        );
        refused(u64::MAX, defaults());
        let no_64bit = vec!["^64bit".to_owned()];
        refused(
            20 << 40,
            MkfsOptions {
                features: no_64bit,
                ..defaults()
            },
        );
    }
}
