//! fsync(2), and syncs of a whole mount.
//!
//! An fsync waits for the device, and a serving thread should not wait. But if only one program
//! waits for an fsync, handing it to another thread only adds the time of a wake-up. So one fsync
//! at a time is carried out by its serving thread, if it has little to write and other threads
//! serve requests meanwhile. All others are queued ([`Fs::fsync_later`]) and answered when their
//! group is durable. Programs with many fsyncs in flight (io_uring, libaio, many processes) thereby
//! share commits.
//!
//! sync(2) and syncfs(2) write the kernel's dirty pages to the server. For a volume on a block
//! device that is mounted as one, the kernel then sends SYNCFS. For others it sends nothing more,
//! and [`sync()`] uses an ioctl.

use crate::panics::stop_on_panic;
use anyhow::{Context, Result};
use ext4::{Fs, InodeRef, SyncTarget};
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sync::time::now;
use sync::{Mutex, Rank};

/// Most bytes that a serving thread writes for an fsync.
const SMALL_FSYNC: u64 = 1 << 20;

/// `_IO(0xe4, 1)` to `_IO(0xe4, 3)`, see [`SyncIoctl`]. Only files of a SluiceFS mount know them.
const SYNC_VOLUME: u32 = 0xe401;
const SYNC_TREE: u32 = 0xe402;
const ANNOUNCE: u32 = 0xe403;
/// How long an announcement is valid. The kernel reuses a thread id much later.
const ANNOUNCEMENT_TTL: Duration = Duration::from_secs(1);

/// The part of a volume that [`sync()`] makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The whole volume.
    Volume,
    /// The tree below the directory.
    Tree,
}

/// The ioctls of [`sync()`].
pub(crate) enum SyncIoctl {
    /// Makes the volume durable.
    Volume,
    /// Makes the tree below the directory durable.
    Tree,
    /// Announces a SYNCFS, see [`Announcement`].
    Announce,
}

impl SyncIoctl {
    /// Decodes an ioctl.
    pub fn of(command: u32) -> Option<SyncIoctl> {
        match command {
            SYNC_VOLUME => Some(SyncIoctl::Volume),
            SYNC_TREE => Some(SyncIoctl::Tree),
            ANNOUNCE => Some(SyncIoctl::Announce),
            _ => None,
        }
    }
}

/// Makes the volume that holds the directory `dir` durable, or the tree below `dir`. The caller
/// needs read permission on `dir`.
///
/// # Errors
/// `dir` is not on a SluiceFS mount; data could not be written.
pub fn sync(dir: &Path, scope: SyncScope) -> Result<()> {
    let name = dir.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())
        .with_context(|| format!("{name}: not a readable directory"))?;
    let by_ioctl = || {
        if scope == SyncScope::Tree {
            request::<ANNOUNCE>(&fd)?;
        }
        // The kernel has dirty pages of mappings.
        rustix::fs::syncfs(&fd)?;
        match scope {
            SyncScope::Volume => request::<SYNC_VOLUME>(&fd),
            SyncScope::Tree => request::<SYNC_TREE>(&fd),
        }
    };
    match by_ioctl() {
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) => {
            anyhow::bail!(
                "{name}: no volume is mounted there by sluice; use sync(1) for other mounts"
            )
        }
        done => done.with_context(|| format!("{name}: sync")),
    }
}

fn request<const COMMAND: u32>(fd: impl std::os::fd::AsFd) -> rustix::io::Result<()> {
    // SAFETY: the command has no argument and changes no memory of this process.
    unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::NoArg::<COMMAND>::new()) }
}

/// [`sync()`] of a tree calls syncfs(2) only for the dirty pages of mappings. It announces that
/// call, so that the server does not sync the whole volume upon its SYNCFS.
struct Announcement {
    pid: u32,
    until: Instant,
}

