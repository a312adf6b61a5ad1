//! The life of a mount.
//!
//! ```text
//!  mount ─> serving ──(umount, fusermount3 -u, Session::unmount)──> connection gone ──┐
//!              │                                                                      ├─> fs.unmount() ─> done
//!              └─(SIGTERM, SIGINT, SIGHUP)─> unmounted, or detached if it is busy ────┘
//! ```
//!
//! The kernel tells a plain FUSE server nothing when it is unmounted: the connection ends, and only then everything is
//! written back. Whoever must know that the volume is complete waits for [`Session::wait`] (or for its process to end).

use crate::server::{Adapter, Server};
use crate::{MountOptions, signals};
use anyhow::{Context, Result, bail};
use ext4::Fs;
use fuser::{Config, MountOption, SessionACL};
use rustix::mount::UnmountFlags;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a detached mount may go on to serve who still uses it.
const DETACHED_GRACE: Duration = Duration::from_secs(2);
/// What the kernel reads ahead, in KiB. Its default, 128, leaves the device idle between requests.
const READ_AHEAD_KB: u32 = 1024;

/// A mounted volume.
///
/// Dropping it unmounts (or detaches) it and writes everything back, as [`Session::unmount`] does.
pub struct Session {
    server: Arc<Server>,
    dir: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Mounts `fs` on the directory `dir` and serves it on threads of its own.
///
/// # Errors
/// `dir` is not a directory; FUSE is not to be had; the system does not let this user mount there.
pub fn mount(fs: Arc<Fs>, dir: &Path, options: MountOptions) -> Result<Session> {
    let dir = dir
        .canonicalize()
        .with_context(|| format!("{}: mount point", dir.display()))?;
    if !dir.is_dir() {
        bail!("{}: the mount point is not a directory", dir.display());
    }
    // fuser needs it even where fusermount3 mounts, and says no more than "permission denied".
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .context("/dev/fuse (is the fuse module loaded, and may this user open the device?)")?;
    let config = config(&fs, &options);
    let server = Arc::new(Server::new(fs, &options)?);
    let session = fuser::Session::new(Adapter(server.clone()), &dir, &config)
        .with_context(|| format!("{}: mount", dir.display()))?;
    server.set_notifier(session.notifier());
    raise_read_ahead(&dir);
    let ended = Arc::new(AtomicBool::new(false));
    let thread = thread::Builder::new().name("sluice-fuse".into()).spawn({
        let ended = ended.clone();
        move || {
            let result = session.run();
            ended.store(true, Ordering::SeqCst);
            signals::notify();
            result
        }
    })?;
    Ok(Session {
        server,
        dir,
        ended,
        thread: Some(thread),
    })
}

fn config(fs: &Fs, options: &MountOptions) -> Config {
    let root = rustix::process::geteuid().is_root();
    // fusermount3 splits its options at commas.
    let name = fs.queue().name().replace('\\', "\\\\").replace(',', "\\,");
    let mut config = Config::default();
    let flag = |on: bool, yes: MountOption, no: MountOption| if on { yes } else { no };
    config.mount_options = vec![
        MountOption::FSName(if root {
            fs.queue().name().to_owned()
        } else {
            name
        }),
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
    config.acl = if options.allow_other.unwrap_or(root) {
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
        &self.dir
    }

    /// Waits until it is unmounted, by whomever, or SIGTERM, SIGINT or SIGHUP comes, which unmounts it (or, if it is in
    /// use, detaches it: who has files open may go on for two seconds). Everything is written back when this returns.
    ///
    /// # Errors
    /// Something could not be written back. The connection failed.
    pub fn wait(mut self) -> Result<()> {
        signals::catch()?;
        let ended = self.ended.clone();
        if signals::wait_until(move || ended.load(Ordering::SeqCst))? {
            tracing::info!("{}: unmounting upon a signal", self.dir.display());
            self.detach();
        }
        self.finish()
    }

    /// Unmounts, and writes everything back.
    ///
    /// # Errors
    /// It is in use (`EBUSY`), and stays mounted: the session comes back with the error. Something could not be written back.
    pub fn unmount(mut self) -> Result<(), (Option<Session>, anyhow::Error)> {
        if !self.ended.load(Ordering::SeqCst)
            && let Err(error) = unmount(&self.dir, false)
        {
            // It may have been unmounted by somebody else just now.
            let deadline = Instant::now() + Duration::from_millis(100);
            if !self.wait_ended(deadline) {
                return Err((Some(self), error));
            }
        }
        self.finish().map_err(|error| (None, error))
    }

    fn wait_ended(&self, deadline: Instant) -> bool {
        while !self.ended.load(Ordering::SeqCst) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Takes the mount away even if it is in use.
    fn detach(&mut self) {
        if self.ended.load(Ordering::SeqCst) || unmount(&self.dir, false).is_ok() {
            return;
        }
        if let Err(error) = unmount(&self.dir, true) {
            tracing::error!("{error:#}");
        }
        if !self.wait_ended(Instant::now() + DETACHED_GRACE) {
            tracing::warn!(
                "{}: still in use; its users get errors from now on",
                self.dir.display()
            );
        }
    }

    /// Writes everything back, after the last request.
    fn finish(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        // Requests may go on where it is only detached; once the volume is unmounted they fail.
        let served = if self.wait_ended(Instant::now() + Duration::from_secs(1)) {
            thread.join().unwrap_or_else(|_| {
                Err(io::Error::other("the thread that serves requests panicked"))
            })
        } else {
            Ok(())
        };
        let dir = self.dir.display();
        self.server
            .shut_down()
            .with_context(|| format!("{dir}: writing everything back"))?;
        served.with_context(|| format!("{dir}: connection to the kernel"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        self.detach();
        if let Err(error) = self.finish() {
            tracing::error!("{error:#}");
        }
    }
}

/// Unmounts the directory `dir`; `lazy` takes it out of sight even if it is in use. The process that serves it goes on to
/// write everything back after this has returned.
///
/// # Errors
/// It is in use, not mounted, or not this user's to unmount.
pub fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    let flags = if lazy {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error).with_context(|| format!("{}: unmount", dir.display())),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").arg("-q");
    if lazy {
        command.arg("-z");
    }
    let status = command
        .arg("--")
        .arg(dir)
        .status()
        .context("fusermount3, which unmounts for those who are not root")?;
    if !status.success() {
        bail!(
            "{}: fusermount3 could not unmount it (is it in use?)",
            dir.display()
        );
    }
    Ok(())
}
