//! Reclaim of clean pages.

use super::{Index, Mapping, Tally, tree};

/// Chunks that a reclaim visits before it releases the lock for a moment.
const RECLAIM_CHUNKS: usize = 64;

/// The pages that a reclaim met, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Bytes freed.
    pub freed: u64,
    /// Bytes of clean pages that are spared once, because they had been used again.
    pub spared: u64,
}

impl Mapping {
    /// Frees about `want` bytes of clean pages, by a clock over the index: a page that was
    /// referenced since the hand's last visit is spared once. A call is at most one turn of the
    /// hand.
    pub fn reclaim(&self, want: u64) -> Reclaimed {
        let page = self.page_size.bytes();
        let want = want.div_ceil(page);
        let (mut freed, mut spared) = (0, 0);
        let mut left = usize::MAX;
        while freed < want && left > 0 && self.dirty_pages() < self.pages() {
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
                    tree.reclaim(want - freed, visits, &mut tally, &mut trash);
                    left -= visits;
                    Self::collapse(&mut guard, &mut trash);
                }
            }
            self.apply(&tally, &mut guard);
            drop(guard);
            freed += tally.pages.unsigned_abs();
            spared += tally.spared;
        }
        Reclaimed {
            freed: freed * page,
            spared: spared * page,
        }
    }
}
