//! Bytes, pages and blocks of a file.
//!
//! The page of a volume is its block: its pages have the size of its blocks ([`PageSize`]), and a
//! page has one block of the same number. So no page is dirty, a hole or unwritten in part.
//! [`blocks`], [`PageIndex::block`] and their inverses are the only code that converts page and
//! block numbers to each other. Where the engine counts blocks for a number of pages (promises of
//! space, the length of a run that is written), it counts one for each.

use crate::{FileBlock, PageIndex};
use std::ops::Range;

/// The size of a volume's pages: 1, 2 or 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// The size as a power of two.
    bits: u8,
}

impl PageSize {
    /// The smallest pages.
    pub const KIB_1: PageSize = PageSize { bits: 10 };
    /// Pages of 2 KiB.
    pub const KIB_2: PageSize = PageSize { bits: 11 };
    /// The largest pages.
    pub const KIB_4: PageSize = PageSize { bits: 12 };

    /// Returns the size of `bytes` bytes, or `None` if pages cannot have it.
    #[must_use]
    pub const fn of_bytes(bytes: u32) -> Option<PageSize> {
        match bytes {
            1024 => Some(PageSize::KIB_1),
            2048 => Some(PageSize::KIB_2),
            4096 => Some(PageSize::KIB_4),
            _ => None,
        }
    }

    /// Bytes of a page.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.bits
    }

    /// Bytes of a page, as a length of slices.
    #[inline]
    #[must_use]
    pub const fn as_usize(self) -> usize {
        1 << self.bits
    }

    /// Returns how many whole pages `bytes` bytes are.
    #[inline]
    #[must_use]
    pub const fn count_in(self, bytes: u64) -> u64 {
        bytes >> self.bits
    }

    /// Returns the place of the byte at `offset` within its page.
    #[inline]
    #[must_use]
    pub const fn within(self, offset: u64) -> usize {
        (offset & (self.bytes() - 1)) as usize
    }

    /// Returns the page of the byte at `offset`, or [`PageIndex::END`] behind the largest file.
    #[inline]
    #[must_use]
    pub const fn index_of(self, offset: u64) -> PageIndex {
        saturate(offset >> self.bits)
    }

    /// Returns the first page that begins at or after the byte at `offset`: the number of pages of
    /// a file of `offset` bytes. It is [`PageIndex::END`] behind the largest file.
    #[inline]
    #[must_use]
    pub const fn index_after(self, offset: u64) -> PageIndex {
        saturate(offset.div_ceil(self.bytes()))
    }

    /// Returns the offset of the first byte of page `index`.
    #[inline]
    #[must_use]
    pub const fn offset_of(self, index: PageIndex) -> u64 {
        (index.0 as u64) << self.bits
    }

    /// Returns the pages that the bytes of `range` touch.
    #[inline]
    #[must_use]
    pub fn touching(self, range: Range<u64>) -> Range<PageIndex> {
        self.index_of(range.start)..self.index_after(range.end)
    }

    /// Returns the pages that lie within the bytes of `range` as a whole. The range is empty, or
    /// its start is behind its end, if there is none.
    #[inline]
    #[must_use]
    pub fn inside(self, range: Range<u64>) -> Range<PageIndex> {
        self.index_after(range.start)..self.index_of(range.end)
    }
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
    /// Returns the file block of the page.
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

    const SIZES: [PageSize; 3] = [PageSize::KIB_1, PageSize::KIB_2, PageSize::KIB_4];

    #[test]
    fn a_size_is_known_by_its_bytes() {
        for size in SIZES {
            assert_eq!(PageSize::of_bytes(size.bytes() as u32), Some(size));
            assert_eq!(size.as_usize() as u64, size.bytes());
        }
        for bytes in [0, 512, 1000, 3072, 8192, 65_536] {
            assert_eq!(PageSize::of_bytes(bytes), None);
        }
    }

    #[test]
    fn bytes_touch_pages() {
        for size in SIZES {
            let bytes = size.bytes();
            assert_eq!(size.touching(0..1), PageIndex(0)..PageIndex(1));
            let over_a_border = size.touching(bytes - 1..bytes + 1);
            assert_eq!(over_a_border, PageIndex(0)..PageIndex(2));
            assert_eq!(size.touching(bytes..2 * bytes), PageIndex(1)..PageIndex(2));
            assert!(size.touching(2 * bytes..2 * bytes).is_empty());
            assert_eq!(size.within(3 * bytes + 7), 7);
        }
    }

    #[test]
    fn whole_pages_lie_inside_bytes() {
        for size in SIZES {
            let bytes = size.bytes();
            assert_eq!(size.inside(1..3 * bytes), PageIndex(1)..PageIndex(3));
            assert_eq!(size.inside(0..3 * bytes - 1), PageIndex(0)..PageIndex(2));
            assert!(size.inside(1..bytes - 1).is_empty());
            assert_eq!(size.count_in(3 * bytes - 1), 2);
        }
    }

    #[test]
    fn offsets_behind_the_largest_file_have_its_end() {
        for size in SIZES {
            let end = size.offset_of(PageIndex::END);
            assert_eq!(size.index_of(end - 1), PageIndex(u32::MAX - 1));
            assert_eq!(size.index_after(end), PageIndex::END);
            for offset in [end, end + 1, u64::MAX] {
                assert_eq!(size.index_of(offset), PageIndex::END);
                assert_eq!(size.index_after(offset), PageIndex::END);
            }
        }
    }

    #[test]
    fn a_page_and_its_block_convert_to_each_other() {
        let pages = PageIndex(5)..PageIndex(9);
        assert_eq!(of_blocks(blocks(pages.clone())), pages);
        let first = blocks(pages).start.page();
        assert_eq!(PageSize::KIB_2.offset_of(first), 5 * 2048);
    }
}
