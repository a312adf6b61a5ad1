//! The two checksums of ext4: crc32c for everything under `metadata_csum`, crc16 for the group
//! descriptors of volumes that only have `uninit_bg`.
//!
//! ext4 feeds crc32c a seed and keeps the register as it stands: no inversion before or after. A
//! [`Seed`] is therefore just the register after the bytes hashed so far, and checksums chain.

use crate::error::{FormatError, Result};

/// The crc32c register after some prefix: the volume's UUID, then an inode's number and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(pub u32);

impl Seed {
    /// The register before any byte.
    pub const INITIAL: Seed = Seed(!0);

    /// Returns the register after `bytes` more.
    #[must_use]
    pub fn extend(self, bytes: &[u8]) -> Seed {
        Seed(crc32c(self, bytes))
    }
}

/// Returns the checksum of `bytes` after `seed`.
#[inline]
#[must_use]
pub fn crc32c(seed: Seed, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed.0, bytes)
}

/// One table step of the reflected CRC-16 with polynomial 0x8005 (CRC-16/ARC), for all byte values.
const CRC16_TABLE: [u16; 256] = crc16_table();

// The index is in range by construction, and this runs only in the compiler.
#[allow(clippy::indexing_slicing)]
const fn crc16_table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            let carry = register & 1 != 0;
            register >>= 1;
            if carry {
                register ^= 0xa001;
            }
            bit += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
}

/// CRC-16/ARC of `bytes`, continuing from `register` (0xffff at the start, for group descriptors).
#[must_use]
pub fn crc16(register: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(register, |register, byte| {
        let [low, _] = register.to_le_bytes();
        let step = CRC16_TABLE
            .get(usize::from(low ^ byte))
            .copied()
            .unwrap_or(0);
        (register >> 8) ^ step
    })
}

/// Returns an error unless the checksums are equal.
pub(crate) fn compare(
    structure: &'static str,
    place: u64,
    stored: u32,
    computed: u32,
) -> Result<()> {
    if stored == computed {
        return Ok(());
    }
    Err(FormatError::Checksum {
        structure,
        place,
        stored,
        computed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_the_catalogues() {
        // CRC-32C ("Castagnoli") of "123456789" is 0xe3069283 after the final inversion.
        assert_eq!(crc32c(Seed::INITIAL, b"123456789"), !0xe306_9283);
        // CRC-16/ARC of the same.
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }

    #[test]
    fn checksums_chain() {
        let whole = crc32c(Seed::INITIAL, b"uuid and the rest");
        assert_eq!(
            crc32c(Seed::INITIAL.extend(b"uuid"), b" and the rest"),
            whole
        );
    }
}
