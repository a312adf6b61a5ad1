//! Write errors of an inode, each seen once by every open file (the kernel's `errseq_t`,
//! `lib/errseq.c`).
//!
//! One 64-bit word: errno in the low 12 bits, a *seen* bit, and a counter above. Recording an error
//! moves the counter only if the last one was seen, so that a burst of failures that nobody looked
//! at costs one value.

use sync::atomic::{AtomicU64, Ordering};

const ERRNO: u64 = (1 << 12) - 1;
const SEEN: u64 = 1 << 12;
const STEP: u64 = 1 << 13;
/// `EIO`, for a failure that came without a number.
const EIO: u64 = 5;

/// A sequence of errors.
#[derive(Default, Debug)]
pub struct ErrSeq(AtomicU64);

impl ErrSeq {
    /// Records a failure; 0 (and what is no errno) counts as `EIO`.
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
    /// A cursor for a new observer; an error nobody has seen yet is reported to it.
    pub fn sample(&self) -> u64 {
        let now = self.0.load(Ordering::Acquire);
        if now & SEEN == 0 { 0 } else { now }
    }
    /// The error that came after `cursor`, which moves on.
    pub fn check(&self, cursor: &mut u64) -> Option<i32> {
        let mut now = self.0.load(Ordering::Acquire);
        if now == *cursor {
            return None;
        }
        if now & SEEN == 0 {
            // Where the exchange fails somebody else marked it or recorded more; the newest is what
            // to report.
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
        // The same error again is a new one.
        errors.set(5);
        assert_eq!(errors.check(&mut a), Some(5));
        errors.set(28);
        assert_eq!(errors.check(&mut b), Some(28));
        assert_eq!(errors.check(&mut a), Some(28));
        assert_eq!(errors.check(&mut a), None);
    }

    #[test]
    fn a_new_observer_sees_only_what_nobody_saw() {
        let errors = ErrSeq::default();
        errors.set(0);
        let mut first = errors.sample();
        assert_eq!(errors.check(&mut first), Some(5));
        let mut second = errors.sample();
        assert_eq!(errors.check(&mut second), None);
    }
}
