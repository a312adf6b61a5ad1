//! Data blocks in the log, which stay held until they are home.

use crate::common::*;
use block::Op;
use cache::Budget;
use jbd2::{Journal, JournalExtent};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use units::{FileBlock, FsBlock};

/// A journal of 8,192 blocks in one piece, before [`BIG_FREE`].
const BIG_LOG: u32 = 8192;
const BIG_FREE: FsBlock = FsBlock(9000);

fn big_rig() -> Rig {
    let extents = vec![JournalExtent {
        logical: FileBlock::FIRST,
        physical: FsBlock(16),
        len: BIG_LOG,
    }];
    let mut image = vec![0; 16_000 * BLOCK as usize];
    let sb = jbd2::format::superblock::format_new(BIG_LOG, BLOCK, [7; 16], 0);
    image[16 * BLOCK as usize..][..sb.len()].copy_from_slice(&sb);
    let disk = recorded(image);
    let queue = disk.queue();
    let budget = Budget::new(256 << 20);
    let journal = Journal::open(queue.clone(), &extents.into(), budget.clone(), options()).unwrap();
    Rig {
        disk,
        queue,
        budget,
        journal,
    }
}

fn log_data(journal: &Journal, block: FsBlock, byte: u8) {
    let handle = journal.start(1).unwrap();
    let content = block::BufMut::copy_of(&[byte; BLOCK as usize]).freeze();
    handle.log_data(block, content);
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
}

#[test]
fn data_logged_again_during_a_checkpoint_stays_held() {
    let rig = big_rig();
    let journal = rig.journal.clone();
    // A file's block is logged before the metadata, which the background checkpoint writes home
    // first.
    let data = BIG_FREE + 6000;
    log_data(&journal, data, 1);
    let homes = Arc::new(AtomicU32::new(0));
    let (told, at_second) = mpsc::channel();
    let (logged, is_logged) = mpsc::channel();
    let (weak, seen, superblocks) = (Arc::downgrade(&journal), homes.clone(), AtomicU32::new(0));
    rig.disk.inject(move |op, _, offset, _| {
        if op != Op::Write {
            return None;
        }
        let block = FsBlock(offset / u64::from(BLOCK));
        // The first home write: an fsync logs the file's block again.
        if (BIG_FREE..data).contains(&block) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            // On a thread of its own: this one holds the lock of the checkpoint.
            std::thread::scope(|scope| {
                scope.spawn(|| log_data(&weak.upgrade().unwrap(), data, 2));
            });
            logged.send(()).unwrap();
        }
        // The second super block: only the first checkpoint is over.
        if block == FsBlock(16)
            && seen.load(Ordering::SeqCst) > 0
            && superblocks.fetch_add(1, Ordering::SeqCst) == 1
        {
            let held = weak.upgrade().unwrap().held_data(data..data + 1);
            told.send(held.map(|(_, content)| content[0])).unwrap();
        }
        None
    });
    let mut block = BIG_FREE;
    while homes.load(Ordering::SeqCst) == 0 && block < data {
        let handle = journal.start(1000).unwrap();
        for _ in 0..1000 {
            let buffer = handle.create(block);
            handle.modify(&buffer, None, |bytes| bytes.fill(9));
            block += 1;
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
    }
    // The flush has the lock of commits.
    is_logged.recv_timeout(Duration::from_secs(60)).unwrap();
    journal.flush().unwrap();
    // The log that is replayed after a crash has the second copy of the block.
    let held = at_second.recv_timeout(Duration::from_secs(60));
    assert_eq!(held, Ok(Some(2)));
}
