use super::fake::*;
use crate::*;
use ::sync::clock::SystemClock;
use cache::Budget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use units::PageIndex;

fn fs(budget_pages: u64) -> Arc<FakeFs> {
    FakeFs::new(Arc::new(SystemClock), budget_pages, Tunables::default())
}

#[test]
fn the_thread_starts_by_itself_and_stops() {
    let fs = fs(10_000);
    let inode = fs.inode(1);
    fs.write(&inode, 0, 7);
    fs.dev().sync().unwrap();
    assert_eq!(inode.landed.load(SeqCst), 7);
    fs.dev().kick_tick();
    let start = Instant::now();
    while fs.ticks.load(SeqCst) == 0 {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    fs.dev().shutdown();
    fs.write(&inode, 0, 8);
    assert!(fs.dev().sync().is_err());
    fs.dev().balance_dirty_pages();
    fs.dev().shutdown();
}

#[test]
fn the_flusher_does_not_keep_the_file_system() {
    let fs = fs(10_000);
    let inode = fs.inode(1);
    fs.write(&inode, 0, 7);
    fs.dev().sync().unwrap();
    let dev = fs.dev().clone();
    let start = Instant::now();
    while Arc::strong_count(&fs) > 1 {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::yield_now();
    }
    drop(fs);
    dev.mark_dirty(&inode);
    assert!(dev.sync().is_err());
    dev.shutdown();
}

#[test]
fn a_sync_reports_what_fails_in_the_foreground() {
    let fs = fs(10_000);
    let inode = fs.inode(1);
    fs.write(&inode, 0, 1);
    *fs.batch_time.lock() = Duration::from_millis(200);
    fs.fails.store(true, SeqCst);
    std::thread::scope(|scope| {
        let fsync = scope.spawn(|| fs.dev().write_and_wait(&fs, &[&inode], ()));
        while inode.mapping.writeback_pages() == 0 {
            std::thread::yield_now();
        }
        // The flusher finds nothing dirty: the page is on its way.
        let synced = fs.dev().sync();
        assert_eq!(synced.unwrap_err().raw_os_error(), Some(5));
        assert_eq!(fsync.join().unwrap()[0], Err(5));
    });
    assert!(!fs.dev().is_clean());
    fs.fails.store(false, SeqCst);
    fs.dev().sync().unwrap();
    assert!(fs.dev().is_clean());
    assert_eq!(inode.landed.load(SeqCst), 1);
    fs.dev().shutdown();
}

#[test]
fn foreground_writeback_that_has_failed_is_not_overlooked() {
    let fs = fs(10_000);
    let list = &fs.dev().foreground;
    let before = list.failures();
    let foreground = list.begin();
    assert!(!list.is_idle_since(before));
    foreground.fail(28);
    drop(foreground);
    // A thread that saw the dirty lists empty at `before` looks at them again.
    assert!(!list.is_idle_since(before));
    assert!(list.is_idle_since(list.failures()));
    assert_eq!(list.wait(before), Some(28));
    assert_eq!(list.wait(list.failures()), None);
}

#[test]
fn a_sync_waits_for_writeback_in_the_foreground() {
    let fs = fs(10_000);
    let foreground = fs.dev().foreground.begin();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fs.dev().sync().unwrap();
            ended.store(true, SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!ended.load(SeqCst));
        drop(foreground);
    });
    assert!(ended.load(SeqCst));
}

/// Writers, syncs, deletions and failures for a while: every sync that succeeds has landed what was
/// written before it, nothing is lost in the end, and the counts come out at zero.
fn nothing_is_lost(flushers: Flushers) {
    const FILES: usize = 64;
    let budget = Budget::new(4000 * 4096);
    let fs = FakeFs::on(
        &budget,
        Arc::new(SystemClock),
        Tunables::default(),
        flushers,
    );
    let files: Vec<_> = (0..FILES).map(|ino| fs.inode(ino as u32)).collect();
    // Versions count up per file; page 0 of each carries them.
    let versions: Vec<_> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
    let until = Instant::now() + Duration::from_millis(1500);
    let synced = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..3usize {
            let (fs, files, versions) = (&fs, &files, &versions);
            scope.spawn(move || {
                let mut rng = testkit::seed::Rng::from_seed(seed as u64);
                while Instant::now() < until {
                    let random = rng.next_u64();
                    // Each writer has files of its own, so that versions arrive in order.
                    let file = (random >> 33) as usize % (FILES / 3) * 3 + seed;
                    let version = versions[file].load(SeqCst) + 1;
                    fs.write(&files[file], 0, version);
                    versions[file].store(version, SeqCst);
                    for page in 0..(random >> 59) as u32 {
                        fs.write(&files[file], 1 + page, 0);
                    }
                    fs.dev().balance_dirty_pages();
                    if random >> 40 & 0xff == 0 {
                        let temporary = fs.inode(1000 + seed as u32);
                        fs.write(&temporary, 0, 1);
                        fs.dev().forget(&temporary);
                        while temporary.mapping.writeback_pages() > 0 {
                            std::thread::yield_now();
                        }
                        let removed = temporary.mapping.remove(PageIndex::FIRST..PageIndex::END);
                        fs.dev().sub_dirty(removed.dirty);
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < until {
                    let before: Vec<_> = versions.iter().map(|v| v.load(SeqCst)).collect();
                    if fs.dev().sync().is_ok() {
                        synced.fetch_add(1, SeqCst);
                        for (file, version) in files.iter().zip(before) {
                            assert!(file.landed.load(SeqCst) >= version, "a sync lied");
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(37));
                fs.fails.store(true, SeqCst);
                std::thread::sleep(Duration::from_millis(3));
                fs.fails.store(false, SeqCst);
                fs.dev().kick_reclaim();
            }
        });
    });
    fs.dev().sync().unwrap();
    for (file, version) in files.iter().zip(&versions) {
        assert_eq!(file.landed.load(SeqCst), version.load(SeqCst));
        assert!(file.state.is_clean());
    }
    assert_eq!(fs.dev().dirty_pages(), 0);
    assert!(fs.dev().is_idle());
    assert!(synced.load(SeqCst) > 0);
    fs.dev().shutdown();
}

#[test]
fn nothing_is_lost_between_writers_syncs_and_failures() {
    nothing_is_lost(Flushers::PerDevice);
}

#[test]
fn nothing_is_lost_where_devices_share_a_thread() {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| nothing_is_lost(Flushers::Shared));
        }
    });
}

#[test]
fn a_sync_that_waits_for_a_flusher_to_start_ends_with_the_device() {
    let t = ByHand::new();
    // Its caller has not started the flusher yet, and will not.
    let group = t.fs.dev().request_sync().unwrap();
    t.fs.dev().shutdown();
    assert!(group.ended().expect("it has ended").is_err());
    assert!(t.fs.dev().request_sync().is_err());
}
