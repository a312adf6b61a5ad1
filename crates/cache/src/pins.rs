//! Pins: reference counts of users of an inode, and eviction without a lock.
//!
//! One word holds the number of users and the state of the eviction:
//!
//! ```text
//!              try_pin                       kill                      bury
//!   0 (idle) ──────────▶ n (pinned)   0 ───────────▶ DYING ──────────────────▶ REMOVED + 0 (dead)
//!      ▲                     │        ▲                │                            ▲
//!      └─────────────────────┘        └────────────────┘                            │ unpin
//!              unpin                        revive                     n ──▶ REMOVED + n
//!                                                                         remove
//!            doom                unpin
//!   1 ─────────────▶ DOOMED + 1 ───────▶ DOOMED + 0 (dead)
//!
//!           retire
//!   0 ─────────────▶ REMOVED + 0 (dead)
//! ```
//!
//! - *DYING*: the evictor asks the inode whether it is clean. A thread that wants to pin the inode
//!   waits for the answer, because an inode that was just written must not look dead to its
//!   writeback.
//! - *dead* is final. Only an evictor or a deletion makes an unremoved inode dead, and only at zero
//!   pins: an inode with users is never evicted.
//! - *DOOMED*: the only user deletes the inode, so no other may pin it any more. Its last unpin
//!   makes the inode dead (DOOMED + 0).
//! - *REMOVED*: the table no longer has the inode (its file was deleted). A holder of a pin may pin
//!   again; the last unpin makes the inode dead.

use super::sync::{AtomicBool, AtomicU32, Ordering, relax};

const REMOVED: u32 = 1 << 31;
const DYING: u32 = REMOVED - 1;
const DEAD: u32 = REMOVED;
/// Set with the number of the last users, who delete the inode. Also set in [`DYING`].
const DOOMED: u32 = 1 << 30;

/// The number of users of an inode. An inode without users may become *dead*; a dead inode is never
/// given out again.
///
/// The struct also has whether the inode was used since the last visit of the LRU clock's hand.
#[derive(Default, Debug)]
pub struct Pins {
    word: AtomicU32,
    referenced: AtomicBool,
}

/// The state after an unpin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpinned {
    /// Others hold the inode.
    InUse,
    /// No user holds the inode.
    Idle,
    /// No user holds the inode and the table does not have it.
    Dead,
}

impl Pins {
    /// The number of users.
    pub fn count(&self) -> u32 {
        match self.word.load(Ordering::Acquire) {
            DYING => 0,
            word => word & !(REMOVED | DOOMED),
        }
    }
    /// Whether the inode is dead: it has no user and will have none but one that deletes it.
    pub fn is_dead(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word == DEAD || is_doomed(word)
    }
    /// Adds a user. Returns `false` if the inode is dead.
    #[inline]
    pub(crate) fn try_pin(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            match word {
                DEAD => return false,
                DYING => {
                    relax();
                    word = self.word.load(Ordering::Acquire);
                }
                _ if is_doomed(word) => return false,
                _ => match self.word.compare_exchange(
                    word,
                    word + 1,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => return true,
                    Err(now) => word = now,
                },
            }
        }
    }
    /// Adds a user. The caller is one already.
    #[inline]
    pub(crate) fn pin_again(&self) {
        let before = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before != 0 && before != DEAD && before != DYING);
    }
    /// Removes a user.
    #[inline]
    pub(crate) fn unpin(&self) -> Unpinned {
        match self.word.fetch_sub(1, Ordering::AcqRel) - 1 {
            0 => Unpinned::Idle,
            DEAD | DOOMED => Unpinned::Dead,
            _ => Unpinned::InUse,
        }
    }
    /// Begins the eviction of an idle inode. Returns `false` if it is not idle.
    pub(crate) fn kill(&self) -> bool {
        self.word
            .compare_exchange(0, DYING, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
    /// After [`Pins::kill`]: cancels the eviction.
    pub(crate) fn revive(&self) {
        self.word.store(0, Ordering::Release);
    }
    /// After [`Pins::kill`]: makes the inode dead.
    pub(crate) fn bury(&self) {
        self.word.store(DEAD, Ordering::Release);
    }
    /// Makes an idle inode dead, because the caller deletes it. Returns `false` if the inode has
    /// users or is dead. An evictor that leaves the inode alone does not count.
    pub(crate) fn retire(&self) -> bool {
        loop {
            match self
                .word
                .compare_exchange(0, DEAD, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(DYING) => relax(),
                Err(_) => return false,
            }
        }
    }
    /// Lets no other thread pin the inode any more. The caller is a user and deletes it. Returns
    /// `false` if it has other users.
    pub(crate) fn doom(&self) -> bool {
        self.word
            .compare_exchange(1, DOOMED + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
    /// Marks the inode as removed from the table.
    pub(crate) fn remove(&self) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // An evictor decides about the inode: wait for the outcome.
            if word == DYING {
                relax();
                word = self.word.load(Ordering::Acquire);
                continue;
            }
            if is_doomed(word) {
                return;
            }
            match self.word.compare_exchange(
                word,
                word | REMOVED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
    /// Marks the inode as used. Stores only if that is a change.
    #[inline]
    pub(crate) fn reference(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }
    /// Clears the mark of use. Returns whether it was set.
    pub(crate) fn spare(&self) -> bool {
        let referenced = self.referenced.load(Ordering::Relaxed);
        if referenced {
            self.referenced.store(false, Ordering::Relaxed);
        }
        referenced
    }
}

#[inline]
fn is_doomed(word: u32) -> bool {
    word & DOOMED != 0 && word != DYING
}
