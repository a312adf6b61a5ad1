//! The page index of a file with several pages: chunks of 64 pages with a bitmap for each tag.
//!
//! Two sets of chunk numbers make the cost of writeback proportional to dirty pages, not to cached
//! ones. `dirty` has the chunks with a page that writeback may take (dirty and not under
//! writeback). `unlanded` has those with a page that is dirty, under writeback or delalloc.
//! [`Tree::change`] makes every change of a chunk and updates both sets.

use super::page::Page;
use super::{Delalloc, DirtyPage, Index, PageState, Removed, Seek, Tally};
use block::Buf;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use units::{PageIndex, Span};

/// Pages of a chunk: the bits of a bitmap.
const CHUNK: u32 = 64;

struct Chunk {
    present: u64,
    dirty: u64,
    writeback: u64,
    delalloc: u64,
    referenced: u64,
    slots: [Option<Buf>; CHUNK as usize],
}

/// Removed parts of a mapping, to be dropped after the lock is released.
pub(super) struct Trash {
    pub(super) index: Index,
    #[expect(
        clippy::vec_box,
        reason = "moving a chunk out of its box would copy 552 bytes"
    )]
    chunks: Vec<Box<Chunk>>,
    bufs: Vec<Buf>,
}
impl Default for Trash {
    fn default() -> Trash {
        Trash {
            index: Index::Empty,
            chunks: Vec::new(),
            bufs: Vec::new(),
        }
    }
}

/// The index.
#[derive(Default)]
pub(super) struct Tree {
    chunks: BTreeMap<u32, Box<Chunk>>,
    dirty: BTreeSet<u32>,
    unlanded: BTreeSet<u32>,
    /// Pages with the tag *delalloc*.
    pub(super) delalloc_pages: u64,
    /// The clock's hand: the chunk that the next reclaim visits first.
    hand: u32,
}

/// The numbers of the set bits.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}
fn key_of(index: PageIndex) -> u32 {
    index.0 / CHUNK
}
fn slot_of(index: PageIndex) -> usize {
    (index.0 % CHUNK) as usize
}
fn bit_of(index: PageIndex) -> u64 {
    1 << slot_of(index)
}
fn page_of(key: u32, bit: u32) -> PageIndex {
    PageIndex(key * CHUNK + bit)
}
/// Chunk numbers that `range` touches (`range` is not empty).
fn keys(range: &Range<PageIndex>) -> std::ops::RangeInclusive<u32> {
    key_of(range.start)..=(range.end.0 - 1) / CHUNK
}
/// The bits of chunk `key` that lie in `range`.
fn mask(range: &Range<PageIndex>, key: u32) -> u64 {
    let first = page_of(key, 0).0;
    let from = range.start.0.saturating_sub(first).min(CHUNK);
    let to = range.end.0.saturating_sub(first).min(CHUNK);
    let below = |bit: u32| {
        if bit == CHUNK {
            u64::MAX
        } else {
            (1 << bit) - 1
        }
    };
    below(to) & !below(from)
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            present: 0,
            dirty: 0,
            writeback: 0,
            delalloc: 0,
            referenced: 0,
            slots: [const { None }; CHUNK as usize],
        })
    }
    fn matching(&self, seek: Seek) -> u64 {
        match seek {
            Seek::Takeable => self.dirty & !self.writeback,
            Seek::Unlanded => self.dirty | self.writeback | self.delalloc,
        }
    }
    fn evictable(&self) -> u64 {
        self.present & !self.matching(Seek::Unlanded)
    }
    fn state(&self, bit: u64) -> PageState {
        PageState {
            dirty: self.dirty & bit != 0,
            writeback: self.writeback & bit != 0,
            delalloc: self.delalloc & bit != 0,
        }
    }
    fn make_dirty(&mut self, bit: u64, delalloc: Delalloc, tally: &mut Tally) -> PageState {
        let before = self.state(bit);
        tally.dirty += i64::from(!before.dirty);
        self.dirty |= bit;
        if delalloc == Delalloc::Set {
            tally.delalloc += i64::from(!before.delalloc);
            self.delalloc |= bit;
        }
        before
    }
    fn end_delalloc(&mut self, which: u64, tally: &mut Tally) {
        tally.delalloc -= i64::from((self.delalloc & which).count_ones());
        self.delalloc &= !which;
    }
    /// Removes pages and counts them. Their buffers are moved to `bufs`.
    fn evict(&mut self, which: u64, tally: &mut Tally, bufs: &mut Vec<Buf>) -> Removed {
        let count = |bitmap: u64| u64::from((bitmap & which).count_ones());
        let removed = Removed {
            pages: count(self.present),
            dirty: count(self.dirty),
            delalloc: count(self.delalloc),
        };
        tally.pages -= removed.pages as i64;
        tally.dirty -= removed.dirty as i64;
        tally.writeback -= count(self.writeback) as i64;
        tally.delalloc -= removed.delalloc as i64;
        for bit in bits(self.present & which) {
            bufs.extend(self.slots[bit as usize].take());
        }
        self.present &= !which;
        self.dirty &= !which;
        self.writeback &= !which;
        self.delalloc &= !which;
        self.referenced &= !which;
        removed
    }
}

