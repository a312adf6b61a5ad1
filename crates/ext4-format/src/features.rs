//! The three sets of feature bits in the superblock.
//!
//! An unknown *incompat* bit forbids mounting, an unknown *ro_compat* bit forbids writing, an
//! unknown *compat* bit forbids nothing (but e2fsck stays away). Unknown bits are kept as they are.

use bitflags::bitflags;

bitflags! {
    /// Features that an implementation may ignore and still read and write the volume.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct CompatFeatures: u32 {
        /// Directory blocks are preallocated.
        const DIR_PREALLOC = 0x0001;
        /// AFS magic inodes (unused).
        const IMAGIC_INODES = 0x0002;
        /// The volume has a journal.
        const HAS_JOURNAL = 0x0004;
        /// Extended attributes are in use.
        const EXT_ATTR = 0x0008;
        /// Blocks are reserved for growing the group descriptor table.
        const RESIZE_INODE = 0x0010;
        /// Directories may be hash trees.
        const DIR_INDEX = 0x0020;
        /// Lazily initialised block groups (unused).
        const LAZY_BG = 0x0040;
        /// Snapshot exclude inode (unused).
        const EXCLUDE_INODE = 0x0080;
        /// Snapshot exclude bitmap (unused).
        const EXCLUDE_BITMAP = 0x0100;
        /// At most two backup superblocks, in the groups that the superblock names.
        const SPARSE_SUPER2 = 0x0200;
        /// The journal may carry fast commits.
        const FAST_COMMIT = 0x0400;
        /// Inode numbers and the UUID may not change.
        const STABLE_INODES = 0x0800;
        /// Orphans are listed in a file of their own.
        const ORPHAN_FILE = 0x1000;
    }

    /// Features without which a volume must not be touched at all.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct IncompatFeatures: u32 {
        /// Compression (unused).
        const COMPRESSION = 0x0001;
        /// Directory entries carry the file type.
        const FILETYPE = 0x0002;
        /// The journal has to be replayed.
        const RECOVER = 0x0004;
        /// This device is an external journal.
        const JOURNAL_DEV = 0x0008;
        /// Group descriptors are spread over meta block groups.
        const META_BG = 0x0010;
        /// Files may be mapped by extents.
        const EXTENTS = 0x0040;
        /// Block numbers have up to 64 bits; group descriptors are larger.
        const SIXTY_FOUR_BIT = 0x0080;
        /// Multiple mount protection.
        const MMP = 0x0100;
        /// Bitmaps and inode tables may lie outside their group.
        const FLEX_BG = 0x0200;
        /// Large extended attributes live in inodes of their own.
        const EA_INODE = 0x0400;
        /// Data in directory entries (Lustre).
        const DIRDATA = 0x1000;
        /// The checksum seed is in the superblock, not derived from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories over 2 GiB and hash trees of three levels.
        const LARGEDIR = 0x4000;
        /// Small files live in the inode.
        const INLINE_DATA = 0x8000;
        /// Some inodes are encrypted.
        const ENCRYPT = 0x1_0000;
        /// Some directories ignore case.
        const CASEFOLD = 0x2_0000;
    }

    /// Features without which a volume may be read but not written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RoCompatFeatures: u32 {
        /// Backups of the superblock only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x0001;
        /// Some file is or was larger than 2 GiB.
        const LARGE_FILE = 0x0002;
        /// B-tree directories (unused).
        const BTREE_DIR = 0x0004;
        /// Block counts of inodes may be in file system blocks and have 48 bits.
        const HUGE_FILE = 0x0008;
        /// Group descriptors have a crc16 checksum.
        const GDT_CSUM = 0x0010;
        /// Directories may have more than 65,000 subdirectories.
        const DIR_NLINK = 0x0020;
        /// Inodes are larger than 128 bytes.
        const EXTRA_ISIZE = 0x0040;
        /// Snapshots (not in mainline).
        const HAS_SNAPSHOT = 0x0080;
        /// Quota is kept in hidden inodes.
        const QUOTA = 0x0100;
        /// Space is allocated in clusters of blocks.
        const BIGALLOC = 0x0200;
        /// All metadata has crc32c checksums.
        const METADATA_CSUM = 0x0400;
        /// Replicas (unused).
        const REPLICA = 0x0800;
        /// The volume must never be written.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Blocks shared by files, as Android makes them.
        const SHARED_BLOCKS = 0x4000;
        /// Some files carry a Merkle tree.
        const VERITY = 0x8000;
        /// The orphan file may have entries.
        const ORPHAN_PRESENT = 0x1_0000;
    }
}

/// The incompatible features of volumes that can be read.
pub const READABLE_INCOMPAT: IncompatFeatures = WRITABLE_INCOMPAT;

/// The incompatible features of volumes that can be written.
pub const WRITABLE_INCOMPAT: IncompatFeatures = IncompatFeatures::FILETYPE
    .union(IncompatFeatures::RECOVER)
    .union(IncompatFeatures::META_BG)
    .union(IncompatFeatures::EXTENTS)
    .union(IncompatFeatures::SIXTY_FOUR_BIT)
    .union(IncompatFeatures::MMP)
    .union(IncompatFeatures::FLEX_BG)
    .union(IncompatFeatures::CSUM_SEED)
    .union(IncompatFeatures::LARGEDIR)
    .union(IncompatFeatures::EA_INODE)
    .union(IncompatFeatures::INLINE_DATA)
    .union(IncompatFeatures::ENCRYPT)
    .union(IncompatFeatures::CASEFOLD);

