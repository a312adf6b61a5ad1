//! The end of a mount.
//!
//! [`Teardown`] owns it. Code that ends a mount, and code that learns of the end, calls it and
//! nothing else. A mount consists of a connection to the kernel and a volume ([`crate::Disk`] has
//! no volume):
//!
//! ```text
//!  state          connection   volume      meaning
//!  SERVING        up           mounted     requests are served
//!  DETACHED       up           mounted     no longer at its directory; open files are still served
//!  DESTROYED      up           unmounted   umount(2) waits for the reply to DESTROY
//!  DISCONNECTED   down         either      no request comes any more
//!  ENDED          either       unmounted   the result has been returned
//!  (if `reclaim` fails, the volume is given up instead of unmounted: nothing is written)
//!
//!  image, disk:   SERVING ──────────────────> DISCONNECTED ──> ENDED
//!                    └─(in use)─> DETACHED ───────┘   │          ^
//!                                    └──(grace over)──┼──────────┘
//!  block device:  SERVING ──> DESTROYED ──> DISCONNECTED ──> ENDED
//!
//!  transition                   function           caller
//!  SERVING -> DISCONNECTED      `disconnected`     serving thread: umount(8), `sluice unmount`,
//!                                                  fusermount3 -u, `umount -f`, aborted connection
//!                               `unmount`          `Session::unmount`
//!                               `detach`           `wait` upon a signal; drop of a session or disk
//!  SERVING -> SERVING           `unmount`          `Session::unmount` of a mount in use: EBUSY
//!  SERVING -> DETACHED          `detach`           the same callers, if the mount is in use
//!  SERVING -> DESTROYED         `destroy`          serving thread: DESTROY (block devices only);
//!                                                  also from DETACHED
//!  DETACHED -> DISCONNECTED     `disconnected`     serving thread: the last file is closed
//!  DETACHED -> ENDED            `finish`           after `DETACHED_GRACE`; later requests fail
//!  DISCONNECTED -> ENDED        `finish`           `Session::wait`, `Session::unmount`, drop
//! ```
//!
//! The steps, in this order:
//!
//! 1. The requests end: the kernel sends no more, and the serving threads finish (`finish`; before
//!    `destroy` by `fusedev`).
//! 2. The device is claimed again if its mount was aborted without DESTROY (`reclaim`).
//! 3. The kernel's references to inodes are dropped, which deletes files without a name
//!    (`unmount_volume`).
//! 4. `Fs::unmount` syncs, empties the journal, and marks the volume clean (`unmount_volume`).
//! 5. The result is reported: by the reply to DESTROY, which lets umount(2) return, and by
//!    `finish`. An error of the last sync is reported by `finish`; DESTROY has no way to report it.
//!
//! A panic in a request is no transition. It stops the journal (`Fs::stop_after_panic`): the mount
//! stays in its state, the volume becomes read-only, and step 4 does not mark it clean. A killed
//! process makes no transition either; the next mount recovers the volume.

use crate::nodes::Nodes;
use crate::reaper::Reaper;
use crate::reclaim::reclaim;
use crate::signals::{self, Event, Over};
use anyhow::{Context, Result};
use block::Writes;
use ext4::Fs;
use fusedev::{UnmountMode, unmount};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use sync::{Condvar, Mutex, Rank};

/// How long the open files of a detached mount are served.
const DETACHED_GRACE: Duration = Duration::from_secs(2);
/// How long [`Teardown::finish`] waits for the serving thread. Only a detached mount that is still
/// in use takes longer.
const JOIN_LIMIT: Duration = Duration::from_secs(1);
/// The time from another process's umount(2) to the end of the connection.
const UNMOUNT_RACE: Duration = Duration::from_millis(100);

/// A volume that a mount serves.
pub(crate) struct ServedVolume {
    pub fs: Arc<Fs>,
    pub nodes: Arc<Nodes>,
    pub reaper: Arc<Reaper>,
    pub device: Device,
}

/// How the device of a volume is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// As `fuseblk`: the kernel claims it and sends DESTROY.
    Claimed,
    /// As an image file.
    Unclaimed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Up,
    Down,
}

enum Volume {
    Mounted,
    /// The result of `Fs::unmount`.
    Unmounted(ext4::Result<()>),
}

