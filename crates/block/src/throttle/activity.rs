//! Whether threads read or make small fsyncs, so that background writes are limited.
//!
//! Calls with pauses of less than [`EXPECTED`] are those of a reader. A reader has protection for
//! so long after each call. A single call has it for [`ALONE`], as another one may follow.
//!
//! Reads of metadata count only once they have followed one another for a while: a writer reads
//! bitmaps and inode tables, too, but now and then.

use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long after a call of a reader another one is expected.
const EXPECTED: Duration = Duration::from_millis(500);
/// How long after a single call.
const ALONE: Duration = Duration::from_millis(100);
/// Calls this shortly after the last one are not noted: many threads read.
const NOTED: Duration = Duration::from_millis(20);
/// Reads of metadata with pauses of less than this, for so long, are those of a reader.
const DENSE: Duration = Duration::from_millis(20);
const DENSE_FOR: Duration = Duration::from_millis(100);

/// See the module. Times are in nanoseconds; 0: never.
#[derive(Default)]
pub(super) struct Activity {
    /// When the last call came.
    last: AtomicU64,
    /// Since when there were no long pauses.
    since: AtomicU64,
    last_metadata: AtomicU64,
    /// Since when reads of metadata are dense.
    dense_since: AtomicU64,
}

/// The place of a call in the activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The first one after a while.
    First,
    /// One of many.
    Later,
}

impl Activity {
    /// A thread reads, or makes a small fsync.
    pub(super) fn note(&self, now: Duration) -> Call {
        let now_ns = ns(now).max(1);
        let last = self.last.load(Relaxed);
        if last != 0 && now_ns < last + ns(NOTED) {
            return Call::Later;
        }
        self.last.store(now_ns, Relaxed);
        if last != 0 && now_ns < last + ns(EXPECTED) {
            return Call::Later;
        }
        self.since.store(now_ns, Relaxed);
        Call::First
    }

    /// A read of metadata begins. Returns whether it is that of a reader.
    pub(super) fn begin_metadata(&self, now: Duration) -> bool {
        let now_ns = ns(now);
        let last = self.last_metadata.swap(now_ns, Relaxed);
        if last == 0 || now_ns.saturating_sub(last) > ns(DENSE) {
            self.dense_since.store(now_ns, Relaxed);
        }
        self.is_dense(now)
    }

    /// A read of metadata has ended: however long it took, the pause begins now. Returns whether
    /// it is that of a reader.
    pub(super) fn end_metadata(&self, now: Duration) -> bool {
        self.last_metadata.store(ns(now), Relaxed);
        self.is_dense(now)
    }

    fn is_dense(&self, now: Duration) -> bool {
        ns(now).saturating_sub(self.dense_since.load(Relaxed)) >= ns(DENSE_FOR)
    }

    /// Whether threads read or fsync.
    pub(super) fn is_active(&self, now: Duration) -> bool {
        let last = self.last.load(Relaxed);
        let expected = match last.saturating_sub(self.since.load(Relaxed)) < ns(ALONE) {
            true => ALONE,
            false => EXPECTED,
        };
        last != 0 && ns(now).saturating_sub(last) < ns(expected)
    }
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_reader_is_expected_again_and_a_single_call_hardly() {
        let activity = Activity::default();
        assert!(!activity.is_active(ms(0)));
        assert_eq!(activity.note(ms(1000)), Call::First);
        assert!(activity.is_active(ms(1099)));
        assert!(!activity.is_active(ms(1100)));
        assert_eq!(activity.note(ms(1400)), Call::Later);
        assert!(activity.is_active(ms(1899)));
        assert!(!activity.is_active(ms(1900)));
        assert_eq!(activity.note(ms(1900)), Call::First);
        assert_eq!(activity.note(ms(1901)), Call::Later);
        assert!(!activity.is_active(ms(2001)), "calls at once are one call");
    }

    #[test]
    fn a_few_reads_of_metadata_are_a_writers_own() {
        let activity = Activity::default();
        let read = |at: u64| {
            let counts = activity.begin_metadata(ms(at));
            activity.end_metadata(ms(at + 8));
            counts
        };
        assert!((1000..1090).step_by(10).all(|at| !read(at)), "too few");
        assert!((2000..3000).step_by(30).all(|at| !read(at)), "too rare");
        assert!((4000..4121).step_by(20).any(read), "a reader");
    }
}
