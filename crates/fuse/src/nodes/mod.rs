//! The kernel's lookup counts of inodes.
//!
//! A count does not pin an inode in memory: the inode can be loaded again by its number. So a
//! kernel that caches a million names does not hold a million inodes in the memory budget. Only a
//! *deleted* inode (no links) with a count is pinned, since a process may have it open and nothing
//! else prevents its deletion:
//!
//! ```text
//!            lookup, create, link, readdirplus       links go to 0, unnamed file: keep
//!   unknown ──────────────────────────────────▶ counted ─────────────────────▶ counted and pinned
//!      ▲                                        │     ▲                               │     │
//!      │                                        │     └──── link: unkeep, count ──────┘     │
//!      └─────────── forget, count is 0 ─────────┴────────── forget: unpin, reap ────────────┘
//! ```
//!
//! The thread that removes the last link and a thread that counts a lookup both read the link count
//! *after* their own step. So at least one of the two sees the other's step and pins the inode.
//!
//! `contents` has the other part of a node: how often it is open.

mod contents;

pub(crate) use contents::{Resizing, Storing};

use contents::Contents;
use ext4::{DeletedInodes, Error, InodeRef, Result};
use fusedev::NodeId;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sync::{Condvar, Mutex, Rank};
use units::Ino;

const SHARDS: usize = 64;

#[derive(Default)]
struct Node {
    lookups: u64,
    pin: Option<InodeRef>,
    contents: Contents,
}

type Shard = FxHashMap<Ino, Node>;

/// The state of a node after a forget.
pub(crate) enum Forgotten {
    /// The kernel still knows it.
    Known,
    /// The kernel does not know it. A deleted inode had this pin.
    Gone(Option<InodeRef>),
}

/// The lookup counts of all inodes.
pub(crate) struct Nodes {
    /// Number of pinned inodes.
    kept: AtomicUsize,
    /// The counts have been dropped; forgets may still come.
    cleared: AtomicBool,
    shards: [Mutex<Shard>; SHARDS],
    /// For each shard: contents of a file have been stored.
    stored: [Condvar; SHARDS],
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            kept: AtomicUsize::new(0),
            cleared: AtomicBool::new(false),
            shards: std::array::from_fn(|_| Rank::FuseNodes.mutex(Shard::default())),
            stored: std::array::from_fn(|_| Condvar::new()),
        }
    }
}

impl Nodes {
    fn shard_number(ino: Ino) -> usize {
        // One thread often creates inodes with adjacent numbers. They share a shard, which stays in
        // the cache of that thread's processor.
        (ino.0 as usize / 64) % SHARDS
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[Self::shard_number(ino)]
    }

    /// Counts a lookup, before its reply. The caller then reads the link count of the inode, and
    /// calls [`Nodes::keep`] if it is 0.
    pub fn count(&self, ino: Ino) {
        self.shard(ino).lock().entry(ino).or_default().lookups += 1;
    }

    /// Pins an inode without links while the kernel knows it. Returns whether the kernel does.
    pub fn keep(&self, inode: &InodeRef) -> bool {
        match self.shard(inode.ino()).lock().get_mut(&inode.ino()) {
            Some(node) => {
                if node.pin.is_none() {
                    node.pin = Some(inode.clone());
                    self.kept.fetch_add(1, Ordering::Relaxed);
                }
                true
            }
            None => false,
        }
    }

    /// Takes the pin of an inode that has got a name. The caller drops it without a lock, and
    /// counts a lookup afterwards as after [`Nodes::count`]: it pins the inode again if the name
    /// was removed meanwhile.
    #[must_use]
    pub fn unkeep(&self, ino: Ino) -> Option<InodeRef> {
        let pin = self.shard(ino).lock().get_mut(&ino)?.pin.take();
        if pin.is_some() {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        pin
    }

    /// Subtracts `lookups` from the count of `ino`.
    #[must_use]
    pub fn forget(&self, ino: Ino, lookups: u64) -> Forgotten {
        let mut shard = self.shard(ino).lock();
        let Entry::Occupied(mut entry) = shard.entry(ino) else {
            if !self.cleared.load(Ordering::Relaxed) {
                tracing::warn!("the kernel forgot inode {ino}, which it does not know");
            }
            return Forgotten::Known;
        };
        let node = entry.get_mut();
        debug_assert!(node.lookups >= lookups);
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return Forgotten::Known;
        }
        // The caller drops the pin without the shard's lock.
        let pin = entry.remove().pin;
        if pin.is_some() {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        Forgotten::Gone(pin)
    }

    /// Drops all counts and pins, at the end of the connection.
    pub fn clear(&self) {
        self.cleared.store(true, Ordering::Relaxed);
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *shard.lock());
            drop(nodes);
        }
        self.kept.store(0, Ordering::Relaxed);
    }

    /// Number of inodes that the kernel knows.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// The inode number of a node. FUSE's root is node 1; ext4's root is inode 2. ext4's inode 1, the
/// list of bad blocks, has no name.
pub(crate) fn ino_of(node: NodeId) -> Result<Ino> {
    match node {
        NodeId::ROOT => Ok(Ino::ROOT),
        NodeId(n) => match u32::try_from(n) {
            Ok(ino) => Ok(Ino(ino)),
            Err(_) => Err(Error::Invalid("no such node")),
        },
    }
}

/// The node of an inode number.
pub(crate) fn node_of(ino: Ino) -> NodeId {
    if ino == Ino::ROOT {
        NodeId::ROOT
    } else {
        NodeId(u64::from(ino))
    }
}

impl DeletedInodes for Nodes {
    /// The kernel still knows a deleted inode: the inode is open, or its forget will come.
    fn holds_any(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact() {
        let nodes = Nodes::default();
        for ino in (11..5000).map(Ino) {
            nodes.count(ino);
            nodes.count(ino);
        }
        assert_eq!(nodes.len(), 4989);
        for ino in (11..5000).map(Ino) {
            assert!(matches!(nodes.forget(ino, 1), Forgotten::Known));
        }
        assert_eq!(nodes.len(), 4989);
        for ino in (11..4000).map(Ino) {
            assert!(matches!(nodes.forget(ino, 1), Forgotten::Gone(None)));
        }
        assert_eq!(nodes.len(), 1000);
        nodes.clear();
        assert_eq!(nodes.len(), 0);
    }

    #[test]
    fn an_unnamed_file_is_pinned_until_it_has_a_name() {
        let fs = crate::test_volume::in_memory();
        let root = fs.root().unwrap();
        let new = ext4::NewInode::default();
        let file = fs.tmpfile(&root, new, ext4::FirstLink::Allowed).unwrap();
        let nodes = Nodes::default();
        nodes.count(file.ino());
        assert!(nodes.keep(&file) && nodes.holds_any());
        assert!(nodes.unkeep(file.ino()).is_some());
        assert!(!nodes.holds_any());
        assert!(nodes.unkeep(file.ino()).is_none());
        assert!(matches!(nodes.forget(file.ino(), 1), Forgotten::Gone(None)));
        drop((root, file));
        fs.unmount().unwrap();
    }

    #[test]
    fn inodes_are_spread_over_the_shards() {
        let nodes = Nodes::default();
        for ino in (0..64 * 1024).map(Ino) {
            nodes.count(ino);
        }
        for shard in &nodes.shards {
            assert_eq!(shard.lock().len(), 1024);
        }
    }
}
