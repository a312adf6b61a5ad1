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

use crate::MountOptions;
use crate::connection::{Connection, is_root, source};
use crate::server::{Adapter, Server};
use anyhow::{Context, Result};
use ext4::Fs;
use fuser::{Config, MountOption, SessionACL};
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
}

/// Mounts `fs` on the directory `dir` and serves it on threads of its own.
///
/// # Errors
/// `dir` is not a directory; FUSE is not to be had; the system does not let this user mount there.
pub fn mount(fs: Arc<Fs>, dir: &Path, options: MountOptions) -> Result<Session> {
    let config = config(&fs, &options);
    let server = Arc::new(Server::new(fs, &options)?);
    let adapter = Adapter(server.clone());
    let connection = Connection::start(adapter, dir, &config, |notifier| {
        server.set_notifier(notifier);
    })?;
    raise_read_ahead(connection.dir());
    Ok(Session { server, connection })
}

fn config(fs: &Fs, options: &MountOptions) -> Config {
    let mut config = Config::default();
    let flag = |on: bool, yes: MountOption, no: MountOption| if on { yes } else { no };
    config.mount_options = vec![
        source(fs.queue().name()),
        // fuser leaves `Subtype` out where it mounts by itself.
        MountOption::CUSTOM("subtype=sluicefs".into()),
        flag(
            options.read_only || fs.is_read_only(),
            MountOption::RO,
            MountOption::RW,
        ),
        flag(options.suid, MountOption::Suid, MountOption::NoSuid),
        flag(options.dev, MountOption::Dev, MountOption::NoDev),
        flag(options.exec, MountOption::Exec, MountOption::NoExec),
        flag(options.sync, MountOption::Sync, MountOption::Async),
    ];
    if !options.atime {
        config.mount_options.push(MountOption::NoAtime);
    }
    if options.default_permissions {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if options.dirsync {
        config.mount_options.push(MountOption::DirSync);
    }
    config.acl = if options.allow_other.unwrap_or_else(is_root) {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(options.thread_count());
    config.clone_fd = true;
    config
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
    if let Some(device) = device {
        let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
        if let Err(error) = std::fs::write(&path, READ_AHEAD_KB.to_string()) {
            tracing::debug!("{path}: {error}");
        }
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
