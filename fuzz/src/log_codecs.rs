//! The blocks of the journal, in each of their formats.

use crate::bytes::Bytes;
use jbd2::LogBlock;
use jbd2::format::superblock::JournalSuperblock;
use jbd2::format::{Checksums, Layout, descriptor as tags, revoke as revokes};
use std::time::{Duration, UNIX_EPOCH};

/// A layout that the input chooses.
fn layout(input: &mut Bytes<'_>) -> Layout {
    let choice = input.u8();
    Layout {
        block_size: 1024 << (choice % 3),
        bits64: choice & 4 != 0,
        checksums: match choice >> 3 & 3 {
            0 => Checksums::None,
            1 => Checksums::V1,
            2 => Checksums::V2,
            _ => Checksums::V3,
        },
        seed: 77,
    }
}

fn block(layout: &Layout, input: &Bytes<'_>) -> Vec<u8> {
    let mut block = input.0.to_vec();
    block.resize(layout.block_size, 0);
    block
}

/// A descriptor block. It has no more tags than fit. Reading reverses writing.
pub fn descriptor(data: &[u8]) {
    let mut input = Bytes(data);
    let layout = layout(&mut input);
    let mut bytes = block(&layout, &input);
    let found = tags::parse(&layout, &bytes);
    assert!(found.len() <= layout.block_size / tags::tag_bytes(&layout));
    let _ = layout.tail_valid(&bytes);
    layout.seal_tail(&mut bytes);
    assert!(layout.tail_valid(&bytes));
    for tag in found.iter().take(2) {
        let _ = tags::block_valid(&layout, tag, jbd2::Tid(7), &bytes);
    }
    let most = tags::tags_per_block(&layout);
    let kept: Vec<_> = found
        .into_iter()
        .filter(|tag| !tag.deleted)
        .take(most)
        .collect();
    if !kept.is_empty() {
        let mut again = vec![0; layout.block_size];
        tags::write(&layout, jbd2::Tid(1), &kept, &[3; 16], &mut again);
        let read = tags::parse(&layout, &again);
        assert_eq!(read.len(), kept.len());
        assert!(read.iter().zip(&kept).all(|(a, b)| a.block == b.block));
    }
}

/// A revoke block.
pub fn revoke(data: &[u8]) {
    let mut input = Bytes(data);
    let layout = layout(&mut input);
    let mut bytes = block(&layout, &input);
    layout.seal_tail(&mut bytes);
    if let Ok(blocks) = revokes::parse(&layout, &bytes) {
        assert!(blocks.len() <= layout.block_size / 4);
        let most = revokes::entries_per_block(&layout).min(blocks.len());
        let mut again = vec![0; layout.block_size];
        revokes::write(&layout, jbd2::Tid(1), &blocks[..most], &mut again);
        assert_eq!(
            revokes::parse(&layout, &again).as_deref(),
            Ok(&blocks[..most])
        );
    }
}

/// A commit block.
pub fn commit(data: &[u8]) {
    let mut input = Bytes(data);
    let layout = layout(&mut input);
    let (secs, sum) = (input.u32(), input.u32());
    let bytes = block(&layout, &input);
    let _ = (
        jbd2::format::commit::time(&bytes),
        jbd2::format::commit::block_valid(&layout, &bytes),
        jbd2::format::commit::transaction_valid(&layout, sum, &bytes),
        jbd2::format::fast_commit::head_sequence(&bytes),
        jbd2::format::Header::parse(&bytes),
    );
    fast_commits(&bytes, layout.block_size);
    let mut written = vec![0; layout.block_size];
    let when = UNIX_EPOCH + Duration::from_secs(u64::from(secs));
    jbd2::format::commit::write(&layout, jbd2::Tid(9), when, sum, &mut written);
    assert!(jbd2::format::commit::block_valid(&layout, &written));
    assert!(jbd2::format::commit::transaction_valid(
        &layout, sum, &written
    ));
}

/// Tags of fast commits, with a TAIL whose checksum is right behind the tags of the input.
fn fast_commits(bytes: &[u8], block_size: usize) {
    let mut block = bytes.to_vec();
    let mut at = 0;
    let mut sum = ext4_format::Seed(0);
    while at + 16 <= block.len() {
        let len = usize::from(u16::from_le_bytes([block[at + 2], block[at + 3]]));
        let end = at + 4 + len;
        if end + 12 > block.len() || block[at] == 8 {
            break;
        }
        sum = sum.extend(&block[at..end]);
        at = end;
    }
    if at + 12 <= block.len() {
        let left = (block.len() - at - 4) as u16;
        block[at..at + 2].copy_from_slice(&8u16.to_le_bytes());
        block[at + 2..at + 4].copy_from_slice(&left.to_le_bytes());
        block[at + 4..at + 8].copy_from_slice(&9u32.to_le_bytes());
        sum = sum.extend(&block[at..at + 8]);
        block[at + 8..at + 12].copy_from_slice(&sum.0.to_le_bytes());
    }
    let mut reader = ext4_format::fast_commit::Reader::new(9, block_size as u32);
    for block in [&block[..], bytes] {
        let _ = reader.push(block);
    }
    let commits = reader.finish();
    let changes = commits.changes().take_while(Result::is_ok).count();
    assert!(changes <= 2 * block_size / 4);
}

/// The journal's super block, unchanged and with a correct checksum.
pub fn superblock(data: &[u8]) {
    let mut input = Bytes(data);
    let blocks = input.u32();
    let mut bytes = input.0.to_vec();
    bytes.resize(1024, 0);
    for (at, value) in [(0, jbd2::format::MAGIC), (4, 4), (12, 4096)] {
        jbd2::format::put_u32(&mut bytes, at, value);
    }
    let sum = jbd2::format::checksum::with_hole(!0, &bytes, 0xFC);
    jbd2::format::put_u32(&mut bytes, 0xFC, sum);
    let Ok(mut sb) = JournalSuperblock::parse(&bytes, 4096, blocks) else {
        return;
    };
    let (first, end) = (sb.first(), sb.log_end());
    assert!(first > LogBlock::SUPERBLOCK && first < end && end <= LogBlock(blocks));
    assert!(sb.start().is_none_or(|start| (first..end).contains(&start)));
    let _ = sb.layout();
    sb.set_empty(jbd2::Tid(9));
    sb.upgrade(jbd2::LogFormat::ChecksumV3, 1 << 32, &[1; 16]);
    let encoded = *sb.encode();
    JournalSuperblock::parse(&encoded, 4096, blocks).expect("encoded");
}
