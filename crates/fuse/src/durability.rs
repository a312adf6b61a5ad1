//! Fsyncs that programs ask for, and syncs of a whole mount.
//!
//! An fsync waits for the device, and the threads that read requests should not. Yet a lone program that waits for its
//! fsync gains nothing from another thread but the time to wake it. So one fsync at a time is carried out where it was
//! read, if it has little to write and another thread goes on reading; the others are queued ([`Fs::fsync_later`]) and
//! answered when their group is durable. Programs with many fsyncs in flight (io_uring, libaio, many processes) share
//! commits that way.
//!
//! sync(2) and syncfs(2) of a FUSE mount bring the kernel's dirty pages here, and end there: the kernel sends SYNCFS to
//! servers of block devices (fuseblk) only, and there fuser answers ENOSYS by itself. [`sync`] asks by an ioctl.

use crate::guard::guarded;
use anyhow::{Context, Result};
use ext4::{Fs, InodeRef, SyncTarget};
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Bytes that an fsync may have to write for it to be carried out by the thread that read it.
const LITTLE: u64 = 1 << 20;

/// `_IO(0xe4, 1)` and `_IO(0xe4, 2)`; only files of a mount of ours ever see them.
const SYNC_VOLUME: u32 = 0xe401;
const SYNC_TREE: u32 = 0xe402;

/// How much [`sync`] makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// Everything on the volume.
    Volume,
    /// What lies below the directory.
    Tree,
}

impl SyncScope {
    /// What an ioctl asks for, if it is one of these.
    pub(crate) fn of(command: u32) -> Option<SyncScope> {
        match command {
            SYNC_VOLUME => Some(SyncScope::Volume),
            SYNC_TREE => Some(SyncScope::Tree),
            _ => None,
        }
    }
}

/// Makes the volume that is mounted at or above `dir` durable, or what lies below `dir`. Whoever may read `dir` may do so.
///
/// # Errors
/// `dir` is not on a volume that this program serves; something could not be written.
pub fn sync(dir: &Path, scope: SyncScope) -> Result<()> {
    let name = dir.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())
        .with_context(|| format!("{name}: not a directory that can be read"))?;
    // Pages that programs have written through mappings are dirty in the kernel.
    rustix::fs::syncfs(&fd).with_context(|| format!("{name}: sync"))?;
    let done = match scope {
        SyncScope::Volume => request::<SYNC_VOLUME>(&fd),
        SyncScope::Tree => request::<SYNC_TREE>(&fd),
    };
    match done {
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) => {
            anyhow::bail!(
                "{name}: no volume is mounted there by sluice (sync(1) is for other mounts)"
            )
        }
        done => done.with_context(|| format!("{name}: sync")),
    }
}

fn request<const COMMAND: u32>(fd: impl std::os::fd::AsFd) -> rustix::io::Result<()> {
    // SAFETY: the command has no argument, says that it has none, and changes nothing in this process.
    unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::NoArg::<COMMAND>::new()) }
}

/// See the module.
pub(crate) struct Durability {
    fs: Arc<Fs>,
    /// Another thread goes on reading while one waits.
    may_wait: bool,
    /// A thread that reads requests waits for an fsync.
    waiting: AtomicBool,
}

impl Durability {
    /// For a server with `threads` that read requests.
    pub fn new(fs: Arc<Fs>, threads: usize) -> Durability {
        Durability {
            fs,
            may_wait: threads > 1,
            waiting: AtomicBool::new(false),
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

    /// Makes more than a file durable, and replies later.
    pub fn sync(
        &self,
        scope: SyncScope,
        inode: InodeRef,
        reply: impl FnOnce(ext4::Result<()>) + Send + 'static,
    ) {
        let fs = self.fs.clone();
        let work = move || {
            let result = match scope {
                SyncScope::Volume => fs.sync(),
                SyncScope::Tree => fs.sync_tree(&inode),
            };
            drop(inode);
            reply(result);
        };
        let thread = thread::Builder::new().name("sluice-sync".into());
        // Without a thread the reply is dropped, which answers EIO.
        if let Err(error) = thread.spawn(|| guarded("sync", work)) {
            tracing::error!("no thread for a sync: {error}");
        }
    }
}

/// Says on drop that the thread reads again.
struct Waiting<'a>(&'a AtomicBool);
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
