//! Tables with an element for each block or inode. A part of a table is allocated at the first
//! write to it.

use units::Ino;

/// Elements in a part.
const CHUNK: u64 = 1 << 15;

/// A bitmap of up to 2^48 bits.
pub(crate) struct Bits {
    chunks: Vec<Option<Box<[u64]>>>,
}

impl Bits {
    /// Returns `len` clear bits.
    pub fn new(len: u64) -> Bits {
        let chunks = len.div_ceil(CHUNK) as usize;
        Bits {
            chunks: vec![None; chunks],
        }
    }

    #[cfg(test)]
    pub fn get(&self, at: u64) -> bool {
        let chunk = self.chunks.get((at / CHUNK) as usize);
        let (word, bit) = split(at);
        chunk
            .and_then(Option::as_ref)
            .and_then(|chunk| chunk.get(word))
            .is_some_and(|word| word & (1 << bit) != 0)
    }

    /// Sets a bit. Returns whether it was set before.
    pub fn set(&mut self, at: u64) -> bool {
        let Some(chunk) = self.chunks.get_mut((at / CHUNK) as usize) else {
            return true;
        };
        let chunk = chunk.get_or_insert_with(|| vec![0; (CHUNK / 64) as usize].into());
        let (word, bit) = split(at);
        let Some(word) = chunk.get_mut(word) else {
            return true;
        };
        let was = *word & (1 << bit) != 0;
        *word |= 1 << bit;
        was
    }

    /// Sets a run, a word at a time, and calls `taken` with each bit that was set before. Returns
    /// `false` if there was one.
    pub fn set_run(&mut self, start: u64, len: u64, taken: &mut dyn FnMut(u64)) -> bool {
        let end = start.saturating_add(len);
        let (mut at, mut free) = (start, true);
        while at < end {
            let next = ((at / 64 + 1) * 64).min(end);
            let bits = next - at;
            let mask = match bits {
                64 => u64::MAX,
                bits => ((1 << bits) - 1) << (at % 64),
            };
            let Some(chunk) = self.chunks.get_mut((at / CHUNK) as usize) else {
                return false;
            };
            let chunk = chunk.get_or_insert_with(|| vec![0; (CHUNK / 64) as usize].into());
            if let Some(word) = chunk.get_mut(split(at).0) {
                let mut both = *word & mask;
                *word |= mask;
                free &= both == 0;
                while both != 0 {
                    taken(at / 64 * 64 + u64::from(both.trailing_zeros()));
                    both &= both - 1;
                }
            }
            at = next;
        }
        free
    }

    /// Returns the number of set bits in `from..to`.
    pub fn count(&self, from: u64, to: u64) -> u64 {
        let mut count = 0;
        let mut at = from;
        while at < to {
            let word_end = (at / 64 + 1) * 64;
            let end = word_end.min(to);
            let mut word = self.word(at);
            word >>= at % 64;
            let bits = end - at;
            if bits < 64 {
                word &= (1 << bits) - 1;
            }
            count += u64::from(word.count_ones());
            at = end;
        }
        count
    }

    /// Returns the 64 bits from `at` on.
    pub fn word_from(&self, at: u64) -> u64 {
        match at % 64 {
            0 => self.word(at),
            shift => self.word(at) >> shift | self.word(at + 64) << (64 - shift),
        }
    }

    /// Returns the word that contains bit `at`.
    pub fn word(&self, at: u64) -> u64 {
        let chunk = self.chunks.get((at / CHUNK) as usize);
        chunk
            .and_then(Option::as_ref)
            .and_then(|chunk| chunk.get(split(at).0))
            .copied()
            .unwrap_or(0)
    }
}

fn split(at: u64) -> (usize, u32) {
    let within = at % CHUNK;
    ((within / 64) as usize, (within % 64) as u32)
}

/// A value for each inode.
pub(crate) struct Table<T> {
    chunks: Vec<Option<Box<[T]>>>,
}

const ROWS: u32 = 1 << 10;

impl<T: Copy + Default> Table<T> {
    /// Returns a table of default values for the inodes below number `len`.
    pub fn new(len: u32) -> Table<T> {
        let chunks = len.div_ceil(ROWS) as usize;
        Table {
            chunks: (0..chunks).map(|_| None).collect(),
        }
    }

    pub fn get(&self, ino: Ino) -> T {
        let Ino(at) = ino;
        self.chunks
            .get((at / ROWS) as usize)
            .and_then(Option::as_ref)
            .and_then(|chunk| chunk.get((at % ROWS) as usize))
            .copied()
            .unwrap_or_default()
    }

    /// Returns an element for writing, or `None` beyond the end.
    pub fn at(&mut self, ino: Ino) -> Option<&mut T> {
        let Ino(at) = ino;
        let chunk = self.chunks.get_mut((at / ROWS) as usize)?;
        let chunk = chunk.get_or_insert_with(|| vec![T::default(); ROWS as usize].into());
        chunk.get_mut((at % ROWS) as usize)
    }

    /// Returns the first inode from `from` on whose part is allocated.
    pub fn next_present(&self, from: Ino) -> Option<Ino> {
        let first = (from.0 / ROWS) as usize;
        let chunk = (first..self.chunks.len()).find(|i| self.chunks[*i].is_some())?;
        Some(from.max(Ino(chunk as u32 * ROWS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_over_parts() {
        let mut bits = Bits::new(100_000);
        for at in [0, 63, 64, 32_767, 32_768, 99_999] {
            assert!(!bits.set(at));
            assert!(bits.set(at) && bits.get(at));
        }
        assert_eq!(bits.count(0, 100_000), 6);
        assert_eq!(bits.count(1, 64), 1);
        assert_eq!(bits.count(64, 32_768), 2);
        assert_eq!(bits.count(32_769, 99_999), 0);
        assert!(bits.set(200_000), "what does not exist is taken");
    }

    #[test]
    fn tables_take_memory_where_they_are_written() {
        let mut table = Table::<u16>::new(5000);
        *table.at(Ino(4000)).unwrap() = 7;
        assert_eq!((table.get(Ino(4000)), table.get(Ino(1))), (7, 0));
        assert_eq!(table.next_present(Ino(0)), Some(Ino(3072)));
        assert_eq!(table.next_present(Ino(4096)), None);
    }
}
