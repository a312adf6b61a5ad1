//! Features of a connection, which INIT agrees on.

use bitflags::bitflags;

bitflags! {
    /// Features of the protocol (`FUSE_*` flags of INIT). The kernel offers a set; the server
    /// chooses a subset.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The kernel sends several reads of a file at a time.
        const ASYNC_READ = 1 << 0;
        /// The server answers lookups of "." and "..", for file handles (NFS).
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes may be larger than a page.
        const BIG_WRITES = 1 << 5;
        /// The kernel sends the umask instead of applying it.
        const DONT_MASK = 1 << 6;
        /// The kernel sends ioctls of directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// The kernel sends READDIRPLUS.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel sends READDIRPLUS only if it expects that attributes are needed.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O stays asynchronous.
        const ASYNC_DIO = 1 << 15;
        /// After ENOSYS to OPEN, opens succeed without a request.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// The kernel sends several lookups in a directory at a time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel checks and caches ACLs.
        const POSIX_ACL = 1 << 20;
        /// Requests may have more than 32 pages.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// After ENOSYS to OPENDIR, opens of directories succeed without a request.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The kernel drops cached pages only after a notification.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The server clears set-user-ID and set-group-ID when a request says so, and the kernel
        /// remembers that a file has no capabilities.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// INIT has a second word of features.
        const INIT_EXT = 1 << 30;
        /// A notification can expire a cached name without removing it.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Requests travel over io_uring. The session adds it, not the server.
        const OVER_IO_URING = 1 << 41;
    }
}

impl Features {
    /// Joins the two words of INIT.
    pub(crate) fn from_words(low: u32, high: u32) -> Features {
        Features::from_bits_retain(u64::from(high) << 32 | u64::from(low))
    }

    /// Splits the features into the two words of INIT.
    pub(crate) fn words(self) -> (u32, u32) {
        (self.bits() as u32, (self.bits() >> 32) as u32)
    }
}
