//! Readahead for sequential readers.
//!
//! The window doubles with every sequential read up to [`MAX_WINDOW`] and the next window is
//! requested when the reader enters the last one, so that the device works while the reader copies.
//! Pages enter the mapping when their I/O completes. A change of the file's contents or blocks
//! waits for that first ([`Inode::wait_readahead`]).

use super::Inode;
use block::{EndIo, IoError, Payload};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use sync::atomic::Ordering;
use sync::{Condvar, Mutex, Rank};
use units::{PageIndex, PageSize, Span};

/// Bytes of the first window.
const MIN_WINDOW: u64 = 128 << 10;
/// Bytes of the largest window.
const MAX_WINDOW: u64 = 4 << 20;

const NONE: Range<PageIndex> = PageIndex::FIRST..PageIndex::FIRST;

/// State of sequential reading of one inode.
pub(crate) struct Readahead {
    state: Mutex<State>,
    idle: Condvar,
}

impl Default for Readahead {
    fn default() -> Readahead {
        Readahead {
            state: Rank::Readahead.mutex(State::default()),
            idle: Condvar::new(),
        }
    }
}

#[derive(Default)]
struct State {
    /// The page that a sequential reader reads next.
    next: PageIndex,
    /// The first page that was not requested yet.
    requested: PageIndex,
    /// Pages of the last window.
    window: u32,
    /// Ranges in flight.
    in_flight: SmallVec<[Range<PageIndex>; 2]>,
}

impl Readahead {
    /// A reader reads `pages`. Returns the pages to request behind them, perhaps none.
    pub fn advance(
        &self,
        pages: Range<PageIndex>,
        end_of_file: PageIndex,
        page_size: PageSize,
    ) -> Range<PageIndex> {
        let mut s = self.state.lock();
        let sequential = pages.start == s.next || pages.start + 1 == s.next;
        s.next = pages.end;
        if !sequential {
            s.window = 0;
            s.requested = pages.end;
            return NONE;
        }
        s.requested = s.requested.max(pages.start);
        // The reader is still far from the end of the requested pages.
        if s.requested > pages.end && s.requested - pages.end > s.window / 2 {
            return NONE;
        }
        let [least, most] = [MIN_WINDOW, MAX_WINDOW].map(|bytes| page_size.count_in(bytes) as u32);
        s.window = (s.window * 2).clamp(least, most);
        let start = s.requested.max(pages.end);
        let end = start.saturating_add(s.window).min(end_of_file);
        if start >= end {
            return NONE;
        }
        s.requested = end;
        start..end
    }

    /// I/O for `range` is about to be submitted.
    pub fn begin(&self, range: Range<PageIndex>) {
        self.state.lock().in_flight.push(range);
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&mut self) -> bool {
        self.state.get_mut().in_flight.is_empty()
    }

    fn end(&self, range: &Range<PageIndex>) {
        let mut s = self.state.lock();
        if let Some(at) = s.in_flight.iter().position(|r| r == range) {
            s.in_flight.swap_remove(at);
        }
        drop(s);
        self.idle.notify_all();
    }

    /// Waits while `page` is in flight. Returns whether it was.
    pub fn wait_for(&self, page: PageIndex) -> bool {
        let mut s = self.state.lock();
        let mut waited = false;
        while s.in_flight.iter().any(|r| r.contains(&page)) {
            waited = true;
            self.idle.wait(&mut s);
        }
        waited
    }

    /// Waits until nothing is in flight.
    fn quiesce(&self) {
        let mut s = self.state.lock();
        while !s.in_flight.is_empty() {
            self.idle.wait(&mut s);
        }
    }
}

impl Inode {
    /// Waits until no readahead is in flight. The caller holds the inode's lock exclusively, so
    /// none begins.
    pub(crate) fn wait_readahead(&self) {
        if let Some(io) = self.data.io() {
            io.readahead.quiesce();
        }
    }
}

/// Inserts pages that were read ahead into the mapping.
pub(crate) struct Arrival {
    pub inode: Arc<Inode>,
    pub range: Range<PageIndex>,
}

impl EndIo for Arrival {
    fn end_io(&self, _tag: u64, payload: Payload, result: Result<(), IoError>) {
        if let (Payload::Read(bufs), Ok(())) = (payload, result) {
            let size = self.inode.size();
            let page_size = self.inode.mapping.page_size();
            for (index, mut buf) in self.range.numbers().zip(bufs) {
                let live = live_bytes(page_size, index, size);
                if is_stale_behind(&self.inode, &buf, live) {
                    buf[live..].fill(0);
                }
                self.inode.mapping.insert_clean(index, buf.freeze());
            }
        }
        // A failed readahead is silent: a reader that needs the page reads it and gets the error.
        if let Some(io) = self.inode.data.io() {
            io.readahead.end(&self.range);
        }
        self.inode.drop_idle_io();
    }
}

/// Whether a page from the device has non-zero bytes behind the first `live`. Records it in the
/// inode.
pub(crate) fn is_stale_behind(inode: &Inode, page: &[u8], live: usize) -> bool {
    let stale = page[live..].iter().any(|&byte| byte != 0);
    if stale {
        inode.data.stale_tail.store(true, Ordering::Relaxed);
    }
    stale
}

/// Bytes of page `index` before the end of a file of `size` bytes. The bytes behind are zero in
/// memory.
pub(crate) fn live_bytes(page_size: PageSize, index: PageIndex, size: u64) -> usize {
    let behind = size.saturating_sub(page_size.offset_of(index));
    behind.min(page_size.bytes()) as usize
}
