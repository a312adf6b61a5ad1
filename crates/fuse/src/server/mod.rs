//! Requests to calls. `requests` receives them; what they do is in a file per kind of request, as
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
mod volume_ioctls;
mod xattrs;

use crate::MountOptions;
use crate::coherence::Coherence;
use crate::durability::Durability;
use crate::nodes::{Forgotten, Nodes};
use crate::reaper::Reaper;
use ext4::{Error, Fs, Ino, InodeRef, Result};
use fusedev::{Errno, NodeId, Notifier, StatFs};
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often, and how long, a request that meets a full volume waits for forgets of deleted files.
const MAX_WAITS: u32 = 10;
const FORGET_DELAY: Duration = Duration::from_millis(5);

/// One mounted volume, as its requests see it.
pub(crate) struct Server {
    fs: Arc<Fs>,
    nodes: Nodes,
    durability: Durability,
    coherence: Coherence,
    reaper: Reaper,
    notifier: OnceLock<Notifier>,
    /// How the volume was unmounted, if the kernel has asked for it and nobody has been told.
    ended: Mutex<Option<Result<()>>>,
    default_permissions: bool,
    killpriv: bool,
    checks_opens: bool,
    /// The kernel sends FSYNC after a synchronous write, so that we need not sync.
    kernel_syncs_writes: AtomicBool,
    block_size: u32,
}

impl Server {
    /// Serves `fs`.
    pub fn new(fs: Arc<Fs>, options: &MountOptions) -> std::io::Result<Server> {
        Ok(Server {
            nodes: Nodes::default(),
            durability: Durability::new(fs.clone(), options.thread_count()),
            coherence: Coherence::start(options.thread_count())?,
            reaper: Reaper::start(fs.clone())?,
            notifier: OnceLock::new(),
            ended: Mutex::new(None),
            default_permissions: options.default_permissions,
            killpriv: options.killpriv,
            checks_opens: options.check_open,
            kernel_syncs_writes: AtomicBool::new(false),
            block_size: fs.statfs().block_size,
            fs,
        })
    }

    /// The way to tell the kernel of changes that it does not know of.
    pub fn set_notifier(&self, notifier: Notifier) {
        self.coherence.set_notifier(notifier.clone());
        let _ = self.notifier.set(notifier);
    }

    /// The volume.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// The connection has ended: unmounts the volume, unless [`Server::end`] has done so; how it
    /// went.
    pub fn shut_down(&self) -> Result<()> {
        self.end();
        self.ended.lock().take().unwrap_or(Ok(()))
    }

    /// Whether [`Server::end`] has been called.
    pub fn has_ended(&self) -> bool {
        self.ended.lock().is_some()
    }

    /// Writes nothing any more: the device is somebody else's.
    pub fn abandon(&self) {
        self.nodes.clear();
        self.fs.crash();
    }

    /// Deletes what only the kernel kept, and unmounts the volume, once.
    fn end(&self) {
        let mut ended = self.ended.lock();
        self.nodes.clear();
        self.reaper.catch_up();
        let unmounted = self.fs.unmount();
        ended.get_or_insert(unmounted);
    }

    /// Space that is used and free.
    fn statfs(&self) -> StatFs {
        // Who has removed files wants to see the space.
        self.reaper.catch_up();
        let s = self.fs.statfs();
        StatFs {
            blocks: s.blocks,
            free: s.free,
            available: s.available,
            inodes: s.inodes,
            free_inodes: s.free_inodes,
            block_size: s.block_size,
            max_name: 255,
        }
    }

    /// The inode of a node.
    fn inode(&self, node: NodeId) -> Result<InodeRef> {
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
    fn forget(&self, node: NodeId, lookups: u64) {
        // The root is neither counted nor deleted.
        if node == NodeId::ROOT {
            return;
        }
        let Ok(ino) = ino_of(node) else { return };
        match self.nodes.forget(ino, lookups) {
            Forgotten::Known => {}
            Forgotten::Gone(pin) => {
                self.coherence.forget(ino);
                if pin.is_some() {
                    drop(pin);
                    self.reaper.kick();
                }
            }
        }
    }

    /// `target` may have lost its last name: keeps it while the kernel knows it, or else lets it be
    /// deleted.
    fn after_unlink(&self, target: InodeRef) {
        if target.attr().nlink == 0 && !self.nodes.keep(&target) {
            drop(target);
            self.reaper.kick();
        }
    }

    /// Runs `work`, and again if the volume is full but a forget may be on its way: a program that
    /// removes a file and then writes counts on its space, but the kernel does not wait for the
    /// forget that frees it. All else that makes space is done by [`ext4`], which deletes what is
    /// forgotten before it says that the volume is full.
    fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut waits = 0;
        loop {
            match work() {
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
            // Pages must be left alone: the request that is being served may hold their locks.
            notifier.attributes_changed(node_of(inode.ino()));
        }
    }
}

/// The inode number of a node.
fn ino_of(node: NodeId) -> Result<u32> {
    match node {
        NodeId::ROOT => Ok(Ino::ROOT.0),
        NodeId(n) => u32::try_from(n).map_err(|_| Error::Invalid("no such node")),
    }
}

/// The node of an inode number.
pub(crate) fn node_of(ino: u32) -> NodeId {
    if ino == Ino::ROOT.0 {
        NodeId::ROOT
    } else {
        NodeId(u64::from(ino))
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
    Errno::from_raw_os_error(error.errno())
}
