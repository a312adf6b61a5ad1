//! The life of a mounted volume.
//!
//! ```text
//!  mount ─> serving ──(umount, fusermount3 -u, Session::unmount)──> connection gone ──┐
//!              │                                                                      ├─> fs.unmount() ─> done
//!              └─(SIGTERM, SIGINT, SIGHUP)─> unmounted, or detached if it is busy ────┘
//! ```
//!
//! The kernel tells a plain FUSE server nothing when it is unmounted: the connection ends, and only then everything is
//! written back. Whoever must know that the volume is complete waits for [`Session::wait`] (or for its process to end).
//! Where a block device is mounted as such, the kernel asks for that first (DESTROY), and whoever unmounts waits for it.

use crate::MountOptions;
use crate::connection::{Connection, is_root};
use crate::reclaim;
use crate::server::Server;
use anyhow::{Context, Result};
use block::Writes;
use ext4::Fs;
use fusedev::{Claim, MountSpec};
use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the kernel reads ahead, in KiB. Its default, 128, leaves the device idle between requests.
const READ_AHEAD_KB: u32 = 1024;

/// A mounted volume.
///
/// Dropping it unmounts (or detaches) it and writes everything back, as [`Session::unmount`] does.
pub struct Session {
    server: Arc<Server>,
    connection: Connection,
    /// The block device that is mounted as such.
    claimed: Option<PathBuf>,
}

/// Mounts `fs` on the directory `dir` and serves it on threads of its own.
///
/// # Errors
/// `dir` is not a directory; FUSE is not to be had; the system does not let this user mount there.
pub fn mount(fs: Arc<Fs>, dir: &Path, options: MountOptions) -> Result<Session> {
    mount_by(None, fs, dir, options)
}

/// Mounts `fs`, which is on the block device of the `claim` where there is one, as [`mount`] does. A claimed device is mounted
/// as such (`fuseblk`): sync(2) and syncfs(2) reach the volume (from Linux 6.18 on), and umount(2) returns when everything is
/// written back.
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
    let claimed = claim.is_some().then(|| PathBuf::from(&spec.source));
    let server = Arc::new(Server::new(fs, &options)?);
    let connection = Connection::start(
        server.clone(),
        dir,
        (&spec, claim),
        options.thread_count(),
        |notifier| server.set_notifier(notifier),
    )?;
    raise_read_ahead(connection.dir());
    Ok(Session {
        server,
        connection,
        claimed,
    })
}

/// Claims `device` for a mount that writes, so that nobody else mounts or opens it meanwhile, if it is a block device and this
/// user may mount those. It comes before the device is opened, and whoever opens it then says so
/// ([`block::OpenMode::ReadWriteClaimed`]). Without it a volume is mounted as one in an image is.
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
        subtype: "sluicefs",
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

/// Lets the kernel read ahead further than the 128 KiB that a FUSE server may ask for; only root can, and it is not
/// important enough to fail.
fn raise_read_ahead(dir: &Path) {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mountinfo") else {
        return;
    };
    // "36 35 0:52 / /mount/point …"; the last one of that mount point is the one on top. Odd characters are escaped there;
    // a mount point that has some goes without.
    let device = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        (Path::new(fields.nth(1)?) == dir).then_some(device)
    });
    let Some(device) = device else {
        return;
    };
    // The second is that of a block device that is mounted as such; the first is then the disk's own.
    let [plain, of_device] = ["", "-fuseblk"].map(|s| format!("/sys/class/bdi/{device}{s}"));
    let bdi = if Path::new(&of_device).exists() {
        of_device
    } else {
        plain
    };
    if let Err(error) = std::fs::write(format!("{bdi}/read_ahead_kb"), READ_AHEAD_KB.to_string()) {
        tracing::debug!("{bdi}: {error}");
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

    /// Waits until it is unmounted, by whomever, or SIGTERM, SIGINT or SIGHUP comes, which unmounts it (or, if it is in
    /// use, detaches it: who has files open may go on for two seconds). Everything is written back when this returns.
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
    /// It is in use (`EBUSY`), and stays mounted: the session comes back with the error. Something could not be written back.
    pub fn unmount(mut self) -> Result<(), (Option<Session>, anyhow::Error)> {
        if let Err(error) = self.connection.unmount() {
            return Err((Some(self), error));
        }
        self.finish().map_err(|error| (None, error))
    }

    /// Writes everything back, after the last request. (Those that go on where it is only detached fail from then on.)
    fn finish(&mut self) -> Result<()> {
        let served = self.connection.join();
        let _claim = match &self.claimed {
            // The connection was broken off (`umount -f`), and nobody waits for us.
            Some(device) if self.connection.has_ended() && !self.server.has_ended() => {
                let queue = self.fs().queue();
                queue.set_writes(Writes::Wait);
                let claimed = reclaim::reclaim(device, self.dir());
                queue.set_writes(match &claimed {
                    Ok(_) => Writes::Pass,
                    Err(_) => Writes::Fail,
                });
                Some(claimed.inspect_err(|_| self.server.abandon())?)
            }
            _ => None,
        };
        self.server
            .shut_down()
            .with_context(|| format!("{}: writing everything back", self.dir().display()))?;
        served
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
