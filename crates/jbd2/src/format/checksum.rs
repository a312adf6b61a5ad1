//! Checksums. jbd2 neither inverts the seed nor the result of its CRCs, unlike most libraries.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes` continuing `crc`, not inverted at either end.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!crc, bytes)
}

/// Seed of a journal's checksums: the CRC-32C of its UUID.
pub fn seed(uuid: &[u8; 16]) -> u32 {
    crc32c(!0, uuid)
}

/// CRC-32C of `bytes` as if the four bytes at `hole`, where the sum itself lives, were zero.
pub fn with_hole(crc: u32, bytes: &[u8], hole: usize) -> u32 {
    let crc = crc32c(crc, &bytes[..hole]);
    let crc = crc32c(crc, &[0; 4]);
    crc32c(crc, &bytes[hole + 4..])
}

/// Sum of a logged block (as it lies in the log, escaped) of transaction `sequence`, for its tag.
pub fn of_logged_block(seed: u32, sequence: u32, block: &[u8]) -> u32 {
    crc32c(crc32c(seed, &sequence.to_be_bytes()), block)
}

/// Big-endian (not reflected) CRC-32, polynomial 0x04C11DB7, over the pieces of a transaction one
/// after the other; used by checksums v1 over all descriptor and data blocks.
#[derive(Clone)]
pub struct Crc32Be(Digest);

impl Crc32Be {
    /// Of nothing.
    #[expect(
        clippy::new_without_default,
        reason = "a checksum begins, it has no default"
    )]
    pub fn new() -> Crc32Be {
        // MPEG-2's begins with all ones and inverts nothing at the end, as jbd2's does.
        Crc32Be(Digest::new(CrcAlgorithm::Crc32Mpeg2))
    }
    /// Goes on with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// The sum so far.
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
