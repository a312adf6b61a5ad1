//! Fsyncs that programs ask for, and syncs of a whole mount.
//!
//! An fsync waits for the device, and the threads that read requests should not. Yet a lone program
//! that waits for its fsync gains nothing from another thread but the time to wake it. So one fsync
//! at a time is carried out where it was read, if it has little to write and another thread goes on
//! reading; the others are queued ([`Fs::fsync_later`]) and answered when their group is durable.
//! Programs with many fsyncs in flight (io_uring, libaio, many processes) share commits that way.
//!
//! sync(2) and syncfs(2) bring the kernel's dirty pages here. They then ask for all to be made
//! durable (SYNCFS) where the volume is on a block device that is mounted as one; elsewhere they
//! end there, and [`sync`] asks by an ioctl.

use anyhow::{Context, Result};
use ext4::{Fs, InodeRef, SyncTarget};
use fusedev::guarded;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that an fsync may have to write for it to be carried out by the thread that read it.
const LITTLE: u64 = 1 << 20;

/// `_IO(0xe4, 1)` to `_IO(0xe4, 3)`, see [`SyncIoctl`]; only files of a mount of ours ever see
/// them.
const SYNC_VOLUME: u32 = 0xe401;
const SYNC_TREE: u32 = 0xe402;
const ANNOUNCE: u32 = 0xe403;
/// How long an announcement counts. A thread's number is given to another one much later.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// How much [`sync`] makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// Everything on the volume.
    Volume,
    /// What lies below the directory.
    Tree,
}

/// What [`sync`] asks by ioctls.
pub(crate) enum SyncIoctl {
    /// To make the volume durable.
    Volume,
    /// To make what lies below the directory durable.
    Tree,
    /// To take the next SYNCFS for what it is, see [`Announcement`].
    Announce,
}

impl SyncIoctl {
    /// What an ioctl asks, if it is one of these.
    pub fn of(command: u32) -> Option<SyncIoctl> {
        match command {
            SYNC_VOLUME => Some(SyncIoctl::Volume),
            SYNC_TREE => Some(SyncIoctl::Tree),
            ANNOUNCE => Some(SyncIoctl::Announce),
            _ => None,
        }
    }
}

/// Makes the volume that is mounted at or above `dir` durable, or what lies below `dir`. Whoever
/// may read `dir` may do so.
///
/// # Errors
/// `dir` is not on a volume that this program serves; something could not be written.
pub fn sync(dir: &Path, scope: SyncScope) -> Result<()> {
    let name = dir.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())
        .with_context(|| format!("{name}: not a directory that can be read"))?;
    let by_ioctl = || {
        if scope == SyncScope::Tree {
            request::<ANNOUNCE>(&fd)?;
        }
        // Pages that programs have written through mappings are dirty in the kernel.
        rustix::fs::syncfs(&fd)?;
        match scope {
            SyncScope::Volume => request::<SYNC_VOLUME>(&fd),
            SyncScope::Tree => request::<SYNC_TREE>(&fd),
        }
    };
    match by_ioctl() {
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) => {
            anyhow::bail!(
                "{name}: no volume is mounted there by sluice (sync(1) is for other mounts)"
            )
        }
        done => done.with_context(|| format!("{name}: sync")),
    }
}

fn request<const COMMAND: u32>(fd: impl std::os::fd::AsFd) -> rustix::io::Result<()> {
    // SAFETY: the command has no argument, says that it has none, and changes nothing in this
    // process.
    unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::NoArg::<COMMAND>::new()) }
}

/// Who is about to sync a subtree needs syncfs(2) for the pages of mappings only. It says so
/// before, so that its SYNCFS does not sync the volume.
struct Announcement {
    pid: u32,
    until: Instant,
}

/// See the module.
pub(crate) struct Durability {
    fs: Arc<Fs>,
    /// Another thread goes on reading while one waits.
    may_wait: bool,
    /// A thread that reads requests waits for an fsync.
    waiting: AtomicBool,
    announcements: Mutex<Vec<Announcement>>,
}