/// Carries out the fsyncs and syncs of a mount.
pub(crate) struct Durability {
    fs: Arc<Fs>,
    /// There are several serving threads, so one of them may wait.
    may_wait: bool,
    /// A serving thread waits for an fsync.
    waiting: AtomicBool,
    announcements: Mutex<Vec<Announcement>>,
}

impl Durability {
    /// `threads` is the number of serving threads.
    pub fn new(fs: Arc<Fs>, threads: usize) -> Durability {
        Durability {
            fs,
            may_wait: threads > 1,
            waiting: AtomicBool::new(false),
            announcements: Rank::FuseAnnouncements.mutex(Vec::new()),
        }
    }

    /// Makes a file durable. Calls `reply` before this returns, or later on another thread.
    pub fn fsync(&self, target: SyncTarget, reply: impl FnOnce(ext4::Result<()>) + Send + 'static) {
        let is_small = target.inode.unwritten_bytes() <= SMALL_FSYNC;
        if !self.may_wait || !is_small || self.waiting.swap(true, Ordering::Acquire) {
            return self.fs.fsync_later(target, reply);
        }
        let _waiting = Waiting(&self.waiting);
        let result = self.fs.fsync(&target.inode, target.kind);
        // The reply may let the caller unmount, which needs the inode to be released.
        drop(target);
        reply(result);
    }

    /// Records that the thread `pid` will call syncfs(2) only for the kernel's dirty pages.
    pub fn announce(&self, pid: u32) {
        // 0 stands for all threads of other pid namespaces.
        if pid != 0 {
            let now = now();
            let mut announcements = self.announcements.lock();
            announcements.retain(|a| a.pid != pid && a.until > now);
            announcements.push(Announcement {
                pid,
                until: now + ANNOUNCEMENT_TTL,
            });
        }
    }

    /// Removes the announcement of the thread `pid`. Returns whether there was one.
    pub fn take_announcement(&self, pid: u32) -> bool {
        let now = now();
        let mut announcements = self.announcements.lock();
        let found = announcements
            .iter()
            .position(|a| a.pid == pid && a.until > now);
        found.map(|at| announcements.swap_remove(at)).is_some()
    }

    /// Makes the volume durable. Calls `reply` on another thread, or before this returns if
    /// everything is durable. Calls that wait are replies in a queue.
    pub fn sync_volume(&self, reply: impl FnOnce(ext4::Result<()>) + Send + 'static) {
        self.fs.sync_later(reply);
    }

    /// Makes the tree below `dir` durable, then calls `reply` on another thread.
    pub fn sync_tree(&self, dir: InodeRef, reply: impl FnOnce(ext4::Result<()>) + Send + 'static) {
        let fs = self.fs.clone();
        spawn(&self.fs, move || {
            let result = fs.sync_tree(&dir);
            drop(dir);
            reply(result);
        });
    }
}

/// Runs `work`, which takes long, on a thread of its own, so that it blocks no serving thread.
pub(crate) fn spawn(fs: &Arc<Fs>, work: impl FnOnce() + Send + 'static) {
    let fs = fs.clone();
    let work = move || stop_on_panic(&fs, "sync", work);
    let thread = thread::Builder::new().name("sluice-sync".into());
    // Without a thread the reply is dropped, which sends EIO.
    if let Err(error) = thread.spawn(work) {
        tracing::error!("cannot start a thread for a sync: {error}");
    }
}

/// A serving thread waits until this is dropped.
struct Waiting<'a>(&'a AtomicBool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_volume;

    #[test]
    fn an_announcement_is_valid_for_one_thread_and_once() {
        let durability = Durability::new(test_volume::in_memory(), 2);
        durability.announce(7);
        assert!(!durability.take_announcement(8));
        assert!(durability.take_announcement(7));
        assert!(!durability.take_announcement(7));
        // Threads of other pid namespaces all have the id 0.
        durability.announce(0);
        assert!(!durability.take_announcement(0));
        let past = Announcement {
            pid: 9,
            until: now(),
        };
        durability.announcements.lock().push(past);
        assert!(!durability.take_announcement(9));
    }
}