impl Tree {
    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Changes a chunk, which is created if it is missing, and updates the sets.
    fn change<R>(&mut self, key: u32, change: impl FnOnce(&mut Chunk) -> R) -> R {
        let chunk = self.chunks.entry(key).or_insert_with(Chunk::new);
        let was = (
            chunk.matching(Seek::Takeable) != 0,
            chunk.matching(Seek::Unlanded) != 0,
        );
        let result = change(chunk);
        let is = (
            chunk.matching(Seek::Takeable) != 0,
            chunk.matching(Seek::Unlanded) != 0,
        );
        match (was.0, is.0) {
            (false, true) => _ = self.dirty.insert(key),
            (true, false) => _ = self.dirty.remove(&key),
            _ => (),
        }
        match (was.1, is.1) {
            (false, true) => _ = self.unlanded.insert(key),
            (true, false) => _ = self.unlanded.remove(&key),
            _ => (),
        }
        result
    }

    /// Adds the page of a mapping that had one page.
    pub(super) fn adopt(&mut self, page: Page) {
        self.delalloc_pages += u64::from(page.state().delalloc);
        let state = page.state();
        let bit = bit_of(page.index);
        self.change(key_of(page.index), |chunk| {
            let tag = |on: bool| if on { bit } else { 0 };
            chunk.present = bit;
            chunk.dirty = tag(state.dirty);
            chunk.writeback = tag(state.writeback);
            chunk.delalloc = tag(state.delalloc);
            chunk.referenced = tag(page.referenced());
            chunk.slots[slot_of(page.index)] = Some(page.buf);
        });
    }

    pub(super) fn get(&mut self, index: PageIndex) -> Option<&Buf> {
        let chunk = self.chunks.get_mut(&key_of(index))?;
        chunk.referenced |= bit_of(index) & chunk.present;
        chunk.slots[slot_of(index)].as_ref()
    }

    pub(super) fn get_range(
        &mut self,
        range: Range<PageIndex>,
        mut each: impl FnMut(PageIndex, Option<&Buf>),
    ) {
        let mut rest = range;
        while !rest.is_empty() {
            let key = key_of(rest.start);
            let left = CHUNK - rest.start.0 % CHUNK;
            let part = rest.first_of(left);
            rest.start = part.end;
            match self.chunks.get_mut(&key) {
                None => part.numbers().for_each(|index| each(index, None)),
                Some(chunk) => {
                    chunk.referenced |= mask(&part, key) & chunk.present;
                    for index in part.numbers() {
                        each(index, chunk.slots[slot_of(index)].as_ref());
                    }
                }
            }
        }
    }

    pub(super) fn state(&self, index: PageIndex) -> Option<PageState> {
        let chunk = self.chunks.get(&key_of(index))?;
        let bit = bit_of(index);
        (chunk.present & bit != 0).then(|| chunk.state(bit))
    }

