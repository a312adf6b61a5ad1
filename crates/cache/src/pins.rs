//! Pins: how an inode is kept from being forgotten, and how it is forgotten without a lock.
//!
//! One word says how many users an inode has and whether it is going or gone:
//!
//! ```text
//!              try_pin                       kill                      bury
//!   0 (idle) ──────────▶ n (pinned)   0 ───────────▶ DYING ──────────────────▶ REMOVED + 0 (dead)
//!      ▲                     │        ▲                │                            ▲
//!      └─────────────────────┘        └────────────────┘                            │ unpin
//!              unpin                        revive                     n ──▶ REMOVED + n
//!                                                                         remove
//! ```
//!
//! - *DYING* lasts for as long as the evictor asks the inode whether it is clean. Whoever wants to
//!   pin it waits for the answer, because an inode that was written to just before must not look
//!   dead to its writeback.
//! - *dead* is for ever. Only the evictor makes an unremoved inode dead, and only from zero pins:
//!   an inode is never forgotten under a user.
//! - *REMOVED* says that the table no longer has it (its file was deleted). Whoever holds a pin may
//!   pin again; the last unpin makes it dead.

use super::sync::{AtomicBool, AtomicU32, Ordering, relax};

const REMOVED: u32 = 1 << 31;
const DYING: u32 = REMOVED - 1;
const DEAD: u32 = REMOVED;

/// How many users an inode has; zero users may become *dead*, and a dead inode is never handed out
/// again.
///
/// Beside the count it carries what the table keeps with an inode: its place on the LRU clock, and
/// whether it was used since the hand's last visit.
#[derive(Default, Debug)]
pub struct Pins {
    word: AtomicU32,
    /// Slot on the clock of its LRU shard; changed by whoever inserts and removes the inode only.
    pub(crate) slot: AtomicU32,
    referenced: AtomicBool,
}

/// What an unpin left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpinned {
    /// Others hold it.
    InUse,
    /// Nobody holds it.
    Idle,
    /// Nobody holds it and the table does not have it.
    Dead,
}

impl Pins {
    /// Users now.
    pub fn count(&self) -> u32 {
        match self.word.load(Ordering::Acquire) {
            DYING => 0,
            word => word & !REMOVED,
        }
    }
    /// Whether it is dead: no user has it and none will.
    pub fn is_dead(&self) -> bool {
        self.word.load(Ordering::Acquire) == DEAD
    }
    /// Adds a user; `false` where it is dead.
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
    /// Adds a user beside one that the caller is.
    #[inline]
    pub(crate) fn pin_again(&self) {
        let before = self.word.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before != 0 && before != DEAD && before != DYING);
    }
    /// Takes a user away.
    #[inline]
    pub(crate) fn unpin(&self) -> Unpinned {
        match self.word.fetch_sub(1, Ordering::AcqRel) - 1 {
            0 => Unpinned::Idle,
            DEAD => Unpinned::Dead,
            _ => Unpinned::InUse,
        }
    }
    /// Takes hold of an idle inode to decide over it; `false` where it is not idle.
    pub(crate) fn kill(&self) -> bool {
        self.word
            .compare_exchange(0, DYING, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
    /// After [`Pins::kill`]: lets it live.
    pub(crate) fn revive(&self) {
        self.word.store(0, Ordering::Release);
    }
    /// After [`Pins::kill`]: makes it dead.
    pub(crate) fn bury(&self) {
        self.word.store(DEAD, Ordering::Release);
    }
    /// Says that the table does not have it any more.
    pub(crate) fn remove(&self) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // An evictor is deciding over it; wait for the outcome.
            if word == DYING {
                relax();
                word = self.word.load(Ordering::Acquire);
                continue;
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
    /// Remembers that it was used; a store only where that is news.
    #[inline]
    pub(crate) fn reference(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }
    /// Forgets that it was used; whether it was.
    pub(crate) fn spare(&self) -> bool {
        let referenced = self.referenced.load(Ordering::Relaxed);
        if referenced {
            self.referenced.store(false, Ordering::Relaxed);
        }
        referenced
    }
}
