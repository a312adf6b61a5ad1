//! What the kernel remembers: how often each inode was handed to it.
//!
//! A count alone does not pin an inode in memory: it can be loaded again by its number, so that a
//! kernel which remembers a million names does not hold a million inodes of the memory budget. Only
//! a *deleted* inode (no links) that the kernel still knows, because a process has it open, is
//! pinned here, since nothing else keeps it from being freed:
//!
//! ```text
//!            lookup, create, link, readdirplus               links go to 0: keep
//!   unknown ───────────────────────────────────▶ counted ─────────────────────────▶ counted and pinned
//!      ▲                                            │                                      │
//!      └──────────── forget, count is 0 ────────────┴──────── forget: unpin, reap ─────────┘
//! ```
//!
//! Whoever takes the last name away and whoever counts a lookup both look at the links *after*
//! their own step, so that one of the two sees the other's and keeps the inode.

use ext4::InodeRef;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SHARDS: usize = 64;

#[derive(Default)]
struct Node {
    lookups: u64,
    pin: Option<InodeRef>,
}

type Shard = FxHashMap<u32, Node>;

/// What is left of a node after a forget.
pub(crate) enum Forgotten {
    /// The kernel knows it still.
    Known,
    /// The kernel does not know it any more. A deleted inode was pinned.
    Gone(Option<InodeRef>),
}

/// The lookup counts of all inodes.
pub(crate) struct Nodes {
    /// Deleted inodes that the kernel still knows.
    kept: AtomicUsize,
    /// Nothing is counted any more; forgets may still come.
    cleared: AtomicBool,
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            kept: AtomicUsize::new(0),
            cleared: AtomicBool::new(false),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Nodes {
    fn shard(&self, ino: u32) -> &Mutex<Shard> {
        // Neighbours were often made by one thread; they share a shard so that it stays in that
        // thread's cache.
        &self.shards[(ino as usize / 64) % SHARDS]
    }

    /// The kernel was (or is about to be) told about `ino` once more. The caller then looks at the
    /// inode's links and calls [`Nodes::keep`] if there are none.
    pub fn count(&self, ino: u32) {
        self.shard(ino).lock().entry(ino).or_default().lookups += 1;
    }

    /// Pins an inode without links for as long as the kernel knows it: whether it does.
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

    /// The kernel forgot `lookups` of what it was told about `ino`.
    #[must_use]
    pub fn forget(&self, ino: u32, lookups: u64) -> Forgotten {
        let mut shard = self.shard(ino).lock();
        let Entry::Occupied(mut entry) = shard.entry(ino) else {
            if !self.cleared.load(Ordering::Relaxed) {
                tracing::warn!("the kernel forgot inode {ino}, which it was never told about");
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

    /// Whether the kernel still knows a deleted inode: it is open, or its forget is on the way.
    pub fn keeps_any(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }

    /// Forgets everything: the connection ends.
    pub fn clear(&self) {
        self.cleared.store(true, Ordering::Relaxed);
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *shard.lock());
            drop(nodes);
        }
        self.kept.store(0, Ordering::Relaxed);
    }

    /// Inodes that the kernel knows.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact() {
        let nodes = Nodes::default();
        for ino in 11..5000 {
            nodes.count(ino);
            nodes.count(ino);
        }
        assert_eq!(nodes.len(), 4989);
        for ino in 11..5000 {
            assert!(matches!(nodes.forget(ino, 1), Forgotten::Known));
        }
        assert_eq!(nodes.len(), 4989);
        for ino in 11..4000 {
            assert!(matches!(nodes.forget(ino, 1), Forgotten::Gone(None)));
        }
        assert_eq!(nodes.len(), 1000);
        nodes.clear();
        assert_eq!(nodes.len(), 0);
    }

    #[test]
    fn shards_share_the_work() {
        let nodes = Nodes::default();
        for ino in 0..64 * 1024 {
            nodes.count(ino);
        }
        for shard in &nodes.shards {
            assert_eq!(shard.lock().len(), 1024);
        }
    }
}
