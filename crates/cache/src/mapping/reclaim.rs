//! Reclaim of clean pages.

use super::{Index, Mapping, Tally, tree};

/// Chunks that a reclaim visits before it releases the lock for a moment.
const RECLAIM_CHUNKS: usize = 64;

/// The pages that a reclaim met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Pages freed.
    pub freed: u64,
    /// Clean pages that are spared once, because they had been used again.
    pub spared: u64,
}

impl Mapping {
    /// Frees up to `want` clean pages, by a clock over the index: a page that was referenced since
    /// the hand's last visit is spared once. A call is at most one turn of the hand.
    pub fn reclaim(&self, want: u64) -> Reclaimed {
        let mut met = Reclaimed::default();
        let mut left = usize::MAX;
        while met.freed < want && left > 0 && self.dirty_pages() < self.pages() {
            let mut guard = self.index.lock();
            let mut tally = Tally::default();
            let mut trash = tree::Trash::default();
            match &mut *guard {
                Index::Empty => left = 0,
                Index::One(page) => {
                    left = 0;
                    match page.evictable() {
                        true if page.spare() => tally.spared = 1,
                        true => {
                            page.removed(&mut tally);
                            trash.index = std::mem::replace(&mut *guard, Index::Empty);
                        }
                        false => {}
                    }
                }
                Index::Many(tree) => {
                    left = left.min(tree.chunk_count());
                    let visits = left.min(RECLAIM_CHUNKS);
                    tree.reclaim(want - met.freed, visits, &mut tally, &mut trash);
                    left -= visits;
                    Self::collapse(&mut guard, &mut trash);
                }
            }
            self.apply(&tally, &mut guard);
            drop(guard);
            met.freed += tally.pages.unsigned_abs();
            met.spared += tally.spared;
        }
        met
    }
}
