//! Write errors of an inode. Each open file reports an error once. Algorithm: the kernel's
//! `errseq_t` (`lib/errseq.c`).
//!
//! One 64-bit word: errno in the low 12 bits, a *seen* bit, and a counter above. Recording an error
//! increments the counter only if the last error was seen, so unseen failures share one value.

use sync::atomic::{AtomicU64, Ordering};

const ERRNO: u64 = (1 << 12) - 1;
const SEEN: u64 = 1 << 12;
const STEP: u64 = 1 << 13;
/// `EIO`, for a failure without a number.
const EIO: u64 = 5;

/// A sequence of errors.
#[derive(Default, Debug)]
pub struct ErrSeq(AtomicU64);

impl ErrSeq {
    /// Records a failure. A number that is no errno counts as `EIO`.
    pub fn set(&self, errno: i32) {
        let errno = match u64::try_from(errno) {
            Ok(errno @ 1..=ERRNO) => errno,
            _ => EIO,
        };
        let record = |old: u64| {
            let step = if old & SEEN != 0 { STEP } else { 0 };
            Some((old & !(ERRNO | SEEN)).wrapping_add(step) | errno)
        };
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, record);
    }
    /// A cursor for a new observer. An error that no observer has seen is reported to it.
    pub fn sample(&self) -> u64 {
        let now = self.0.load(Ordering::Acquire);
        if now & SEEN == 0 { 0 } else { now }
    }
    /// Returns the error recorded since `cursor`, and advances the cursor.
    pub fn check(&self, cursor: &mut u64) -> Option<i32> {
        let mut now = self.0.load(Ordering::Acquire);
        if now == *cursor {
            return None;
        }
        if now & SEEN == 0 {
            // Another thread may have recorded more since; the newest error is reported.
            now = self.0.fetch_or(SEEN, Ordering::AcqRel) | SEEN;
        }
        *cursor = now;
        Some((now & ERRNO) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_observer_sees_an_error_once() {
        let errors = ErrSeq::default();
        let (mut a, mut b) = (errors.sample(), errors.sample());
        assert_eq!(errors.check(&mut a), None);
        errors.set(5);
        assert_eq!(errors.check(&mut a), Some(5));
        assert_eq!(errors.check(&mut a), None);
        assert_eq!(errors.check(&mut b), Some(5));
        assert_eq!(errors.check(&mut b), None);
        // The same errno is recorded again.
        errors.set(5);
        assert_eq!(errors.check(&mut a), Some(5));
        errors.set(28);
        assert_eq!(errors.check(&mut b), Some(28));
        assert_eq!(errors.check(&mut a), Some(28));
        assert_eq!(errors.check(&mut a), None);
    }

    #[test]
    fn a_new_observer_sees_only_unseen_errors() {
        let errors = ErrSeq::default();
        errors.set(0);
        let mut first = errors.sample();
        assert_eq!(errors.check(&mut first), Some(5));
        let mut second = errors.sample();
        assert_eq!(errors.check(&mut second), None);
    }
}
