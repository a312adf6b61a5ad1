//! Atomics, threads and time of the system, under this crate's names.

/// Atomic integers.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
        AtomicUsize, Ordering, fence,
    };
}

/// Threads.
pub mod thread {
    pub use std::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, ThreadId, current, panicking, park,
        scope, sleep, spawn, yield_now,
    };

    /// A number for the calling thread: small, dense, never reused.
    #[inline]
    pub fn ordinal() -> usize {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
        NUMBER.with(|number| *number)
    }
}

/// Time.
pub mod time {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant, SystemTime};

    /// The monotonic clock.
    #[inline]
    pub fn now() -> Instant {
        Instant::now()
    }

    /// Time since the first call in this process.
    pub fn monotonic() -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    /// The time of day.
    #[inline]
    pub fn system_now() -> SystemTime {
        SystemTime::now()
    }
}
