use super::fake::*;
use crate::*;
use ::sync::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use units::PageIndex;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[test]
fn many_small_files_leave_in_one_write_in_their_order() {
    let mut t = ByHand::new();
    let files = t.files(0..100, 1);
    t.advance(4 * SECOND);
    assert_eq!(t.fs.written(), []);
    t.advance(29 * SECOND);
    assert_eq!(t.fs.written(), (0..100).collect::<Vec<_>>());
    let stats = t.fs.queue.stats().snapshot();
    assert_eq!((stats.write_ios, stats.write_bytes), (1, 100 * 4096));
    assert_eq!(t.fs.dev().dirty_pages(), 0);
    assert!(files.iter().all(|file| file.state.is_clean()));
    assert!(t.fs.ticks.load(SeqCst) >= 1);
    assert!(t.fs.dev().is_idle());
}

#[test]
fn without_plugging_each_file_leaves_by_itself() {
    let mut t = ByHand::new();
    t.fs.queue.set_plugging(false);
    let _files = t.files(0..100, 3);
    t.advance(33 * SECOND);
    let stats = t.fs.queue.stats().snapshot();
    assert_eq!((stats.write_ios, stats.write_bytes), (100, 300 * 4096));
}

#[test]
fn periodic_writes_what_is_old_and_only_that() {
    let mut t = ByHand::new();
    let _old = t.files(0..3, 1);
    t.advance(20 * SECOND);
    let _young = t.files(3..6, 1);
    t.advance(15 * SECOND);
    assert_eq!(t.fs.written(), [0, 1, 2]);
    t.advance(20 * SECOND);
    assert_eq!(t.fs.written(), [3, 4, 5]);
}

#[test]
fn background_writes_down_to_its_threshold() {
    let mut t = ByHand::new();
    let files = t.files(0..50, 20);
    t.settle();
    assert_eq!(t.fs.written(), [], "at the threshold, not above");
    let more = t.files(50..70, 20);
    t.settle();
    let log = t.fs.take_log();
    assert!(log.iter().all(|slice| slice.reason == Reason::Background));
    assert!(t.fs.dev().dirty_pages() <= 1000);
    // The oldest went; the youngest stay until they are old.
    assert!(files[0].state.is_clean());
    assert!(!more[19].state.is_clean());
    let left = t.fs.dev().dirty_pages();
    t.advance(6 * SECOND);
    assert_eq!(t.fs.dev().dirty_pages(), left, "what is left is young");
    t.advance(30 * SECOND);
    assert_eq!(t.fs.dev().dirty_pages(), 0);
}

#[test]
fn the_reason_tells_whether_writers_are_slowed() {
    let mut t = ByHand::new();
    // Writers are slowed above 1,500 pages.
    let _files = t.files(0..80, 20);
    t.settle();
    let log = t.fs.take_log();
    assert_eq!(log[0].reason, Reason::Throttled);
    let _more = t.files(80..100, 20);
    t.settle();
    let log = t.fs.take_log();
    assert!(log.iter().all(|slice| slice.reason == Reason::Background));
    assert!(!log.is_empty());
}

#[test]
fn a_deleted_inode_is_not_written_and_not_held() {
    let mut t = ByHand::new();
    let files = t.files(0..3, 1);
    t.fs.dev().forget(&files[1]);
    assert_eq!(Arc::strong_count(&files[1]), 1);
    // One that the flusher already has on its own list, and then deletes.
    let many = t.files(10..1100, 1);
    t.settle();
    let held = many
        .iter()
        .rev()
        .find(|file| !file.state.is_clean())
        .unwrap();
    t.fs.dev().forget(held);
    t.fs.take_log();
    t.advance(40 * SECOND);
    assert!(!t.fs.written().contains(&held.ino));
    assert!(held.state.is_clean());
    assert!(t.flusher.state.queues.is_b_io_empty());
    assert!(t.fs.dev().is_idle());
}

#[test]
fn a_big_file_does_not_hold_back_small_ones() {
    let mut t = ByHand::new();
    let _big = t.files(0..1, 5000);
    let _small = t.files(1..21, 1);
    t.settle();
    t.fs.dev().kick_reclaim();
    t.settle();
    let written = t.fs.written();
    let last_small = written.iter().rposition(|ino| *ino == 20).unwrap();
    let slices_before = written[..last_small]
        .iter()
        .filter(|ino| **ino == 0)
        .count();
    assert!(slices_before <= 2, "{written:?}");
    assert!(written.iter().filter(|ino| **ino == 0).count() > 5);
}