/// The read-only compatible features of volumes that can be written. A volume with any others can
/// be read.
pub const WRITABLE_RO_COMPAT: RoCompatFeatures = RoCompatFeatures::SPARSE_SUPER
    .union(RoCompatFeatures::LARGE_FILE)
    .union(RoCompatFeatures::HUGE_FILE)
    .union(RoCompatFeatures::DIR_NLINK)
    .union(RoCompatFeatures::EXTRA_ISIZE)
    .union(RoCompatFeatures::BIGALLOC)
    .union(RoCompatFeatures::METADATA_CSUM)
    .union(RoCompatFeatures::GDT_CSUM)
    .union(RoCompatFeatures::VERITY)
    .union(RoCompatFeatures::ORPHAN_PRESENT);

const COMPAT_NAMES: &[(u32, &str)] = &[
    (0x0001, "dir_prealloc"),
    (0x0002, "imagic_inodes"),
    (0x0004, "has_journal"),
    (0x0008, "ext_attr"),
    (0x0010, "resize_inode"),
    (0x0020, "dir_index"),
    (0x0040, "lazy_bg"),
    (0x0080, "exclude_inode"),
    (0x0100, "snapshot_bitmap"),
    (0x0200, "sparse_super2"),
    (0x0400, "fast_commit"),
    (0x0800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPAT_NAMES: &[(u32, &str)] = &[
    (0x0001, "compression"),
    (0x0002, "filetype"),
    (0x0004, "needs_recovery"),
    (0x0008, "journal_dev"),
    (0x0010, "meta_bg"),
    (0x0040, "extent"),
    (0x0080, "64bit"),
    (0x0100, "mmp"),
    (0x0200, "flex_bg"),
    (0x0400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
];

const RO_COMPAT_NAMES: &[(u32, &str)] = &[
    (0x0001, "sparse_super"),
    (0x0002, "large_file"),
    (0x0004, "btree_dir"),
    (0x0008, "huge_file"),
    (0x0010, "uninit_bg"),
    (0x0020, "dir_nlink"),
    (0x0040, "extra_isize"),
    (0x0080, "snapshot"),
    (0x0100, "quota"),
    (0x0200, "bigalloc"),
    (0x0400, "metadata_csum"),
    (0x0800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x1_0000, "orphan_present"),
];

/// Returns the names of the bits set, lowest first; unknown ones as e2fsprogs prints them
/// (`FEATURE_I27`).
fn bit_names(bits: u32, table: &[(u32, &str)], set: char) -> Vec<String> {
    (0..u32::BITS)
        .filter(|bit| bits & (1 << bit) != 0)
        .map(
            |bit| match table.iter().find(|(value, _)| *value == 1 << bit) {
                Some((_, name)) => (*name).to_owned(),
                None => format!("FEATURE_{set}{bit}"),
            },
        )
        .collect()
}

impl CompatFeatures {
    /// Returns the names of the features set, in e2fsprogs' spelling.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        bit_names(self.bits(), COMPAT_NAMES, 'C')
    }
}

impl IncompatFeatures {
    /// Returns the names of the features set, in e2fsprogs' spelling.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        bit_names(self.bits(), INCOMPAT_NAMES, 'I')
    }

    /// Returns the features set with which a volume cannot be read.
    #[must_use]
    pub fn unreadable(self) -> Self {
        Self::from_bits_retain(self.bits() & !READABLE_INCOMPAT.bits())
    }

    /// Returns the features set with which a volume cannot be written.
    #[must_use]
    pub fn unwritable(self) -> Self {
        Self::from_bits_retain(self.bits() & !WRITABLE_INCOMPAT.bits())
    }
}

impl RoCompatFeatures {
    /// Returns the names of the features set, in e2fsprogs' spelling.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        bit_names(self.bits(), RO_COMPAT_NAMES, 'R')
    }

    /// Returns the features set with which a volume cannot be written.
    #[must_use]
    pub fn unwritable(self) -> Self {
        Self::from_bits_retain(self.bits() & !WRITABLE_RO_COMPAT.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_e2fsprogs() {
        let features = IncompatFeatures::from_bits_retain(0x0800_00c0);
        assert_eq!(features.names(), ["extent", "64bit", "FEATURE_I27"]);
        assert_eq!(features.unreadable().bits(), 0x0800_0000);
        assert_eq!(RoCompatFeatures::METADATA_CSUM.names(), ["metadata_csum"]);
        assert_eq!(CompatFeatures::ORPHAN_FILE.names(), ["orphan_file"]);
    }

    #[test]
    fn every_known_bit_has_a_name() {
        let known = [
            CompatFeatures::all().names(),
            IncompatFeatures::all().names(),
            RoCompatFeatures::all().names(),
        ];
        for name in known.iter().flatten() {
            assert!(!name.starts_with("FEATURE_"), "{name}");
        }
    }
}
