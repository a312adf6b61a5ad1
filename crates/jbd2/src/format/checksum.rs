//! Checksums. jbd2 neither inverts the seed nor the result of its CRCs, unlike most libraries.

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

/// Big-endian (not reflected) CRC-32, polynomial 0x04C11DB7, continuing `crc`; used by checksums v1 over all descriptor
/// and data blocks of a transaction.
pub fn crc32_be(mut crc: u32, bytes: &[u8]) -> u32 {
    for &byte in bytes {
        crc = (crc << 8) ^ CRC32_BE_TABLE[((crc >> 24) as u8 ^ byte) as usize];
    }
    crc
}

const CRC32_BE_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 != 0 {
                (crc << 1) ^ 0x04C1_1DB7
            } else {
                crc << 1
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The check values of CRC-32C and of CRC-32/MPEG-2 (which is not inverted at the end).
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7);
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
