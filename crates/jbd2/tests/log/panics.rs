//! Panics in the middle of a commit and of a read.

use crate::common::*;
use block::Op;
use jbd2::{Seal, Tid};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::seed::Rng;
use units::FsBlock;

fn broken(_seed: u32, _block: FsBlock, _bytes: &mut [u8]) {
    panic!("a seal that fails");
}

fn fill(rig: &Rig, block: FsBlock, seal: Option<Seal>) -> Tid {
    let handle = rig.journal.start(1).unwrap();
    let buffer = handle.get(block).unwrap();
    handle.modify(&buffer, seal, |bytes| bytes.fill(1));
    handle.tid()
}

/// The transaction is closed when the panic happens. The log must not continue without it.
#[test]
fn a_panic_in_a_commit_stops_the_journal() {
    let rig = rig(1024);
    rig.journal.commit(fill(&rig, FREE, None)).unwrap();
    let seal = Seal {
        seal: broken,
        seed: 0,
    };
    let tid = fill(&rig, FREE + 1, Some(seal));
    assert!(catch_unwind(AssertUnwindSafe(|| rig.journal.commit(tid))).is_err());
    assert!(rig.journal.commit(tid).is_err());
    assert!(!rig.journal.is_committed(tid));
    assert!(rig.journal.start(1).is_err());
    let (image, report) = recovered(rig.disk.crash(&mut Rng::from_seed(1)), 1024);
    assert!(block_of(&image, FREE).iter().all(|&b| b == 1));
    assert_eq!(report.transactions, 1);
}

#[test]
fn a_read_that_panics_is_repeated_by_the_next_thread() {
    let rig = rig(1024);
    let first = AtomicBool::new(true);
    rig.disk.inject(move |op, _, offset, _| {
        let is_it = op == Op::Read && offset == FREE.offset(BLOCK);
        let panics = is_it && first.swap(false, Ordering::SeqCst);
        assert!(!panics, "expected in this test");
        None
    });
    assert!(catch_unwind(AssertUnwindSafe(|| rig.journal.get(FREE).is_ok())).is_err());
    let (told, outcome) = channel();
    let journal = rig.journal.clone();
    std::thread::spawn(move || told.send(journal.get(FREE).is_ok()));
    assert_eq!(outcome.recv_timeout(Duration::from_secs(10)), Ok(true));
}
