//! INIT: the features of the connection.

use super::Server;
use fusedev::Features;
use std::sync::atomic::Ordering;

/// The features that this server wants.
///
/// These are left out on purpose:
/// - `OVER_IO_URING`: the session adds it.
/// - `ATOMIC_O_TRUNC`: truncation arrives as SETATTR, which also works without OPEN requests.
/// - `WRITEBACK_CACHE`: written data would stay in the kernel, without the limits and the error
///   reports of this engine's writeback. docs/decisions/kernel-caches.md has more.
/// - `AUTO_INVAL_DATA`: only this server writes to the volume.
/// - `HANDLE_KILLPRIV`: the kernel would keep using a mode with set-user-ID after a write has
///   cleared the bit here. `HANDLE_KILLPRIV_V2` (mount option `killpriv`) is used, see
///   `privileges`. It saves a GETXATTR before every write but the first, and a GETATTR before every
///   change of owner.
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
    // A default ACL replaces the umask, so the kernel must not apply the umask.
    .union(Features::DONT_MASK)
    .union(Features::HAS_IOCTL_DIR)
    .union(Features::HAS_EXPIRE_ONLY);

/// The first version of the protocol whose kernel (Linux 6.18) is known to send FSYNC after the
/// synchronous writes of write(2).
const SYNCS_WRITES: (u32, u32) = (7, 45);

impl Server {
    /// Returns the features to use with a kernel that offers `offered` and has the protocol
    /// `version`.
    pub(super) fn configure(&self, offered: Features, version: (u32, u32)) -> Features {
        self.kernel_syncs_writes
            .store(version >= SYNCS_WRITES, Ordering::Relaxed);
        self.note_flags_version(version);
        let mut wanted = WANTED;
        wanted.set(Features::HANDLE_KILLPRIV_V2, self.killpriv);
        // With it the kernel checks permissions, including ACLs, and caches ACLs.
        wanted.set(Features::POSIX_ACL, self.default_permissions);
        self.clears_privileges.store(
            (wanted & offered).contains(Features::HANDLE_KILLPRIV_V2),
            Ordering::Relaxed,
        );
        let missing = wanted - offered;
        if missing.contains(Features::POSIX_ACL) {
            tracing::warn!("the kernel lacks FUSE_POSIX_ACL: ACLs are stored but not enforced");
        }
        if !missing.is_empty() {
            tracing::debug!("the kernel lacks {missing:?}");
        }
        wanted
    }
}