    pub(super) fn insert_clean(&mut self, index: PageIndex, buf: Buf, tally: &mut Tally) -> Buf {
        // A clean page changes neither set.
        let chunk = self.chunks.entry(key_of(index)).or_insert_with(Chunk::new);
        let slot = &mut chunk.slots[slot_of(index)];
        if let Some(held) = slot {
            return held.clone();
        }
        *slot = Some(buf.clone());
        chunk.present |= bit_of(index);
        tally.pages += 1;
        buf
    }

    pub(super) fn store_dirty(
        &mut self,
        index: PageIndex,
        buf: Buf,
        delalloc: Delalloc,
        tally: &mut Tally,
    ) -> (PageState, Option<Buf>) {
        let bit = bit_of(index);
        self.change(key_of(index), |chunk| {
            let replaced = chunk.slots[slot_of(index)].replace(buf);
            if replaced.is_some() {
                chunk.referenced |= bit;
            } else {
                chunk.present |= bit;
                tally.pages += 1;
            }
            (chunk.make_dirty(bit, delalloc, tally), replaced)
        })
    }

    pub(super) fn buf_mut(&mut self, index: PageIndex) -> Option<&mut Buf> {
        let chunk = self.chunks.get_mut(&key_of(index))?;
        chunk.slots[slot_of(index)].as_mut()
    }

    /// Makes a cached page dirty.
    pub(super) fn make_dirty(
        &mut self,
        index: PageIndex,
        delalloc: Delalloc,
        tally: &mut Tally,
    ) -> PageState {
        let bit = bit_of(index);
        self.change(key_of(index), |chunk| {
            chunk.referenced |= bit;
            chunk.make_dirty(bit, delalloc, tally)
        })
    }

    pub(super) fn seek(&self, from: PageIndex, seek: Seek) -> Option<PageIndex> {
        let set = match seek {
            Seek::Takeable => &self.dirty,
            Seek::Unlanded => &self.unlanded,
        };
        let range = from..PageIndex::END;
        // At most one chunk of the set has matches only before `from`.
        set.range(key_of(from)..).find_map(|&key| {
            let found = self.chunks[&key].matching(seek) & mask(&range, key);
            (found != 0).then(|| page_of(key, found.trailing_zeros()))
        })
    }

    pub(super) fn take_dirty(
        &mut self,
        range: Range<PageIndex>,
        max: usize,
        out: &mut Vec<DirtyPage>,
        tally: &mut Tally,
    ) {
        let full = out.len() + max;
        self.each_of(Seek::Takeable, range, |key, wanted, chunk| {
            for bit in bits(chunk.matching(Seek::Takeable) & wanted) {
                if out.len() == full {
                    return false;
                }
                chunk.dirty &= !(1 << bit);
                chunk.writeback |= 1 << bit;
                tally.dirty -= 1;
                tally.writeback += 1;
                out.push(DirtyPage {
                    index: page_of(key, bit),
                    buf: chunk.slots[bit as usize]
                        .clone()
                        .expect("a dirty page is held"),
                    delalloc: chunk.delalloc & 1 << bit != 0,
                });
            }
            out.len() < full
        });
    }

    pub(super) fn end_writeback(&mut self, range: Range<PageIndex>, tally: &mut Tally) {
        self.each_of(Seek::Unlanded, range, |_, wanted, chunk| {
            let landed = chunk.writeback & wanted;
            tally.writeback -= i64::from(landed.count_ones());
            chunk.writeback &= !landed;
            chunk.end_delalloc(landed, tally);
            true
        });
    }

    pub(super) fn end_delalloc(&mut self, range: Range<PageIndex>, tally: &mut Tally) {
        self.each_of(Seek::Unlanded, range, |_, wanted, chunk| {
            chunk.end_delalloc(wanted, tally);
            true
        });
    }

    pub(super) fn fail_writeback(&mut self, range: Range<PageIndex>, tally: &mut Tally) {
        self.each_of(Seek::Unlanded, range, |_, wanted, chunk| {
            let failed = chunk.writeback & wanted;
            tally.writeback -= i64::from(failed.count_ones());
            tally.dirty += i64::from((failed & !chunk.dirty).count_ones());
            chunk.writeback &= !failed;
            chunk.dirty |= failed;
            true
        });
    }

