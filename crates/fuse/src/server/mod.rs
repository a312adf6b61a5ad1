//! The server of a mounted volume: requests become calls of [`ext4`].
//!
//! `requests` receives them and sends the replies. The other files have the methods of [`Server`],
//! grouped by kind; a method returns a value or an error. They use [`Server`], and this file uses
//! none of them.

mod attr;
mod contents;
mod directory;
mod flags;
mod names;
mod opens;
mod privileges;
mod requests;
mod scan;
mod setup;
mod stats;
mod tunables;
mod volume_ioctls;
mod xattrs;

use crate::coherence::Coherence;
use crate::durability::Durability;
use crate::nodes::{Forgotten, Nodes, ino_of, node_of};
use crate::options::MountOptions;
use crate::reaper::Reaper;
use crate::removals::Removals;
use crate::teardown::Teardown;
use ext4::{Error, Fs, InodeRef, Result};
use fusedev::{Errno, NodeId, Notifier, OperationCounts, StatFs, TransportMonitor};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The server of one mounted volume.
pub(crate) struct Server {
    fs: Arc<Fs>,
    nodes: Arc<Nodes>,
    durability: Durability,
    coherence: Coherence,
    removals: Removals,
    reaper: Arc<Reaper>,
    scans: Arc<scan::Scans>,
    teardown: Arc<Teardown>,
    notifier: OnceLock<Notifier>,
    transport: OnceLock<TransportMonitor>,
    default_permissions: bool,
    killpriv: bool,
    /// The kernel leaves it to the server to clear set-user-ID and set-group-ID.
    clears_privileges: AtomicBool,
    checks_opens: bool,
    /// A listing of a directory is an access.
    notes_listings: bool,
    /// All changes of names are synchronous (`-o dirsync`, `-o sync`). The kernel leaves that to
    /// the server.
    syncs_names: bool,
    /// Contents of small files are stored in the kernel's page cache when they are opened.
    stores_contents: bool,
    requests: Arc<OperationCounts>,
    /// The kernel sends FSYNC after synchronous writes, but not after asynchronous direct ones.
    kernel_syncs_writes: AtomicBool,
    /// The kernel checks the permission to set inode flags.
    kernel_checks_flags: AtomicBool,
    block_size: u32,
}

impl Server {
    /// Serves `fs`, which `teardown` ends.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(
        fs: Arc<Fs>,
        (nodes, reaper, teardown): (Arc<Nodes>, Arc<Reaper>, Arc<Teardown>),
        options: &MountOptions,
    ) -> std::io::Result<Server> {
        Ok(Server {
            durability: Durability::new(fs.clone(), options.thread_count()),
            coherence: Coherence::start(options.thread_count())?,
            removals: Removals::default(),
            nodes,
            reaper,
            scans: Arc::default(),
            teardown,
            notifier: OnceLock::new(),
            transport: OnceLock::new(),
            default_permissions: options.default_permissions,
            killpriv: options.killpriv,
            clears_privileges: AtomicBool::new(false),
            checks_opens: options.check_open,
            notes_listings: options.diratime,
            syncs_names: options.dirsync || options.sync,
            // A read that the kernel does not send changes no access time.
            stores_contents: !options.atime,
            requests: Arc::default(),
            kernel_syncs_writes: AtomicBool::new(false),
            kernel_checks_flags: AtomicBool::new(false),
            block_size: fs.statfs().block_size,
            fs,
        })
    }

    /// Sets the sender of notifications and the view of the transport.
    pub fn set_connection(&self, notifier: Notifier, transport: TransportMonitor) {
        self.coherence.set_notifier(notifier.clone());
        let _ = self.notifier.set(notifier);
        let _ = self.transport.set(transport);
    }

    /// The mounted volume.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Numbers of requests by operation.
    pub fn requests(&self) -> &Arc<OperationCounts> {
        &self.requests
    }

    /// Used and free space.
    fn statfs(&self) -> StatFs {
        // A program that has removed files expects their space to be free.
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

    /// Counts a lookup, before its reply.
    fn count_lookup(&self, inode: &InodeRef) -> ext4::Attr {
        self.nodes.count(inode.ino());
        let attr = self.attributes(inode);
        if attr.nlink == 0 {
            self.nodes.keep(inode);
        }
        attr
    }

    /// The attributes of `inode`, for a reply.
    fn attributes(&self, inode: &InodeRef) -> ext4::Attr {
        let attr = inode.attr();
        if self.removals.is_recent(attr.ino) {
            self.forget_attributes(inode);
        }
        attr
    }

    /// Subtracts lookups from the count of a node.
    fn forget(&self, node: NodeId, lookups: u64) {
        // The root has no count and is never deleted.
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

    /// Prepares for the removal of a name of `target`.
    fn before_unlink(&self, target: &InodeRef) {
        if target.attr().nlink > 1 {
            self.removals.note(target.ino());
        }
    }

    /// Keeps or deletes `target` if its last link is gone: it is kept while the kernel knows it.
    fn after_unlink(&self, target: InodeRef) {
        let nlink = target.attr().nlink;
        if nlink > 0 {
            self.removals.note(target.ino());
        }
        if nlink == 0 && !self.nodes.keep(&target) {
            drop(target);
            self.reaper.kick();
        }
    }

    /// Drops the kernel's cached attributes of `inode`.
    fn forget_attributes(&self, inode: &InodeRef) {
        if let Some(notifier) = self.notifier.get() {
            // Not the pages: the request in progress may hold their locks.
            notifier.attributes_changed(node_of(inode.ino()));
        }
    }
}

/// The error number of a reply. Errors of the volume and of the device are logged.
fn errno(error: Error) -> Errno {
    match &error {
        Error::Corrupt(_)
        | Error::CorruptInode { .. }
        | Error::CorruptDirectory { .. }
        | Error::Io(_)
        | Error::Journal(_)
        | Error::Internal(_) => tracing::error!("{error}"),
        _ => {}
    }
    Errno::from_raw_os_error(error.errno())
}
