//! Open files, and their contents in the kernel's page cache.
//!
//! The server stores the contents of a small file in the kernel's page cache before it replies to
//! OPEN, by a notification. The program then reads without a request. Two dangers come with that:
//!
//! - The notification waits for locked pages. A page is locked while a READ or WRITE of it waits
//!   for the server, perhaps for the very thread that sends the notification.
//! - The notification overwrites pages. A page may have changes of a mapping that the server has
//!   not got, or of a write that is newer than the stored contents.
//!
//! Neither can happen while no program has the file open: the kernel keeps a file open until its
//! reads, writes and mappings have ended, and writes the dirty pages of a mapping when that ends.
//! So contents are stored for the *first* open only, and nothing else begins meanwhile:
//!
//! ```text
//!             OPEN for reading,                      store has ended
//!             no other open, no resize
//!   Missing ───────────────────────────▶ Storing ────────────────────▶ Stored
//!      ▲                                    │  OPEN, resize: wait         │
//!      └── too large, error ────────────────┴── OPEN for writing, resize ─┘
//! ```
//!
//! A resize is a truncate(2), which needs no open file. The kernel sets the file's size when it has
//! the reply; a notification with older contents would set it back. So a resize lasts from before
//! the change until the reply has been sent. Contents that are stored after that are new.
//!
//! A thread that waits here waits only for the thread that stores, which waits for no other
//! request.

use super::Nodes;
use sync::MutexGuard;
use units::Ino;

/// The part of a file's contents that the kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Perhaps nothing, or not the last page.
    #[default]
    Missing,
    /// A thread stores the contents.
    Storing,
    /// The kernel had all contents, and has dropped them only if it needed the memory.
    Stored,
}

/// The part of a node that concerns the contents of a file.
#[derive(Default)]
pub(super) struct Contents {
    /// Number of opens that have not been released.
    opens: u32,
    /// Number of resizes in progress.
    resizes: u16,
    state: State,
}

impl Nodes {
    /// Calls `work` with the contents of `ino` when no thread stores them. Returns `None` if the
    /// kernel does not know the inode.
    fn when_not_storing<T>(&self, ino: Ino, work: impl FnOnce(&mut Contents) -> T) -> Option<T> {
        let number = Nodes::shard_number(ino);
        let mut shard: MutexGuard<'_, _> = self.shards[number].lock();
        loop {
            let contents = &mut shard.get_mut(&ino)?.contents;
            if contents.state != State::Storing {
                return Some(work(contents));
            }
            self.stored[number].wait(&mut shard);
        }
    }

    /// Counts an open that may change the file, before its reply.
    pub fn open_for_writing(&self, ino: Ino) {
        self.when_not_storing(ino, |contents| {
            contents.opens = contents.opens.saturating_add(1);
            contents.state = State::Missing;
        });
    }

    /// Counts an open that only reads, before its reply. If the caller gets a [`Storing`], no
    /// program can read or change the file until it is dropped.
    pub fn open_for_reading(&self, ino: Ino) -> Option<Storing<'_>> {
        let may_store = self.when_not_storing(ino, |contents| {
            let is_first = contents.opens == 0 && contents.resizes == 0;
            contents.opens = contents.opens.saturating_add(1);
            let may_store = is_first && contents.state == State::Missing;
            if may_store {
                contents.state = State::Storing;
            }
            may_store
        });
        (may_store == Some(true)).then(|| Storing {
            nodes: self,
            ino,
            outcome: State::Missing,
        })
    }

    /// Subtracts an open that has ended.
    pub fn release(&self, ino: Ino) {
        if let Some(node) = self.shard(ino).lock().get_mut(&ino) {
            node.contents.opens = node.contents.opens.saturating_sub(1);
        }
    }

    /// Begins a change of size that needs no open file. It ends when the result is dropped, after
    /// its reply.
    pub fn resize(&self, ino: Ino) -> Resizing<'_> {
        self.when_not_storing(ino, |contents| {
            contents.resizes = contents.resizes.saturating_add(1);
            contents.state = State::Missing;
        });
        Resizing { nodes: self, ino }
    }
}

/// The right to store the contents of a file.
#[must_use]
pub(crate) struct Storing<'a> {
    nodes: &'a Nodes,
    ino: Ino,
    outcome: State,
}

impl Storing<'_> {
    /// Ends the store: the kernel has all contents.
    pub fn stored(mut self) {
        self.outcome = State::Stored;
    }
}

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        let number = Nodes::shard_number(self.ino);
        if let Some(node) = self.nodes.shards[number].lock().get_mut(&self.ino) {
            node.contents.state = self.outcome;
        }
        self.nodes.stored[number].notify_all();
    }
}

/// A change of size is in progress.
#[must_use]
pub(crate) struct Resizing<'a> {
    nodes: &'a Nodes,
    ino: Ino,
}

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        if let Some(node) = self.nodes.shard(self.ino).lock().get_mut(&self.ino) {
            node.contents.resizes = node.contents.resizes.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    const INO: Ino = Ino(12);

    fn known() -> Nodes {
        let nodes = Nodes::default();
        nodes.count(INO);
        nodes
    }

    #[test]
    fn the_first_open_stores_once() {
        let nodes = known();
        nodes.open_for_reading(INO).unwrap().stored();
        assert!(nodes.open_for_reading(INO).is_none());
        nodes.release(INO);
        nodes.release(INO);
        assert!(nodes.open_for_reading(INO).is_none());
        nodes.release(INO);
        // The kernel forgets the inode, and its pages with it.
        let _ = nodes.forget(INO, 1);
        assert!(nodes.open_for_reading(INO).is_none());
        nodes.count(INO);
        // Nothing was stored.
        drop(nodes.open_for_reading(INO).unwrap());
        nodes.release(INO);
        assert!(nodes.open_for_reading(INO).is_some());
    }

    #[test]
    fn an_open_file_is_not_stored() {
        let nodes = known();
        nodes.open_for_writing(INO);
        assert!(nodes.open_for_reading(INO).is_none());
        nodes.release(INO);
        assert!(nodes.open_for_reading(INO).is_none());
        nodes.release(INO);
        nodes.release(INO);
        nodes.open_for_reading(INO).unwrap().stored();
        nodes.release(INO);
        // It may have changed.
        nodes.open_for_writing(INO);
        nodes.release(INO);
        assert!(nodes.open_for_reading(INO).is_some());
    }

    #[test]
    fn a_file_whose_size_changes_is_not_stored() {
        let nodes = known();
        let resizing = nodes.resize(INO);
        assert!(nodes.open_for_reading(INO).is_none());
        nodes.release(INO);
        drop(resizing);
        nodes.open_for_reading(INO).unwrap().stored();
        nodes.release(INO);
        drop(nodes.resize(INO));
        assert!(nodes.open_for_reading(INO).is_some());
    }

    #[test]
    fn opens_and_resizes_wait_for_a_store() {
        let begins: [fn(&Nodes); 3] = [
            |nodes| drop(nodes.open_for_reading(INO)),
            |nodes| nodes.open_for_writing(INO),
            |nodes| drop(nodes.resize(INO)),
        ];
        for begin in begins {
            let nodes = known();
            let storing = nodes.open_for_reading(INO).unwrap();
            let begun = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    begin(&nodes);
                    begun.store(true, Ordering::SeqCst);
                });
                thread::sleep(Duration::from_millis(20));
                assert!(!begun.load(Ordering::SeqCst));
                storing.stored();
            });
            assert!(begun.into_inner());
        }
    }
}
