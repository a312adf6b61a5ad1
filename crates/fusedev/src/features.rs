//! What may be agreed on when a connection begins.

use bitflags::bitflags;

bitflags! {
    /// Features of the protocol (`FUSE_*` flags of INIT): the kernel offers what it has, and does
    /// what it is asked for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Several reads of a file at a time.
        const ASYNC_READ = 1 << 0;
        /// Lookups of "." and "..", for file handles (NFS).
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The umask arrives instead of being applied.
        const DONT_MASK = 1 << 6;
        /// Ioctls of directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// READDIRPLUS.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only where attributes seem to be wanted.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O is not made synchronous.
        const ASYNC_DIO = 1 << 15;
        /// OPEN may be answered ENOSYS, once.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Several lookups in a directory at a time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel checks and caches ACLs.
        const POSIX_ACL = 1 << 20;
        /// Requests of more than 32 pages.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be answered ENOSYS, once.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages are dropped only when the server says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The server clears set-user-ID, set-group-ID and capabilities when a file changes.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// There are features beyond the 32nd.
        const INIT_EXT = 1 << 30;
        /// Names can be made to be looked up again.
        const HAS_EXPIRE_ONLY = 1 << 35;
    }
}

impl Features {
    /// Of the two words of INIT.
    pub(crate) fn from_words(low: u32, high: u32) -> Features {
        Features::from_bits_retain(u64::from(high) << 32 | u64::from(low))
    }

    /// For the two words of INIT.
    pub(crate) fn words(self) -> (u32, u32) {
        (self.bits() as u32, (self.bits() >> 32) as u32)
    }
}
