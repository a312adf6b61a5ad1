//! A panic in one request must not take the mount away from everybody.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does a part of `what`, which names a request. Should it panic, there is no result, and that is
/// logged; its reply is dropped while the stack unwinds, and a dropped reply says EIO.
pub fn guarded<T>(what: impl Display, work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    if done.is_err() {
        tracing::error!("a {what} request panicked and was answered with EIO; this is a bug");
    }
    done.ok()
}
