//! The list of dirty inodes, in the order in which they became dirty.
//!
//! Invariants:
//! - An inode is on at most one list, and on one exactly while its state is not *clean* (while it
//!   is being written it is the flusher's current inode). Lists hold strong references: a dirty
//!   inode stays in memory.
//! - `b_dirty` is sorted by the time of becoming dirty, because entries are only added at its end.
//! - A writer makes pages dirty *before* `note_dirtied`, under a lock that the inode's
//!   `write_pages` takes too. So either the flusher sees the pages, or the writer sees the state
//!   *writing* and the flusher lists the inode again.
//!
//! ```text
//!               mark_dirty                   flusher: begin_write
//!    CLEAN ───────────────────▶ LISTED ──────────────────────────▶ WRITING ────────────▶ CLEAN   (end_write)
//!                                ▲  ▲                               │    │ mark_dirty
//!                                │  └── more to write, or blocked ──┘    ▼
//!                                └────────────────────────────────── REDIRTIED           (end_write)
//!
//!    forget: LISTED on b_dirty ──▶ CLEAN, taken off at once; any other state ──▶ FORGOTTEN: the
//!    flusher drops the inode when it reaches it, or mark_dirty makes it LISTED again.
//! ```
//!
//! The queues, before and after the flusher's pass takes dirty inodes (letters are inodes, oldest
//! first):
//!
//! ```text
//!    before  b_dirty: c d e f      b_io:              b_more_io: B
//!    after   b_dirty:              b_io: B c d e f    b_more_io:          background, sync: all;  periodic: old inodes
//!    then    b_dirty: c g          b_io:              b_more_io: B        c was dirtied again, B has more
//! ```
//!
//! `b_dirty` is shared and its lock is held for nanoseconds: the flusher takes whole lists. `b_io`,
//! `b_more_io` and `blocked` (inodes that are tried again later) belong to the flusher alone
//! ([`crate::io_queues`]).

use std::collections::VecDeque;
use std::sync::Arc;
use sync::atomic::{AtomicU8, AtomicU64, Ordering};

const CLEAN: u8 = 0;
const LISTED: u8 = 1;
const WRITING: u8 = 2;
const REDIRTIED: u8 = 3;
const FORGOTTEN: u8 = 4;

/// An inode's place on the dirty lists, embedded in the inode. The list entry has the time at which
/// it became dirty.
#[derive(Default, Debug)]
pub struct DirtyState {
    state: AtomicU8,
    /// Its position on `b_dirty` (see [`DirtyList::first`]); written under the list's lock.
    position: AtomicU64,
}

/// The state of an inode after the flusher wrote a slice of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was not dirtied meanwhile, and is on no list.
    Clean,
    /// It was dirtied meanwhile. Its state is LISTED, and the caller lists it.
    Redirtied,
    /// It was deleted meanwhile, and is on no list.
    Forgotten,
}

impl DirtyState {
    /// Whether the inode is on no list.
    pub fn is_clean(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLEAN
    }

    /// Records that the inode was dirtied. Returns `false` where the caller has to list it.
    #[inline]
    pub(crate) fn note_dirtied(&self) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let next = match state {
                LISTED | REDIRTIED => return true,
                CLEAN => return false,
                WRITING => REDIRTIED,
                _ => LISTED,
            };
            match self.exchange(state, next) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }
    fn exchange(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
    /// The flusher takes the inode off a list, where it is `LISTED` or `FORGOTTEN`. Returns `false`
    /// where it was deleted and is to be dropped.
    pub(crate) fn begin_write(&self) -> bool {
        loop {
            if self.exchange(LISTED, WRITING).is_ok() {
                return true;
            }
            // A writer may list a forgotten inode again meanwhile.
            if self.exchange(FORGOTTEN, CLEAN).is_ok() {
                return false;
            }
        }
    }
    /// The flusher wrote a slice, and nothing is dirty.
    pub(crate) fn end_write(&self) -> Written {
        match self.exchange(WRITING, CLEAN) {
            Ok(_) => Written::Clean,
            Err(_) => self.list_again(),
        }
    }
    /// The flusher wrote a slice, and lists the inode again.
    pub(crate) fn list_again(&self) -> Written {
        loop {
            let state = self.state.load(Ordering::Acquire);
            let (next, outcome) = match state {
                FORGOTTEN => (CLEAN, Written::Forgotten),
                _ => (LISTED, Written::Redirtied),
            };
            if self.exchange(state, next).is_ok() {
                return outcome;
            }
        }
    }
    /// The file system is gone: the inode is on no list.
    pub(crate) fn abandon(&self) {
        self.state.store(CLEAN, Ordering::Release);
    }
}

/// An inode on a list.
pub(crate) struct Entry<I> {
    /// `None` where the inode was deleted meanwhile.
    pub(crate) inode: Option<Arc<I>>,
    /// When it became dirty, in nanoseconds of the device's clock.
    pub(crate) dirtied_ns: u64,
    /// How often in a row nothing could be written.
    pub(crate) blocked: u8,
}

/// `b_dirty`.
pub(crate) struct DirtyList<I> {
    /// A deleted inode leaves a gap, so that the positions of the others stay valid.
    list: VecDeque<Entry<I>>,
    /// Position of the first entry. Positions are never reused.
    first: u64,
}

