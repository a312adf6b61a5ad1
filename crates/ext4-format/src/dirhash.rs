//! The hashes that order names in hash tree directories.
//!
//! Three functions, each over bytes taken as signed or as unsigned, because old volumes were made on
//! machines where C's `char` was one or the other. The functions are Ext3's old hash, a half of MD4's
//! compression function (RFC 1320) cut to three rounds of eight steps, and TEA (Wheeler and Needham,
//! 1994) as a compression function. Half MD4 and TEA are keyed with the volume's hash seed.

use crate::error::{FormatError, Result};

/// The hash that means "past the last name" in readdir cookies; no name has it.
pub const HASH_EOF: u32 = 0x7fff_ffff;

/// A hash function and how it takes bytes; the numbers are those on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// Ext3's first hash, signed bytes.
    Legacy = 0,
    /// Half MD4, signed bytes.
    HalfMd4 = 1,
    /// TEA, signed bytes.
    Tea = 2,
    /// Ext3's first hash, unsigned bytes.
    LegacyUnsigned = 3,
    /// Half MD4, unsigned bytes.
    HalfMd4Unsigned = 4,
    /// TEA, unsigned bytes.
    TeaUnsigned = 5,
}

impl HashVersion {
    /// The function that a directory's stored version means on a volume with or without the
    /// unsigned-hash flag. Versions 3 to 5 say themselves that they are unsigned.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for other versions (6 is SipHash, of encrypted and case-folded directories).
    pub fn resolve(stored: u8, unsigned: bool) -> Result<HashVersion> {
        Ok(match (stored, unsigned) {
            (0, false) => HashVersion::Legacy,
            (1, false) => HashVersion::HalfMd4,
            (2, false) => HashVersion::Tea,
            (0, true) | (3, _) => HashVersion::LegacyUnsigned,
            (1, true) | (4, _) => HashVersion::HalfMd4Unsigned,
            (2, true) | (5, _) => HashVersion::TeaUnsigned,
            _ => {
                return Err(FormatError::OutOfRange {
                    structure: "htree root",
                    field: "hash_version",
                    value: u64::from(stored),
                });
            }
        })
    }

    fn is_unsigned(self) -> bool {
        matches!(
            self,
            Self::LegacyUnsigned | Self::HalfMd4Unsigned | Self::TeaUnsigned
        )
    }
}

/// A name's place in a hash tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirHash {
    /// The hash that the tree is ordered by; bit 0 is always clear.
    pub major: u32,
    /// More bits, which only readdir cookies use.
    pub minor: u32,
}

/// Hashes `name`. An all-zero `seed` stands for MD4's initial state.
#[must_use]
pub fn hash(version: HashVersion, seed: &[u32; 4], name: &[u8]) -> DirHash {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    if seed.iter().any(|word| *word != 0) {
        state = *seed;
    }
    let unsigned = version.is_unsigned();
    let (major, minor) = match version {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, unsigned), 0),
        HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
            for_chunks::<8>(name, unsigned, |words| half_md4(&mut state, words));
            (state[1], state[2])
        }
        HashVersion::Tea | HashVersion::TeaUnsigned => {
            for_chunks::<4>(name, unsigned, |words| tea(&mut state, words));
            (state[0], state[1])
        }
    };
    let major = major & !1;
    // The largest value is kept for the end-of-directory mark.
    let major = if major == HASH_EOF << 1 {
        (HASH_EOF - 1) << 1
    } else {
        major
    };
    DirHash { major, minor }
}

/// A byte as the 32-bit word that C's integer promotion makes of it.
#[inline]
fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned {
        u32::from(byte)
    } else {
        i32::from(byte.cast_signed()).cast_unsigned()
    }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut current, mut previous) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for byte in name {
        let mixed = current ^ widen(*byte, unsigned).wrapping_mul(7_152_373);
        let mut next = previous.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        previous = current;
        current = next;
    }
    current << 1
}

/// Gives `compress` the name in chunks of `N` big-endian words. What a chunk lacks is filled with the
/// length that was left when it began, in every byte.
fn for_chunks<const N: usize>(name: &[u8], unsigned: bool, mut compress: impl FnMut(&[u32; N])) {
    let mut rest = name;
    while !rest.is_empty() {
        let pad = u32::try_from(rest.len()).unwrap_or(u32::MAX) & 0xff;
        let pad = pad.wrapping_mul(0x0101_0101);
        let mut words = [pad; N];
        let (chunk, after) = rest.split_at(rest.len().min(N.saturating_mul(4)));
        for (word, bytes) in words.iter_mut().zip(chunk.chunks(4)) {
            *word = bytes.iter().fold(pad, |word, byte| {
                (word << 8).wrapping_add(widen(*byte, unsigned))
            });
        }
        compress(&words);
        rest = after;
    }
}

/// Where the steps of a round take their words from, how far they rotate, and the round's constant.
struct Round {
    mix: fn(u32, u32, u32) -> u32,
    constant: u32,
    shifts: [u32; 4],
}

/// Three rounds over eight words: RFC 1320's round functions and constants, half as many steps.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    let [w0, w1, w2, w3, w4, w5, w6, w7] = *words;
    let rounds = [
        (
            Round {
                mix: |x, y, z| (x & y) | (!x & z),
                constant: 0,
                shifts: [3, 7, 11, 19],
            },
            [w0, w1, w2, w3, w4, w5, w6, w7],
        ),
        (
            Round {
                mix: |x, y, z| (x & y) | (x & z) | (y & z),
                constant: 0x5a82_7999,
                shifts: [3, 5, 9, 13],
            },
            [w1, w3, w5, w7, w0, w2, w4, w6],
        ),
        (
            Round {
                mix: |x, y, z| x ^ y ^ z,
                constant: 0x6ed9_eba1,
                shifts: [3, 9, 11, 15],
            },
            [w3, w7, w2, w6, w1, w5, w0, w4],
        ),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (round, order) in rounds {
        for (word, shift) in order.into_iter().zip(round.shifts.into_iter().cycle()) {
            let sum = a
                .wrapping_add((round.mix)(b, c, d))
                .wrapping_add(word)
                .wrapping_add(round.constant);
            // Each step's result becomes the next step's `b`; the registers move on by one.
            (a, b, c, d) = (d, sum.rotate_left(shift), b, c);
        }
    }
    for (word, result) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(result);
    }
}

/// Sixteen cycles of TEA with the chunk as the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [k0, k1, k2, k3] = *key;
    let [mut left, mut right, _, _] = *state;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        let mix = |half: u32, first: u32, second: u32| {
            (half << 4).wrapping_add(first)
                ^ half.wrapping_add(sum)
                ^ (half >> 5).wrapping_add(second)
        };
        left = left.wrapping_add(mix(right, k0, k1));
        right = right.wrapping_add(mix(left, k2, k3));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}
