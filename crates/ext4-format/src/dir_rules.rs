//! The names of directories whose names are encrypted, or ignore case: their bytes and hashes.

use crate::bytes::get;
use crate::dir_record::{HEADER, rec_len_for};
use crate::dirhash::DirHash;

/// The bytes that the names of a directory may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameBytes {
    /// All but a slash and NUL.
    Text,
    /// All: the names are encrypted.
    Any,
}

impl NameBytes {
    /// Returns whether a name may have its bytes.
    pub(crate) fn allow(self, name: &[u8]) -> bool {
        // Eight bytes at a time: each look at a block comes here with all of its names.
        let (words, rest) = name.as_chunks();
        let marks = |word: u64| zero_bytes(word) | zero_bytes(word ^ u64::from_ne_bytes([b'/'; 8]));
        let add = |found, word: &[u8; 8]| found | marks(u64::from_ne_bytes(*word));
        let is_bad = |byte: &u8| *byte == 0 || *byte == b'/';
        self == NameBytes::Any || (words.iter().fold(0, add) == 0 && !rest.iter().any(is_bad))
    }
}

/// Returns a word that is 0 if no byte of `word` is 0 (Alan Mycroft, 1987).
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([1; 8]);
    word.wrapping_sub(LOW) & !word & (LOW << 7)
}

/// The rules for live records of a directory.
#[derive(Debug, Clone, Copy)]
pub struct RecordRules {
    /// The largest inode number.
    pub inodes_count: u32,
    /// The bytes of names.
    pub names: NameBytes,
}

/// The rules for a directory that is not encrypted.
impl From<u32> for RecordRules {
    fn from(inodes_count: u32) -> RecordRules {
        RecordRules {
            inodes_count,
            names: NameBytes::Text,
        }
    }
}

/// Returns the hash behind a name, which entries of encrypted directories have that also ignore
/// case. The name has `len` bytes and begins at byte `at`. `None` if the block ends before.
#[must_use]
pub fn stored_hash(block: &[u8], at: u32, len: usize) -> Option<DirHash> {
    let record = (at as usize).checked_sub(HEADER)?;
    let hash = record.checked_add(rec_len_for(len) as usize)?;
    let [a, b, c, d, e, f, g, h] = get::<8>(block, hash)?;
    Some(DirHash {
        major: u32::from_le_bytes([a, b, c, d]),
        minor: u32::from_le_bytes([e, f, g, h]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_and_nul_are_found_at_each_place() {
        for len in 1..=24 {
            let mut name: Vec<u8> = (0..len).map(|at| [0x80, 0xff, 1, b'.'][at % 4]).collect();
            assert!(NameBytes::Text.allow(&name));
            for at in 0..len {
                for bad in [0, b'/'] {
                    let good = std::mem::replace(&mut name[at], bad);
                    assert!(!NameBytes::Text.allow(&name), "{name:?}");
                    assert!(NameBytes::Any.allow(&name));
                    name[at] = good;
                }
                let good = std::mem::replace(&mut name[at], b'/' ^ 0x80);
                assert!(NameBytes::Text.allow(&name), "{name:?}");
                name[at] = good;
            }
        }
    }
}