impl Durability {
    /// For a server with `threads` that read requests.
    pub fn new(fs: Arc<Fs>, threads: usize) -> Durability {
        Durability {
            fs,
            may_wait: threads > 1,
            waiting: AtomicBool::new(false),
            announcements: Mutex::default(),
        }
    }

    /// Makes a file durable, and replies: before this returns, or later on another thread.
    pub fn fsync(&self, target: SyncTarget, reply: impl FnOnce(ext4::Result<()>) + Send + 'static) {
        let little = target.inode.unwritten_bytes() <= LITTLE;
        if !self.may_wait || !little || self.waiting.swap(true, Ordering::Acquire) {
            return self.fs.fsync_later(target, reply);
        }
        let _waiting = Waiting(&self.waiting);
        let result = self.fs.fsync(&target.inode, target.data_only);
        // Before the reply: who is answered may go on to unmount.
        drop(target);
        reply(result);
    }

    /// The thread `pid` is about to call syncfs(2) for the kernel's pages only.
    pub fn announce(&self, pid: u32) {
        // 0 stands for all that cannot be told apart.
        if pid != 0 {
            let now = Instant::now();
            let mut announcements = self.announcements.lock();
            announcements.retain(|a| a.pid != pid && a.until > now);
            announcements.push(Announcement {
                pid,
                until: now + ANNOUNCED,
            });
        }
    }

    /// Whether the thread `pid` has announced this SYNCFS; the announcement is used up.
    pub fn take_announcement(&self, pid: u32) -> bool {
        let now = Instant::now();
        let mut announcements = self.announcements.lock();
        let found = announcements
            .iter()
            .position(|a| a.pid == pid && a.until > now);
        found.map(|at| announcements.swap_remove(at)).is_some()
    }

    /// Makes the volume durable, and replies later.
    pub fn sync_volume(&self, reply: impl FnOnce(ext4::Result<()>) + Send + 'static) {
        let fs = self.fs.clone();
        apart(&self.fs, move || reply(fs.sync()));
    }

    /// Makes what lies below `dir` durable, and replies later.
    pub fn sync_tree(&self, dir: InodeRef, reply: impl FnOnce(ext4::Result<()>) + Send + 'static) {
        let fs = self.fs.clone();
        apart(&self.fs, move || {
            let result = fs.sync_tree(&dir);
            drop(dir);
            reply(result);
        });
    }
}

/// Runs `work` on a thread of its own, so that requests go on being read.
pub(crate) fn apart(fs: &Arc<Fs>, work: impl FnOnce() + Send + 'static) {
    let fs = fs.clone();
    let work = move || {
        if guarded("sync", work).is_none() {
            fs.stop_after_panic("a sync");
        }
    };
    let thread = thread::Builder::new().name("sluice-sync".into());
    // Without a thread the reply is dropped, which answers EIO.
    if let Err(error) = thread.spawn(work) {
        tracing::error!("no thread for a sync: {error}");
    }
}

/// Says on drop that the thread reads again.
struct Waiting<'a>(&'a AtomicBool);
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_for_one_thread_and_once() {
        let queue = block::open(
            &block::DeviceUrl::Memory(64 << 20),
            block::OpenMode::ReadWrite,
        )
        .unwrap();
        ext4::mkfs(&queue, &ext4::MkfsOptions::default()).unwrap();
        let fs = Fs::mount(queue, ext4::MountOptions::default()).unwrap();
        let durability = Durability::new(fs, 2);
        durability.announce(7);
        assert!(!durability.take_announcement(8));
        assert!(durability.take_announcement(7));
        assert!(!durability.take_announcement(7));
        // Threads of other namespaces cannot be told apart.
        durability.announce(0);
        assert!(!durability.take_announcement(0));
        let past = Announcement {
            pid: 9,
            until: Instant::now(),
        };
        durability.announcements.lock().push(past);
        assert!(!durability.take_announcement(9));
    }
}
