//! A journal without a log.

use crate::common::*;
use cache::Budget;
use jbd2::Journal;
use testkit::seed::Rng;

/// A crash leaves steps of a commit: new blocks, then blocks that existed, then blocks of names.
#[test]
fn a_commit_writes_new_blocks_first_and_names_last() {
    let disk = recorded(vec![0; VOLUME as usize * BLOCK as usize]);
    let budget = Budget::new(8 << 20);
    let journal = Journal::without_log(disk.queue(), budget, options());
    // The order on the device is another one.
    let (names, inode, node) = (FREE, FREE + 1, FREE + 2);
    for round in 1..=4u8 {
        let handle = journal.start(3).unwrap();
        let old = handle.get(names).unwrap();
        handle.modify_last(&old, None, |bytes| bytes.fill(round));
        let old = handle.get(inode).unwrap();
        handle.modify(&old, None, |bytes| bytes.fill(round));
        let new = handle.create(node + u64::from(round));
        handle.modify(&new, None, |bytes| bytes.fill(round));
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        let at = inode.offset(BLOCK) as usize;
        assert_eq!(disk.bytes()[at], round, "the commit is home");
    }
    let recording = disk.take_recording();
    let mut rng = Rng::new("steps of a commit without a log");
    let (mut steps, mut torn) = ([0; 3], 0);
    for at in 0..=recording.log.len() {
        for _ in 0..12 {
            let image = recording.image(at, &mut rng);
            let sectors = |block: units::FsBlock| {
                let start = block.offset(BLOCK) as usize;
                image[start..start + BLOCK as usize].iter().step_by(512)
            };
            let newest = |block| *sectors(block).max().unwrap();
            let whole = |block| *sectors(block).min().unwrap();
            let (last, changed) = (newest(names), newest(inode));
            assert!(whole(inode) >= last, "event {at}: a name without its inode");
            for round in 1..=changed {
                let new = node + u64::from(round);
                assert_eq!(whole(new), round, "event {at}: an inode without its node");
            }
            torn += usize::from(whole(inode) != changed);
            let newest_node = (1..=4u8).rev().find(|n| newest(node + u64::from(*n)) > 0);
            steps[0] += usize::from(newest_node > Some(changed));
            steps[1] += usize::from(changed > last);
            steps[2] += usize::from(last > 0);
        }
    }
    assert!(
        steps.iter().all(|count| *count > 0) && torn > 0,
        "{steps:?}"
    );
}
