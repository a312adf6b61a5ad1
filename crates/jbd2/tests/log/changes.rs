//! The look for changes without the commit lock ([`jbd2::Journal::newest_change`]).

use crate::common::*;
use jbd2::{FreedExtent, Handle, JournalClient, JournalError, Phase, Tid};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

/// A client whose change moves into the transaction on permission.
struct Client {
    changed: AtomicBool,
    phases: Mutex<Vec<Phase>>,
    /// Told when the change has left the client and is not in the transaction, and waited for then.
    between: Mutex<(Sender<()>, Receiver<()>)>,
}

impl JournalClient for Client {
    fn write_back_state(&self, handle: &Handle<'_>, phase: Phase) {
        self.phases.lock().unwrap().push(phase);
        if !self.changed.swap(false, Ordering::SeqCst) {
            return;
        }
        if phase == Phase::Ahead {
            let between = self.between.lock().unwrap();
            between.0.send(()).unwrap();
            between.1.recv().unwrap();
        }
        let buffer = handle.get(FREE).unwrap();
        handle.modify(&buffer, None, |bytes| bytes.fill(5));
    }
    fn pending_blocks(&self) -> u32 {
        2
    }
    fn has_changes(&self) -> bool {
        self.changed.load(Ordering::SeqCst)
    }
    fn committed(&self, _: Tid, _: &[FreedExtent]) {}
    fn aborted(&self, _: &JournalError) {}
}

fn client(rig: &Rig) -> (Arc<Client>, Receiver<()>, Sender<()>) {
    let (told, tell) = (channel(), channel());
    let client = Arc::new(Client {
        changed: AtomicBool::new(false),
        phases: Mutex::default(),
        between: Mutex::new((told.0, tell.1)),
    });
    let weak: Weak<dyn JournalClient> = Arc::downgrade(&(client.clone() as Arc<_>));
    rig.journal.set_client(weak);
    (client, told.1, tell.0)
}

/// Asserts that there is something to commit, and commits it.
fn commit(rig: &Rig) {
    let newest = rig.journal.newest_change();
    assert_eq!(newest, rig.journal.running_tid());
    rig.journal.commit(newest).unwrap();
    assert!(rig.journal.is_committed(newest));
}

#[test]
fn nothing_to_commit_asks_the_client_for_nothing() {
    let rig = rig(1024);
    let (client, ..) = client(&rig);
    let newest = rig.journal.newest_change();
    assert!(rig.journal.is_committed(newest));
    rig.journal.commit(newest).unwrap();
    assert!(client.phases.lock().unwrap().is_empty());
    client.changed.store(true, Ordering::SeqCst);
    commit(&rig);
    let newest = rig.journal.newest_change();
    assert!(rig.journal.is_committed(newest), "all of it is durable");
}

#[test]
fn each_place_of_a_change_is_looked_at() {
    let rig = rig(1024);
    let start = || rig.journal.start(2).unwrap();
    let buffer = rig.journal.get(FREE).unwrap();
    start().modify(&buffer, None, |bytes| bytes.fill(1));
    commit(&rig);
    start().forget(FREE);
    commit(&rig);
    start().free_blocks(FreedExtent {
        start: FREE,
        len: 1,
    });
    commit(&rig);
    // A running handle may have changed the client's state already.
    let handle = start();
    let newest = thread::scope(|s| s.spawn(|| rig.journal.newest_change()).join().unwrap());
    assert_eq!(newest, handle.tid());
    drop(handle);
    assert!(rig.journal.is_committed(rig.journal.newest_change()));
}

#[test]
fn a_change_that_moves_into_the_transaction_is_not_missed() {
    let rig = rig(1024);
    let (client, between, go) = client(&rig);
    client.changed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| rig.journal.prepare_commit());
        between.recv().unwrap();
        let newest = rig.journal.newest_change();
        assert_eq!(newest, rig.journal.running_tid());
        go.send(()).unwrap();
        rig.journal.commit(newest).unwrap();
    });
    assert_eq!(rig.journal.stats().commits, 1);
}
