//! The statistics of how full the log is.

use crate::common::*;
use jbd2::{Journal, Overlay};

#[test]
fn the_log_in_use_grows_by_a_commit_and_is_empty_after_a_flush() {
    let rig = rig(1024);
    let before = rig.journal.stats();
    // The first block of the journal is its super block.
    assert_eq!((before.log_bytes, before.log_used_bytes), (1023 << 12, 0));
    let handle = rig.journal.start(1).unwrap();
    let buffer = handle.create(FREE);
    handle.modify(&buffer, None, |bytes| bytes.fill(1));
    let tid = handle.tid();
    drop(handle);
    rig.journal.commit(tid).unwrap();
    let after = rig.journal.stats();
    assert!(after.log_used_bytes >= 3 << 12, "descriptor, block, record");
    assert_eq!(after.log_used_bytes, after.logged_blocks << 12);
    assert_eq!(after.log_bytes, before.log_bytes);
    rig.journal.flush().unwrap();
    assert_eq!(rig.journal.stats().log_used_bytes, 0);
}

#[test]
fn a_read_only_journal_has_no_log() {
    let rig = rig(1024);
    let queue = rig.disk.queue();
    let overlay = Overlay::default();
    let journal = Journal::read_only(queue, overlay, rig.budget.clone(), options());
    let stats = journal.stats();
    assert_eq!((stats.log_bytes, stats.log_used_bytes), (0, 0));
}
