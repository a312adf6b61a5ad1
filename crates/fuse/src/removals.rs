//! Link counts of the kernel beside the removal of names.
//!
//! The kernel subtracts a link when it gets the reply to UNLINK, or to a RENAME that replaces a
//! name. Attributes that the server reads after the removal have the new count. If the kernel gets
//! them before that reply, it subtracts the link twice:
//!
//! ```text
//!  kernel   2 links ─ UNLINK ─┐         GETATTR ─┐      ┌─ 1 link         ┌─ 0 links
//!  server                     remove ───────── read ─ reply ─ reply of UNLINK
//! ```
//!
//! link(2) of a file with a count of 0 fails (ENOENT). So the server invalidates the attributes of
//! such a file before it replies with new ones. The kernel does not keep attributes that it
//! requested before an invalidation; stat(2) returns them nevertheless.
//!
//! The server does not know when the kernel has handled a reply, so it does that for [`PERIOD`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sync::time::now;
use units::Ino;

/// Longer than a thread waits for a processor after its reply.
const PERIOD: Duration = Duration::from_secs(1);

/// Files that share a slot are invalidated without need.
const SLOTS: usize = 1024;

/// Files that have lost one of several links within [`PERIOD`].
pub(crate) struct Removals {
    start: Instant,
    /// The end of the last period, in milliseconds from `start`; 0 without a removal.
    ends: [AtomicU64; SLOTS],
}

impl Default for Removals {
    fn default() -> Removals {
        Removals {
            start: now(),
            ends: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Removals {
    fn end(&self, ino: Ino) -> &AtomicU64 {
        &self.ends[ino.0 as usize % SLOTS]
    }

    fn millis(&self, at: Instant) -> u64 {
        at.duration_since(self.start).as_millis() as u64
    }

    /// Begins a period for `ino`: before the removal, so that no thread reads the new count without
    /// it, and again before the reply, since the removal may take long.
    pub fn note(&self, ino: Ino) {
        let end = self.millis(now() + PERIOD);
        self.end(ino).fetch_max(end, Ordering::Relaxed);
    }

    /// The kernel may have to subtract a link of `ino`. The caller has read the attributes before.
    pub fn is_recent(&self, ino: Ino) -> bool {
        let end = self.end(ino).load(Ordering::Relaxed);
        end != 0 && self.millis(now()) < end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_that_of_one_file_and_ends() {
        let removals = Removals::default();
        assert!(!removals.is_recent(Ino(12)));
        removals.note(Ino(12));
        assert!(removals.is_recent(Ino(12)) && !removals.is_recent(Ino(13)));
        std::thread::sleep(PERIOD + Duration::from_millis(2));
        assert!(!removals.is_recent(Ino(12)));
    }
}
