//! Descriptor blocks: a list of tags, each with the home of one of the copies that follow in the
//! log.
//!
//! | format                      | bytes | layout                                             |
//! |-----------------------------|-------|----------------------------------------------------|
//! | no checksums or v1, 32 bits | 8     | block, (unused) u16, flags u16                      |
//! | no checksums or v1, 64 bits | 12    | block, (unused) u16, flags u16, block high          |
//! | v2, 32 bits                 | 10    | block, checksum u16, flags u16, 2 unused            |
//! | v2, 64 bits                 | 14    | block, checksum u16, flags u16, block high, 2 unused |
//! | v3                          | 16    | block, flags u32, block high, checksum              |
//!
//! A tag without SAME_UUID is followed by a UUID of 16 bytes.

use super::{Checksums, HEADER_BYTES, Header, Layout, block_type, get_u16, get_u32};
use super::{put_u16, put_u32};
use crate::Tid;
use units::FsBlock;

/// The copy's first four bytes were the magic and are replaced by zeroes.
const ESCAPE: u32 = 0x1;
/// No UUID follows.
const SAME_UUID: u32 = 0x2;
/// The transaction deleted the block: its copy must not be replayed.
const DELETED: u32 = 0x4;
/// No tag follows in this block.
const LAST_TAG: u32 = 0x8;
const UUID_BYTES: usize = 16;

/// How a copy in the log differs from the block that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyContent {
    /// Not at all.
    Verbatim,
    /// Zeroes replace the first four bytes, which are the magic. Recovery could mistake the copy
    /// for a block of the log otherwise.
    Escaped,
}

/// Describes a copy in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The copy's home on the volume.
    pub block: FsBlock,
    /// How the copy differs from the block.
    pub content: CopyContent,
    /// The copy must not be replayed.
    pub deleted: bool,
    /// Checksum of the copy's bytes in the log: all of it (v3) or the low 16 bits (v2).
    pub checksum: u32,
}

/// Returns the bytes of a tag without its UUID.
pub fn tag_bytes(layout: &Layout) -> usize {
    let high = if layout.bits64 { 4 } else { 0 };
    match layout.checksums {
        Checksums::V3 => 16,
        Checksums::V2 => 10 + high,
        Checksums::None | Checksums::V1 => 8 + high,
    }
}

/// Returns the number of tags that fit into a descriptor block if only the first has a UUID.
pub fn tags_per_block(layout: &Layout) -> usize {
    (layout.usable() - HEADER_BYTES - UUID_BYTES) / tag_bytes(layout)
}

/// Reads the tags of a descriptor block. The caller has checked its header and tail.
pub fn parse(layout: &Layout, block: &[u8]) -> Vec<Tag> {
    let size = tag_bytes(layout);
    let end = layout.usable().min(block.len());
    let mut tags = Vec::new();
    let mut at = HEADER_BYTES;
    while at + size <= end {
        let Some((tag, flags)) = parse_tag(layout, &block[at..at + size]) else {
            break;
        };
        tags.push(tag);
        at += size;
        if flags & SAME_UUID == 0 {
            at += UUID_BYTES;
        }
        if flags & LAST_TAG != 0 {
            break;
        }
    }
    tags
}

fn parse_tag(layout: &Layout, bytes: &[u8]) -> Option<(Tag, u32)> {
    let low = u64::from(get_u32(bytes, 0)?);
    let (flags, checksum) = match layout.checksums {
        Checksums::V3 => (get_u32(bytes, 4)?, get_u32(bytes, 12)?),
        _ => (u32::from(get_u16(bytes, 6)?), u32::from(get_u16(bytes, 4)?)),
    };
    let high = if layout.bits64 {
        u64::from(get_u32(bytes, 8)?)
    } else {
        0
    };
    let tag = Tag {
        block: FsBlock(high << 32 | low),
        content: match flags & ESCAPE {
            0 => CopyContent::Verbatim,
            _ => CopyContent::Escaped,
        },
        deleted: flags & DELETED != 0,
        checksum,
    };
    Some((tag, flags))
}

