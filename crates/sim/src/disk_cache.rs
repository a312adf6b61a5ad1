//! The contents of a disk's write cache, by address. Adjacent writes become one extent; a byte that
//! is written twice is held once.

use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct DirtyExtents {
    /// Start to end; neither overlapping nor adjacent.
    extents: BTreeMap<u64, u64>,
    bytes: u64,
}

impl DirtyExtents {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    pub(crate) fn insert(&mut self, offset: u64, len: u64) {
        let (mut start, mut end) = (offset, offset + len);
        while let Some((&s, &e)) = self.extents.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.extents.remove(&s);
            self.bytes -= e - s;
            (start, end) = (start.min(s), end.max(e));
        }
        self.extents.insert(start, end);
        self.bytes += end - start;
    }

    /// Extents (start, end) from `at` upwards, then from the start of the device.
    pub(crate) fn after(&self, at: u64) -> impl Iterator<Item = (u64, u64)> {
        let (above, below) = (self.extents.range(at..), self.extents.range(..at));
        above.chain(below).map(|(s, e)| (*s, *e))
    }

    /// Removes at most `max` bytes from the front of the extent that starts at `start`. Returns
    /// their number.
    pub(crate) fn take(&mut self, start: u64, max: u64) -> u64 {
        let Some(end) = self.extents.remove(&start) else {
            return 0;
        };
        let taken = max.min(end - start);
        if start + taken < end {
            self.extents.insert(start + taken, end);
        }
        self.bytes -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_overlaps_become_one() {
        let mut dirty = DirtyExtents::default();
        for (offset, len) in [(10, 10), (30, 10), (20, 5), (50, 10), (12, 2), (24, 8)] {
            dirty.insert(offset, len);
        }
        assert_eq!(dirty.bytes(), 40);
        assert_eq!(
            dirty.after(45).collect::<Vec<_>>(),
            [(50, 60), (10, 40)],
            "upwards, then round again"
        );
        assert_eq!(dirty.take(10, 25), 25);
        assert_eq!(dirty.take(10, 25), 0);
        assert_eq!((dirty.take(35, 25), dirty.bytes()), (5, 10));
        assert_eq!((dirty.take(50, 10), dirty.is_empty()), (10, true));
    }
}
