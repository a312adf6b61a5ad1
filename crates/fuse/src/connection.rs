//! A file system of ours at a mount point, and the threads that serve it: whatever it serves.

use crate::signals;
use anyhow::{Context, Result, bail};
use fusedev::{Claim, MountSpec, Notifier, Server, unmount};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a detached mount may go on to serve who still uses it.
const DETACHED_GRACE: Duration = Duration::from_secs(2);

/// Whether this user can mount without fusermount3.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A mount and its connection to the kernel. Dropping it unmounts (or detaches) it.
pub(crate) struct Connection {
    dir: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Connection {
    /// Mounts on the directory `dir`, by the `claim` where there is one, and serves by `threads`
    /// threads; `before` is given the way to tell the kernel of changes, before the first request
    /// is taken.
    ///
    /// # Errors
    /// `dir` is not a directory; FUSE is not to be had; the system does not let this user mount
    /// there.
    pub fn start(
        server: Arc<impl Server>,
        dir: &Path,
        (spec, claim): (&MountSpec, Option<Claim>),
        threads: usize,
        before: impl FnOnce(Notifier),
    ) -> Result<Connection> {
        let dir = dir
            .canonicalize()
            .with_context(|| format!("{}: mount point", dir.display()))?;
        if !dir.is_dir() {
            bail!("{}: the mount point is not a directory", dir.display());
        }
        let mounted = match claim {
            Some(claim) => claim.mount(spec, &dir),
            None => fusedev::mount(spec, &dir),
        };
        let session = mounted
            .and_then(|fd| {
                fusedev::Session::start(fd, server).inspect_err(|_| {
                    let _ = unmount(&dir, true);
                })
            })
            .with_context(|| format!("{}: mount", dir.display()))?;
        before(session.notifier());
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("sluice-fuse".into()).spawn({
            let ended = ended.clone();
            move || {
                let result = session.run(threads);
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

    /// Whether the kernel has ended it.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Waits until it is unmounted, by whomever, or SIGTERM, SIGINT or SIGHUP comes, which unmounts
    /// it (or, if it is in use, detaches it: who has files open may go on for two seconds).
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
        if self.has_ended() {
            return Ok(());
        }
        unmount(&self.dir, false)
            .or_else(|error| {
                // It may have been unmounted by somebody else just now.
                let deadline = Instant::now() + Duration::from_millis(100);
                self.wait_ended(deadline).then_some(()).ok_or(error)
            })
            .with_context(|| format!("{}: unmount", self.dir.display()))
    }

    /// Takes the mount away even if it is in use.
    pub fn detach(&self) {
        if self.has_ended() || unmount(&self.dir, false).is_ok() {
            return;
        }
        if let Err(error) = unmount(&self.dir, true) {
            tracing::error!("{}: unmount: {error}", self.dir.display());
        }
        if !self.wait_ended(Instant::now() + DETACHED_GRACE) {
            tracing::warn!(
                "{}: still in use; its users get errors from now on",
                self.dir.display()
            );
        }
    }

    /// Waits for the last request; not for long where it is only detached, since some may go on
    /// then.
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
        while !self.has_ended() {
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
