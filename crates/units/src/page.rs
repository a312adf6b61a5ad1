//! Bytes, pages and blocks of a file.
//!
//! A page is [`BYTES`] long. A block of the file system has the same length, so a page has one
//! block of the same number. [`blocks`], [`PageIndex::block`] and their inverses are the only code
//! that converts page and block numbers to each other. Where the engine counts blocks for a number
//! of pages (promises of space, the length of a run that is written), it counts one for each.

use crate::{FileBlock, PageIndex};
use std::ops::Range;

/// Bytes of a page.
pub const BYTES: u64 = 4096;

/// The place of a byte within its page.
#[inline]
#[must_use]
pub const fn within(offset: u64) -> usize {
    (offset % BYTES) as usize
}

/// Returns the pages that the bytes of `range` touch.
#[inline]
#[must_use]
pub fn touching(range: Range<u64>) -> Range<PageIndex> {
    PageIndex::of(range.start)..PageIndex::after(range.end)
}

/// Returns the pages that lie within the bytes of `range` as a whole. The range is empty, or its
/// start is behind its end, if there is none.
#[inline]
#[must_use]
pub fn inside(range: Range<u64>) -> Range<PageIndex> {
    PageIndex::after(range.start)..PageIndex::of(range.end)
}

/// Returns the file blocks of the pages of a range.
#[inline]
#[must_use]
pub fn blocks(pages: Range<PageIndex>) -> Range<FileBlock> {
    pages.start.block()..pages.end.block()
}

/// Returns the pages of the file blocks of a range.
#[inline]
#[must_use]
pub fn of_blocks(blocks: Range<FileBlock>) -> Range<PageIndex> {
    blocks.start.page()..blocks.end.page()
}

impl PageIndex {
    /// Returns the page of the byte at `offset`, or [`PageIndex::END`] behind the largest file.
    #[inline]
    #[must_use]
    pub const fn of(offset: u64) -> PageIndex {
        saturate(offset / BYTES)
    }

    /// Returns the first page that begins at or after the byte at `offset`: the number of pages of
    /// a file of `offset` bytes. It is [`PageIndex::END`] behind the largest file.
    #[inline]
    #[must_use]
    pub const fn after(offset: u64) -> PageIndex {
        saturate(offset.div_ceil(BYTES))
    }

    /// Returns the offset of the page's first byte.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 as u64 * BYTES
    }

    /// Returns the first file block of the page.
    #[inline]
    #[must_use]
    pub const fn block(self) -> FileBlock {
        FileBlock(self.0)
    }
}

impl FileBlock {
    /// Returns the page of the block.
    #[inline]
    #[must_use]
    pub const fn page(self) -> PageIndex {
        PageIndex(self.0)
    }
}

const fn saturate(page: u64) -> PageIndex {
    if page < PageIndex::END.0 as u64 {
        PageIndex(page as u32)
    } else {
        PageIndex::END
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_touch_pages() {
        assert_eq!(touching(0..1), PageIndex(0)..PageIndex(1));
        assert_eq!(touching(4095..4097), PageIndex(0)..PageIndex(2));
        assert_eq!(touching(4096..8192), PageIndex(1)..PageIndex(2));
        assert!(touching(8192..8192).is_empty());
    }

    #[test]
    fn whole_pages_lie_inside_bytes() {
        assert_eq!(inside(1..3 * BYTES), PageIndex(1)..PageIndex(3));
        assert_eq!(inside(0..3 * BYTES - 1), PageIndex(0)..PageIndex(2));
        assert!(inside(1..4095).is_empty());
    }

    #[test]
    fn offsets_behind_the_largest_file_have_its_end() {
        let end = PageIndex::END.offset();
        assert_eq!(PageIndex::of(end - 1), PageIndex(u32::MAX - 1));
        assert_eq!(PageIndex::after(end), PageIndex::END);
        for offset in [end, end + 1, u64::MAX] {
            assert_eq!(PageIndex::of(offset), PageIndex::END);
            assert_eq!(PageIndex::after(offset), PageIndex::END);
        }
    }

    #[test]
    fn a_page_and_its_blocks_convert_to_each_other() {
        let pages = PageIndex(5)..PageIndex(9);
        assert_eq!(of_blocks(blocks(pages.clone())), pages);
        assert_eq!(blocks(pages).start.page().offset(), 5 * BYTES);
    }
}
