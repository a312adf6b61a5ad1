//! Pages that have a reservation instead of a block.

use super::Mapping;
use super::page::Page;
use super::tree::Tree;
use std::ops::Range;
use sync::atomic::Ordering;
use units::PageIndex;

impl Mapping {
    /// The number of pages with a reservation instead of a block, without the lock.
    #[inline]
    pub fn delalloc_pages(&self) -> u64 {
        self.nr_delalloc.load(Ordering::Acquire).into()
    }
    /// The pages of `range` have blocks: clears delalloc. Returns how many had it.
    pub fn end_delalloc(&self, range: Range<PageIndex>) -> u64 {
        if self.delalloc_pages() == 0 {
            return 0;
        }
        let tally = self.finish(range, Page::end_delalloc, Tree::end_delalloc);
        tally.delalloc.unsigned_abs()
    }
}
