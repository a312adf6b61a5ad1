//! Device numbers, in the `i_block` of device inodes and in the super block.

use crate::bytes::{get_u32, put_u32};
use crate::i_block::I_BLOCK_SIZE;

/// A device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major number, up to 12 bits on disk.
    pub major: u32,
    /// Minor number, up to 20 bits on disk.
    pub minor: u32,
}

impl DeviceNumber {
    /// Reads the number from `i_block`: the first word has it in 16 bits, else the second in 32.
    #[must_use]
    pub fn decode(i_block: &[u8; I_BLOCK_SIZE]) -> DeviceNumber {
        let old = get_u32(i_block, 0).unwrap_or(0);
        if old != 0 {
            return DeviceNumber {
                major: (old >> 8) & 0xff,
                minor: old & 0xff,
            };
        }
        DeviceNumber::from_bits(get_u32(i_block, 4).unwrap_or(0))
    }

    /// Reads the number from 32 bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> DeviceNumber {
        DeviceNumber {
            major: (bits >> 8) & 0xfff,
            minor: (bits & 0xff) | ((bits >> 12) & 0xf_ff00),
        }
    }

    /// Returns the number as 32 bits.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        let major = (self.major & 0xfff) << 8;
        (self.minor & 0xff) | major | ((self.minor & 0xf_ff00) << 12)
    }

    /// Returns the `i_block` of a device inode.
    #[must_use]
    pub fn encode(self) -> [u8; I_BLOCK_SIZE] {
        let (old, new) = if self.major < 256 && self.minor < 256 {
            ((self.major << 8) | self.minor, 0)
        } else {
            (0, self.to_bits())
        };
        let mut i_block = [0; I_BLOCK_SIZE];
        let _ = put_u32(&mut i_block, 0, old);
        let _ = put_u32(&mut i_block, 4, new);
        i_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_numbers_round_trip() {
        for (major, minor) in [
            (0, 0),
            (1, 3),
            (255, 255),
            (256, 0),
            (8, 256),
            (0xfff, 0xf_ffff),
        ] {
            let device = DeviceNumber { major, minor };
            assert_eq!(DeviceNumber::decode(&device.encode()), device);
        }
    }
}
