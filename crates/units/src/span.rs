//! Ranges of numbers.

use crate::{FileBlock, FileCluster, FsBlock, PageIndex};
use std::ops::Range;

/// A half-open range of numbers of one type.
pub trait Span {
    /// The type of the numbers.
    type Number;

    /// How many numbers the range has.
    fn length(&self) -> u64;
    /// The numbers of the range, in order.
    fn numbers(&self) -> impl Iterator<Item = Self::Number> + use<Self>;
    /// The last number of the range, if it has any.
    fn last(&self) -> Option<Self::Number>;
    /// The first `count` numbers of the range, or all of them.
    fn first_of(&self, count: u32) -> Self;
}

macro_rules! span {
    ($($name:ident($inner:ty),)*) => {
        $(impl Span for Range<$name> {
            type Number = $name;

            #[inline]
            fn length(&self) -> u64 {
                u64::from(self.end.0.saturating_sub(self.start.0))
            }
            #[inline]
            fn numbers(&self) -> impl Iterator<Item = $name> + use<> {
                (self.start.0..self.end.0).map($name)
            }
            #[inline]
            fn last(&self) -> Option<$name> {
                (self.start < self.end).then(|| $name(self.end.0 - 1))
            }
            #[inline]
            fn first_of(&self, count: u32) -> Range<$name> {
                let end = self.start.saturating_add(<$inner>::from(count));
                self.start..self.end.min(end)
            }
        })*
    };
}

span! {
    FsBlock(u64),
    FileBlock(u32),
    FileCluster(u32),
    PageIndex(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_counts_and_visits_its_numbers() {
        let pages = PageIndex(3)..PageIndex(6);
        assert_eq!(pages.length(), 3);
        assert!(pages.numbers().eq([3, 4, 5].map(PageIndex)));
        assert_eq!(pages.last(), Some(PageIndex(5)));
        let empty = FsBlock(7)..FsBlock(2);
        assert_eq!((empty.length(), empty.last()), (0, None));
    }

    #[test]
    fn the_first_numbers_of_a_span_stay_within_it() {
        let blocks = FileBlock(10)..FileBlock(20);
        assert_eq!(blocks.first_of(4), FileBlock(10)..FileBlock(14));
        assert_eq!(blocks.first_of(40), blocks);
        let last = FileBlock(u32::MAX - 1)..FileBlock::END;
        assert_eq!(last.first_of(16), last);
    }
}
