//! Mounting and unmounting.
//!
//! A file system on a block device is mounted as `fuseblk`. The kernel then claims the device,
//! sends SYNCFS, and waits in umount(2) for the reply to DESTROY. The claim is made before the
//! device is read ([`Claim::new`]) and lasts until the unmount: the kernel creates a super block
//! without a mount point, and [`Claim::mount`] attaches it to a directory later.

use crate::channel::open_device;
use crate::helper;
use crate::local::{self, UnmountMode};
use crate::spec::MountSpec;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Bytes of a block of a `fuseblk` mount: a page, as in other FUSE mounts.
const BLOCK_SIZE: &str = "4096";

/// Mounts on the directory `dir` and returns the connection to the kernel. A process with a helper
/// mounts on the helper's directory.
///
/// # Errors
/// FUSE is not available; the system does not let this user mount there.
pub fn mount(spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
    helper::mount(spec).unwrap_or_else(|| local::mount(spec, dir))
}

/// Unmounts the directory `dir`, or the helper's directory in a process with a helper. Unless the
/// file system is on a block device, its server still writes everything back after this has
/// returned.
///
/// # Errors
/// The mount is in use (`ResourceBusy`), there is none, or this user may not unmount it.
pub fn unmount(dir: &Path, mode: UnmountMode) -> io::Result<()> {
    helper::unmount(mode).unwrap_or_else(|| local::unmount(dir, mode))
}

/// The kernel's claim on a block device: no other process can mount it or open it exclusively.
/// Dropping it releases the device.
#[derive(Debug)]
pub struct Claim {
    connection: OwnedFd,
    context: OwnedFd,
}

impl Claim {
    /// Claims the block device that `spec` names as its source.
    ///
    /// # Errors
    /// The device is in use (`ResourceBusy`). The kernel has no `fuseblk`, or does not let this
    /// user mount it.
    pub fn new(spec: &MountSpec) -> io::Result<Claim> {
        use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsopen};
        let connection = open_device()?;
        let context = fsopen(c"fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let fs = context.as_fd();
        fsconfig_set_string(fs, c"source", &*spec.source)?;
        fsconfig_set_string(fs, c"fd", connection.as_raw_fd().to_string())?;
        fsconfig_set_string(fs, c"blksize", BLOCK_SIZE)?;
        for (name, value) in spec.fuse_options() {
            match value {
                Some(value) => fsconfig_set_string(fs, name, value)?,
                None => fsconfig_set_flag(fs, name)?,
            }
        }
        for (name, on) in [
            ("ro", spec.read_only),
            ("sync", spec.sync),
            ("dirsync", spec.dirsync),
        ] {
            if on {
                fsconfig_set_flag(fs, name)?;
            }
        }
        fsconfig_create(fs)?;
        // If the device is mounted as `fuseblk` already, the kernel returns the existing super
        // block and our connection has no file system. A new super block sends INIT at once.
        let mut fds = [PollFd::new(&connection, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
        if !fds[0].revents().contains(PollFlags::IN) {
            return Err(Errno::BUSY.into());
        }
        Ok(Claim {
            connection,
            context,
        })
    }

    /// Mounts on the directory `dir` and returns the connection to the kernel. Only the options of
    /// the mount itself are taken from `spec`: `ro`, `suid`, `dev`, `exec`, `noatime`,
    /// `nosymfollow`.
    ///
    /// # Errors
    /// The system does not let this user mount there.
    pub fn mount(self, spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let mount = rustix::mount::fsmount(self.context.as_fd(), flags, spec.attributes())?;
        helper::place(mount.as_fd()).unwrap_or_else(|| local::place(mount.as_fd(), dir))?;
        Ok(self.connection)
    }
}
