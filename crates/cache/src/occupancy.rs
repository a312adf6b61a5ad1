//! The life of a run of the inode table, and its place on a clock.
//!
//! ```text
//!           hold                    release: count is 0             end
//!   new ───────────▶ n (in use) ──────────────────────────▶ 0 ───────────▶ DEAD
//!                        ▲                                  │
//!                        └──────────────────────────────────┘
//!                                      hold
//! ```
//!
//! The first holder lists the run: it puts the run on the clock and stores its place there. It does
//! so with its own count, before it fills a slot. So a run that is listed, or is being listed, has
//! an end that comes later, and the thread that ends a run finds its place.

use super::sync::{AtomicBool, AtomicU32, Ordering};

/// The count of a run that has ended.
const DEAD: u32 = u32::MAX;

/// Counts the objects of a run, and the threads that insert one.
#[derive(Default)]
pub(crate) struct Occupancy {
    held: AtomicU32,
    /// Whether a thread has listed the run, or is doing it.
    listed: AtomicBool,
    /// Its place on the clock.
    place: AtomicU32,
}

impl Occupancy {
    /// Counts one more object. The first call lists the run by `list`, which returns its place.
    /// Returns `false` if the run is dead.
    #[inline]
    pub(crate) fn hold(&self, list: impl FnOnce() -> u32) -> bool {
        let more = |held| (held != DEAD).then(|| held + 1);
        let held = self
            .held
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        if held.is_err() {
            return false;
        }
        // Most threads find it listed and write nothing.
        if !self.listed.load(Ordering::Relaxed) && !self.listed.swap(true, Ordering::Relaxed) {
            self.place.store(list(), Ordering::Relaxed);
        }
        true
    }
    /// Counts one less. Returns whether the run is empty.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        self.held.fetch_sub(1, Ordering::AcqRel) == 1
    }
    /// Ends an empty run. Calls `unlist` with its place, if it is listed. Returns `false` if the
    /// run is in use, or dead already.
    pub(crate) fn end(&self, unlist: impl FnOnce(u32)) -> bool {
        let ended = self
            .held
            .compare_exchange(0, DEAD, Ordering::AcqRel, Ordering::Acquire);
        if ended.is_err() {
            return false;
        }
        // A new run may end before its first holder comes.
        if self.listed.load(Ordering::Relaxed) {
            unlist(self.place.load(Ordering::Relaxed));
        }
        true
    }
    /// The number of objects.
    pub(crate) fn count(&self) -> usize {
        match self.held.load(Ordering::Relaxed) {
            DEAD => 0,
            held => held as usize,
        }
    }
}
