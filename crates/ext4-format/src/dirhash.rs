//! The hashes that order names in hash tree directories.
//!
//! There are three functions, each for signed and for unsigned bytes, because C's `char` was one or
//! the other on the machines that made old volumes. The functions are Ext3's old hash, a half of
//! MD4's compression function (RFC 1320) cut to three rounds of eight steps, and TEA (Wheeler and
//! Needham, 1994) as a compression function. Half MD4 and TEA are keyed with the volume's hash
//! seed.

use crate::error::{FormatError, Result};

mod batch;

pub use batch::hash_all;

/// The hash that means "past the last name" in readdir cookies; no name has it.
pub const HASH_EOF: u32 = 0x7fff_ffff;

/// How a hash takes the bytes of a name: as C's `char` of the machine that made the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chars {
    /// From -128 to 127.
    Signed,
    /// From 0 to 255.
    Unsigned,
}

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
    /// Returns the function that a directory's stored version means on a volume whose hashes take
    /// bytes as `chars`. Versions 3 to 5 are always unsigned.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for other versions (6 is SipHash, of encrypted and case-folded directories).
    pub fn resolve(stored: u8, chars: Chars) -> Result<HashVersion> {
        Ok(match (stored, chars) {
            (0, Chars::Signed) => HashVersion::Legacy,
            (1, Chars::Signed) => HashVersion::HalfMd4,
            (2, Chars::Signed) => HashVersion::Tea,
            (0, Chars::Unsigned) | (3, _) => HashVersion::LegacyUnsigned,
            (1, Chars::Unsigned) | (4, _) => HashVersion::HalfMd4Unsigned,
            (2, Chars::Unsigned) | (5, _) => HashVersion::TeaUnsigned,
            _ => {
                return Err(FormatError::OutOfRange {
                    structure: "htree root",
                    field: "hash_version",
                    value: u64::from(stored),
                });
            }
        })
    }

    fn chars(self) -> Chars {
        match self {
            Self::Legacy | Self::HalfMd4 | Self::Tea => Chars::Signed,
            Self::LegacyUnsigned | Self::HalfMd4Unsigned | Self::TeaUnsigned => Chars::Unsigned,
        }
    }
}

/// The hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirHash {
    /// The hash that the tree is ordered by; bit 0 is always clear.
    pub major: u32,
    /// More bits, which only readdir cookies use.
    pub minor: u32,
}

impl DirHash {
    /// Returns the hash that a function's result stands for.
    fn of(major: u32, minor: u32) -> DirHash {
        let major = major & !1;
        // The largest value is kept for the end-of-directory mark.
        let major = if major == HASH_EOF << 1 {
            (HASH_EOF - 1) << 1
        } else {
            major
        };
        DirHash { major, minor }
    }
}

/// Returns the state that half MD4 and TEA start with. An all-zero `seed` stands for MD4's.
fn initial_state(seed: &[u32; 4]) -> [u32; 4] {
    match seed.iter().any(|word| *word != 0) {
        true => *seed,
        false => [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476],
    }
}

/// Hashes `name`. An all-zero `seed` stands for MD4's initial state.
#[must_use]
pub fn hash(version: HashVersion, seed: &[u32; 4], name: &[u8]) -> DirHash {
    let mut state = initial_state(seed);
    let chars = version.chars();
    let (major, minor) = match version {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, chars), 0),
        HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
            for_chunks(name, chars, |words| {
                let mixed = half_md4(state, words);
                for (word, mixed) in state.iter_mut().zip(mixed) {
                    *word = word.wrapping_add(mixed);
                }
            });
            (state[1], state[2])
        }
        HashVersion::Tea | HashVersion::TeaUnsigned => {
            for_chunks(name, chars, |words| tea(&mut state, &words));
            (state[0], state[1])
        }
    };
    DirHash::of(major, minor)
}

/// Returns the sum that C's integer promotion makes of the bytes of a big-endian word, each shifted
/// to its place. A negative byte takes 1 from the byte before it.
#[inline]
fn promote(word: u32, chars: Chars) -> u32 {
    match chars {
        Chars::Signed => word.wrapping_sub((word & 0x8080_8080) << 1),
        Chars::Unsigned => word,
    }
}

fn legacy(name: &[u8], chars: Chars) -> u32 {
    let (mut current, mut previous) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for byte in name {
        let mixed = current ^ promote(u32::from(*byte), chars).wrapping_mul(7_152_373);
        let mut next = previous.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        previous = current;
        current = next;
    }
    current << 1
}

/// Calls `compress` with the name in chunks of `N` words.
fn for_chunks<const N: usize>(name: &[u8], chars: Chars, mut compress: impl FnMut([u32; N])) {
    let mut rest = name;
    while !rest.is_empty() {
        compress(first_words(rest).map(|word| promote(word, chars)));
        rest = rest.get(N.saturating_mul(4)..).unwrap_or_default();
    }
}

