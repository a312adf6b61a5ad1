//! A panic in one request must not take the mount away from everybody.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the work of request `op`. Should it panic, its reply is dropped while the stack unwinds, and a dropped reply
/// answers EIO.
pub(crate) fn guarded(op: &'static str, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("a {op} request panicked and was answered with EIO; this is a bug");
    }
}