    /// Changes the chunks of a set that `range` touches, in order, until `each` returns `false`.
    /// `each` gets the chunk's number and the bits in range.
    fn each_of(
        &mut self,
        seek: Seek,
        range: Range<PageIndex>,
        mut each: impl FnMut(u32, u64, &mut Chunk) -> bool,
    ) {
        if range.is_empty() {
            return;
        }
        let (mut from, last) = keys(&range).into_inner();
        while from <= last {
            let set = match seek {
                Seek::Takeable => &self.dirty,
                Seek::Unlanded => &self.unlanded,
            };
            let Some(&key) = set.range(from..=last).next() else {
                return;
            };
            if !self.change(key, |chunk| each(key, mask(&range, key), chunk)) {
                return;
            }
            from = key + 1;
        }
    }

    pub(super) fn remove(
        &mut self,
        range: Range<PageIndex>,
        tally: &mut Tally,
        removed: &mut Removed,
        trash: &mut Trash,
    ) {
        self.evict_from(range, tally, trash, |_| u64::MAX, removed);
    }

    pub(super) fn invalidate(
        &mut self,
        range: Range<PageIndex>,
        tally: &mut Tally,
        trash: &mut Trash,
    ) {
        let mut removed = Removed::default();
        self.evict_from(range, tally, trash, |chunk| chunk.evictable(), &mut removed);
    }

    /// Evicts the pages that `which` selects of each chunk that `range` touches.
    fn evict_from(
        &mut self,
        range: Range<PageIndex>,
        tally: &mut Tally,
        trash: &mut Trash,
        which: impl Fn(&Chunk) -> u64,
        removed: &mut Removed,
    ) {
        if range.is_empty() {
            return;
        }
        let (mut from, last) = keys(&range).into_inner();
        while let Some((&key, chunk)) = self.chunks.range(from..=last).next() {
            let victims = which(chunk) & mask(&range, key);
            if victims != 0 {
                let part = self.evict(key, victims, tally, trash);
                removed.pages += part.pages;
                removed.dirty += part.dirty;
                removed.delalloc += part.delalloc;
            }
            if key == last {
                return;
            }
            from = key + 1;
        }
    }

    /// Evicts pages of a chunk, and an empty chunk itself.
    fn evict(&mut self, key: u32, which: u64, tally: &mut Tally, trash: &mut Trash) -> Removed {
        let bufs = &mut trash.bufs;
        let (removed, left) = self.change(key, |chunk| {
            let removed = chunk.evict(which, tally, bufs);
            (removed, chunk.present)
        });
        if left == 0 {
            trash.chunks.extend(self.chunks.remove(&key));
        }
        removed
    }

    /// Advances the hand by `visits` chunks, or until `want` pages are freed.
    pub(super) fn reclaim(
        &mut self,
        want: u64,
        visits: usize,
        tally: &mut Tally,
        trash: &mut Trash,
    ) {
        for _ in 0..visits {
            let left = want.saturating_sub(tally.pages.unsigned_abs());
            if left == 0 || self.chunks.is_empty() {
                return;
            }
            if self.chunks.range(self.hand..).next().is_none() {
                self.hand = 0;
            }
            let next = self.chunks.range_mut(self.hand..).next();
            let Some((&key, chunk)) = next else {
                return;
            };
            let candidates = chunk.evictable();
            let victims = candidates & !chunk.referenced;
            let kept = victims.count_ones().saturating_sub(left.min(64) as u32);
            let victims = lowest(victims, victims.count_ones() - kept);
            if kept == 0 {
                tally.spared += u64::from((candidates & chunk.referenced).count_ones());
                chunk.referenced &= !candidates;
                self.hand = key + 1;
            }
            if victims != 0 {
                self.evict(key, victims, tally, trash);
            }
        }
    }
}

/// The `count` lowest set bits.
fn lowest(word: u64, count: u32) -> u64 {
    bits(word)
        .take(count as usize)
        .fold(0, |low, bit| low | 1 << bit)
}
