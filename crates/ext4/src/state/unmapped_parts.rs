//! The last transaction that has unmapped a part of a cluster of a file (`bigalloc`).
//!
//! The rest of the cluster is still mapped, so the file may write to the unmapped blocks again
//! without an allocation. A write into such a cluster commits this transaction first.

use jbd2::Tid;
use sync::atomic::{AtomicU64, Ordering};

/// Set in the number of a transaction.
const SOME: u64 = 1 << 32;

/// The number of the transaction; 0: there is none that may not have committed.
#[derive(Default)]
pub(crate) struct UnmappedParts(AtomicU64);

impl UnmappedParts {
    /// The running transaction `tid` has unmapped a part of a cluster.
    pub fn note(&self, tid: Tid) {
        self.0.store(SOME | u64::from(tid.0), Ordering::Release);
    }

    /// Returns the newest transaction that was noted and not forgotten.
    pub fn newest(&self) -> Option<Tid> {
        let noted = self.0.load(Ordering::Acquire);
        (noted & SOME != 0).then_some(Tid(noted as u32))
    }

    /// The transaction has committed.
    pub fn forget(&self, tid: Tid) {
        let noted = SOME | u64::from(tid.0);
        let _ = self
            .0
            .compare_exchange(noted, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
