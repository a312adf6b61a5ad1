//! What is agreed with the kernel when the connection begins.

use super::Server;
use fusedev::Features;
use std::sync::atomic::Ordering;

/// What is asked for, where the kernel has it.
///
/// Left out on purpose: `OVER_IO_URING` (we read /dev/fuse), `ATOMIC_O_TRUNC` (without OPEN
/// requests truncation arrives as a setattr), `WRITEBACK_CACHE` (writes would rest in the kernel,
/// out of reach of our own writeback, its limits and its errors; it makes small writes no faster
/// than `killpriv` does), `AUTO_INVAL_DATA` (nobody else writes), `HANDLE_KILLPRIV` (the kernel
/// then keeps, and goes by, a mode with set-user-ID after a write has cleared it here; `_V2`, by
/// the mount option `killpriv`, has that trap too, but saves a GETXATTR before every write, so
/// there the kernel is told: see [`Server::after_change`]).
const WANTED: Features = Features::ASYNC_READ
    .union(Features::BIG_WRITES)
    .union(Features::PARALLEL_DIROPS)
    .union(Features::DO_READDIRPLUS)
    .union(Features::READDIRPLUS_AUTO)
    .union(Features::ASYNC_DIO)
    .union(Features::NO_OPEN_SUPPORT)
    .union(Features::NO_OPENDIR_SUPPORT)
    .union(Features::CACHE_SYMLINKS)
    .union(Features::EXPORT_SUPPORT)
    .union(Features::EXPLICIT_INVAL_DATA)
    // A default ACL replaces the umask, so the umask must arrive instead of being applied.
    .union(Features::DONT_MASK)
    .union(Features::HAS_IOCTL_DIR)
    .union(Features::HAS_EXPIRE_ONLY);

/// The first FUSE version of which it is known that the kernel itself sends FSYNC after a
/// synchronous write (Linux 6.18).
const SYNCS_WRITES: (u32, u32) = (7, 45);

impl Server {
    /// Configures the connection with a kernel that offers `offered` and speaks `version`: what is
    /// to be used.
    pub(super) fn configure(&self, offered: Features, version: (u32, u32)) -> Features {
        self.kernel_syncs_writes
            .store(version >= SYNCS_WRITES, Ordering::Relaxed);
        let mut wanted = WANTED;
        wanted.set(Features::HANDLE_KILLPRIV_V2, self.killpriv);
        // It makes the kernel check permissions, by ACLs too, and cache ACLs.
        wanted.set(Features::POSIX_ACL, self.default_permissions);
        let missing = wanted - offered;
        if missing.contains(Features::POSIX_ACL) {
            tracing::warn!("the kernel lacks FUSE_POSIX_ACL: ACLs are kept but not enforced");
        }
        if !missing.is_empty() {
            tracing::debug!("the kernel lacks {missing:?}");
        }
        wanted
    }
}
