//! The claim on a block device, where the kernel's went too early.
//!
//! As long as a device is mounted as such (`fuseblk`) the kernel claims it, and it gives that up
//! when the server has answered DESTROY. Where a connection is broken off instead (`umount -f`, or
//! through /sys/fs/fuse/connections), nobody waits for the server, which still has everything to
//! write back. Before it does it must have a claim again, since whoever mounts the device meanwhile
//! would find it changing.

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for a claim.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of that an unmount that is under way may take to give up its own.
const UNMOUNT: Duration = Duration::from_millis(200);

/// Claims `device`, whose mount was on `dir`, once more. Dropping what is returned gives it up.
///
/// # Errors
/// Somebody else has it.
pub(crate) fn reclaim(device: &Path, dir: &Path) -> Result<OwnedFd> {
    let begun = Instant::now();
    loop {
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(device, flags, Mode::empty()) {
            Err(Errno::BUSY) if begun.elapsed() < PATIENCE => {
                // A mount that is dead but still there keeps its claim, and cannot be taken away
                // while its directory is open: not so early that it would stop who is about to take
                // it away.
                let stays = begun.elapsed() > UNMOUNT;
                if let Some(mount) = stays.then(|| dead_mount(device, dir)).flatten() {
                    return Ok(mount);
                }
                thread::sleep(UNMOUNT / 100);
            }
            claimed => {
                return claimed.with_context(|| {
                    format!(
                        "{}: its mount was broken off and somebody else has taken the device: what was not durable is lost",
                        device.display()
                    )
                });
            }
        }
    }
}

/// The directory `dir`, if `device` is mounted there and nobody serves it any more.
fn dead_mount(device: &Path, dir: &Path) -> Option<OwnedFd> {
    let number = rustix::fs::stat(device).ok()?.st_rdev;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = rustix::fs::open(dir, flags, Mode::empty()).ok()?;
    // There is no server to ask for more than the kernel knows.
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&mount, c"", how, StatxFlags::empty()).ok()?;
    let same = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor) == number;
    let dead = matches!(rustix::fs::fstatfs(&mount), Err(Errno::NOTCONN));
    (same && dead).then_some(mount)
}
