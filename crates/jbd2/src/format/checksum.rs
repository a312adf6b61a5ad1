//! Checksums. Unlike most libraries, jbd2 inverts neither the seed nor the result of its CRCs.

use crate::Tid;
use crc_fast::{CrcAlgorithm, Digest};

/// Continues the CRC-32C `crc` with `bytes`, without inversions.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!crc, bytes)
}

/// Returns the seed of a journal's checksums: the CRC-32C of its UUID.
pub fn seed(uuid: &[u8; 16]) -> u32 {
    crc32c(!0, uuid)
}

/// Continues the CRC-32C `crc` with `bytes`. The four bytes of the checksum itself, at `hole`,
/// count as zeroes.
pub fn with_hole(crc: u32, bytes: &[u8], hole: usize) -> u32 {
    let crc = crc32c(crc, &bytes[..hole]);
    let crc = crc32c(crc, &[0; 4]);
    crc32c(crc, &bytes[hole + 4..])
}

/// Returns the checksum of a copy (escaped, as in the log) of transaction `sequence`, for its tag.
pub fn of_logged_block(seed: u32, sequence: Tid, block: &[u8]) -> u32 {
    crc32c(crc32c(seed, &sequence.0.to_be_bytes()), block)
}

/// CRC-32, big-endian (not reflected), polynomial 0x04C11DB7. csum v1 uses it for all descriptors
/// and copies of a transaction, in the log's order.
#[derive(Clone)]
pub struct Crc32Be(Digest);

impl Crc32Be {
    /// Returns the checksum of no bytes.
    #[expect(
        clippy::new_without_default,
        reason = "a default has no meaning for a checksum"
    )]
    pub fn new() -> Crc32Be {
        // Like jbd2, MPEG-2 starts with all ones and does not invert the result.
        Crc32Be(Digest::new(CrcAlgorithm::Crc32Mpeg2))
    }
    /// Continues with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// Returns the checksum of all bytes so far.
    pub fn sum(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The check values of CRC-32C and of CRC-32/MPEG-2 (which is not inverted at the end).
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        let mut sum = Crc32Be::new();
        assert_eq!(sum.sum(), !0);
        sum.update(b"1234");
        sum.update(b"56789");
        assert_eq!(sum.sum(), 0x0376_E6E7);
    }

    #[test]
    fn a_hole_counts_as_zeroes() {
        let mut bytes = [7u8; 32];
        bytes[8..12].fill(0);
        let plain = crc32c(5, &bytes);
        bytes[8..12].fill(0xff);
        assert_eq!(with_hole(5, &bytes, 8), plain);
    }
}
