//! Revoke blocks: a list of blocks whose copies in this and earlier transactions must not be
//! replayed.

use super::{HEADER_BYTES, Header, Layout, block_type, get_u32, get_u64, put_u32, put_u64};
use crate::{JournalDamage, Tid};
use units::FsBlock;

const COUNT: usize = HEADER_BYTES;
const ENTRIES: usize = HEADER_BYTES + 4;

fn entry_bytes(layout: &Layout) -> usize {
    if layout.bits64 { 8 } else { 4 }
}

/// Returns the number of entries that fit into a revoke block.
pub fn entries_per_block(layout: &Layout) -> usize {
    (layout.usable() - ENTRIES) / entry_bytes(layout)
}

/// Returns the number of entries that fit into the first 512 bytes of a revoke block.
pub fn entries_in_first_sector(layout: &Layout) -> usize {
    (512 - ENTRIES) / entry_bytes(layout)
}

/// Reads a revoke block. The caller has checked its header and tail.
///
/// # Errors
/// The damage.
pub fn parse(layout: &Layout, block: &[u8]) -> Result<Vec<FsBlock>, JournalDamage> {
    let cut = JournalDamage::RevokeCut { bytes: block.len() };
    let used = get_u32(block, COUNT).ok_or(cut)? as usize;
    if !(ENTRIES..=layout.usable()).contains(&used) {
        return Err(JournalDamage::RevokeCount {
            used: used as u32,
            usable: layout.usable() as u32,
        });
    }
    let size = entry_bytes(layout);
    Ok((ENTRIES..used)
        .step_by(size)
        .take((used - ENTRIES) / size)
        .filter_map(|at| {
            if layout.bits64 {
                get_u64(block, at)
            } else {
                get_u32(block, at).map(u64::from)
            }
        })
        .map(FsBlock)
        .collect())
}

/// Writes a revoke block with `blocks`, at most [`entries_per_block`] of them.
pub fn write(layout: &Layout, sequence: Tid, blocks: &[FsBlock], block: &mut [u8]) {
    assert!(blocks.len() <= entries_per_block(layout));
    block.fill(0);
    Header {
        kind: block_type::REVOKE,
        sequence,
    }
    .write(block);
    let size = entry_bytes(layout);
    put_u32(block, COUNT, (ENTRIES + size * blocks.len()) as u32);
    for (i, number) in blocks.iter().enumerate() {
        let at = ENTRIES + i * size;
        if layout.bits64 {
            put_u64(block, at, number.0);
        } else {
            put_u32(block, at, number.0 as u32);
        }
    }
    layout.seal_tail(block);
}

#[cfg(test)]
mod tests {
    use super::super::Checksums;
    use super::*;

    #[test]
    fn round_trip() {
        for bits64 in [false, true] {
            for checksums in [Checksums::None, Checksums::V3] {
                let layout = Layout {
                    block_size: 1024,
                    bits64,
                    checksums,
                    seed: 1,
                };
                for count in [0, 1, entries_per_block(&layout)] {
                    let high = if bits64 { 3 << 33 } else { 0 };
                    let blocks: Vec<FsBlock> =
                        (0..count as u64).map(|i| FsBlock(high + i * 7)).collect();
                    let mut block = vec![1; 1024];
                    write(&layout, Tid(5), &blocks, &mut block);
                    assert!(layout.tail_valid(&block));
                    assert_eq!(parse(&layout, &block).unwrap(), blocks);
                }
            }
        }
    }

    #[test]
    fn impossible_counts_are_refused() {
        let layout = Layout {
            block_size: 1024,
            bits64: true,
            checksums: Checksums::None,
            seed: 1,
        };
        let mut block = vec![0; 1024];
        for count in [0, 15, 1025, u32::MAX] {
            put_u32(&mut block, COUNT, count);
            assert!(parse(&layout, &block).is_err());
        }
        // An entry that the count cuts off is ignored.
        put_u32(&mut block, COUNT, 16 + 8 + 3);
        assert_eq!(parse(&layout, &block).unwrap().len(), 1);
    }
}