#[test]
fn a_file_that_is_written_all_the_time_holds_back_nobody() {
    let mut t = ByHand::new();
    let hot = t.files(0..1, 1).remove(0);
    let _others = t.files(1..10, 1);
    let clock = t.clock.clone();
    *t.fs.hook.lock() = Some(Box::new(move |fs, inode| {
        clock.advance(50 * MS);
        if inode.ino == 0 {
            let page = fs.log.lock().len() as u32;
            fs.write(inode, page, page.into());
        }
    }));
    t.clock.advance(31 * SECOND);
    t.step(1);
    let written = t.fs.written();
    for ino in 1..10 {
        assert_eq!(written.iter().filter(|i| **i == ino).count(), 1);
    }
    assert!(!hot.state.is_clean());
    // And the tick is kept: the pass ended although there was always more.
    let ticks = t.fs.ticks.load(SeqCst);
    t.step(1);
    assert_eq!(t.fs.ticks.load(SeqCst), ticks + 1);
}

#[test]
fn a_sync_writes_what_was_dirty_and_waits_for_no_more() {
    let mut t = ByHand::new();
    let files = t.files(0..5, 2);
    let late = t.fs.inode(100);
    let hook_late = late.clone();
    *t.fs.hook.lock() = Some(Box::new(move |fs, _| {
        fs.write(&hook_late, fs.log.lock().len() as u32, 9);
    }));
    let first = t.fs.dev().request_sync().unwrap();
    let same = t.fs.dev().request_sync().unwrap();
    assert!(Arc::ptr_eq(&first, &same));
    t.step(1);
    first.ended().unwrap().unwrap();
    assert_eq!(t.fs.written(), [0, 1, 2, 3, 4]);
    assert!(files.iter().all(|file| file.landed.load(SeqCst) == 1));
    assert!(!late.state.is_clean());
    *t.fs.hook.lock() = None;
    // The next one takes it.
    let next = t.fs.dev().request_sync().unwrap();
    assert!(next.ended().is_none());
    t.step(1);
    next.ended().unwrap().unwrap();
    assert_eq!(t.fs.written(), [100]);
    assert_eq!(t.fs.dev().dirty_pages(), 0);
    // With nothing dirty no thread is needed.
    t.fs.dev().sync().unwrap();
}

#[test]
fn a_sync_ends_while_a_file_is_written_all_the_time() {
    let mut t = ByHand::new();
    let _hot = t.files(0..1, 3);
    *t.fs.hook.lock() = Some(Box::new(|fs, inode| {
        let n = fs.log.lock().len() as u32;
        (0..50).for_each(|page| fs.write(inode, n * 50 + page, 2));
    }));
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    group.ended().unwrap().unwrap();
    assert_eq!(t.fs.take_log().len(), 2);
}

#[test]
fn beside_small_syncs_a_sync_goes_in_steps_and_ends() {
    let mut t = ByHand::new();
    let _files = t.files(0..1000, 1);
    let grows = t.files(1000..1001, 1000).remove(0);
    *t.fs.hook.lock() = Some(Box::new(|fs, inode| {
        if inode.ino == 1000 {
            let end = FakeFs::end(inode).0;
            (end..end + 300).for_each(|page| fs.write(inode, page, 2));
        }
    }));
    // Neither too short for a step nor too long.
    *t.fs.batch_time.lock() = 2 * MS;
    drop(t.fs.dev().begin_fsync(4096));
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    group.ended().unwrap().unwrap();
    let (log, mut steps) = (t.fs.take_log(), t.fs.steps.lock().clone());
    let mut from = 0;
    steps.push(log.len());
    for step in steps {
        let pages: usize = log[from..step].iter().map(|slice| slice.pages).sum();
        // A step, and what was left over of the first round where the second begins.
        assert!(pages < 512, "{pages} pages at once");
        from = step;
    }
    assert!(grows.landed.load(SeqCst) >= 1);
    assert!(!grows.state.is_clean(), "it has grown since");
    // Nobody is about any more.
    *t.fs.hook.lock() = None;
    t.fs.steps.lock().clear();
    t.clock.advance(SECOND);
    let _more = t.files(2000..3000, 1);
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    group.ended().unwrap().unwrap();
    assert_eq!(*t.fs.steps.lock(), []);
    assert_eq!(t.fs.dev().dirty_pages(), 0);
}

#[test]
fn a_page_dirtied_again_in_flight_is_in_the_sync() {
    let mut t = ByHand::new();
    let file = t.files(0..1, 1).remove(0);
    let again = std::sync::atomic::AtomicBool::new(true);
    *t.fs.hook.lock() = Some(Box::new(move |fs, inode| {
        if again.swap(false, SeqCst) {
            // Before the sync is asked for, while an older content is under writeback.
            fs.write(inode, 0, 2);
            fs.dev().request_sync().unwrap();
        }
    }));
    t.advance(36 * SECOND);
    assert_eq!(file.landed.load(SeqCst), 2);
    assert_eq!(t.fs.dev().dirty_pages(), 0);
    assert!(file.state.is_clean());
}

