//! The flags of a superblock other than its features.

use bitflags::bitflags;

bitflags! {
    /// The state of the volume as the last writer left it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct State: u16 {
        /// Cleanly unmounted.
        const VALID = 0x0001;
        /// Errors were detected.
        const ERROR = 0x0002;
        /// Orphans are being recovered.
        const ORPHAN = 0x0004;
        /// Fast commit replay is under way.
        const FC_REPLAY = 0x0020;
    }

    /// Miscellaneous flags.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct SuperFlags: u32 {
        /// Directory hashes treat bytes as signed.
        const SIGNED_HASH = 0x0001;
        /// Directory hashes treat bytes as unsigned.
        const UNSIGNED_HASH = 0x0002;
        /// For development code.
        const TEST_FILESYS = 0x0004;
    }

    /// Mount options stored in the superblock.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct DefaultMountOpts: u32 {
        /// Print debugging information.
        const DEBUG = 0x0001;
        /// New files take their directory's group.
        const BSDGROUPS = 0x0002;
        /// `user.` attributes are allowed.
        const XATTR_USER = 0x0004;
        /// POSIX ACLs are honoured.
        const ACL = 0x0008;
        /// User ids have 16 bits.
        const UID16 = 0x0010;
        /// Data journalling.
        const JMODE_DATA = 0x0020;
        /// Ordered data.
        const JMODE_ORDERED = 0x0040;
        /// No write barriers.
        const NOBARRIER = 0x0100;
        /// Check that data blocks are not metadata.
        const BLOCK_VALIDITY = 0x0200;
        /// Discard freed blocks.
        const DISCARD = 0x0400;
        /// No delayed allocation.
        const NODELALLOC = 0x0800;
    }
}