/// The device number of the file system at a directory. No server is asked.
fn number_at(dir: &Path) -> Option<(u32, u32)> {
    let found = rustix::fs::statx(CWD, dir, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

/// The life of a mount up to its end.
pub(crate) struct Teardown {
    dir: PathBuf,
    /// The device number of the mount.
    number: OnceLock<(u32, u32)>,
    connection: Mutex<Connection>,
    /// The connection has become [`Connection::Down`].
    down: Condvar,
    /// The same, for [`Teardown::wait`].
    over: Over,
    /// `None` before [`Teardown::serve`] and after [`Teardown::finish`].
    serving: Mutex<Option<JoinHandle<io::Result<()>>>>,
    served: Option<ServedVolume>,
    /// Held during the unmount of the volume, so that a second caller waits for the result.
    volume: Mutex<Volume>,
}

impl Teardown {
    /// For a mount on the directory `dir`, an absolute path, that serves a volume or a bare device.
    ///
    /// # Errors
    /// Too many descriptors are open.
    pub fn new(dir: PathBuf, served: Option<ServedVolume>) -> io::Result<Arc<Teardown>> {
        Ok(Arc::new(Teardown {
            dir,
            number: OnceLock::new(),
            connection: Rank::FuseConnection.mutex(Connection::Up),
            down: Condvar::new(),
            over: Over::new()?,
            serving: Rank::FuseServing.mutex(None),
            served,
            volume: Rank::Teardown.mutex(Volume::Mounted),
        }))
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes the device number of the mount, which is at its directory now.
    pub fn mounted(&self) {
        if let Some(number) = number_at(&self.dir) {
            let _ = self.number.set(number);
        }
    }

    /// Unmounts the directory, if the mount is still there and no other one covers it.
    fn unmount_dir(&self, mode: UnmountMode) -> io::Result<()> {
        let ours = self.number.get();
        match number_at(&self.dir) {
            Some(other) if ours.is_some_and(|ours| *ours != other) => {
                Err(io::Error::other("another file system is at this directory"))
            }
            _ => unmount(&self.dir, mode),
        }
    }

    /// Starts the serving thread: `run` serves requests until the connection is down.
    pub fn serve(
        self: &Arc<Self>,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let teardown = self.clone();
        let thread = thread::Builder::new()
            .name("sluice-fuse".into())
            .spawn(move || {
                let result = run();
                teardown.disconnected();
                result
            })?;
        *self.serving.lock() = Some(thread);
        Ok(())
    }

    /// The kernel has ended the connection, or it has failed.
    fn disconnected(&self) {
        *self.connection.lock() = Connection::Down;
        self.down.notify_all();
        self.over.set();
    }

    fn is_disconnected(&self) -> bool {
        *self.connection.lock() == Connection::Down
    }

    /// Waits up to `limit` for the end of the connection. Returns whether it has ended.
    fn wait_disconnected(&self, limit: Duration) -> bool {
        let mut connection = self.connection.lock();
        let is_up = |connection: &mut Connection| *connection == Connection::Up;
        let waited = self.down.wait_while_for(&mut connection, is_up, limit);
        !waited.timed_out()
    }

    /// Waits until the connection has ended. SIGTERM, SIGINT and SIGHUP end it ([`Self::detach`]).
    pub fn wait(&self) -> Result<()> {
        signals::catch_signals()?;
        match self.over.wait()? {
            Event::Over => {}
            Event::Signal => {
                tracing::info!("{}: unmounting upon a signal", self.dir.display());
                self.detach();
            }
        }
        Ok(())
    }

    /// Unmounts the directory.
    ///
    /// # Errors
    /// The mount is in use (`EBUSY`) and stays.
    pub fn unmount(&self) -> Result<()> {
        if self.is_disconnected() {
            return Ok(());
        }
        self.unmount_dir(UnmountMode::Normal)
            .or_else(|error| {
                // Another process may just have unmounted it.
                self.wait_disconnected(UNMOUNT_RACE)
                    .then_some(())
                    .ok_or(error)
            })
            .with_context(|| format!("{}: unmount", self.dir.display()))
    }

    /// Unmounts the directory, lazily if the mount is in use.
    pub fn detach(&self) {
        if self.is_disconnected() || self.unmount_dir(UnmountMode::Normal).is_ok() {
            return;
        }
        if let Err(error) = self.unmount_dir(UnmountMode::Lazy) {
            tracing::error!("{}: unmount: {error}", self.dir.display());
        }
        if !self.wait_disconnected(DETACHED_GRACE) {
            tracing::warn!(
                "{}: still in use; access to its open files fails from now on",
                self.dir.display()
            );
        }
    }

    /// Carries DESTROY out: unmounts the volume. No request is running, and none comes later.
    pub fn destroy(&self) {
        if let Some(served) = &self.served {
            // `finish` reports the result.
            let _ = self.unmount_volume(served);
        }
    }

    /// Ends the mount after [`Self::wait`], [`Self::unmount`] or [`Self::detach`]. To be called
    /// once.
    ///
    /// # Errors
    /// Data could not be written back; the device could not be claimed again; the connection has
    /// failed.
    pub fn finish(&self) -> Result<()> {
        let joined = self.join();
        let Some(served) = &self.served else {
            return joined;
        };
        // Held until everything is written back.
        let _claim = self
            .is_aborted(served)
            .then(|| self.reclaim(served))
            .transpose()?;
        self.unmount_volume(served)
            .with_context(|| format!("{}: writing everything back", self.dir.display()))?;
        joined
    }

    /// Ends the mount when its owner is dropped, unless [`Self::finish`] has been called.
    pub fn finish_on_drop(&self) {
        if self.serving.lock().is_none() {
            return;
        }
        self.detach();
        if let Err(error) = self.finish() {
            tracing::error!("{error:#}");
        }
    }

    /// Waits for the serving thread, unless a detached mount is still in use.
    fn join(&self) -> Result<()> {
        let thread = self.serving.lock().take();
        let Some(thread) = thread.filter(|_| self.wait_disconnected(JOIN_LIMIT)) else {
            return Ok(());
        };
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that serves requests panicked")))
            .with_context(|| format!("{}: connection to the kernel", self.dir.display()))
    }

    /// Whether the kernel has released its claim on the device without DESTROY.
    fn is_aborted(&self, served: &ServedVolume) -> bool {
        served.device == Device::Claimed
            && self.is_disconnected()
            && matches!(*self.volume.lock(), Volume::Mounted)
    }

    /// Claims the device again. Writes wait meanwhile. If another process has taken the device,
    /// nothing more is written to it.
    fn reclaim(&self, served: &ServedVolume) -> Result<OwnedFd> {
        let queue = served.fs.queue();
        queue.set_writes(Writes::Wait);
        let claim = reclaim(Path::new(queue.name()), &self.dir);
        match &claim {
            Ok(_) => queue.set_writes(Writes::Pass),
            Err(_) => {
                queue.set_writes(Writes::Fail);
                served.nodes.clear();
                served.fs.crash();
            }
        }
        claim
    }

    /// Unmounts the volume, once. Later calls return the same result.
    fn unmount_volume(&self, served: &ServedVolume) -> ext4::Result<()> {
        let mut volume = self.volume.lock();
        match &*volume {
            Volume::Unmounted(result) => result.clone(),
            Volume::Mounted => {
                served.nodes.clear();
                served.reaper.catch_up();
                let result = served.fs.unmount();
                *volume = Volume::Unmounted(result.clone());
                result
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_volume;
    use std::sync::mpsc;
    use std::time::Instant;

    /// A mount whose connection ends at once.
    fn served(fs: &Arc<Fs>) -> Arc<Teardown> {
        let served = ServedVolume {
            fs: fs.clone(),
            nodes: Arc::new(Nodes::default()),
            reaper: Arc::new(Reaper::start(fs.clone()).unwrap()),
            device: Device::Unclaimed,
        };
        let teardown = Teardown::new("/".into(), Some(served)).unwrap();
        teardown.serve(|| Ok(())).unwrap();
        teardown
    }

    #[test]
    fn each_of_several_mounts_has_its_own_end() {
        let mounts = [(); 4].map(|()| {
            let (end, ended) = mpsc::channel::<()>();
            let teardown = Teardown::new("/".into(), None).unwrap();
            teardown
                .serve(move || {
                    let _ = ended.recv();
                    Ok(())
                })
                .unwrap();
            let waiting = thread::spawn(move || teardown.wait().unwrap());
            (end, waiting)
        });
        thread::sleep(Duration::from_millis(100));
        for (end, waiting) in mounts.into_iter().rev() {
            assert!(!waiting.is_finished());
            drop(end);
            let deadline = Instant::now() + Duration::from_secs(5);
            while !waiting.is_finished() {
                assert!(
                    Instant::now() < deadline,
                    "the end of a mount is not noticed"
                );
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn finish_unmounts_the_volume() {
        let fs = test_volume::in_memory();
        let teardown = served(&fs);
        assert!(!fs.is_read_only());
        teardown.finish().unwrap();
        assert!(fs.is_read_only());
    }

    #[test]
    fn destroy_unmounts_the_volume_and_finish_returns_its_result() {
        let fs = test_volume::in_memory();
        let teardown = served(&fs);
        teardown.destroy();
        assert!(fs.is_read_only());
        teardown.finish().unwrap();
        teardown.finish_on_drop();
    }

    #[test]
    fn finish_reports_a_panic() {
        let fs = test_volume::in_memory();
        let teardown = served(&fs);
        fs.stop_after_panic("a test");
        let error = format!("{:#}", teardown.finish().unwrap_err());
        assert!(error.contains("writing everything back"), "{error}");
    }

    #[test]
    fn an_error_of_the_connection_is_reported() {
        let teardown = Teardown::new("/".into(), None).unwrap();
        let failed = || Err(io::Error::other("broken"));
        teardown.serve(failed).unwrap();
        let error = format!("{:#}", teardown.finish().unwrap_err());
        assert!(error.contains("broken"), "{error}");
    }
}
