//! Handles that wait for room in the running transaction.

use crate::common::*;
use jbd2::Tid;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Starts a handle of one block while another one has all blocks of the transaction. Ends the other
/// one, after `change` of the first so many blocks. Returns the transactions of both.
fn start_beside(change: u64) -> (Tid, Tid) {
    // The interval of commits is an hour.
    let rig = rig(256);
    let journal = &rig.journal;
    // The journal's thread serves requests by then. Without it the waiting handle commits.
    thread::sleep(Duration::from_millis(50));
    let greedy = journal.start(journal.max_credits()).unwrap();
    let first = greedy.tid();
    let (started, has_started) = mpsc::channel();
    let next = thread::scope(|scope| {
        scope.spawn(move || started.send(journal.start(1).unwrap().tid()));
        // The journal's thread has looked at the transaction by then.
        let soon = has_started.recv_timeout(Duration::from_millis(50));
        assert!(soon.is_err(), "there was no room");
        for i in 0..change {
            greedy.create(FREE + i);
        }
        drop(greedy);
        let next = has_started.recv_timeout(Duration::from_secs(10));
        if next.is_err() {
            // Ends the wait, and so the scope.
            journal.crash();
        }
        next
    });
    (first, next.expect("there is room"))
}

#[test]
fn a_handle_starts_when_others_have_ended_without_a_change() {
    let (first, next) = start_beside(0);
    assert_eq!(first, next);
}

#[test]
fn a_handle_starts_when_others_have_changed_a_block_after_its_request() {
    let (first, next) = start_beside(1);
    assert_eq!(first.next(), next);
}
