//! The pages of one file: an index from page number to buffer, with tags.
//!
//! Tags of a page: *dirty* (differs from the device), *writeback* (a bio holds a reference to this
//! or an earlier content), *delalloc* (a block is reserved but none is mapped). A page that is
//! written while under writeback is copied. It is then both dirty and under writeback, and is
//! picked for writeback again only after the first write has completed.
//!
//! ```text
//!              store_dirty, modify             take_dirty                     end_writeback
//!    clean ───────────────────────▶ dirty ───────────────────▶ writeback ───────────────────▶ clean
//!      ▲                              ▲                          │    │ store_dirty, modify
//!      │ insert_clean                 ├──────────────────────────┘    ▼
//!   (absent)                          │       fail_writeback    dirty + writeback
//!                                     └───────────────────────────────┘ end_writeback, fail_writeback
//! ```
//!
//! Invariants, all under the one lock of the mapping:
//! - `nr_pages` and `tagged` equal the number of pages and of their tags. Each page held is charged
//!   to the budget once.
//! - A page that is dirty *and* under writeback counts twice in `unlanded_pages()`. A caller that
//!   keeps a total adds one if `store_dirty` or `modify` returns a page that was not dirty, and
//!   subtracts the result of `end_writeback`. After a failure it subtracts the pages that it had
//!   submitted and adds the result of `fail_writeback`.
//! - A page that is dirty, under writeback or delalloc is never reclaimed or invalidated.
//!
//! The index has two forms. Most files have one page, which is stored in the mapping itself. All
//! others have a `Tree`.

mod charge;
mod delalloc;
mod page;
mod reclaim;
mod tree;

use crate::{Budget, Kind};
use block::Buf;
use page::Page;
pub use reclaim::Reclaimed;
use std::ops::Range;
use std::sync::Arc;
use sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use sync::{Mutex, Rank};
use tree::Tree;
use units::{PageIndex, PageSize, Span};

/// The tags of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// The page differs from the device.
    pub dirty: bool,
    /// A write of the page is in flight.
    pub writeback: bool,
    /// The page has a reservation instead of a block.
    pub delalloc: bool,
}

/// Effect of a write on the *delalloc* tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delalloc {
    /// The tag stays as it is.
    Keep,
    /// The caller has reserved a block for the page.
    Set,
}

/// A page picked for writeback.
pub struct DirtyPage {
    /// Where the page is in the file.
    pub index: PageIndex,
    /// The content; it does not change.
    pub buf: Buf,
    /// The page has a reservation instead of a block.
    pub delalloc: bool,
}

/// Numbers of removed pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// All removed pages.
    pub pages: u64,
    /// Dirty ones among them.
    pub dirty: u64,
    /// Those with a reservation among them.
    pub delalloc: u64,
}

/// Changes of the counts by one operation.
#[derive(Default)]
struct Tally {
    pages: i64,
    dirty: i64,
    writeback: i64,
    delalloc: i64,
    /// Pages that a reclaim spared, because they had been used again.
    spared: u64,
}

/// The pages at which a search stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seek {
    /// Dirty and not under writeback.
    Takeable,
    /// Dirty, delalloc or under writeback.
    Unlanded,
}

enum Index {
    Empty,
    One(Page),
    Many(Box<Tree>),
}

/// The pages of one file. Its fields are in this order: stat reads the first.
#[repr(C)]
pub struct Mapping {
    /// Dirty pages and, in the upper half, pages under writeback. A reader without the lock sees
    /// both counts of one moment.
    tagged: AtomicU64,
    /// Changed only under the lock of `index`, so plain stores suffice.
    nr_pages: AtomicU32,
    /// Bytes charged for the inode.
    inode_bytes: AtomicU16,
    page_size: PageSize,
    index: Mutex<Index>,
    budget: Arc<Budget>,
}

