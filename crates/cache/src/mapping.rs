//! The pages of one file: an index from page number to buffer, with tags.
//!
//! Tags of a page: *dirty* (differs from the device), *writeback* (a bio holds a reference to this or an earlier
//! content), *delalloc* (a block is reserved but none is mapped). A page that is written while under writeback is
//! copied; it is then both dirty and under writeback, and is not picked for writeback again until the first landed.

use crate::Budget;
use block::Buf;
use std::ops::Range;
use std::sync::Arc;

/// The tags of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// Differs from the device.
    pub dirty: bool,
    /// Being written.
    pub writeback: bool,
    /// Has a reservation instead of a block.
    pub delalloc: bool,
}

/// A page picked for writeback.
pub struct DirtyPage {
    /// Page number in the file.
    pub index: u64,
    /// Its content, stable.
    pub buf: Buf,
    /// Whether it needs a block.
    pub delalloc: bool,
}

/// What a removal took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Pages.
    pub pages: u64,
    /// Of them, dirty ones.
    pub dirty: u64,
    /// Of them, ones with a reservation.
    pub delalloc: u64,
}

/// The pages of one file.
pub struct Mapping {}

impl Mapping {
    /// An empty mapping whose pages count against `budget`.
    pub fn new(budget: Arc<Budget>) -> Mapping {
        let _ = budget;
        todo!()
    }
    /// Pages held.
    pub fn pages(&self) -> u64 {
        todo!()
    }
    /// Dirty pages held (an atomic, no lock).
    pub fn dirty_pages(&self) -> u64 {
        todo!()
    }
    /// Pages under writeback (an atomic, no lock).
    pub fn writeback_pages(&self) -> u64 {
        todo!()
    }
    /// A page's content, if cached; marks it referenced.
    pub fn get(&self, index: u64) -> Option<Buf> {
        let _ = index;
        todo!()
    }
    /// The pages of `range` under one lock: calls `each` in order with the content or `None`.
    pub fn get_range(&self, range: Range<u64>, each: impl FnMut(u64, Option<&Buf>)) {
        let _ = (range, each);
        todo!()
    }
    /// A page's tags, if cached.
    pub fn state(&self, index: u64) -> Option<PageState> {
        let _ = index;
        todo!()
    }
    /// Caches a page read from the device. Where one is there already that one wins and is returned.
    pub fn insert_clean(&self, index: u64, buf: Buf) -> Buf {
        let _ = (index, buf);
        todo!()
    }
    /// Stores a page's whole content and makes it dirty, replacing what was there. `delalloc` says that the caller
    /// reserved a block for it. The state before (default where it was not cached); a page's `delalloc` tag stays if it was set.
    pub fn store_dirty(&self, index: u64, buf: Buf, delalloc: bool) -> PageState {
        let _ = (index, buf, delalloc);
        todo!()
    }
    /// Changes a cached page in place (copied first if shared) and makes it dirty; `None` where it is not cached
    /// (and `change` was not called).
    pub fn modify(
        &self,
        index: u64,
        delalloc: bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<PageState> {
        let _ = (index, delalloc, change);
        todo!()
    }
    /// Changes a cached page's bytes without touching its tags (zeroing beyond the end of the file).
    pub fn patch(&self, index: u64, change: impl FnOnce(&mut [u8])) -> bool {
        let _ = (index, change);
        todo!()
    }
    /// The first dirty page at or after `from` that is not under writeback.
    pub fn next_dirty(&self, from: u64) -> Option<u64> {
        let _ = from;
        todo!()
    }
    /// The first page at or after `from` that is cached and dirty, delalloc or under writeback (for SEEK_DATA).
    pub fn next_unlanded(&self, from: u64) -> Option<u64> {
        let _ = from;
        todo!()
    }
    /// Picks up to `max` dirty pages of `range` that are not under writeback, in order: dirty off, writeback on.
    pub fn take_dirty(&self, range: Range<u64>, max: usize, out: &mut Vec<DirtyPage>) -> usize {
        let _ = (range, max, out);
        todo!()
    }
    /// Writeback of `range` ended well: writeback and delalloc off for pages that were under writeback.
    pub fn end_writeback(&self, range: Range<u64>) -> u64 {
        let _ = range;
        todo!()
    }
    /// Writeback of `range` failed: writeback off, dirty on again. How many pages became dirty that were not.
    pub fn fail_writeback(&self, range: Range<u64>) -> u64 {
        let _ = range;
        todo!()
    }
    /// Removes the pages of `range` whatever their state (truncate, punch). The caller has waited for writeback.
    pub fn remove(&self, range: Range<u64>) -> Removed {
        let _ = range;
        todo!()
    }
    /// Removes the clean pages of `range` that are not under writeback (drop caches).
    pub fn invalidate(&self, range: Range<u64>) -> u64 {
        let _ = range;
        todo!()
    }
    /// Gives back up to `want` clean pages, by a clock over the index: a page referenced since the hand's last visit is spared once.
    pub fn reclaim(&self, want: u64) -> u64 {
        let _ = want;
        todo!()
    }
}
