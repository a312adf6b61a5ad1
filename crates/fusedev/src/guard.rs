//! Catching panics, so that a panic in one request does not end the mount.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`, a part of the request `name`. Returns `None` and logs an error if it panics. A
/// [`crate::Reply`] that `work` owns is dropped by the unwinding, which answers EIO.
pub fn guarded<T>(name: impl Display, work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    if done.is_err() {
        tracing::error!("a {name} request panicked and was answered with EIO; this is a bug");
    }
    done.ok()
}
