//! Recovery with fast commits: a failure at any moment loses nothing.

use crate::common::*;
use block::BufMut;
use cache::Budget;
use jbd2::format::descriptor::{CopyContent, Tag};
use jbd2::format::superblock::JournalSuperblock;
use jbd2::format::{commit, descriptor, incompat};
use jbd2::{LogBlock, Tid};
use std::time::SystemTime;
use testkit::disk::Disk;
use units::FsBlock;

/// Blocks of the journal. The last 256 of them are for fast commits.
const LOG: u32 = 1024 + 256;
/// Blocks of a transaction that changes one block.
const TRANSACTION: u32 = 3;

/// The bytes of a volume whose log has so many transactions, followed by a fast commit. The nth
/// transaction fills block `FREE + n`.
fn image(transactions: u32) -> (Vec<u8>, Tid) {
    let mut image = volume(VOLUME, LOG, incompat::FAST_COMMIT);
    let map: Vec<FsBlock> = extents(LOG)
        .iter()
        .flat_map(|extent| (0..u64::from(extent.len)).map(|nth| extent.physical + nth))
        .collect();
    let mut put = |at: LogBlock, bytes: &[u8]| {
        let offset = map[at.0 as usize].offset(BLOCK) as usize;
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    let fresh = jbd2::format::superblock::format_new(LOG, BLOCK, [7; 16], incompat::FAST_COMMIT);
    let mut sb = JournalSuperblock::parse(&fresh, BLOCK, LOG).unwrap();
    let (layout, first) = (sb.layout(), sb.first());
    let mut tid = sb.sequence();
    sb.set_tail(first, tid);
    put(LogBlock::SUPERBLOCK, sb.encode());
    for nth in 0..transactions {
        let tag = Tag {
            block: FREE + u64::from(nth),
            content: CopyContent::Verbatim,
            deleted: false,
            checksum: 0,
        };
        let at = first + nth * TRANSACTION;
        let mut block = BufMut::zeroed(BLOCK as usize);
        descriptor::write(&layout, tid, &[tag], &[7; 16], &mut block);
        put(at, &block);
        put(at + 1, &[1; BLOCK as usize]);
        let mut block = BufMut::zeroed(BLOCK as usize);
        commit::write(&layout, tid, SystemTime::UNIX_EPOCH, 0, &mut block);
        put(at + 2, &block);
        tid = tid.next();
    }
    let mut head = [0; 16];
    head[0] = 9;
    head[2] = 8;
    head[8..12].copy_from_slice(&tid.0.to_le_bytes());
    put(sb.log_end() + 1, &head);
    (image, tid)
}

/// Recovers the volume. The fast commits change one block. Returns whether that worked.
fn recover(disk: &Disk, tid: Tid) -> bool {
    let (queue, place, budget) = (disk.queue(), place(LOG), Budget::new(64 << 20));
    let fast = jbd2::fast_commits(&queue, &place, BLOCK, &budget).unwrap();
    let mut changed = BufMut::zeroed(BLOCK as usize);
    changed.fill(2);
    let changes = match fast {
        Some(fast) if fast.tid() == tid => vec![(FREE + 999, changed.freeze())],
        _ => Vec::new(),
    };
    jbd2::recover_with(&queue, &place, BLOCK, &budget, &changes).is_ok()
}

#[test]
fn a_failure_during_recovery_loses_no_fast_commit() {
    // The log is half full, and full.
    for transactions in [170, 1023 / TRANSACTION] {
        let (image, tid) = image(transactions);
        let mut writes = 0;
        loop {
            let disk = Disk::from_bytes(image.clone());
            disk.fail_writes_after(writes);
            let done = recover(&disk, tid);
            disk.heal();
            assert!(done || recover(&disk, tid));
            let bytes = disk.bytes();
            let what = format!("{transactions} transactions, after {writes} writes");
            let filled = |block, byte| block_of(&bytes, block).iter().all(|b| *b == byte);
            assert!(filled(FREE + 999, 2), "{what}");
            assert!(
                (0..transactions).all(|nth| filled(FREE + u64::from(nth), 1)),
                "{what}"
            );
            if done {
                assert!(writes > 5, "{what}");
                break;
            }
            writes += 1;
        }
    }
}
