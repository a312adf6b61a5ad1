//! Claiming a block device again after its mount was aborted.
//!
//! The kernel claims a device while it is mounted as `fuseblk`, and releases it after the reply to
//! DESTROY. If the connection is aborted (`umount -f`, or through /sys/fs/fuse/connections), the
//! kernel releases the device at once, although the server still has data to write back. The server
//! must claim the device first: otherwise another process could mount it, and it would change under
//! that mount.

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;
use sync::time::now;

/// How long to wait for the device.
const PATIENCE: Duration = Duration::from_secs(5);
/// The part of [`PATIENCE`] in which an unmount in progress should have released the device.
const UNMOUNT: Duration = Duration::from_millis(200);
/// Interval between attempts.
const RETRY: Duration = Duration::from_millis(2);

/// Claims `device`, which was mounted on `dir`. Dropping the result releases it.
///
/// # Errors
/// Another process has the device.
pub(crate) fn reclaim(device: &Path, dir: &Path) -> Result<OwnedFd> {
    let begun = now();
    loop {
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let waited = now() - begun;
        match rustix::fs::open(device, flags, Mode::empty()) {
            Err(Errno::BUSY) if waited < PATIENCE => {
                // An aborted mount that is still attached keeps its claim, and its open directory
                // keeps the mount. Opening the directory earlier would make an umount(2) that is
                // about to come fail.
                let stays = waited > UNMOUNT;
                if let Some(mount) = stays.then(|| aborted_mount(device, dir)).flatten() {
                    return Ok(mount);
                }
                thread::sleep(RETRY);
            }
            claimed => {
                return claimed.with_context(|| {
                    format!(
                        "{}: its mount was aborted and another process has taken the device: changes that were not durable are lost",
                        device.display()
                    )
                });
            }
        }
    }
}

/// Opens `dir` if `device` is still mounted there and its connection is aborted.
fn aborted_mount(device: &Path, dir: &Path) -> Option<OwnedFd> {
    let number = rustix::fs::stat(device).ok()?.st_rdev;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = rustix::fs::open(dir, flags, Mode::empty()).ok()?;
    // STATX_DONT_SYNC: there is no server to ask.
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&mount, c"", how, StatxFlags::empty()).ok()?;
    let is_same = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor) == number;
    let is_aborted = matches!(rustix::fs::fstatfs(&mount), Err(Errno::NOTCONN));
    (is_same && is_aborted).then_some(mount)
}
