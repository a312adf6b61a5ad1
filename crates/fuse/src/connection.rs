//! A file system of ours at a mount point, and the threads that serve it: whatever it serves.

use crate::signals;
use anyhow::{Context, Result, bail};
use fuser::{Config, Filesystem, KernelConfig, MountOption, Notifier};
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

/// Bytes in the largest write request; 256 pages, what kernels allow by default.
const MAX_WRITE: u32 = 1 << 20;
/// Requests in the background (readahead, asynchronous direct I/O) before their callers wait.
const MAX_BACKGROUND: u16 = 512;

/// Whether this user can mount without fusermount3.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What the mount table names as the source. fusermount3 splits its options at commas.
pub(crate) fn source(name: &str) -> MountOption {
    MountOption::FSName(match is_root() {
        true => name.to_owned(),
        false => name.replace('\\', "\\\\").replace(',', "\\,"),
    })
}

/// Lets requests be large, and many at a time.
pub(crate) fn raise_limits(config: &mut KernelConfig) {
    if let Err(nearest) = config.set_max_write(MAX_WRITE) {
        let _ = config.set_max_write(nearest);
    }
    let _ = config.set_max_background(MAX_BACKGROUND);
    let _ = config.set_congestion_threshold(MAX_BACKGROUND / 4 * 3);
}

/// A mount and its connection to the kernel. Dropping it unmounts (or detaches) it.
pub(crate) struct Connection {
    dir: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Connection {
    /// Mounts on the directory `dir` and serves; `before` is given the way to tell the kernel of changes, before the first
    /// request is taken.
    ///
    /// # Errors
    /// `dir` is not a directory; FUSE is not to be had; the system does not let this user mount there.
    pub fn start(
        served: impl Filesystem,
        dir: &Path,
        config: &Config,
        before: impl FnOnce(Notifier),
    ) -> Result<Connection> {
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
        let session = fuser::Session::new(served, &dir, config)
            .with_context(|| format!("{}: mount", dir.display()))?;
        before(session.notifier());
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
        Ok(Connection {
            dir,
            ended,
            thread: Some(thread),
        })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether [`Connection::join`] has been called.
    pub fn is_over(&self) -> bool {
        self.thread.is_none()
    }

    /// Waits until it is unmounted, by whomever, or SIGTERM, SIGINT or SIGHUP comes, which unmounts it (or, if it is in
    /// use, detaches it: who has files open may go on for two seconds).
    pub fn wait(&self) -> Result<()> {
        signals::catch()?;
        let ended = self.ended.clone();
        if signals::wait_until(move || ended.load(Ordering::SeqCst))? {
            tracing::info!("{}: unmounting upon a signal", self.dir.display());
            self.detach();
        }
        Ok(())
    }

    /// Unmounts.
    ///
    /// # Errors
    /// It is in use (`EBUSY`), and stays mounted.
    pub fn unmount(&self) -> Result<()> {
        if self.ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        unmount(&self.dir, false).or_else(|error| {
            // It may have been unmounted by somebody else just now.
            let deadline = Instant::now() + Duration::from_millis(100);
            self.wait_ended(deadline).then_some(()).ok_or(error)
        })
    }

    /// Takes the mount away even if it is in use.
    pub fn detach(&self) {
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

    /// Waits for the last request; not for long where it is only detached, since some may go on then.
    pub fn join(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        if !self.wait_ended(Instant::now() + Duration::from_secs(1)) {
            return Ok(());
        }
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that serves requests panicked")))
            .with_context(|| format!("{}: connection to the kernel", self.dir.display()))
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
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_over() {
            return;
        }
        self.detach();
        if let Err(error) = self.join() {
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
