//! Commit blocks: the end of a transaction.

use super::{Checksums, Header, Layout, block_type, checksum, get_u32, get_u64};
use super::{put_u32, put_u64};
use crate::Tid;
use std::time::{SystemTime, UNIX_EPOCH};

const CHECKSUM_TYPE: usize = 0x0C;
const CHECKSUM_SIZE: usize = 0x0D;
const CHECKSUM: usize = 0x10;
const SECONDS: usize = 0x30;
const NANOSECONDS: usize = 0x38;
const CRC32_TYPE: u8 = 1;
const CRC32_SIZE: u8 = 4;

/// Writes the commit block of a transaction. `sum_v1` is the CRC-32 of the transaction's blocks,
/// for csum v1.
pub fn write(layout: &Layout, sequence: Tid, now: SystemTime, sum_v1: u32, block: &mut [u8]) {
    block.fill(0);
    Header {
        kind: block_type::COMMIT,
        sequence,
    }
    .write(block);
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    put_u64(block, SECONDS, now.as_secs());
    put_u32(block, NANOSECONDS, now.subsec_nanos());
    match layout.checksums {
        Checksums::None => {}
        Checksums::V1 => {
            block[CHECKSUM_TYPE] = CRC32_TYPE;
            block[CHECKSUM_SIZE] = CRC32_SIZE;
            put_u32(block, CHECKSUM, sum_v1);
        }
        Checksums::V2 | Checksums::V3 => {
            let sum = checksum::with_hole(layout.seed, block, CHECKSUM);
            put_u32(block, CHECKSUM, sum);
        }
    }
}

/// Returns the time of the commit: seconds and nanoseconds.
pub fn time(block: &[u8]) -> (u64, u32) {
    (
        get_u64(block, SECONDS).unwrap_or(0),
        get_u32(block, NANOSECONDS).unwrap_or(0),
    )
}

/// Returns whether the commit block's own checksum is right, or the layout has none.
pub fn block_valid(layout: &Layout, block: &[u8]) -> bool {
    !layout.block_checksums()
        || get_u32(block, CHECKSUM) == Some(checksum::with_hole(layout.seed, block, CHECKSUM))
}

/// Returns whether the transaction's CRC-32 (csum v1) is right. A commit block may also have none.
pub fn transaction_valid(layout: &Layout, sum_v1: u32, block: &[u8]) -> bool {
    if layout.checksums != Checksums::V1 {
        return true;
    }
    let found = get_u32(block, CHECKSUM).unwrap_or(0);
    match (block[CHECKSUM_TYPE], block[CHECKSUM_SIZE]) {
        (CRC32_TYPE, CRC32_SIZE) => found == sum_v1,
        (0, 0) => found == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(checksums: Checksums) -> Layout {
        Layout {
            block_size: 1024,
            bits64: true,
            checksums,
            seed: 0x1234,
        }
    }

    #[test]
    fn checksums_detect_a_changed_bit() {
        let now = UNIX_EPOCH + std::time::Duration::new(1234, 5678);
        for checksums in [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3] {
            let layout = layout(checksums);
            let mut block = vec![0xEE; 1024];
            write(&layout, Tid(7), now, 99, &mut block);
            assert_eq!(time(&block), (1234, 5678));
            assert!(block_valid(&layout, &block));
            assert!(transaction_valid(&layout, 99, &block));
            block[CHECKSUM] ^= 1;
            let noticed = !block_valid(&layout, &block) || !transaction_valid(&layout, 99, &block);
            assert_eq!(noticed, checksums != Checksums::None);
        }
    }
}
