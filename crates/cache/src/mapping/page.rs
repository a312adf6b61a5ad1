//! The page of a file that has only one.

use super::{DirtyPage, PageState, Removed, Seek, Tally};
use block::Buf;

const DIRTY: u8 = 1;
const WRITEBACK: u8 = 2;
const DELALLOC: u8 = 4;
const REFERENCED: u8 = 8;

/// A page with its number and tags.
pub(super) struct Page {
    pub(super) buf: Buf,
    pub(super) index: u32,
    tags: u8,
}

impl Page {
    pub(super) fn clean(index: u32, buf: Buf) -> Page {
        Page {
            buf,
            index,
            tags: 0,
        }
    }
    pub(super) fn dirty(index: u32, buf: Buf, delalloc: bool) -> Page {
        Page {
            buf,
            index,
            tags: DIRTY | if delalloc { DELALLOC } else { 0 },
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
    /// Whether a clock hand that passes leaves it, once.
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
    /// Tags it as written to; its tags before.
    pub(super) fn make_dirty(&mut self, delalloc: bool, tally: &mut Tally) -> PageState {
        let before = self.state();
        tally.dirty += i64::from(!before.dirty);
        self.tags |= DIRTY | REFERENCED | if delalloc { DELALLOC } else { 0 };
        before
    }
    pub(super) fn take(&mut self, tally: &mut Tally) -> DirtyPage {
        self.tags = self.tags & !DIRTY | WRITEBACK;
        tally.dirty -= 1;
        tally.writeback += 1;
        DirtyPage {
            index: self.index.into(),
            buf: self.buf.clone(),
            delalloc: self.tags & DELALLOC != 0,
        }
    }
    pub(super) fn end_writeback(&mut self, tally: &mut Tally) {
        if self.tags & WRITEBACK != 0 {
            self.tags &= !(WRITEBACK | DELALLOC);
            tally.writeback -= 1;
        }
    }
    pub(super) fn fail_writeback(&mut self, tally: &mut Tally) {
        if self.tags & WRITEBACK != 0 {
            tally.writeback -= 1;
            tally.dirty += i64::from(self.tags & DIRTY == 0);
            self.tags = self.tags & !WRITEBACK | DIRTY;
        }
    }
    /// Counts it out.
    pub(super) fn removed(&self, tally: &mut Tally) -> Removed {
        let state = self.state();
        tally.pages -= 1;
        tally.dirty -= i64::from(state.dirty);
        tally.writeback -= i64::from(state.writeback);
        Removed {
            pages: 1,
            dirty: state.dirty.into(),
            delalloc: state.delalloc.into(),
        }
    }
}
