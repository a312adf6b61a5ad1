//! Several devices: one thread for all of them, or one for each.

use super::fake::*;
use crate::bandwidth::Rates;
use crate::threads::RoundRobin;
use crate::*;
use ::sync::Mutex;
use ::sync::clock::{Clock, ManualClock, SystemClock};
use cache::Budget;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::ThreadId;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Pages of a file, more than a batch of any device takes.
const FILE_PAGES: u32 = 256;

/// Devices on a budget of 10,000 pages, of which 1,000 may be dirty before anything is written.
fn devices<const N: usize>() -> [ByHand; N] {
    let budget = Budget::new(10_000 * 4096);
    let clock = Arc::new(ManualClock::default());
    std::array::from_fn(|_| ByHand::on(&budget, &clock, Tunables::default(), Flushers::Shared))
}

fn pages_written(fs: &FakeFs) -> u64 {
    let log = fs.log.lock();
    log.iter().map(|slice| slice.pages as u64).sum()
}

#[test]
fn a_shared_thread_gives_each_device_a_batch_in_turn() {
    let devices = devices::<3>();
    let clock = devices[0].clock.clone();
    let mut round_robin = RoundRobin::default();
    let mut files = Vec::new();
    let mut all = Vec::new();
    // The smallest batch: much more is dirty than there may be.
    let batch = 32;
    for device in devices {
        files.push(device.files(0..10, FILE_PAGES));
        *device.fs.batch_time.lock() = 50 * MS;
        all.push(device.fs.clone());
        round_robin.tasks.push(Box::new(device.flusher));
    }
    for round in 1..=3 {
        assert_eq!(round_robin.run_round(), None, "there is more to do");
        for fs in &all {
            assert_eq!(pages_written(fs), round * batch);
        }
    }
    // Each turn left its batch in flight, and waited for the one of the turn before.
    let left = 10 * u64::from(FILE_PAGES) - 2 * batch;
    assert!(all.iter().all(|fs| fs.dev().dirty_pages() == left));
    // They stop at the background threshold, and look from time to time whether the last batches
    // have landed.
    while round_robin.run_round().is_none_or(|nap| nap <= 2 * MS) {
        clock.advance(2 * MS);
    }
    let dirty: u64 = all.iter().map(|fs| fs.dev().dirty_pages()).sum();
    assert!((1000 - 3 * batch..=1000).contains(&dirty), "{dirty}");
}
#[test]
fn what_a_shared_thread_notices_late_makes_no_device_look_slow() {
    let [mut device] = devices::<1>();
    let _files = device.files(0..5, FILE_PAGES);
    *device.fs.batch_time.lock() = 1000 * MS;
    device.step(1);
    let dev = device.fs.dev();
    assert!(device.flusher.state.batches.any_in_flight());
    assert_eq!(
        dev.share.oldest_since_ns.load(Relaxed),
        0,
        "none is overdue"
    );
    // However long its thread was away, a device has the same batch.
    let batch = |flushers| {
        dev.limits
            .batch_bytes(&dev.share, dev.thresholds(), flushers)
    };
    let before = [Flushers::Shared, Flushers::PerDevice].map(batch);
    dev.share.set_bandwidth(Rates {
        mean: 160 * 4096,
        recent: 160 * 4096,
    });
    dev.limits.refresh(dev.thresholds());
    assert_eq!(batch(Flushers::Shared), before[0]);
    assert!(batch(Flushers::PerDevice) < before[1]);
}

/// How long a fast device takes for 3,000 pages.
fn time_of_fast_device(with_slow: bool) -> Duration {
    let [slow, fast] = devices::<2>();
    let _slow_files = slow.files(0..15, FILE_PAGES);
    let _fast_files = fast.files(0..15, FILE_PAGES);
    *slow.fs.batch_time.lock() = 1000 * MS;
    *fast.fs.batch_time.lock() = 10 * MS;
    let (clock, fs) = (fast.clock.clone(), fast.fs.clone());
    let mut round_robin = RoundRobin::default();
    if with_slow {
        round_robin.tasks.push(Box::new(slow.flusher));
    }
    round_robin.tasks.push(Box::new(fast.flusher));
    while pages_written(&fs) < 3000 {
        if let Some(nap) = round_robin.run_round() {
            clock.advance(nap);
        }
    }
    clock.monotonic()
}

#[test]
fn a_slow_device_holds_back_who_shares_its_thread() {
    let alone = time_of_fast_device(false);
    // From the second turn on the thread waits for the slow one's batch before.
    let held_back = time_of_fast_device(true);
    assert!(held_back > 10 * alone, "{held_back:?} and {alone:?} alone");
}

#[test]
fn a_pass_over_what_is_old_goes_on_in_the_next_turn() {
    let [mut device] = devices::<1>();
    let files = device.files(0..5, 100);
    device.clock.advance(31_000 * MS);
    device.step(1);
    let written = device.fs.written();
    assert_eq!(written, [0, 1], "a turn is a batch");
    // Less than the background threshold: only the age of it asks for more.
    device.settle();
    assert_eq!(device.fs.written(), [2, 3, 4]);
    assert!(files.iter().all(|file| file.state.is_clean()));
    assert!(device.fs.dev().is_idle());
}

#[test]
fn devices_that_share_a_thread_do_and_others_do_not() {
    let threads_of = |flushers| {
        let seen = Arc::new(Mutex::new(HashSet::<ThreadId>::new()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let devices: Vec<_> = (0..3)
            .map(|_| {
                let budget = Budget::new(40 << 20);
                FakeFs::on(&budget, clock.clone(), Tunables::default(), flushers)
            })
            .collect();
        for fs in &devices {
            let seen = seen.clone();
            *fs.hook.lock() = Some(Box::new(move |_, _| {
                seen.lock().insert(std::thread::current().id());
            }));
            let inode = fs.inode(1);
            fs.write(&inode, 0, 1);
            fs.dev().sync().unwrap();
        }
        for fs in devices {
            let dev = fs.dev().clone();
            dev.shutdown();
            assert_eq!(Arc::strong_count(&dev), 2, "its flusher is gone");
            assert!(dev.request_sync().is_err());
        }
        seen.lock().len()
    };
    assert_eq!(threads_of(Flushers::Shared), 1);
    assert_eq!(threads_of(Flushers::PerDevice), 3);
}
