//! The accounts of writers.

use super::throttle::{HARD, PAGE, limits, thresholds};
use crate::charge_to;
use crate::payer::{note_cleaned, note_dirtied};
use crate::throttle::Balanced;
use ::sync::clock::{Clock, ManualClock};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn a_writer_that_syncs_its_pages_is_not_slowed() {
    let (limits, share) = limits();
    let clock = ManualClock::default();
    limits.add(&share, HARD);
    let write = || {
        note_dirtied(100 * PAGE);
        limits.balance(&share, thresholds, &clock, || ())
    };
    assert_eq!(write(), Balanced::Paused);
    let now = clock.monotonic();
    for _ in 0..100 {
        note_dirtied(100 * PAGE);
        note_cleaned(100 * PAGE);
        let balanced = limits.balance(&share, thresholds, &clock, || ());
        assert_eq!(balanced, Balanced::Background);
    }
    assert_eq!(clock.monotonic(), now);
    assert_eq!(write(), Balanced::Paused);
}

#[test]
fn a_client_does_not_sleep_for_another_one_of_the_same_thread() {
    let (limits, share) = limits();
    let clock = ManualClock::default();
    limits.add(&share, 1600 * PAGE);
    share.recent_bandwidth.store(10_000 * PAGE, Relaxed);
    let write = |client, pages| {
        let _charging = charge_to(client);
        note_dirtied(pages * PAGE);
        limits.balance(&share, thresholds, &clock, || ())
    };
    assert_eq!(write(1, 1000), Balanced::Paused);
    assert_eq!(write(1, 1), Balanced::Background, "paid");
    share.closed.store(true, Relaxed);
    write(1, 1000);
    share.closed.store(false, Relaxed);
    assert_eq!(write(2, 1), Balanced::Background, "another client");
    assert_eq!(write(1, 1), Balanced::Paused, "its own pages of before");
}
