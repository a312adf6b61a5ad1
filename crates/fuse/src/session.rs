//! The life of a mounted volume.
//!
//! ```text
//!  mount ─> serving ──(umount, fusermount3 -u, Session::unmount)──> connection gone ──┐
//!              │                                                                      ├─> fs.unmount() ─> done
//!              └─(SIGTERM, SIGINT, SIGHUP)─> unmounted, or detached if it is busy ────┘
//! ```
//!
//! The kernel tells a plain FUSE server nothing when it is unmounted: the connection ends, and only
//! then everything is written back. Whoever must know that the volume is complete waits for
//! [`Session::wait`] (or for its process to end). Where a block device is mounted as such, the
//! kernel asks for that first (DESTROY), and whoever unmounts waits for it.

use crate::MountOptions;
use crate::connection::{Connection, is_root};
use crate::reclaim;
use crate::server::Server;
use anyhow::{Context, Result};
use block::Writes;
use ext4::Fs;
use fusedev::{Claim, MountSpec};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// What the kernel reads ahead, in KiB. Its default, 128, leaves the device idle between requests.
const READ_AHEAD_KB: u32 = 1024;

/// A mounted volume.
///
/// Dropping it unmounts (or detaches) it and writes everything back, as [`Session::unmount`] does.
pub struct Session {
    server: Arc<Server>,
    connection: Connection,
    /// Its device is a block device that is mounted as such.
    claimed: bool,
}

/// Mounts `fs` on the directory `dir` and serves it on threads of its own.
///
/// # Errors
/// `dir` is not a directory; FUSE is not to be had; the system does not let this user mount there.
pub fn mount(fs: Arc<Fs>, dir: &Path, options: MountOptions) -> Result<Session> {
    mount_by(None, fs, dir, options)
}

/// Mounts `fs`, which is on the block device of the `claim` where there is one, as [`mount`] does.
/// A claimed device is mounted as such (`fuseblk`): sync(2) and syncfs(2) reach the volume (from
/// Linux 6.18 on), and umount(2) returns when everything is written back.
///
/// # Errors
/// As of [`mount`].
pub fn mount_by(
    claim: Option<Claim>,
    fs: Arc<Fs>,
    dir: &Path,
    options: MountOptions,
) -> Result<Session> {
    let read_only = options.read_only || fs.is_read_only();
    let spec = spec(OsStr::new(fs.queue().name()), read_only, &options);
    let claimed = claim.is_some();
    let server = Arc::new(Server::new(fs, &options)?);
    let connection = Connection::start(
        server.clone(),
        dir,
        (&spec, claim),
        options.thread_count(),
        |notifier| server.set_notifier(notifier),
    )?;
    raise_read_ahead(connection.dir(), claimed);
    Ok(Session {
        server,
        connection,
        claimed,
    })
}

/// Claims `device` for a mount that writes, so that nobody else mounts or opens it meanwhile, if it
/// is a block device and this user may mount those. It comes before the device is opened, and
/// whoever opens it then says so ([`block::OpenMode::ReadWriteClaimed`]). Without it a volume is
/// mounted as one in an image is.
pub fn claim(device: &OsStr, options: &MountOptions) -> Option<Claim> {
    let kind = std::fs::metadata(device).ok()?.file_type();
    if options.read_only || !kind.is_block_device() || !is_root() {
        return None;
    }
    match Claim::new(&spec(device, false, options)) {
        Ok(claim) => Some(claim),
        // Whoever opens it says who has it, or that it is write-protected.
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

fn spec(source: &OsStr, read_only: bool, options: &MountOptions) -> MountSpec {
    MountSpec {
        source: source.to_owned(),
        subtype: "sluicefs".into(),
        read_only,
        allow_other: options.allow_other.unwrap_or_else(is_root),
        default_permissions: options.default_permissions,
        suid: options.suid,
        dev: options.dev,
        exec: options.exec,
        noatime: !options.atime,
        sync: options.sync,
        dirsync: options.dirsync,
    }
}

/// Lets the kernel read ahead further than the 128 KiB that a FUSE server may ask for; only root
/// can, and it is not important enough to fail. The mount of a block device has a name beside that
/// of the disk's own.
fn raise_read_ahead(dir: &Path, claimed: bool) {
    let Ok(stat) = rustix::fs::stat(dir) else {
        return;
    };
    let (major, minor) = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    let suffix = if claimed { "-fuseblk" } else { "" };
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

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.connection.dir()
    }

    /// Waits until it is unmounted, by whomever, or SIGTERM, SIGINT or SIGHUP comes, which unmounts
    /// it (or, if it is in use, detaches it: who has files open may go on for two seconds).
    /// Everything is written back when this returns.
    ///
    /// # Errors
    /// Something could not be written back. The connection failed.
    pub fn wait(mut self) -> Result<()> {
        self.connection.wait()?;
        self.finish()
    }

    /// Unmounts, and writes everything back.
    ///
    /// # Errors
    /// It is in use (`EBUSY`), and stays mounted: the session comes back with the error. Something
    /// could not be written back.
    pub fn unmount(mut self) -> Result<(), (Option<Session>, anyhow::Error)> {
        if let Err(error) = self.connection.unmount() {
            return Err((Some(self), error));
        }
        self.finish().map_err(|error| (None, error))
    }

    /// Writes everything back, after the last request. (Those that go on where it is only detached
    /// fail from then on.)
    fn finish(&mut self) -> Result<()> {
        let served = self.connection.join();
        // Where the connection was broken off (`umount -f`), nobody waits for us.
        let broken_off = self.connection.has_ended() && !self.server.has_ended();
        let _claim = (self.claimed && broken_off)
            .then(|| self.reclaim())
            .transpose()?;
        self.server
            .shut_down()
            .with_context(|| format!("{}: writing everything back", self.dir().display()))?;
        served
    }

    /// Claims the device anew; until then writes wait, and if somebody else has it nothing is
    /// written any more.
    fn reclaim(&self) -> Result<OwnedFd> {
        let queue = self.fs().queue();
        queue.set_writes(Writes::Wait);
        let claim = reclaim::reclaim(Path::new(queue.name()), self.dir());
        match &claim {
            Ok(_) => queue.set_writes(Writes::Pass),
            Err(_) => {
                queue.set_writes(Writes::Fail);
                self.server.abandon();
            }
        }
        claim
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.connection.is_over() {
            return;
        }
        self.connection.detach();
        if let Err(error) = self.finish() {
            tracing::error!("{error:#}");
        }
    }
}