impl Mapping {
    /// An empty mapping whose pages, of this size, count against `budget`.
    pub fn new(budget: Arc<Budget>, page_size: PageSize) -> Mapping {
        Mapping {
            tagged: AtomicU64::new(0),
            nr_pages: AtomicU32::new(0),
            inode_bytes: AtomicU16::new(0),
            page_size,
            index: Rank::Mapping.mutex(Index::Empty),
            budget,
        }
    }
    /// The size of the file's pages.
    #[inline]
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }
    /// The number of cached pages.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.nr_pages.load(Ordering::Acquire).into()
    }
    /// Bytes of the cached pages.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.pages() * self.page_size.bytes()
    }
    /// The number of dirty pages, without the lock.
    #[inline]
    pub fn dirty_pages(&self) -> u64 {
        self.tagged().0
    }
    /// Bytes of the dirty pages, without the lock.
    #[inline]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_pages() * self.page_size.bytes()
    }
    /// The number of pages under writeback, without the lock.
    #[inline]
    pub fn writeback_pages(&self) -> u64 {
        self.tagged().1
    }
    /// The sum of dirty pages and of pages under writeback at one moment, without the lock. A page
    /// that is both counts twice.
    #[inline]
    pub fn unlanded_pages(&self) -> u64 {
        let (dirty, writeback) = self.tagged();
        dirty + writeback
    }
    #[inline]
    fn tagged(&self) -> (u64, u64) {
        let tagged = self.tagged.load(Ordering::Acquire);
        (tagged & u64::from(u32::MAX), tagged >> 32)
    }
    /// Whether any page is dirty or under writeback. It takes the lock, so it sees all changes that
    /// have returned.
    pub fn has_unlanded(&self) -> bool {
        let _index = self.index.lock();
        self.unlanded_pages() > 0
    }

    /// Publishes the counts; `index` proves that the lock is held.
    #[inline]
    fn apply(&self, tally: &Tally, index: &mut Index) {
        fn bumped(count: u64, delta: i64) -> u64 {
            debug_assert!(count as i64 + delta >= 0, "a page count below zero");
            count.wrapping_add_signed(delta)
        }
        if tally.pages != 0 {
            let pages = bumped(self.pages(), tally.pages);
            self.nr_pages.store(pages as u32, Ordering::Release);
        }
        if let Index::Many(tree) = index {
            tree.delalloc_pages = bumped(tree.delalloc_pages, tally.delalloc);
        }
        if (tally.dirty, tally.writeback) != (0, 0) {
            let (dirty, writeback) = self.tagged();
            let dirty = bumped(dirty, tally.dirty);
            let writeback = bumped(writeback, tally.writeback);
            self.tagged
                .store(writeback << 32 | dirty, Ordering::Release);
        }
        let bytes = tally.pages.unsigned_abs() * self.page_size.bytes();
        match tally.pages {
            0 => (),
            1.. => self.budget.charge(Kind::Pages, bytes),
            _ => self.budget.uncharge(Kind::Pages, bytes),
        }
    }

    /// Returns the content of a cached page and marks the page as referenced.
    pub fn get(&self, index: PageIndex) -> Option<Buf> {
        match &mut *self.index.lock() {
            Index::Empty => None,
            Index::One(page) => (page.index == index).then(|| {
                page.reference();
                page.buf.clone()
            }),
            Index::Many(tree) => tree.get(index).cloned(),
        }
    }
    /// Calls `each` for the pages of `range` in order, with the content or `None`. The mapping is
    /// locked meanwhile: `each` must not call it.
    pub fn get_range(
        &self,
        range: Range<PageIndex>,
        mut each: impl FnMut(PageIndex, Option<&Buf>),
    ) {
        match &mut *self.index.lock() {
            Index::Empty => range.numbers().for_each(|index| each(index, None)),
            Index::One(page) => {
                for index in range.numbers() {
                    let found = page.index == index;
                    if found {
                        page.reference();
                    }
                    each(index, found.then_some(&page.buf));
                }
            }
            Index::Many(tree) => tree.get_range(range, each),
        }
    }
    /// The tags of a cached page.
    pub fn state(&self, index: PageIndex) -> Option<PageState> {
        match &*self.index.lock() {
            Index::Empty => None,
            Index::One(page) => (page.index == index).then(|| page.state()),
            Index::Many(tree) => tree.state(index),
        }
    }
    /// Caches a page read from the device. Returns the cached content: that of an earlier page if
    /// there is one.
    pub fn insert_clean(&self, index: PageIndex, buf: Buf) -> Buf {
        debug_assert!(index < PageIndex::END, "a page behind the largest file");
        let mut guard = self.index.lock();
        let mut tally = Tally::default();
        let kept = match &mut *guard {
            slot @ Index::Empty => {
                *slot = Index::One(Page::clean(index, buf.clone()));
                tally.pages = 1;
                buf
            }
            Index::One(page) if page.index == index => page.buf.clone(),
            other => Self::tree(other).insert_clean(index, buf, &mut tally),
        };
        self.apply(&tally, &mut guard);
        kept
    }
    /// Stores a page's whole content and makes the page dirty. Returns the state before, or the
    /// default if the page was not cached.
    pub fn store_dirty(&self, index: PageIndex, buf: Buf, delalloc: Delalloc) -> PageState {
        debug_assert!(index < PageIndex::END, "a page behind the largest file");
        let mut tally = Tally::default();
        let mut guard = self.index.lock();
        let (before, replaced) = match &mut *guard {
            slot @ Index::Empty => {
                *slot = Index::One(Page::dirty(index, buf, delalloc));
                tally.pages = 1;
                tally.dirty = 1;
                tally.delalloc = (delalloc == Delalloc::Set).into();
                (PageState::default(), None)
            }
            Index::One(page) if page.index == index => {
                let old = std::mem::replace(&mut page.buf, buf);
                (page.make_dirty(delalloc, &mut tally), Some(old))
            }
            other => Self::tree(other).store_dirty(index, buf, delalloc, &mut tally),
        };
        self.apply(&tally, &mut guard);
        drop(guard);
        drop(replaced);
        before
    }
    /// Changes a cached page in place (copied first if shared) and makes it dirty. Returns the
    /// state before, or `None` without calling `change` if the page is not cached. The mapping is
    /// locked meanwhile: `change` must not call it.
    pub fn modify(
        &self,
        index: PageIndex,
        delalloc: Delalloc,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<PageState> {
        let mut tally = Tally::default();
        let mut guard = self.index.lock();
        let before = match &mut *guard {
            Index::One(page) if page.index == index => {
                change(page.buf.make_mut());
                page.make_dirty(delalloc, &mut tally)
            }
            Index::Many(tree) => {
                change(tree.buf_mut(index)?.make_mut());
                tree.make_dirty(index, delalloc, &mut tally)
            }
            _ => return None,
        };
        self.apply(&tally, &mut guard);
        Some(before)
    }
    /// Changes the bytes of a cached page, not its tags (for zeroes behind the end of the file).
    /// Returns whether the page is cached.
    pub fn patch(&self, index: PageIndex, change: impl FnOnce(&mut [u8])) -> bool {
        let mut guard = self.index.lock();
        let buf = match &mut *guard {
            Index::One(page) if page.index == index => Some(&mut page.buf),
            Index::Many(tree) => tree.buf_mut(index),
            _ => None,
        };
        let found = buf.is_some();
        if let Some(buf) = buf {
            change(buf.make_mut());
        }
        found
    }
    /// The first dirty page at or after `from` that is not under writeback.
    pub fn next_dirty(&self, from: PageIndex) -> Option<PageIndex> {
        if self.dirty_pages() == 0 {
            return None;
        }
        self.seek(from, Seek::Takeable)
    }
    /// The first page at or after `from` that is cached and dirty, delalloc or under writeback (for
    /// SEEK_DATA).
    pub fn next_unlanded(&self, from: PageIndex) -> Option<PageIndex> {
        self.seek(from, Seek::Unlanded)
    }
    /// Whether one of `pages` is cached and dirty, delalloc or under writeback.
    pub fn has_unlanded_in(&self, pages: Range<PageIndex>) -> bool {
        let next = self.next_unlanded(pages.start);
        next.is_some_and(|next| next < pages.end)
    }
    fn seek(&self, from: PageIndex, seek: Seek) -> Option<PageIndex> {
        match &*self.index.lock() {
            Index::Empty => None,
            Index::One(page) => (page.index >= from && page.matches(seek)).then_some(page.index),
            Index::Many(tree) => tree.seek(from, seek),
        }
    }
    /// Picks up to `max` dirty pages of `range` that are not under writeback, in order. Clears
    /// dirty and sets writeback. Returns their number.
    pub fn take_dirty(
        &self,
        range: Range<PageIndex>,
        max: usize,
        out: &mut Vec<DirtyPage>,
    ) -> usize {
        let mut guard = self.index.lock();
        let mut tally = Tally::default();
        let before = out.len();
        match &mut *guard {
            Index::Empty => (),
            Index::One(page) => {
                if max > 0 && range.contains(&page.index) && page.matches(Seek::Takeable) {
                    out.push(page.take(&mut tally));
                }
            }
            Index::Many(tree) => tree.take_dirty(range, max, out, &mut tally),
        }
        self.apply(&tally, &mut guard);
        out.len() - before
    }
    /// Ends a successful writeback of `range`: clears writeback and delalloc of pages under
    /// writeback. Returns their number.
    pub fn end_writeback(&self, range: Range<PageIndex>) -> u64 {
        let tally = self.finish(range, Page::end_writeback, Tree::end_writeback);
        tally.writeback.unsigned_abs()
    }
    /// Ends a failed writeback of `range`: clears writeback and sets dirty. Returns the number of
    /// pages that became dirty.
    pub fn fail_writeback(&self, range: Range<PageIndex>) -> u64 {
        let tally = self.finish(range, Page::fail_writeback, Tree::fail_writeback);
        tally.dirty.unsigned_abs()
    }
    fn finish(
        &self,
        range: Range<PageIndex>,
        one: impl FnOnce(&mut Page, &mut Tally),
        many: impl FnOnce(&mut Tree, Range<PageIndex>, &mut Tally),
    ) -> Tally {
        let mut guard = self.index.lock();
        let mut tally = Tally::default();
        match &mut *guard {
            Index::Empty => (),
            Index::One(page) => {
                if range.contains(&page.index) {
                    one(page, &mut tally);
                }
            }
            Index::Many(tree) => many(tree, range, &mut tally),
        }
        self.apply(&tally, &mut guard);
        tally
    }
    /// Removes all pages of `range`, dirty ones too (truncate, punch). The caller has waited for
    /// writeback.
    pub fn remove(&self, range: Range<PageIndex>) -> Removed {
        let mut guard = self.index.lock();
        let mut tally = Tally::default();
        let mut trash = tree::Trash::default();
        let mut removed = Removed::default();
        match &mut *guard {
            Index::Empty => (),
            Index::One(page) => {
                if range.contains(&page.index) {
                    removed = page.removed(&mut tally);
                    trash.index = std::mem::replace(&mut *guard, Index::Empty);
                }
            }
            Index::Many(tree) => {
                tree.remove(range, &mut tally, &mut removed, &mut trash);
                Self::collapse(&mut guard, &mut trash);
            }
        }
        self.apply(&tally, &mut guard);
        drop(guard);
        removed
    }
    /// Removes the clean pages of `range` that are not under writeback. Returns their number.
    pub fn invalidate(&self, range: Range<PageIndex>) -> u64 {
        let mut guard = self.index.lock();
        let mut tally = Tally::default();
        let mut trash = tree::Trash::default();
        match &mut *guard {
            Index::Empty => (),
            Index::One(page) => {
                if range.contains(&page.index) && page.evictable() {
                    page.removed(&mut tally);
                    trash.index = std::mem::replace(&mut *guard, Index::Empty);
                }
            }
            Index::Many(tree) => {
                tree.invalidate(range, &mut tally, &mut trash);
                Self::collapse(&mut guard, &mut trash);
            }
        }
        self.apply(&tally, &mut guard);
        drop(guard);
        tally.pages.unsigned_abs()
    }
    /// Returns the index as a tree; converts an index of one page.
    fn tree(index: &mut Index) -> &mut Tree {
        if !matches!(index, Index::Many(_)) {
            let old = std::mem::replace(index, Index::Many(Box::default()));
            if let (Index::One(page), Index::Many(tree)) = (old, &mut *index) {
                tree.adopt(page);
            }
        }
        match index {
            Index::Many(tree) => tree,
            _ => unreachable!("made a tree above"),
        }
    }
    /// Drops an empty tree.
    fn collapse(index: &mut Index, trash: &mut tree::Trash) {
        if matches!(index, Index::Many(tree) if tree.chunk_count() == 0) {
            trash.index = std::mem::replace(index, Index::Empty);
        }
    }
}

#[cfg(test)]
mod tests;
