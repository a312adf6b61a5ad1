//! The page of a file that has only one.

use super::{Delalloc, DirtyPage, PageState, Removed, Seek, Tally};
use block::Buf;
use units::PageIndex;

const DIRTY: u8 = 1;
const WRITEBACK: u8 = 2;
const DELALLOC: u8 = 4;
const REFERENCED: u8 = 8;

impl Delalloc {
    fn bits(self) -> u8 {
        match self {
            Delalloc::Keep => 0,
            Delalloc::Set => DELALLOC,
        }
    }
}

/// A page with its number and tags.
pub(super) struct Page {
    pub(super) buf: Buf,
    pub(super) index: PageIndex,
    tags: u8,
}

impl Page {
    pub(super) fn clean(index: PageIndex, buf: Buf) -> Page {
        Page {
            buf,
            index,
            tags: 0,
        }
    }
    pub(super) fn dirty(index: PageIndex, buf: Buf, delalloc: Delalloc) -> Page {
        Page {
            buf,
            index,
            tags: DIRTY | delalloc.bits(),
        }
    }
    pub(super) fn state(&self) -> PageState {
        PageState {
            dirty: self.tags & DIRTY != 0,
            writeback: self.tags & WRITEBACK != 0,
            delalloc: self.tags & DELALLOC != 0,
        }
    }
    pub(super) fn referenced(&self) -> bool {
        self.tags & REFERENCED != 0
    }
    pub(super) fn reference(&mut self) {
        self.tags |= REFERENCED;
    }
    /// Whether the clock's hand spares the page. Clears the mark of use.
    pub(super) fn spare(&mut self) -> bool {
        let spared = self.referenced();
        self.tags &= !REFERENCED;
        spared
    }
    pub(super) fn evictable(&self) -> bool {
        self.tags & (DIRTY | WRITEBACK | DELALLOC) == 0
    }
    pub(super) fn matches(&self, seek: Seek) -> bool {
        match seek {
            Seek::Takeable => self.tags & (DIRTY | WRITEBACK) == DIRTY,
            Seek::Unlanded => !self.evictable(),
        }
    }
    /// Makes the page dirty. Returns its tags before.
    pub(super) fn make_dirty(&mut self, delalloc: Delalloc, tally: &mut Tally) -> PageState {
        let before = self.state();
        tally.dirty += i64::from(!before.dirty);
        tally.delalloc += i64::from(delalloc == Delalloc::Set && !before.delalloc);
        self.tags |= DIRTY | REFERENCED | delalloc.bits();
        before
    }
    pub(super) fn take(&mut self, tally: &mut Tally) -> DirtyPage {
        self.tags = self.tags & !DIRTY | WRITEBACK;
        tally.dirty -= 1;
        tally.writeback += 1;
        DirtyPage {
            index: self.index,
            buf: self.buf.clone(),
            delalloc: self.tags & DELALLOC != 0,
        }
    }
    pub(super) fn end_writeback(&mut self, tally: &mut Tally) {
        if self.tags & WRITEBACK != 0 {
            self.tags &= !WRITEBACK;
            tally.writeback -= 1;
            self.end_delalloc(tally);
        }
    }
    pub(super) fn end_delalloc(&mut self, tally: &mut Tally) {
        tally.delalloc -= i64::from(self.tags & DELALLOC != 0);
        self.tags &= !DELALLOC;
    }
    pub(super) fn fail_writeback(&mut self, tally: &mut Tally) {
        if self.tags & WRITEBACK != 0 {
            tally.writeback -= 1;
            tally.dirty += i64::from(self.tags & DIRTY == 0);
            self.tags = self.tags & !WRITEBACK | DIRTY;
        }
    }
    /// Subtracts the page from the counts.
    pub(super) fn removed(&self, tally: &mut Tally) -> Removed {
        let state = self.state();
        tally.pages -= 1;
        tally.dirty -= i64::from(state.dirty);
        tally.writeback -= i64::from(state.writeback);
        tally.delalloc -= i64::from(state.delalloc);
        Removed {
            pages: 1,
            dirty: state.dirty.into(),
            delalloc: state.delalloc.into(),
        }
    }
}
