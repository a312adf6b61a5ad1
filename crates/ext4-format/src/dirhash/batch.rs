//! Half MD4 of many names at a time, in lanes that the compiler makes vectors of.

use super::{Chars, DirHash, HashVersion, first_words, half_md4, hash, initial_state, promote};

/// Names that are hashed at a time: four vectors of SSE2 or NEON.
const LANES: usize = 16;

/// Hashes names as [`hash`] does, several times as fast where the function is half MD4.
#[must_use]
pub fn hash_all(version: HashVersion, seed: &[u32; 4], names: &[&[u8]]) -> Vec<DirHash> {
    if !matches!(version, HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned) {
        return names.iter().map(|name| hash(version, seed, name)).collect();
    }
    let mut hashes = Vec::with_capacity(names.len());
    for names in names.chunks(LANES) {
        let mut batch = Batch::new(initial_state(seed));
        batch.run(names, version.chars());
        let [_, major, minor, _] = batch.state;
        let found = major.into_iter().zip(minor).take(names.len());
        hashes.extend(found.map(|(major, minor)| DirHash::of(major, minor)));
    }
    hashes
}

/// The states of up to [`LANES`] names and their next chunks, a row for each word.
struct Batch {
    state: [[u32; LANES]; 4],
    words: [[u32; LANES]; 8],
    /// All bits are set in the lane of a name that has a next chunk.
    has_chunk: [u32; LANES],
}

impl Batch {
    fn new(state: [u32; 4]) -> Batch {
        Batch {
            state: state.map(|word| [word; LANES]),
            words: [[0; LANES]; 8],
            has_chunk: [0; LANES],
        }
    }

    fn run(&mut self, names: &[&[u8]], chars: Chars) {
        let mut rest: [&[u8]; LANES] = Default::default();
        for (rest, name) in rest.iter_mut().zip(names) {
            *rest = name;
        }
        while rest.iter().any(|rest| !rest.is_empty()) {
            self.take_chunks(&mut rest);
            self.compress(chars);
        }
    }

    /// Takes a chunk from each name that has one.
    #[expect(clippy::indexing_slicing, reason = "each row has LANES words")]
    fn take_chunks(&mut self, rest: &mut [&[u8]; LANES]) {
        for (lane, rest) in rest.iter_mut().enumerate() {
            self.has_chunk[lane] = if rest.is_empty() { 0 } else { u32::MAX };
            for (row, word) in self.words.iter_mut().zip(first_words::<8>(rest)) {
                row[lane] = word;
            }
            *rest = rest.get(32..).unwrap_or_default();
        }
    }

    /// Adds the chunks to the states. The body of the loop has no branch and no inner loop, so that
    /// it becomes vector code.
    #[expect(
        clippy::indexing_slicing,
        reason = "each row has LANES words; iterators over thirteen rows would hide the loop"
    )]
    fn compress(&mut self, chars: Chars) {
        let Batch {
            state: [a, b, c, d],
            words: [w0, w1, w2, w3, w4, w5, w6, w7],
            has_chunk,
        } = self;
        for n in 0..LANES {
            let words = [w0[n], w1[n], w2[n], w3[n], w4[n], w5[n], w6[n], w7[n]];
            let words = words.map(|word| promote(word, chars));
            let mixed = half_md4([a[n], b[n], c[n], d[n]], words);
            a[n] = a[n].wrapping_add(mixed[0] & has_chunk[n]);
            b[n] = b[n].wrapping_add(mixed[1] & has_chunk[n]);
            c[n] = c[n].wrapping_add(mixed[2] & has_chunk[n]);
            d[n] = d[n].wrapping_add(mixed[3] & has_chunk[n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`hash`] is compared with debugfs.
    #[test]
    fn a_batch_hashes_as_single_names_are_hashed() {
        let name = |nth: usize| -> Vec<u8> {
            // Lengths from 0 to 255 in an order that mixes them, and all bytes.
            let len = nth * 37 % 256;
            (0..len).map(|at| (nth * 31 + at * 7) as u8).collect()
        };
        let names: Vec<Vec<u8>> = (0..300).map(name).collect();
        for count in [0, 1, 15, 16, 17, 300] {
            let names: Vec<&[u8]> = names.iter().take(count).map(Vec::as_slice).collect();
            for seed in [[0; 4], [1, 2, 3, 4]] {
                for version in [
                    HashVersion::Legacy,
                    HashVersion::HalfMd4,
                    HashVersion::HalfMd4Unsigned,
                    HashVersion::TeaUnsigned,
                ] {
                    let single = |name: &&[u8]| hash(version, &seed, name);
                    let expected: Vec<_> = names.iter().map(single).collect();
                    assert_eq!(hash_all(version, &seed, &names), expected, "{version:?}");
                }
            }
        }
    }
}
