//! Panics in the middle of a commit.

use crate::common::*;
use jbd2::{Seal, Tid};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