/// Writes a descriptor block with `tags`, from 1 to [`tags_per_block`] of them.
pub fn write(layout: &Layout, sequence: Tid, tags: &[Tag], uuid: &[u8; 16], block: &mut [u8]) {
    assert!(!tags.is_empty());
    assert!(tags.len() <= tags_per_block(layout));
    block.fill(0);
    Header {
        kind: block_type::DESCRIPTOR,
        sequence,
    }
    .write(block);
    let size = tag_bytes(layout);
    let mut at = HEADER_BYTES;
    for (i, tag) in tags.iter().enumerate() {
        let mut flags = 0;
        if tag.content == CopyContent::Escaped {
            flags |= ESCAPE;
        }
        if i > 0 {
            flags |= SAME_UUID;
        }
        if i + 1 == tags.len() {
            flags |= LAST_TAG;
        }
        put_u32(block, at, tag.block.0 as u32);
        match layout.checksums {
            Checksums::V3 => {
                put_u32(block, at + 4, flags);
                put_u32(block, at + 12, tag.checksum);
            }
            Checksums::V2 => {
                put_u16(block, at + 4, tag.checksum as u16);
                put_u16(block, at + 6, flags as u16);
            }
            Checksums::None | Checksums::V1 => put_u16(block, at + 6, flags as u16),
        }
        if layout.bits64 {
            put_u32(block, at + 8, (tag.block.0 >> 32) as u32);
        }
        at += size;
        if i == 0 {
            block[at..at + UUID_BYTES].copy_from_slice(uuid);
            at += UUID_BYTES;
        }
    }
    layout.seal_tail(block);
}

/// Returns whether the checksum of a copy is right, or the layout has none.
pub fn block_valid(layout: &Layout, tag: &Tag, sequence: Tid, block: &[u8]) -> bool {
    let sum = || super::checksum::of_logged_block(layout.seed, sequence, block);
    match layout.checksums {
        Checksums::V3 => sum() == tag.checksum,
        Checksums::V2 => sum() & 0xffff == tag.checksum,
        Checksums::None | Checksums::V1 => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<Layout> {
        let mut all = Vec::new();
        for block_size in [1024, 2048, 4096] {
            for bits64 in [false, true] {
                for checksums in [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3] {
                    all.push(Layout {
                        block_size,
                        bits64,
                        checksums,
                        seed: 77,
                    });
                }
            }
        }
        all
    }

    #[test]
    fn every_format_round_trips_full_and_with_one_tag() {
        for layout in layouts() {
            for count in [1, 2, tags_per_block(&layout)] {
                let high = if layout.bits64 { 5 << 32 } else { 0 };
                let tags: Vec<Tag> = (0..count as u64)
                    .map(|i| Tag {
                        block: FsBlock(high | (i + 100)),
                        content: match i % 3 {
                            0 => CopyContent::Escaped,
                            _ => CopyContent::Verbatim,
                        },
                        deleted: false,
                        checksum: match layout.checksums {
                            Checksums::V3 => 0x1234_5678 + i as u32,
                            Checksums::V2 => 0x5678,
                            _ => 0,
                        },
                    })
                    .collect();
                let mut block = vec![0xAA; layout.block_size];
                write(&layout, Tid(42), &tags, &[3; 16], &mut block);
                assert!(layout.tail_valid(&block));
                assert_eq!(parse(&layout, &block), tags, "{layout:?}");
            }
        }
    }

    #[test]
    fn sizes_match_the_format() {
        let sizes: Vec<usize> = layouts()[..8].iter().map(tag_bytes).collect();
        assert_eq!(sizes, [8, 8, 10, 16, 12, 12, 14, 16]);
    }

    #[test]
    fn garbage_never_panics_and_is_bounded() {
        for layout in layouts() {
            for fill in [0u8, 0x55, 0xff] {
                let block = vec![fill; layout.block_size];
                assert!(parse(&layout, &block).len() <= layout.block_size / 8);
            }
        }
    }

    #[test]
    fn a_torn_descriptor_is_detected() {
        let layout = layouts()[7];
        let tag = Tag {
            block: FsBlock(9),
            content: CopyContent::Verbatim,
            deleted: false,
            checksum: 1,
        };
        let mut block = vec![0; layout.block_size];
        write(&layout, Tid(1), &[tag], &[0; 16], &mut block);
        block[600] = 1;
        assert!(!layout.tail_valid(&block));
    }
}