#[test]
fn a_failed_write_is_reported_once_and_tried_again_with_growing_pauses() {
    let mut t = ByHand::new();
    let files = t.files(0..4, 1);
    t.fs.fails.store(true, SeqCst);
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    let error = group.ended().unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    assert_eq!(t.fs.written(), [0, 1, 2, 3], "one attempt each");
    assert_eq!(t.fs.dev().dirty_pages(), 4);
    assert!(files.iter().all(|file| !file.state.is_clean()));
    // Too much dirty: attempts come, but ever more slowly.
    let _more = t.files(10..1100, 1);
    for _ in 0..1000 {
        t.advance(10 * MS);
    }
    let finished = t.fs.finished.load(SeqCst);
    assert!((5..40).contains(&finished), "{finished}");
    // A sync does not wait for the pause.
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    assert!(group.ended().unwrap().is_err());
    t.fs.fails.store(false, SeqCst);
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    group.ended().unwrap().unwrap();
    assert_eq!(t.fs.dev().dirty_pages(), 0);
    assert!(files.iter().all(|file| file.state.is_clean()));
}

#[test]
fn a_blocked_inode_waits_without_holding_back_others() {
    let mut t = ByHand::new();
    let files = t.files(0..3, 1);
    files[0].blocked.store(true, SeqCst);
    t.advance(36 * SECOND);
    assert_eq!(t.fs.written(), [0, 1, 2]);
    for _ in 0..100 {
        t.advance(10 * MS);
    }
    let tries = t.fs.written().len();
    assert!((3..10).contains(&tries), "{tries}");
    files[0].blocked.store(false, SeqCst);
    t.advance(6 * SECOND);
    assert_eq!(files[0].landed.load(SeqCst), 1);
    assert!(t.fs.dev().is_idle());
}

#[test]
fn a_sync_waits_for_a_file_that_another_thread_writes() {
    let mut t = ByHand::new();
    let files = t.files(0..3, 1);
    files[0].locked.store(true, SeqCst);
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    group.ended().unwrap().unwrap();
    assert_eq!(t.fs.written(), [0, 1, 2, 0, 0], "it holds back no other");
    assert!(files.iter().all(|file| file.landed.load(SeqCst) == 1));
    assert!(t.fs.dev().is_idle());
}

#[test]
fn a_sync_does_not_wait_for_what_is_damaged() {
    let mut t = ByHand::new();
    let files = t.files(0..3, 1);
    files[1].damaged.store(true, SeqCst);
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    let error = group.ended().unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EUCLEAN));
    assert_eq!(t.fs.written(), [0, 1, 2], "each was tried once");
    assert_eq!(t.fs.dev().dirty_pages(), 1);
    files[1].damaged.store(false, SeqCst);
    t.advance(6 * SECOND);
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    group.ended().unwrap().unwrap();
    assert_eq!(t.fs.dev().dirty_pages(), 0);
}

#[test]
fn a_panic_ends_the_pass_and_loses_nothing() {
    let mut t = ByHand::new();
    let files = t.files(0..5, 1);
    // The sync has put off the first one when the third one panics.
    files[0].locked.store(true, SeqCst);
    files[2].panics.store(true, SeqCst);
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    assert!(group.ended().unwrap().is_err());
    assert_eq!(t.fs.panics.load(SeqCst), 1);
    t.advance(SECOND);
    let group = t.fs.dev().request_sync().unwrap();
    t.settle();
    group.ended().unwrap().unwrap();
    assert!(files.iter().all(|file| file.landed.load(SeqCst) == 1));
    assert!(t.fs.dev().is_idle());
    assert_eq!(t.fs.dev().dirty_pages(), 0);
}

#[test]
fn changed_tunables_hold_at_once() {
    let mut t = ByHand::new();
    let _files = t.files(0..500, 1);
    t.settle();
    assert_eq!(t.fs.written(), []);
    let bad = Tunables {
        dirty_ratio: 0,
        ..Tunables::default()
    };
    assert!(t.fs.dev().set_tunables(bad).is_err());
    let low = Tunables {
        dirty_background_bytes: Some(100 * 4096),
        ..Tunables::default()
    };
    t.fs.dev().set_tunables(low).unwrap();
    t.settle();
    assert!(t.fs.dev().dirty_pages() <= 100);
}

