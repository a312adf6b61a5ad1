//! What is agreed with the kernel when the connection begins.

use super::Server;
use crate::connection::raise_limits;
use fuser::{InitFlags, KernelConfig};
use std::sync::atomic::Ordering;

/// Each on its own: an old kernel may lack some.
///
/// Left out on purpose: `OVER_IO_URING` (fuser reads /dev/fuse), `ATOMIC_O_TRUNC` (without OPEN requests truncation
/// arrives as a setattr), `WRITEBACK_CACHE` (writes would rest in the kernel, out of reach of our own writeback, its limits
/// and its errors; it makes small writes no faster than `killpriv` does), `AUTO_INVAL_DATA` (nobody else writes),
/// `HANDLE_KILLPRIV` (the kernel then keeps, and goes by, a mode with set-user-ID after a write has cleared it here; `_V2`,
/// by the mount option `killpriv`, has that trap too, but saves a GETXATTR before every write, so there the kernel is told:
/// see [`Server::after_change`]).
const WANTED: [InitFlags; 15] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    // A default ACL replaces the umask, so the umask must arrive instead of being applied.
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_HAS_EXPIRE_ONLY,
];

/// The first FUSE version of which it is known that the kernel itself sends FSYNC after a synchronous write (Linux 6.18).
const SYNCS_WRITES: (u32, u32) = (7, 45);

impl Server {
    /// Configures the connection.
    pub(super) fn configure(&self, config: &mut KernelConfig) {
        let abi = config.kernel_abi();
        self.kernel_syncs_writes
            .store((abi.0, abi.1) >= SYNCS_WRITES, Ordering::Relaxed);
        if self.killpriv
            && config
                .add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
                .is_err()
        {
            tracing::debug!("the kernel lacks FUSE_HANDLE_KILLPRIV_V2");
        }
        request_capabilities(config, self.default_permissions);
    }
}

fn request_capabilities(config: &mut KernelConfig, default_permissions: bool) {
    for flag in WANTED {
        if config.add_capabilities(flag).is_err() {
            tracing::debug!("the kernel lacks {flag:?}");
        }
    }
    // It makes the kernel check permissions, by ACLs too, and cache ACLs.
    if default_permissions && config.add_capabilities(InitFlags::FUSE_POSIX_ACL).is_err() {
        tracing::warn!("the kernel lacks FUSE_POSIX_ACL: ACLs are kept but not enforced");
    }
    raise_limits(config);
}