/// Returns the first chunk of `rest`, the end of a name, as `N` big-endian words before
/// [`promote`]. Missing bytes hold the length of `rest`. In a word that has some, they come first.
#[inline]
fn first_words<const N: usize>(rest: &[u8]) -> [u32; N] {
    let (whole, end) = rest.as_chunks();
    let mut words = [u32::from_ne_bytes([rest.len() as u8; 4]); N];
    for (word, bytes) in words.iter_mut().zip(whole) {
        *word = u32::from_be_bytes(*bytes);
    }
    if let Some(last) = words.get_mut(whole.len()) {
        for byte in end {
            *last = *last << 8 | u32::from(*byte);
        }
    }
    words
}

/// Eight steps of MD4 with a round function, its constant and its rotations. Each step's result is
/// the next step's `b`. They are written out, as in the RFC, for [`batch`].
#[inline(always)]
fn md4_round(
    [a, b, c, d]: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
    constant: u32,
    [s0, s1, s2, s3]: [u32; 4],
    [w0, w1, w2, w3, w4, w5, w6, w7]: [u32; 8],
) -> [u32; 4] {
    let step = |[a, b, c, d]: [u32; 4], word: u32, shift| {
        // Only `mix` needs the result of the step before.
        let known = a.wrapping_add(word).wrapping_add(constant);
        known.wrapping_add(mix(b, c, d)).rotate_left(shift)
    };
    let a = step([a, b, c, d], w0, s0);
    let d = step([d, a, b, c], w1, s1);
    let c = step([c, d, a, b], w2, s2);
    let b = step([b, c, d, a], w3, s3);
    let a = step([a, b, c, d], w4, s0);
    let d = step([d, a, b, c], w5, s1);
    let c = step([c, d, a, b], w6, s2);
    let b = step([b, c, d, a], w7, s3);
    [a, b, c, d]
}

