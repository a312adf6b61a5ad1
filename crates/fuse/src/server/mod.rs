//! Requests to calls. [`Adapter`] receives them (see `requests`); what they do is in a file per kind of request, as
//! methods of [`Server`] that return a value or an error and know nothing of replies.

mod attr;
mod contents;
mod directory;
mod flags;
mod names;
mod requests;
mod setup;
mod stats;
mod tunables;
mod xattrs;

use crate::MountOptions;
use crate::durability::Durability;
use crate::nodes::Nodes;
use crate::reaper::Reaper;
use ext4::{Error, Fs, Ino, InodeRef, Result};
use fuser::{Errno, INodeNo, Notifier};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// FUSE's number of the root directory.
const FUSE_ROOT: u64 = 1;

/// How often, and how long, a request that meets a full volume waits for forgets of deleted files.
const MAX_WAITS: u32 = 3;
const FORGET_DELAY: Duration = Duration::from_millis(5);

/// One mounted volume, as its requests see it.
pub(crate) struct Server {
    fs: Arc<Fs>,
    nodes: Nodes,
    durability: Durability,
    reaper: Reaper,
    notifier: OnceLock<Notifier>,
    default_permissions: bool,
    killpriv: bool,
    /// The kernel sends FSYNC after a synchronous write, so that we need not sync.
    kernel_syncs_writes: AtomicBool,
    block_size: u32,
}

/// What fuser calls.
pub(crate) struct Adapter(pub Arc<Server>);

impl Server {
    /// Serves `fs`.
    pub fn new(fs: Arc<Fs>, options: &MountOptions) -> std::io::Result<Server> {
        Ok(Server {
            nodes: Nodes::default(),
            durability: Durability::new(fs.clone(), options.thread_count()),
            reaper: Reaper::start(fs.clone())?,
            notifier: OnceLock::new(),
            default_permissions: options.default_permissions,
            killpriv: options.killpriv,
            kernel_syncs_writes: AtomicBool::new(false),
            block_size: fs.statfs().block_size,
            fs,
        })
    }

    /// The way to tell the kernel of changes that it does not know of.
    pub fn set_notifier(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// The volume.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// The connection has ended: deletes what only the kernel kept, and unmounts the volume.
    pub fn shut_down(&self) -> Result<()> {
        self.nodes.clear();
        self.reaper.catch_up();
        self.fs.unmount()
    }

    /// The inode of a node.
    fn inode(&self, node: INodeNo) -> Result<InodeRef> {
        self.fs.inode(ino_of(node)?)
    }

    /// The kernel is about to be told about `inode` once more.
    fn count_lookup(&self, inode: &InodeRef) -> ext4::Attr {
        self.nodes.count(inode.ino());
        let attr = inode.attr();
        if attr.nlink == 0 {
            self.nodes.keep(inode);
        }
        attr
    }

    /// The kernel forgot about a node.
    fn forget(&self, node: INodeNo, lookups: u64) {
        // The root is neither counted nor deleted.
        if node.0 == FUSE_ROOT {
            return;
        }
        if let Ok(ino) = ino_of(node)
            && let Some(pin) = self.nodes.forget(ino, lookups)
        {
            drop(pin);
            self.reaper.kick();
        }
    }

    /// `target` may have lost its last name: keeps it while the kernel knows it, or else lets it be deleted.
    fn after_unlink(&self, target: InodeRef) {
        if target.attr().nlink == 0 && !self.nodes.keep(&target) {
            drop(target);
            self.reaper.kick();
        }
    }

    /// Runs `work`, and again if the volume is full but deleted files have not been freed yet. Who removes a file and then
    /// writes counts on its space; but the kernel sends the forget that frees it without waiting, so it may come later.
    fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut waits = 0;
        loop {
            match work() {
                Err(Error::NoSpace) if self.reaper.catch_up() => {
                    // Freed blocks can be taken again once the transaction that freed them has committed.
                    self.fs.sync()?;
                }
                Err(Error::NoSpace) if waits < MAX_WAITS && self.nodes.keeps_any() => {
                    waits += 1;
                    std::thread::sleep(FORGET_DELAY);
                }
                result => return result,
            }
        }
    }

    /// Tells the kernel that it does not know `inode`'s attributes any more.
    fn forget_attributes(&self, inode: &InodeRef) {
        if let Some(notifier) = self.notifier.get() {
            // A negative offset means attributes only. Pages must be left alone: the request that is being served may
            // hold their locks.
            if let Err(error) = notifier.inval_inode(node_of(inode.ino()), -1, 0) {
                tracing::debug!("inode {}: invalidation: {error}", inode.ino());
            }
        }
    }
}

/// The inode number of a node.
fn ino_of(node: INodeNo) -> Result<u32> {
    match node.0 {
        FUSE_ROOT => Ok(Ino::ROOT.0),
        n => u32::try_from(n).map_err(|_| Error::Invalid("no such node")),
    }
}

/// The node of an inode number.
fn node_of(ino: u32) -> INodeNo {
    if ino == Ino::ROOT.0 {
        INodeNo(FUSE_ROOT)
    } else {
        INodeNo(u64::from(ino))
    }
}

/// What the kernel is told of an error; what is the volume's or the device's fault is logged.
fn errno(error: Error) -> Errno {
    match &error {
        Error::Corrupt(_) | Error::CorruptInode { .. } | Error::Io(_) | Error::Journal(_) => {
            tracing::error!("{error}");
        }
        _ => {}
    }
    Errno::from_i32(error.errno())
}
