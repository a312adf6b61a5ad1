//! The statistics of a device.

use super::fake::*;
use crate::*;
use ::sync::Mutex;
use ::sync::clock::Clock;
use std::sync::Arc;
use std::time::Duration;
use units::PageSize;

/// Pages in bytes.
const fn pages(n: u64) -> u64 {
    n * PageSize::KIB_4.bytes()
}

#[test]
fn stats_show_dirty_pages_their_limits_and_the_flusher() {
    let mut t = ByHand::new();
    let _files = t.files(0..50, 20);
    let idle = t.fs.dev().stats();
    assert_eq!((idle.dirty, idle.under_writeback), (pages(1000), 0));
    let limits = (idle.background_limit, idle.slowing_limit, idle.hard_limit);
    assert_eq!(limits, (pages(1000), pages(1500), pages(2000)));
    assert!(idle.bandwidth > 0);
    assert_eq!(idle.flusher, FlusherState::Off);

    let seen: Arc<Mutex<Vec<WritebackStats>>> = Arc::default();
    let log = seen.clone();
    *t.fs.hook.lock() = Some(Box::new(move |fs, _| log.lock().push(fs.dev().stats())));
    let _more = t.files(50..70, 20);
    t.settle();
    let seen = seen.lock();
    let writing = FlusherState::Writing(Reason::Background);
    assert!(
        seen.iter().all(|stats| stats.flusher == writing),
        "{seen:?}"
    );
    // The hook runs before the engine counts the slice.
    assert_eq!(seen[0].under_writeback, 0);
    assert_eq!(seen[1].under_writeback, pages(20));
    assert_eq!(seen[1].dirty, pages(1400 - 20));
    drop(seen);

    let after = t.fs.dev().stats();
    assert_eq!(after.under_writeback, 0);
    assert_eq!(after.dirty, pages(t.fs.dev().dirty_pages()));
    assert_eq!(after.flusher, FlusherState::Off);
}

#[test]
fn volumes_with_pages_of_different_sizes_share_the_limits_in_bytes() {
    let clock = Arc::new(::sync::clock::ManualClock::default());
    let budget = cache::Budget::new(pages(10_000));
    let volume = |size| {
        let fs = FakeFs::with_pages(
            size,
            &budget,
            clock.clone(),
            Tunables::default(),
            Flushers::PerDevice,
        );
        fs.dev().control.lock().by_hand = true;
        fs
    };
    let (small, large) = (volume(PageSize::KIB_1), volume(PageSize::KIB_4));
    let dirty = |fs: &Arc<FakeFs>, pages: u32| {
        let file = fs.inode(1);
        (0..pages).for_each(|page| fs.write(&file, page, 1));
        file
    };
    let _files = [dirty(&small, 400), dirty(&large, 300)];
    assert_eq!(small.dev().dirty_pages(), 400);
    assert_eq!(small.dev().stats().dirty, 400 << 10);
    assert_eq!(large.dev().stats().dirty, pages(300));
    assert_eq!(small.dev().limits.to_write(), pages(400));
    // A batch of small pages has as many bytes.
    let mut flusher = crate::flusher::Flusher::new(small.dev().clone());
    small.dev().request_sync().unwrap();
    let work = flusher.next_work(&mut small.dev().control.lock(), clock.monotonic());
    assert!(flusher.run(work.expect("a sync")));
    assert_eq!(small.dev().limits.to_write(), pages(300));
    assert_eq!(small.dev().dirty_pages(), 0);
    assert_eq!(large.dev().dirty_pages(), 300);
}

#[test]
fn a_flusher_whose_batch_failed_and_a_stopped_one_show_it() {
    let mut t = ByHand::new();
    t.fs.fails.store(true, std::sync::atomic::Ordering::SeqCst);
    let _file = t.files(0..1, 3);
    t.fs.dev().request_sync().unwrap();
    t.step(1);
    let failed = t.fs.dev().stats();
    assert_eq!(failed.flusher, FlusherState::Failing);
    assert_eq!((failed.dirty, failed.under_writeback), (pages(3), 0));
    t.fs.dev().shutdown();
    assert_eq!(t.fs.dev().stats().flusher, FlusherState::Stopped);
}

#[test]
fn a_flusher_without_work_is_idle() {
    let clock = Arc::new(::sync::clock::SystemClock);
    let fs = FakeFs::new(clock, 10_000, Tunables::default());
    let file = fs.inode(0);
    fs.write(&file, 0, 1);
    fs.dev().sync().unwrap();
    // The sync ends before its pass does.
    let is_idle = || fs.dev().stats().flusher == FlusherState::Idle;
    let waited = (0..60_000).take_while(|_| !is_idle());
    waited.for_each(|_| std::thread::sleep(Duration::from_millis(1)));
    assert_eq!(fs.dev().stats().flusher, FlusherState::Idle);
    fs.dev().shutdown();
}
