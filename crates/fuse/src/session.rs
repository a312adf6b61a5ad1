//! A mounted volume. `teardown` draws its life from here to the end.
//!
//! The kernel does not notify the server of an image of umount(2): the connection ends, and the
//! server writes everything back after that. A program that needs the complete volume waits for
//! [`Session::wait`], or for the end of the process. For a block device that is mounted as one, the
//! kernel sends DESTROY, and umount(2) waits for the reply.

use crate::connection::{self, is_root, mount_point};
use crate::nodes::Nodes;
use crate::options::MountOptions;
use crate::reaper::Reaper;
use crate::server::Server;
use crate::teardown::{Device, ServedVolume, Teardown};
use anyhow::Result;
use ext4::Fs;
use fusedev::{Claim, MountSpec, OperationCounts};
use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// The kernel's readahead in KiB. With its default, 128, the device is idle between requests.
const READ_AHEAD_KB: u32 = 1024;

/// A mounted volume.
///
/// Dropping it unmounts the volume, lazily if it is in use, and writes everything back.
pub struct Session {
    server: Arc<Server>,
    teardown: Arc<Teardown>,
}

/// Mounts `fs` on the directory `dir` and serves it with threads of its own.
///
/// # Errors
/// `dir` is not a directory; FUSE is not available; the system does not let this user mount there.
pub fn mount(fs: Arc<Fs>, dir: &Path, options: MountOptions) -> Result<Session> {
    mount_by(None, fs, dir, options)
}

/// Mounts `fs` like [`mount`]. `claim` is the claim on its block device, if there is one: the
/// volume is then mounted as `fuseblk`, so that sync(2) and syncfs(2) reach it (from Linux 6.18 on)
/// and umount(2) returns when everything is written back.
///
/// # Errors
/// The same as of [`mount`].
pub fn mount_by(
    claim: Option<Claim>,
    fs: Arc<Fs>,
    dir: &Path,
    options: MountOptions,
) -> Result<Session> {
    let dir = mount_point(dir)?;
    let spec = MountSpec {
        read_only: options.read_only || fs.is_read_only(),
        ..spec(OsStr::new(fs.queue().name()), &options)
    };
    let device = match claim {
        Some(_) => Device::Claimed,
        None => Device::Unclaimed,
    };
    let nodes = Arc::new(Nodes::default());
    let holder = Arc::downgrade(&nodes);
    fs.set_deleted_inodes(holder);
    let reaper = Arc::new(Reaper::start(fs.clone())?);
    let served = ServedVolume {
        fs: fs.clone(),
        nodes: nodes.clone(),
        reaper: reaper.clone(),
        device,
    };
    let teardown = Teardown::new(dir, Some(served))?;
    let server = Server::new(fs, (nodes, reaper, teardown.clone()), &options)?;
    let server = Arc::new(server);
    connection::start(
        &teardown,
        server.clone(),
        (&spec, claim),
        options.serving(),
        |notifier, monitor| server.set_connection(notifier, monitor),
    )?;
    raise_read_ahead(teardown.dir(), device);
    Ok(Session { server, teardown })
}

/// Claims the block device `device` for a read-write mount, so that no other process can mount or
/// open it. The device is opened after this, with [`block::OpenMode::ReadWriteClaimed`]. Returns
/// `None` if `device` is no block device or this user may not mount one; the volume is then mounted
/// like an image.
pub fn claim(device: &OsStr, options: &MountOptions) -> Option<Claim> {
    let kind = std::fs::metadata(device).ok()?.file_type();
    if options.read_only || !kind.is_block_device() || !is_root() {
        return None;
    }
    match Claim::new(&spec(device, options)) {
        Ok(claim) => Some(claim),
        // In use or write-protected: opening the device gives a better error.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EACCES)) => None,
        Err(error) => {
            tracing::warn!(
                "{}: sync(2) will not reach this mount: fuseblk: {error}",
                device.display()
            );
            None
        }
    }
}

fn spec(source: &OsStr, options: &MountOptions) -> MountSpec {
    MountSpec {
        source: source.to_owned(),
        subtype: "sluicefs".into(),
        read_only: options.read_only,
        allow_other: options.allow_other.unwrap_or_else(is_root),
        default_permissions: options.default_permissions,
        suid: options.suid,
        dev: options.dev,
        exec: options.exec,
        noatime: !options.atime,
        nosymfollow: !options.symfollow,
        sync: options.sync,
        dirsync: options.dirsync,
    }
}

/// Raises the kernel's readahead above the 128 KiB that a FUSE server may ask for. Only root can,
/// and a failure does not matter. A `fuseblk` mount has an entry in /sys next to that of its disk.
fn raise_read_ahead(dir: &Path, device: Device) {
    let Ok(stat) = rustix::fs::stat(dir) else {
        return;
    };
    let (major, minor) = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    let suffix = match device {
        Device::Claimed => "-fuseblk",
        Device::Unclaimed => "",
    };
    let path = format!("/sys/class/bdi/{major}:{minor}{suffix}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, READ_AHEAD_KB.to_string()) {
        tracing::debug!("{path}: {error}");
    }
}

impl Session {
    /// The mounted volume.
    pub fn fs(&self) -> &Arc<Fs> {
        self.server.fs()
    }

    /// Numbers of the kernel's requests by operation, since the mount.
    pub fn requests(&self) -> &Arc<OperationCounts> {
        self.server.requests()
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        self.teardown.dir()
    }

    /// Waits until the volume is unmounted. SIGTERM, SIGINT and SIGHUP unmount it; if it is in use,
    /// it is detached and its open files are served for two more seconds. Everything is written
    /// back when this returns.
    ///
    /// # Errors
    /// Data could not be written back; the connection failed.
    pub fn wait(self) -> Result<()> {
        self.teardown.wait()?;
        self.teardown.finish()
    }

    /// Unmounts the volume and writes everything back.
    ///
    /// # Errors
    /// The volume is in use (`EBUSY`) and stays mounted: the session is returned with the error.
    /// Data could not be written back.
    pub fn unmount(self) -> Result<(), (Option<Session>, anyhow::Error)> {
        if let Err(error) = self.teardown.unmount() {
            return Err((Some(self), error));
        }
        self.teardown.finish().map_err(|error| (None, error))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.teardown.finish_on_drop();
    }
}
