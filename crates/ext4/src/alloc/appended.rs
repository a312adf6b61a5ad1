//! A vector that grows while it is read.
//!
//! Values are appended and never moved or removed, so a reader holds a plain reference. A look-up
//! takes no lock. Segment `s` holds 2^s values; it is allocated when its first value is appended.

use std::sync::OnceLock;
use sync::atomic::{AtomicUsize, Ordering};

/// Segments: enough for 2^32 values.
const SEGMENTS: usize = 32;

type Segment<T> = OnceLock<Box<[OnceLock<T>]>>;

/// Values that are appended by one thread at a time.
pub(super) struct Appended<T> {
    segments: [Segment<T>; SEGMENTS],
    /// Values that can be read. It is raised after the value is stored.
    len: AtomicUsize,
}

impl<T> Default for Appended<T> {
    fn default() -> Appended<T> {
        Appended {
            segments: [const { OnceLock::new() }; SEGMENTS],
            len: AtomicUsize::new(0),
        }
    }
}

/// Returns the segment of a value and the place there.
fn place(index: usize) -> (usize, usize) {
    let nth = index + 1;
    let segment = nth.ilog2();
    (segment as usize, nth - (1 << segment))
}

impl<T> Appended<T> {
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    pub fn get(&self, index: usize) -> Option<&T> {
        let (segment, at) = place(index);
        self.segments.get(segment)?.get()?.get(at)?.get()
    }

    pub fn last(&self) -> Option<&T> {
        self.get(self.len().checked_sub(1)?)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// Returns the last value for which `holds` is true, if it is true for a first part of them.
    pub fn last_where(&self, holds: impl Fn(&T) -> bool) -> Option<&T> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).is_some_and(&holds) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        self.get(low.checked_sub(1)?)
    }

    /// Appends a value. The caller excludes other appends.
    pub fn append(&self, value: T) {
        let index = self.len();
        let (segment, at) = place(index);
        let values = self.segments[segment]
            .get_or_init(|| (0..1usize << segment).map(|_| OnceLock::new()).collect());
        let stored = values[at].set(value);
        debug_assert!(stored.is_ok(), "two threads append at the same time");
        self.len.store(index + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_index_and_by_order() {
        let values = Appended::default();
        assert_eq!(values.last(), None);
        assert_eq!(values.last_where(|_| true), None);
        for value in 0..100 {
            values.append(value * 10);
            assert_eq!(values.last(), Some(&(value * 10)));
        }
        assert!(values.iter().copied().eq((0..100).map(|value| value * 10)));
        assert_eq!(values.last_where(|value| *value <= 55), Some(&50));
        assert_eq!(values.last_where(|value| *value <= 990), Some(&990));
        assert_eq!(values.last_where(|value| *value < 0), None);
        assert_eq!(values.get(100), None);
    }

    #[test]
    fn a_reader_sees_values_in_order_while_others_are_appended() {
        let values = Appended::default();
        sync::thread::scope(|scope| {
            scope.spawn(|| (0..10_000).for_each(|value| values.append(value)));
            let mut seen = 0;
            while seen < 10_000 {
                let len = values.len();
                assert!(len >= seen);
                seen = len;
                if let Some(index) = len.checked_sub(1) {
                    assert_eq!(values.get(index), Some(&index));
                    let last = values.last_where(|_| true);
                    assert!(last.is_some_and(|last| *last >= index));
                }
            }
        });
    }
}