/// Three rounds over eight words: RFC 1320's round functions and constants, half as many steps.
/// Returns what is to be added to the state.
#[inline(always)]
fn half_md4(state: [u32; 4], words: [u32; 8]) -> [u32; 4] {
    let [w0, w1, w2, w3, w4, w5, w6, w7] = words;
    let choose = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (y & z) | (x & (y | z));
    let parity = |x: u32, y, z| x ^ y ^ z;
    let order = [w0, w1, w2, w3, w4, w5, w6, w7];
    let mixed = md4_round(state, choose, 0, [3, 7, 11, 19], order);
    let order = [w1, w3, w5, w7, w0, w2, w4, w6];
    let mixed = md4_round(mixed, majority, 0x5a82_7999, [3, 5, 9, 13], order);
    let order = [w3, w7, w2, w6, w1, w5, w0, w4];
    md4_round(mixed, parity, 0x6ed9_eba1, [3, 9, 11, 15], order)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of the UUID 01234567-89ab-cdef-0123-456789abcdef.
    const SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x6745_2301, 0xefcd_ab89];
    const LONG: &str = "a name that is longer than one chunk of thirty-two bytes, and than two as well: \u{fc}\u{f6}\u{e4}";

    /// Seed, name, and (major, minor) for versions 0 to 5, as `debugfs -R "dx_hash"` prints them.
    type Vector = (&'static [u32; 4], &'static str, [(u32, u32); 6]);

    const VECTORS: &[Vector] = &[
        (
            &[0; 4],
            "a",
            [
                (0xe74b_53e2, 0x0000_0000),
                (0xd5fa_7d7a, 0xacb4_8187),
                (0x6d0e_a4c0, 0xc189_22df),
                (0xe74b_53e2, 0x0000_0000),
                (0xd5fa_7d7a, 0xacb4_8187),
                (0x6d0e_a4c0, 0xc189_22df),
            ],
        ),
        (
            &[0; 4],
            "hello",
            [
                (0x3225_2546, 0x0000_0000),
                (0x1746_da32, 0x4200_13b5),
                (0x6f5b_b1a8, 0x2319_17c2),
                (0x3225_2546, 0x0000_0000),
                (0x1746_da32, 0x4200_13b5),
                (0x6f5b_b1a8, 0x2319_17c2),
            ],
        ),
        (
            &[0; 4],
            "hell\u{f6}",
            [
                (0xde14_66b4, 0x0000_0000),
                (0x0622_6d8c, 0x05c8_fc20),
                (0xee31_9486, 0x420e_7504),
                (0x5877_feb4, 0x0000_0000),
                (0xb371_4f10, 0xb672_91dc),
                (0xc832_5292, 0xf988_37ef),
            ],
        ),
        (
            &[0; 4],
            "sixteen bytes :)",
            [
                (0x2627_3322, 0x0000_0000),
                (0xa575_a544, 0x6c62_faca),
                (0xbba6_a458, 0xe98d_73d9),
                (0x2627_3322, 0x0000_0000),
                (0xa575_a544, 0x6c62_faca),
                (0xbba6_a458, 0xe98d_73d9),
            ],
        ),
        (
            &[0; 4],
            "exactly thirty-two bytes long !!",
            [
                (0x7da9_b996, 0x0000_0000),
                (0xf84b_2ace, 0xc9e5_0d88),
                (0x7931_b938, 0x729a_49a2),
                (0x7da9_b996, 0x0000_0000),
                (0xf84b_2ace, 0xc9e5_0d88),
                (0x7931_b938, 0x729a_49a2),
            ],
        ),
        (
            &[0; 4],
            LONG,
            [
                (0x6625_b246, 0x0000_0000),
                (0xe058_e5bc, 0x5d42_03a6),
                (0x35ae_0dec, 0xae7f_fc57),
                (0xd059_0e70, 0x0000_0000),
                (0xe07c_7db2, 0xaf84_dc70),
                (0x1ea3_5bd0, 0x6d4e_37b7),
            ],
        ),
        (
            &SEED,
            "a",
            [
                (0xe74b_53e2, 0x0000_0000),
                (0x35dc_0cc4, 0x3f1d_acef),
                (0x6d0e_a4c0, 0xc189_22df),
                (0xe74b_53e2, 0x0000_0000),
                (0x35dc_0cc4, 0x3f1d_acef),
                (0x6d0e_a4c0, 0xc189_22df),
            ],
        ),
        (
            &SEED,
            "hello",
            [
                (0x3225_2546, 0x0000_0000),
                (0xa26e_4a80, 0x97e5_b7f7),
                (0x6f5b_b1a8, 0x2319_17c2),
                (0x3225_2546, 0x0000_0000),
                (0xa26e_4a80, 0x97e5_b7f7),
                (0x6f5b_b1a8, 0x2319_17c2),
            ],
        ),
        (
            &SEED,
            "hell\u{f6}",
            [
                (0xde14_66b4, 0x0000_0000),
                (0xbdd9_fb82, 0x8417_0739),
                (0xee31_9486, 0x420e_7504),
                (0x5877_feb4, 0x0000_0000),
                (0xf89a_4c5a, 0xe18a_0f27),
                (0xc832_5292, 0xf988_37ef),
            ],
        ),
        (
            &SEED,
            "sixteen bytes :)",
            [
                (0x2627_3322, 0x0000_0000),
                (0xbf7f_d5a0, 0xf0da_f494),
                (0xbba6_a458, 0xe98d_73d9),
                (0x2627_3322, 0x0000_0000),
                (0xbf7f_d5a0, 0xf0da_f494),
                (0xbba6_a458, 0xe98d_73d9),
            ],
        ),
        (
            &SEED,
            "exactly thirty-two bytes long !!",
            [
                (0x7da9_b996, 0x0000_0000),
                (0x12fe_2cc0, 0xd343_1e5a),
                (0x7931_b938, 0x729a_49a2),
                (0x7da9_b996, 0x0000_0000),
                (0x12fe_2cc0, 0xd343_1e5a),
                (0x7931_b938, 0x729a_49a2),
            ],
        ),
        (
            &SEED,
            LONG,
            [
                (0x6625_b246, 0x0000_0000),
                (0x1769_8e36, 0xeec6_83a3),
                (0x35ae_0dec, 0xae7f_fc57),
                (0xd059_0e70, 0x0000_0000),
                (0x2b31_830e, 0x7946_b58e),
                (0x1ea3_5bd0, 0x6d4e_37b7),
            ],
        ),
    ];

    #[test]
    fn agrees_with_debugfs() {
        let versions = [
            HashVersion::Legacy,
            HashVersion::HalfMd4,
            HashVersion::Tea,
            HashVersion::LegacyUnsigned,
            HashVersion::HalfMd4Unsigned,
            HashVersion::TeaUnsigned,
        ];
        for (seed, name, expected) in VECTORS {
            for (version, (major, minor)) in versions.into_iter().zip(*expected) {
                let found = hash(version, seed, name.as_bytes());
                assert_eq!(
                    (found.major, found.minor),
                    (major, minor),
                    "{version:?} {name}"
                );
            }
        }
    }

    #[test]
    fn versions_resolve() {
        assert_eq!(
            HashVersion::resolve(1, Chars::Unsigned),
            Ok(HashVersion::HalfMd4Unsigned)
        );
        assert_eq!(
            HashVersion::resolve(5, Chars::Signed),
            Ok(HashVersion::TeaUnsigned)
        );
        assert!(HashVersion::resolve(6, Chars::Unsigned).is_err());
    }
}
