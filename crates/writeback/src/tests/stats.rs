//! The statistics of a device.

use super::fake::*;
use crate::*;
use ::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;
use units::page;

/// Pages in bytes.
const fn pages(n: u64) -> u64 {
    n * page::BYTES
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
    assert_eq!(after.dirty, t.fs.dev().dirty_pages() * page::BYTES);
    assert_eq!(after.flusher, FlusherState::Off);
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
