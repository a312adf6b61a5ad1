//! Blocks that are read before they are needed.

use crate::common::*;
use cache::{Budget, Kind};
use jbd2::Journal;
use units::FsBlock;

#[test]
fn unused_blocks_that_were_read_ahead_take_an_eighth_of_the_memory() {
    let disk = recorded(volume(VOLUME, 1024, 0));
    let budget = Budget::new(4 << 20);
    let journal = Journal::open(disk.queue(), &place(1024), budget.clone(), options()).unwrap();
    let in_use = FREE + 700;
    journal.get(in_use).unwrap();
    let before = budget.used_by(Kind::Metadata);
    for start in (0..600).step_by(50) {
        let blocks: Vec<FsBlock> = (start..start + 50).map(|i| FREE + i).collect();
        journal.prefetch(&blocks);
    }
    let ahead = budget.used_by(Kind::Metadata) - before;
    let most = budget.limit() / 8;
    assert!((most / 2..=most).contains(&ahead), "{ahead} of {most}");
    // The first blocks were read, and a block in use was not evicted for them.
    let requests = disk.counts().requests;
    for block in [FREE, FREE + 49, in_use] {
        journal.get(block).unwrap();
    }
    assert_eq!(disk.counts().requests, requests);
    // A use makes room for others.
    for i in 0..50 {
        journal.get(FREE + i).unwrap();
    }
    journal.prefetch(&[FREE + 599]);
    assert!(journal.is_cached(FREE + 599));
    journal.close().unwrap();
}
