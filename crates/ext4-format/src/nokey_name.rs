//! Names of encrypted files as they are shown without the key (fscrypt's no-key names).
//!
//! A name on disk is ciphertext: any bytes. Without the key it is shown as base64url, without
//! padding, of
//!
//! ```text
//!   hash:u32  minor hash:u32  ciphertext                                     up to 149 bytes of it
//!   hash:u32  minor hash:u32  its first 149 bytes  SHA-256 of the others     more than that
//! ```
//!
//! The hashes find the name in a hash tree; they are 0 where the directory has none. A shown name
//! has at most 252 bytes, so it is a valid name, and it leads back to its entry: [`decode`] and
//! [`NokeyName::is_of`].

use crate::dirhash::DirHash;
use sha2::{Digest, Sha256};

/// Bytes of ciphertext that are shown as they are.
const PLAIN: usize = 149;
/// Bytes of both hashes.
const HASHES: usize = 8;
/// Bytes of a digest.
const DIGEST: usize = 32;
/// The digits of base64url.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A shown name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NokeyName {
    /// The hash of the ciphertext in its directory.
    pub hash: DirHash,
    /// The ciphertext, or its first [`PLAIN`] bytes.
    ciphertext: Vec<u8>,
    /// The digest of the rest of a longer ciphertext.
    digest: Option<[u8; DIGEST]>,
}

/// Returns the name that is shown for `ciphertext`.
#[must_use]
pub fn encode(hash: DirHash, ciphertext: &[u8]) -> Vec<u8> {
    let (plain, rest) = ciphertext.split_at(ciphertext.len().min(PLAIN));
    let mut bytes = Vec::with_capacity(HASHES.saturating_add(plain.len()).saturating_add(DIGEST));
    bytes.extend(hash.major.to_le_bytes());
    bytes.extend(hash.minor.to_le_bytes());
    bytes.extend(plain);
    if !rest.is_empty() {
        bytes.extend(Sha256::digest(rest));
    }
    to_base64(&bytes)
}

/// Takes a shown name apart; `None` if it cannot be one.
#[must_use]
pub fn decode(name: &[u8]) -> Option<NokeyName> {
    let bytes = from_base64(name)?;
    let (hash, bytes) = bytes.split_first_chunk::<HASHES>()?;
    let [a, b, c, d, e, f, g, h] = *hash;
    let hash = DirHash {
        major: u32::from_le_bytes([a, b, c, d]),
        minor: u32::from_le_bytes([e, f, g, h]),
    };
    if bytes.is_empty() {
        return None;
    }
    let (ciphertext, digest) = match bytes.split_at_checked(PLAIN) {
        None => (bytes, None),
        Some((all, [])) => (all, None),
        Some((plain, digest)) => (plain, Some(digest.try_into().ok()?)),
    };
    Some(NokeyName {
        hash,
        ciphertext: ciphertext.to_vec(),
        digest,
    })
}

impl NokeyName {
    /// Returns whether the name is shown for `ciphertext`, apart from the hashes.
    #[must_use]
    pub fn is_of(&self, ciphertext: &[u8]) -> bool {
        let (plain, rest) = ciphertext.split_at(ciphertext.len().min(PLAIN));
        plain == self.ciphertext
            && match self.digest {
                None => rest.is_empty(),
                Some(digest) => !rest.is_empty() && Sha256::digest(rest).as_slice() == digest,
            }
    }
}

fn to_base64(bytes: &[u8]) -> Vec<u8> {
    let digit = |bits: u32| DIGITS.get(bits as usize & 63).copied().unwrap_or_default();
    let mut digits = Vec::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for part in bytes.chunks(3) {
        // Three bytes are four digits; one is two, two are three.
        let bits = part.iter().zip([16, 8, 0]);
        let bits = bits.fold(0, |bits, (byte, shift)| bits | u32::from(*byte) << shift);
        let used = part.len().saturating_add(1);
        digits.extend(
            [18, 12, 6, 0]
                .map(|shift| digit(bits >> shift))
                .iter()
                .take(used),
        );
    }
    digits
}

/// Reverses [`to_base64`]. `None` for other bytes, and if bits that stand for nothing are set.
fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len());
    for part in digits.chunks(4) {
        let mut bits = 0;
        for (digit, shift) in part.iter().zip([18, 12, 6, 0]) {
            let value = DIGITS.iter().position(|known| known == digit)?;
            bits |= u32::try_from(value).ok()? << shift;
        }
        let [_, all @ ..] = bits.to_be_bytes();
        let (used, unused) = all.split_at(part.len().checked_sub(1)?);
        if used.is_empty() || unused.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend(used);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: DirHash = DirHash {
        major: 0x0123_4566,
        minor: 0x89ab_cdef,
    };

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, digits) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(to_base64(bytes.as_bytes()), digits.as_bytes());
            assert_eq!(from_base64(digits.as_bytes()).unwrap(), bytes.as_bytes());
        }
        assert_eq!(to_base64(&[0xfb, 0xff]), b"-_8");
        for wrong in ["Z", "Zh", "Zm9", "Zm9vY", "Zg==", "Z/8", "Zm+v"] {
            assert_eq!(from_base64(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_shown_name_leads_back_to_its_ciphertext_and_to_no_other() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in [1, 16, 148, 149, 150, 181, 255] {
            let ciphertext = &bytes[..len];
            let name = encode(HASH, ciphertext);
            assert!(name.len() <= 252, "{len}");
            let decoded = decode(&name).unwrap();
            assert_eq!(decoded.hash, HASH);
            for other in 0..=255 {
                assert_eq!(
                    decoded.is_of(&bytes[..other]),
                    other == len,
                    "{len}, {other}"
                );
            }
            let mut changed = ciphertext.to_vec();
            changed[len - 1] ^= 1;
            assert!(!decoded.is_of(&changed), "{len}");
        }
    }

    #[test]
    fn other_names_are_no_shown_names() {
        for name in [&b""[..], b".", b"AAAAAAAAAAA", b"a.txt"] {
            assert_eq!(decode(name), None);
        }
        // Longer than a prefix, and not a prefix with a digest.
        assert_eq!(decode(&to_base64(&[0; HASHES + PLAIN + DIGEST - 1])), None);
        assert_eq!(decode(&to_base64(&[0; HASHES + PLAIN + DIGEST + 1])), None);
    }
}
