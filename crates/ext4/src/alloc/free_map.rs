//! A bit map of a group's unavailable blocks, with fast searches for runs of available blocks.

/// A group's unavailable blocks: a block whose bit is set must not be picked.
pub(super) struct FreeMap {
    words: Box<[u64]>,
    bits: u32,
    /// Every bit before this one is set.
    low: u32,
}

/// A run of clear bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BitRun {
    pub start: u32,
    pub len: u32,
}

impl FreeMap {
    /// Returns a map of `bits` blocks, copied from a bitmap block. The block may be longer.
    pub fn from_bitmap(bitmap: &[u8], bits: u32) -> FreeMap {
        let mut words: Box<[u64]> = vec![0; bits.div_ceil(64) as usize].into();
        for (word, bytes) in words.iter_mut().zip(bitmap.chunks(8)) {
            let mut raw = [0; 8];
            raw[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(raw);
        }
        if let (Some(last), 1..) = (words.last_mut(), bits % 64) {
            *last |= u64::MAX << (bits % 64);
        }
        let mut map = FreeMap {
            words,
            bits,
            low: 0,
        };
        map.low = map.next_zero(0).unwrap_or(bits);
        map
    }

    /// Returns the first clear bit at or after `from`.
    pub fn next_zero(&self, from: u32) -> Option<u32> {
        self.find(from.max(self.low), u64::MAX)
    }

    fn find(&self, from: u32, flip: u64) -> Option<u32> {
        if from >= self.bits {
            return None;
        }
        let first = (from / 64) as usize;
        let mut mask = u64::MAX << (from % 64);
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let hits = (word ^ flip) & mask;
            if hits != 0 {
                let bit = index as u32 * 64 + hits.trailing_zeros();
                return (bit < self.bits).then_some(bit);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Returns the length of the run of clear bits at `start`, at most `max`.
    pub fn run_at(&self, start: u32, max: u32) -> u32 {
        let end = start.saturating_add(max).min(self.bits);
        if start >= end {
            return 0;
        }
        let mut at = start;
        while at < end {
            let word = self.words[(at / 64) as usize] >> (at % 64);
            let clear = word.trailing_zeros().min(64 - at % 64);
            at += clear;
            if word != 0 {
                break;
            }
        }
        at.min(end) - start
    }

    /// Returns the first run of `want` clear bits that starts in `from..to`, cut to `want`, or else
    /// the longest run that starts there.
    pub fn find_run(&self, from: u32, to: u32, want: u32) -> BitRun {
        let mut best = BitRun::default();
        let mut at = from;
        while let Some(start) = self.next_zero(at).filter(|start| *start < to) {
            let len = self.run_at(start, want);
            if len > best.len {
                best = BitRun { start, len };
                if len >= want {
                    break;
                }
            }
            at = start + len + 1;
        }
        best
    }

    /// Sets bits.
    pub fn set(&mut self, start: u32, len: u32) {
        self.edit(start, len, |word, mask| *word |= mask);
        if start <= self.low && self.low < start + len {
            self.low = start + len;
        }
    }

    /// Clears bits.
    pub fn clear(&mut self, start: u32, len: u32) {
        self.edit(start, len, |word, mask| *word &= !mask);
        self.low = self.low.min(start);
    }

    fn edit(&mut self, start: u32, len: u32, change: impl Fn(&mut u64, u64)) {
        debug_assert!(start + len <= self.bits);
        let end = start.saturating_add(len).min(self.bits);
        let mut at = start;
        while at < end {
            let step = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - step)) << (at % 64);
            change(&mut self.words[(at / 64) as usize], mask);
            at += step;
        }
    }

    /// Makes the map one of `bits` blocks. The new ones are available.
    pub fn extend(&mut self, bits: u32) {
        let old = self.bits;
        let mut words = std::mem::take(&mut self.words).into_vec();
        words.resize(bits.div_ceil(64) as usize, 0);
        self.words = words.into();
        self.bits = bits;
        if let (Some(last), 1..) = (self.words.last_mut(), bits % 64) {
            *last |= u64::MAX << (bits % 64);
        }
        // Bits after the last block are set.
        self.clear(old, bits.saturating_sub(old));
    }

    /// Returns the number of clear bits in a range.
    pub fn count_zeros(&self, start: u32, len: u32) -> u32 {
        let end = start.saturating_add(len).min(self.bits);
        let (mut at, mut set) = (start, 0);
        while at < end {
            let step = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - step)) << (at % 64);
            set += (self.words[(at / 64) as usize] & mask).count_ones();
            at += step;
        }
        end.saturating_sub(start) - set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_vector_of_bools(
            bits in 1u32..300,
            edits in prop::collection::vec((0u32..300, 0u32..300, any::<bool>()), 0..12),
            from in 0u32..310,
            want in 1u32..200,
        ) {
            let mut map = FreeMap::from_bitmap(&[0; 38], bits);
            let mut model = vec![false; bits as usize];
            for (start, len, on) in edits {
                let start = start % bits;
                let len = len.min(bits - start);
                if on { map.set(start, len) } else { map.clear(start, len) }
                model[start as usize..(start + len) as usize].fill(on);
            }
            let next = (from..bits).find(|b| !model[*b as usize]);
            prop_assert_eq!(map.next_zero(from), next);
            let run = model.iter().skip(from as usize).take(want as usize).take_while(|b| !**b).count();
            prop_assert_eq!(map.run_at(from, want) as usize, run);
            let zeros = model.iter().skip(from as usize).take(want as usize).filter(|b| !**b).count();
            if from < bits {
                prop_assert_eq!(map.count_zeros(from, want.min(bits - from)) as usize, zeros);
            }
            let found = map.find_run(from, bits, want);
            let length = |start: u32| model.iter().skip(start as usize).take(want as usize).take_while(|b| !**b).count() as u32;
            let best = (from..bits).map(length).max().unwrap_or(0);
            prop_assert_eq!(found.len, best);
            if best > 0 {
                let first = (from..bits).find(|start| length(*start) == best);
                prop_assert_eq!(Some(found.start), first);
            }
        }

        #[test]
        fn from_bitmap_reads_the_bits_of_a_bitmap_block(bytes in prop::collection::vec(any::<u8>(), 40), bits in 1u32..320) {
            let map = FreeMap::from_bitmap(&bytes, bits);
            let expected = ext4_format::bitmap::count_zeros(&bytes, 0, bits);
            prop_assert_eq!(map.count_zeros(0, bits), expected);
            prop_assert_eq!(map.next_zero(0), ext4_format::bitmap::find_next_zero(&bytes, 0, bits));
        }
    }
}
