//! The number of sizes that wait for pages.

use sync::atomic::{AtomicU64, Ordering};

/// Counts sizes that were set while pages were unrecorded, so that a sync looks for them only where
/// there may be some.
#[derive(Default)]
pub(crate) struct WaitingSizes {
    /// How many were set.
    set: AtomicU64,
    /// The value of `set` before a look that found none left.
    none_left: AtomicU64,
}

impl WaitingSizes {
    /// A size was set.
    pub fn note_set(&self) {
        self.set.fetch_add(1, Ordering::AcqRel);
    }

    /// Begins a search for such sizes; `None`: there are none.
    pub fn begin_search(&self) -> Option<Search<'_>> {
        let set = self.set.load(Ordering::Acquire);
        let any = set != self.none_left.load(Ordering::Acquire);
        any.then_some(Search { of: self, set })
    }
}

/// A search for sizes that wait.
pub(crate) struct Search<'a> {
    of: &'a WaitingSizes,
    /// How many were set before it.
    set: u64,
}

impl Search<'_> {
    /// It found none.
    pub fn found_none(self) {
        self.of.none_left.store(self.set, Ordering::Release);
    }
}