impl<I> DirtyList<I> {
    pub(crate) fn new() -> DirtyList<I> {
        DirtyList {
            list: VecDeque::new(),
            first: 0,
        }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// Puts a clean inode on the list. Returns `false` where it is not clean.
    pub(crate) fn add(&mut self, inode: &Arc<I>, state: &DirtyState, now_ns: u64) -> bool {
        if state.exchange(CLEAN, LISTED).is_err() {
            return false;
        }
        self.push(inode.clone(), state, now_ns);
        true
    }
    /// Puts an inode with the state `LISTED` on the list.
    pub(crate) fn push(&mut self, inode: Arc<I>, state: &DirtyState, now_ns: u64) {
        // Times that were read before the lock may be slightly out of order.
        let last = self.list.back().map_or(0, |back| back.dirtied_ns);
        let position = self.first + self.list.len() as u64;
        state.position.store(position, Ordering::Relaxed);
        self.list.push_back(Entry {
            inode: Some(inode),
            dirtied_ns: now_ns.max(last),
            blocked: 0,
        });
    }
    /// Takes an inode off this list. Returns its reference, to be dropped without the lock. An
    /// inode that is elsewhere becomes `FORGOTTEN`.
    pub(crate) fn forget(&mut self, inode: &Arc<I>, state: &DirtyState) -> Option<Arc<I>> {
        let is_it = |entry: &&mut Entry<I>| {
            let held = entry.inode.as_ref();
            held.is_some_and(|held| Arc::ptr_eq(held, inode))
        };
        let position = state.position.load(Ordering::Relaxed);
        let entry = position
            .checked_sub(self.first)
            .and_then(|at| self.list.get_mut(at as usize))
            .filter(is_it);
        let Some(entry) = entry else {
            let forget = |state| (state != CLEAN).then_some(FORGOTTEN);
            let _ = state
                .state
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, forget);
            return None;
        };
        let held = entry.inode.take();
        state.abandon();
        let gap = |entry: Option<&Entry<I>>| entry.is_some_and(|entry| entry.inode.is_none());
        while gap(self.list.back()) {
            self.list.pop_back();
        }
        while gap(self.list.front()) {
            self.list.pop_front();
            self.first += 1;
        }
        held
    }
    /// Moves inodes that became dirty at or before `until_ns` to the end of `into`. Constant time
    /// where these are all inodes and `into` is empty.
    pub(crate) fn take(&mut self, until_ns: u64, into: &mut VecDeque<Entry<I>>) {
        let count = match self.list.back() {
            Some(last) if last.dirtied_ns <= until_ns => self.list.len(),
            _ => self
                .list
                .partition_point(|entry| entry.dirtied_ns <= until_ns),
        };
        self.first += count as u64;
        if count == self.list.len() && into.is_empty() {
            std::mem::swap(&mut self.list, into);
        } else {
            into.extend(self.list.drain(..count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_small() {
        assert!(size_of::<DirtyState>() <= 24);
    }

    #[test]
    fn old_inodes_are_taken_and_deleted_ones_forgotten() {
        let mut list = DirtyList::new();
        let inodes: Vec<_> = (0..6).map(|_| Arc::new(DirtyState::default())).collect();
        for (i, inode) in inodes.iter().enumerate() {
            assert!(!inode.note_dirtied());
            assert!(list.add(inode, inode, i as u64 * 10));
            assert!(inode.note_dirtied());
        }
        assert!(list.forget(&inodes[1], &inodes[1]).is_some());
        assert!(inodes[1].is_clean());
        let mut io = VecDeque::new();
        list.take(20, &mut io);
        let held = io.iter().filter(|entry| entry.inode.is_some());
        let taken: Vec<_> = held.map(|entry| entry.dirtied_ns).collect();
        assert_eq!(taken, [0, 20]);
        // The inode has left this list.
        assert!(list.forget(&inodes[2], &inodes[2]).is_none());
        assert!(!inodes[2].begin_write());
        assert!(inodes[2].is_clean());
        assert!(list.forget(&inodes[5], &inodes[5]).is_some());
        assert!(list.forget(&inodes[3], &inodes[3]).is_some());
        assert!(list.forget(&inodes[4], &inodes[4]).is_some());
        assert!(list.is_empty());
        // A time that was read too early does not break the order.
        list.add(&inodes[3], &inodes[3], 100);
        list.add(&inodes[4], &inodes[4], 90);
        let mut io = VecDeque::new();
        list.take(u64::MAX, &mut io);
        assert!(io.iter().map(|entry| entry.dirtied_ns).eq([100, 100]));
    }

    #[test]
    fn a_write_while_writing_is_not_lost() {
        let state = DirtyState::default();
        let mut list = DirtyList::new();
        list.add(&Arc::new(()), &state, 0);
        assert!(state.begin_write());
        assert!(state.note_dirtied());
        assert_eq!(state.end_write(), Written::Redirtied);
        assert!(state.begin_write());
        assert_eq!(state.end_write(), Written::Clean);
        assert!(!state.note_dirtied());
    }
}