#[test]
fn zero_writeback_interval_writes_nothing_for_its_age() {
    let mut t = ByHand::with(Tunables {
        dirty_writeback: Duration::ZERO,
        ..Tunables::default()
    });
    let _files = t.files(0..5, 1);
    for _ in 0..20 {
        t.advance(5 * SECOND);
    }
    assert_eq!(t.fs.written(), []);
    assert!(t.fs.ticks.load(SeqCst) > 10);
}

#[test]
fn a_sync_comes_back_for_a_page_that_others_were_writing() {
    let mut t = ByHand::new();
    let file = t.files(0..1, 2).remove(0);
    // An fsync has page 0 in flight, and it is dirtied again before the sync.
    file.mapping
        .take_dirty(PageIndex(0)..PageIndex(1), 1, &mut Vec::new());
    t.fs.write(&file, 0, 2);
    let in_flight = std::sync::atomic::AtomicBool::new(true);
    *t.fs.hook.lock() = Some(Box::new(move |fs, inode| {
        // It lands when the sync has swept the file once.
        if in_flight.swap(false, SeqCst) {
            fs.dev()
                .sub_dirty(inode.mapping.end_writeback(PageIndex(0)..PageIndex(1)));
        }
    }));
    let group = t.fs.dev().request_sync().unwrap();
    t.step(1);
    group.ended().unwrap().unwrap();
    assert_eq!(file.landed.load(SeqCst), 2);
    assert_eq!(t.fs.dev().dirty_pages(), 0);
}

#[test]
fn the_file_system_is_told_what_a_sync_waits_for() {
    let mut t = ByHand::new();
    *t.fs.batch_time.lock() = MS;
    let _much = t.files(0..8000, 1);
    t.settle();
    assert!(t.fs.finished.load(SeqCst) > 2);
    assert_eq!(t.fs.for_sync.load(SeqCst), 0, "nobody asks for a commit");
    let before = t.fs.finished.load(SeqCst);
    let _more = t.files(8000..13_000, 1);
    t.fs.dev().request_sync().unwrap();
    t.settle();
    let after = t.fs.finished.load(SeqCst);
    assert_eq!(t.fs.for_sync.load(SeqCst), after - before);
}

#[test]
fn where_memory_is_wanted_half_of_what_is_dirty_goes_early() {
    let mut t = ByHand::new();
    let _few = t.files(0..3, 100);
    t.fs.dev().kick_reclaim();
    t.settle();
    assert_eq!(t.fs.written(), [], "too little to matter");
    let _more = t.files(3..8, 100);
    t.fs.dev().kick_reclaim();
    t.settle();
    let log = t.fs.take_log();
    assert!(log.iter().all(|slice| slice.reason == Reason::Reclaim));
    assert_eq!(log.len(), 4);
    assert_eq!(t.fs.dev().dirty_pages(), 400);
}

#[test]
fn beside_a_reader_large_files_are_cut_where_room_ends_and_small_ones_are_not() {
    const SMALL: usize = 64;
    let mut t = ByHand::new();
    // There is a reader as long as these follow one another.
    let read = |fs: &FakeFs| drop(fs.queue.throttle().begin_small_sync());
    *t.fs.hook.lock() = Some(Box::new(move |fs, _| read(fs)));
    // The throttle has a clock of its own: on a busy machine the reader may be forgotten.
    let is_cut = (0..50).any(|round| {
        let _small = t.files(2 * round..2 * round + 1, SMALL as u32);
        let _large = t.files(2 * round + 1..2 * round + 2, 5 * SMALL as u32);
        read(&t.fs);
        t.advance(36 * SECOND);
        let log = t.fs.take_log();
        let pages_of = |parity| {
            let slices = log.iter().filter(move |slice| slice.ino % 2 == parity);
            slices.map(|slice| slice.pages)
        };
        assert!(
            pages_of(0).all(|pages| pages == SMALL),
            "a small file is whole"
        );
        pages_of(1).all(|pages| pages < SMALL)
    });
    assert!(
        is_cut,
        "the room is 200 kB, so that a fsync takes no longer than 2 ms"
    );
}

#[test]
fn a_batch_that_was_sent_can_be_finished_by_any_thread() {
    let mut test = ByHand::new();
    // The flusher records its batches later, together.
    let throttle = test.fs.queue.throttle();
    throttle.announce_small_sync(test.clock.monotonic());
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    *test.fs.hook.lock() = Some(Box::new(move |fs, _| {
        seen.fetch_max(fs.open_batches().1, SeqCst);
    }));
    let _files = test.files(0..40, 50);
    test.settle();
    assert!(test.fs.open_batches().0 > 2);
    assert_eq!(most.load(SeqCst), 1, "only the batch that is being filled");
}
