//! Pages that have a reservation instead of a block.

use super::page::Page;
use super::tree::Tree;
use super::{Index, Mapping};
use std::ops::Range;
use units::PageIndex;

impl Mapping {
    /// The number of pages with a reservation instead of a block. It takes the lock only if pages
    /// are dirty or under writeback.
    pub fn delalloc_pages(&self) -> u64 {
        if self.unlanded_pages() == 0 {
            return 0;
        }
        match &*self.index.lock() {
            Index::Empty => 0,
            Index::One(page) => page.state().delalloc.into(),
            Index::Many(tree) => tree.delalloc_pages,
        }
    }
    /// The pages of `range` have blocks: clears delalloc. Returns how many had it.
    pub fn end_delalloc(&self, range: Range<PageIndex>) -> u64 {
        let tally = self.finish(range, Page::end_delalloc, Tree::end_delalloc);
        tally.delalloc.unsigned_abs()
    }
}
