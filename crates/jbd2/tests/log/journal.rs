//! The journal on a disk in memory: the cost of commits, shared commits, and failures.

use crate::common::*;
use block::{Durability, Reason};
use cache::Kind;
use jbd2::{
    AsyncCommit, FreedExtent, Handle, Journal, JournalClient, JournalError, JournalOptions,
    LogFormat, Phase, Seal, Tid,
};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use testkit::seed::Rng;
use units::{FsBlock, Span};

fn fill(journal: &Journal, block: FsBlock, byte: u8) -> Tid {
    let handle = journal.start(1).unwrap();
    let buffer = handle.get(block).unwrap();
    handle.modify(&buffer, None, |bytes| bytes.fill(byte));
    handle.tid()
}

#[test]
fn only_committed_changes_survive() {
    let rig = rig(1024);
    let tid = fill(&rig.journal, FREE, 1);
    assert!(!rig.journal.is_committed(tid));
    rig.journal.commit(tid).unwrap();
    assert!(rig.journal.is_committed(tid));
    fill(&rig.journal, FREE, 2);
    fill(&rig.journal, FREE + 1, 2);
    for seed in 0..20 {
        let (image, report) = recovered(rig.disk.crash(&mut Rng::from_seed(seed)), 1024);
        assert!(block_of(&image, FREE).iter().all(|&b| b == 1));
        assert!(block_of(&image, FREE + 1).iter().all(|&b| b == 0));
        assert_eq!((report.transactions, report.replayed), (1, 1));
    }
}

/// Requests and flushes of a commit after `change`.
fn cost(rig: &Rig, change: impl FnOnce(&Handle<'_>)) -> (u64, u64) {
    let handle = rig.journal.start(1).unwrap();
    change(&handle);
    let tid = handle.tid();
    drop(handle);
    let before = rig.disk.counts();
    rig.journal.commit(tid).unwrap();
    let after = rig.disk.counts();
    let requests = after.requests - before.requests;
    (requests, after.flushes - before.flushes)
}

fn write_data(rig: &Rig) {
    let buf = block::BufMut::zeroed(4096).freeze();
    rig.queue
        .write(
            (FREE + 100).offset(BLOCK),
            &[buf],
            block::Class::Data,
            Reason::Other,
            Durability::Cached,
        )
        .unwrap();
}

fn change(handle: &Handle<'_>) {
    let buffer = handle.get(FREE).unwrap();
    handle.modify(&buffer, None, |bytes| bytes[0] = bytes[0].wrapping_add(1));
}

#[test]
fn a_commit_costs_one_stream_one_flush_and_one_commit_block() {
    let rig = rig(1024);
    rig.journal.commit(fill(&rig.journal, FREE, 1)).unwrap();
    assert_eq!(cost(&rig, change), (3, 1));
    write_data(&rig);
    let with_data = |handle: &Handle<'_>| {
        change(handle);
        handle.depends_on(rig.queue.written());
    };
    assert_eq!(cost(&rig, with_data), (3, 1), "the flush covers the data");
}

#[test]
fn a_small_asynchronous_commit_is_one_write() {
    let rig = rig_with(volume(VOLUME, 4096, 0), 4096, async_commit());
    // The first commit marks the log as in use in the super block.
    assert_eq!(cost(&rig, change), (2, 0));
    assert_eq!(cost(&rig, change), (1, 0));
    // The transaction does not depend on this data, so the commit does not flush it first.
    write_data(&rig);
    assert_eq!(cost(&rig, change), (1, 0));
    let with_data = |handle: &Handle<'_>| {
        change(handle);
        handle.depends_on(rig.queue.written());
    };
    assert_eq!(cost(&rig, with_data), (2, 1));
    assert_eq!(cost(&rig, with_data), (1, 0), "it is durable already");
}

#[test]
fn a_large_asynchronous_commit_and_one_with_many_revokes_have_a_flush_between() {
    let rig = rig_with(volume(VOLUME, 4096, 0), 4096, async_commit());
    rig.journal.commit(fill(&rig.journal, FREE, 1)).unwrap();
    let forget =
        |blocks: u64| move |handle: &Handle<'_>| (0..blocks).for_each(|i| handle.forget(FREE + i));
    // As many as fit into a sector, which is written whole.
    assert_eq!(cost(&rig, forget(62)), (1, 0));
    assert_eq!(cost(&rig, forget(63)), (3, 1));
    for i in 0..300 {
        fill(&rig.journal, FREE + i, 1);
    }
    let (requests, flushes) = cost(&rig, |_| ());
    assert!(
        (3..6).contains(&requests),
        "the log is in pieces: {requests}"
    );
    assert_eq!(flushes, 1);
}

#[test]
fn a_run_of_small_commits_becomes_one_write_each() {
    let rig = rig_with(volume(VOLUME, 4096, 0), 4096, adaptive());
    assert_eq!(cost(&rig, change), (4, 1), "with the super block");
    (0..14).for_each(|_| assert_eq!(cost(&rig, change), (3, 1)));
    // The block is written home and flushed; one super block records that, another one the new
    // form.
    assert_eq!(cost(&rig, change), (5, 1));
    (0..100).for_each(|_| assert_eq!(cost(&rig, change), (1, 0)));
    // A restarted log has the checksums of each block.
    rig.journal.flush().unwrap();
    assert_eq!(
        cost(&rig, change),
        (2, 0),
        "and goes on where the load has not changed"
    );
}

#[test]
fn a_change_of_form_that_would_take_long_has_the_log_written_home_before() {
    let rig = rig_with(volume(VOLUME, 4096, 0), 4096, adaptive());
    // When the form is to change, the log's blocks have 48 different homes. No commit waits for
    // them.
    for n in 0..60 {
        let handle = rig.journal.start(3).unwrap();
        for i in 0..3 {
            let buffer = handle.get(FREE + (n * 3 + i) * 2 % 200).unwrap();
            handle.modify(&buffer, None, |bytes| bytes[0] = bytes[0].wrapping_add(1));
        }
        let tid = handle.tid();
        drop(handle);
        rig.journal.commit(tid).unwrap();
        // The journal thread has time for the request.
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(cost(&rig, change), (1, 0));
}

#[test]
fn background_commits_do_not_change_the_logs_form() {
    let rig = rig_with(volume(VOLUME, 4096, 0), 4096, adaptive());
    for _ in 0..40 {
        fill(&rig.journal, FREE, 1);
        rig.journal.flush().unwrap();
    }
    // A commit of each form, the log having been empty.
    assert_eq!(cost(&rig, change), (4, 1));
}

#[test]
fn a_commit_of_nothing_does_nothing() {
    let rig = rig(1024);
    write_data(&rig);
    let requests = rig.disk.counts().requests;
    rig.journal.commit(rig.journal.running_tid()).unwrap();
    assert_eq!(rig.disk.counts().requests, requests);
    assert_eq!(rig.journal.stats().commits, 0);
}

#[test]
fn many_callers_share_commits() {
    let rig = rig(4096);
    let (threads, rounds) = (8, 50);
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        for t in 0..threads {
            let (journal, barrier) = (&rig.journal, &barrier);
            scope.spawn(move || {
                for i in 0..rounds {
                    barrier.wait();
                    let tid = fill(journal, FREE + t as u64, i as u8);
                    barrier.wait();
                    journal.commit(tid).unwrap();
                }
            });
        }
    });
    // All changes of a round are made before any is committed.
    assert_eq!(rig.journal.stats().commits, rounds as u64);
}

#[test]
fn blocks_that_look_like_the_log_are_escaped() {
    let rig = rig(1024);
    let mut forged = block::BufMut::copy_of(&[9; 4096]);
    forged[..4].copy_from_slice(&jbd2::format::MAGIC.to_be_bytes());
    let forged = forged.freeze();
    let handle = rig.journal.start(2).unwrap();
    let buffer = handle.create(FREE);
    handle.modify(&buffer, None, |bytes| bytes.copy_from_slice(&forged));
    // Anyone can choose the contents of a file.
    handle.log_data(FREE + 1, forged.clone());
    let tid = handle.tid();
    drop(handle);
    rig.journal.commit(tid).unwrap();
    let crashed = rig.disk.crash(&mut Rng::from_seed(3));
    let log = extents(1024);
    let mut log = log
        .iter()
        .flat_map(|e| (e.physical..e.physical + u64::from(e.len)).numbers());
    assert!(log.all(|block| block_of(&crashed, block)[..8] != forged[..8]));
    let (image, report) = recovered(crashed, 1024);
    assert_eq!(block_of(&image, FREE), &forged[..]);
    assert_eq!(block_of(&image, FREE + 1), &forged[..]);
    assert_eq!(report.replayed, 2);
}

#[test]
fn forgotten_blocks_are_neither_replayed_nor_written_home() {
    let rig = rig(1024);
    rig.journal.commit(fill(&rig.journal, FREE, 1)).unwrap();
    let handle = rig.journal.start(1).unwrap();
    handle.forget(FREE);
    let tid = handle.tid();
    drop(handle);
    rig.journal.commit(tid).unwrap();
    // The block belongs to a file now.
    let data = block::BufMut::copy_of(&[0xDD; 4096]).freeze();
    rig.queue
        .write(
            FREE.offset(BLOCK),
            &[data],
            block::Class::Data,
            Reason::Other,
            Durability::Fua,
        )
        .unwrap();
    let (image, report) = recovered(rig.disk.crash(&mut Rng::from_seed(3)), 1024);
    assert!(block_of(&image, FREE).iter().all(|&b| b == 0xDD));
    assert_eq!((report.revoked, report.replayed), (1, 0));
    rig.journal.flush().unwrap();
    assert!(block_of(&rig.disk.bytes(), FREE).iter().all(|&b| b == 0xDD));
    // The block is metadata again. The old revoke record does not cover it.
    let handle = rig.journal.start(1).unwrap();
    let buffer = handle.create(FREE);
    handle.modify(&buffer, None, |bytes| bytes.fill(3));
    let tid = handle.tid();
    drop(handle);
    rig.journal.commit(tid).unwrap();
    let (image, _) = recovered(rig.disk.crash(&mut Rng::from_seed(4)), 1024);
    assert!(block_of(&image, FREE).iter().all(|&b| b == 3));
}

#[test]
fn a_block_created_again_in_the_same_transaction_is_not_revoked() {
    let rig = rig(1024);
    rig.journal.commit(fill(&rig.journal, FREE, 1)).unwrap();
    let handle = rig.journal.start(2).unwrap();
    let old = handle.get(FREE).unwrap();
    handle.modify(&old, None, |bytes| bytes.fill(2));
    handle.forget(FREE);
    let new = handle.create(FREE);
    assert!(new.data().iter().all(|&b| b == 0));
    handle.modify(&new, None, |bytes| bytes[0] = 4);
    let tid = handle.tid();
    drop(handle);
    rig.journal.commit(tid).unwrap();
    let (image, report) = recovered(rig.disk.crash(&mut Rng::from_seed(3)), 1024);
    assert_eq!(block_of(&image, FREE), &new.data()[..]);
    assert_eq!(report.revoked, 0);
    rig.journal.close().unwrap();
    assert_eq!(block_of(&rig.disk.bytes(), FREE), &new.data()[..]);
}

static SEALED: AtomicU32 = AtomicU32::new(0);

#[test]
fn blocks_are_sealed_once_per_commit_and_without_a_copy() {
    fn seal(seed: u32, block: FsBlock, bytes: &mut [u8]) {
        SEALED.fetch_add(1, Ordering::Relaxed);
        bytes[..4].copy_from_slice(&seed.to_le_bytes());
        bytes[4..12].copy_from_slice(&block.0.to_le_bytes());
    }
    let rig = rig(1024);
    let handle = rig.journal.start(1).unwrap();
    let buffer = handle.get(FREE).unwrap();
    for i in 0..10 {
        handle.modify(&buffer, Some(Seal { seal, seed: 77 }), |bytes| {
            bytes[100] = i;
        });
    }
    let tid = handle.tid();
    drop(handle);
    rig.journal.commit(tid).unwrap();
    assert_eq!(SEALED.load(Ordering::Relaxed), 1);
    let data = buffer.data();
    assert_eq!(data[..4], 77u32.to_le_bytes());
    assert_eq!(data[4..12], FREE.0.to_le_bytes());
    let (image, _) = recovered(rig.disk.crash(&mut Rng::from_seed(0)), 1024);
    assert_eq!(block_of(&image, FREE), &data[..]);
}

#[test]
fn a_small_log_wraps_around_under_load() {
    let log = 256;
    let rig = rig(log);
    let threads = 8;
    let per_thread = 400u32;
    std::thread::scope(|scope| {
        for t in 0..threads {
            let journal = &rig.journal;
            scope.spawn(move || {
                let mut rng = Rng::from_seed(t);
                for i in 1..=per_thread {
                    let handle = journal.start(4).unwrap();
                    for k in 0..4u64 {
                        let buffer = handle.get(FREE + t * 64 + rng.below(16) * 4 + k).unwrap();
                        handle.modify(&buffer, None, |bytes| {
                            bytes[..4].copy_from_slice(&i.to_le_bytes());
                        });
                    }
                    let tid = handle.tid();
                    drop(handle);
                    if i % 16 == 0 {
                        journal.commit(tid).unwrap();
                    }
                }
            });
        }
    });
    let stats = rig.journal.stats();
    assert!(stats.logged_blocks > 3 * u64::from(log), "{stats:?}");
    rig.journal.commit(rig.journal.running_tid()).unwrap();
    let (image, _) = recovered(rig.disk.crash(&mut Rng::from_seed(8)), log);
    for block in (FREE..FREE + threads * 64).numbers() {
        let buffer = rig.journal.get(block).unwrap();
        assert_eq!(block_of(&image, block), &buffer.data()[..], "block {block}");
    }
    rig.journal.close().unwrap();
    assert!(matches!(rig.journal.start(1), Err(JournalError::Closed)));
    let (home, report) = recovered(rig.disk.crash(&mut Rng::from_seed(9)), log);
    assert_eq!(report, jbd2::RecoveryReport::default());
    for block in (FREE..FREE + threads * 64).numbers() {
        assert_eq!(block_of(&home, block), block_of(&image, block));
    }
}

#[test]
fn a_write_error_stops_the_journal() {
    #[derive(Default)]
    struct Client(AtomicUsize);
    impl JournalClient for Client {
        fn write_back_state(&self, _: &Handle<'_>, _: Phase) {}
        fn pending_blocks(&self) -> u32 {
            0
        }
        fn committed(&self, _: Tid, _: &[FreedExtent]) {}
        fn aborted(&self, _: &JournalError) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let rig = rig(1024);
    let client = Arc::new(Client::default());
    let weak: std::sync::Weak<dyn JournalClient> = Arc::downgrade(&(client.clone() as Arc<_>));
    rig.journal.set_client(weak);
    rig.journal.commit(fill(&rig.journal, FREE, 1)).unwrap();
    let tid = fill(&rig.journal, FREE, 2);
    rig.disk.fail_writes_after(0);
    assert!(matches!(rig.journal.commit(tid), Err(JournalError::Io(_))));
    rig.disk.heal();
    assert!(matches!(
        rig.journal.commit(tid),
        Err(JournalError::Aborted(_))
    ));
    assert!(matches!(
        rig.journal.start(1),
        Err(JournalError::Aborted(_))
    ));
    assert!(rig.journal.close().is_err());
    assert_eq!(client.0.load(Ordering::Relaxed), 1);
    // Readers get the same contents, even when memory is short.
    rig.budget.set_limit(1);
    rig.budget.make_room();
    let buffer = rig.journal.get(FREE).unwrap();
    assert!(buffer.data().iter().all(|&b| b == 2));
    let (image, _) = recovered(rig.disk.crash(&mut Rng::from_seed(1)), 1024);
    assert!(block_of(&image, FREE).iter().all(|&b| b == 1));
}

#[test]
fn a_recorded_error_is_kept_until_it_is_cleared() {
    use jbd2::format::put_u32;
    let mut image = volume(VOLUME, 1024, 0);
    put_u32(&mut image[2000 * 4096..], 0x20, -5i32 as u32);
    let rig = rig_with(image, 1024, options());
    assert_eq!(rig.journal.recorded_errno(), -5);
    rig.journal.commit(fill(&rig.journal, FREE, 1)).unwrap();
    rig.journal.close().unwrap();
    let rig = rig_with(rig.disk.bytes(), 1024, options());
    assert_eq!(rig.journal.recorded_errno(), -5);
    rig.journal.clear_recorded_errno().unwrap();
    let rig = rig_with(rig.disk.crash(&mut Rng::from_seed(1)), 1024, options());
    assert_eq!(rig.journal.recorded_errno(), 0);
}

#[test]
fn the_clients_state_is_part_of_the_commit_and_frees_come_after_it() {
    struct Client {
        phases: Mutex<Vec<Phase>>,
        freed: Mutex<Vec<FreedExtent>>,
    }
    impl JournalClient for Client {
        fn write_back_state(&self, handle: &Handle<'_>, phase: Phase) {
            self.phases.lock().unwrap().push(phase);
            let block = FREE + 10 + phase as u64;
            let buffer = handle.get(block).unwrap();
            handle.modify(&buffer, None, |bytes| bytes.fill(5));
        }
        fn pending_blocks(&self) -> u32 {
            2
        }
        fn committed(&self, _: Tid, freed: &[FreedExtent]) {
            self.freed.lock().unwrap().extend_from_slice(freed);
        }
        fn aborted(&self, _: &JournalError) {}
    }
    let client = Arc::new(Client {
        phases: Mutex::default(),
        freed: Mutex::default(),
    });
    let rig = rig(1024);
    let weak: std::sync::Weak<dyn JournalClient> = Arc::downgrade(&(client.clone() as Arc<_>));
    rig.journal.set_client(weak);
    let handle = rig.journal.start(1).unwrap();
    let (start, len) = (FsBlock(6000), 3);
    let extent = FreedExtent { start, len };
    handle.free_blocks(extent);
    let tid = handle.tid();
    drop(handle);
    assert!(client.freed.lock().unwrap().is_empty());
    // A thread that waits prepares a part of the commit.
    rig.journal.prepare_commit();
    assert_eq!(rig.journal.running_tid(), tid);
    rig.journal.commit(tid).unwrap();
    assert_eq!(*client.freed.lock().unwrap(), [extent]);
    assert_eq!(
        *client.phases.lock().unwrap(),
        [Phase::Ahead, Phase::Early, Phase::Locked]
    );
    let (image, report) = recovered(rig.disk.crash(&mut Rng::from_seed(1)), 1024);
    assert_eq!(report.replayed, 3);
    assert!((10..13).all(|i| block_of(&image, FREE + i)[0] == 5));
}

#[test]
fn credits_are_bounded_and_a_full_transaction_commits() {
    let rig = rig(256);
    let most = rig.journal.max_credits();
    assert!(matches!(
        rig.journal.start(most + 1),
        Err(JournalError::TooLarge { .. })
    ));
    let handle = rig.journal.start(most - 1).unwrap();
    assert_eq!(handle.credits(), most - 1);
    assert!(!handle.extend(2));
    assert!(handle.extend(1));
    for i in 0..u64::from(most) {
        let buffer = handle.create(FREE + i);
        handle.modify(&buffer, None, |bytes| bytes.fill(1));
    }
    assert_eq!(handle.credits(), 0);
    let full = handle.tid();
    drop(handle);
    let handle = rig.journal.start(1).unwrap();
    assert_eq!(handle.tid(), Tid(full.0 + 1));
    // This thread or the journal thread commits. The commit may still run when the next transaction
    // begins.
    let until = Instant::now() + Duration::from_secs(30);
    while !rig.journal.is_committed(full) {
        assert!(
            Instant::now() < until,
            "a full transaction is not committed"
        );
        thread::yield_now();
    }
}

#[test]
fn a_handle_that_waits_for_space_does_not_wait_for_the_log() {
    /// Holds a commit before the transaction is closed, and after it is in the log.
    struct Client {
        early: Mutex<mpsc::Receiver<()>>,
        logged: Mutex<mpsc::Receiver<()>>,
        halted: mpsc::Sender<()>,
    }
    impl JournalClient for Client {
        fn write_back_state(&self, _: &Handle<'_>, phase: Phase) {
            if phase == Phase::Early {
                let _ = self.halted.send(());
                let _ = self.early.lock().unwrap().recv();
            }
        }
        fn pending_blocks(&self) -> u32 {
            0
        }
        fn committed(&self, _: Tid, _: &[FreedExtent]) {
            let _ = self.logged.lock().unwrap().recv();
        }
        fn aborted(&self, _: &JournalError) {}
    }
    let (go_early, early) = mpsc::channel();
    let (go_logged, logged) = mpsc::channel();
    let (halted, is_halted) = mpsc::channel();
    let client = Arc::new(Client {
        early: Mutex::new(early),
        logged: Mutex::new(logged),
        halted,
    });
    let rig = rig(256);
    let weak: std::sync::Weak<dyn JournalClient> = Arc::downgrade(&(client.clone() as Arc<_>));
    rig.journal.set_client(weak);
    let most = rig.journal.max_credits();
    let handle = rig.journal.start(most).unwrap();
    for i in 0..u64::from(most) {
        let buffer = handle.create(FREE + i);
        handle.modify(&buffer, None, |bytes| bytes.fill(1));
    }
    let full = handle.tid();
    drop(handle);
    thread::scope(|scope| {
        let journal = &rig.journal;
        let commit = scope.spawn(move || journal.commit(full));
        let wait = Duration::from_secs(30);
        is_halted.recv_timeout(wait).unwrap();
        let (started, has_started) = mpsc::channel();
        scope.spawn(move || started.send(journal.start(1).unwrap().tid()));
        let soon = has_started.recv_timeout(Duration::from_millis(50));
        assert!(soon.is_err(), "there was no room");
        go_early.send(()).unwrap();
        let next = has_started.recv_timeout(wait);
        let durable = journal.is_committed(full);
        // From here on no commit is held.
        drop((go_early, go_logged));
        assert_eq!(next, Ok(Tid(full.0 + 1)));
        assert!(!durable);
        commit.join().unwrap().unwrap();
    });
}

#[test]
fn pending_blocks_of_the_client_count_towards_half_of_a_transaction() {
    #[derive(Default)]
    struct Client(AtomicU32);
    impl JournalClient for Client {
        fn write_back_state(&self, _: &Handle<'_>, phase: Phase) {
            if phase == Phase::Locked {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        fn pending_blocks(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
        fn committed(&self, _: Tid, _: &[FreedExtent]) {}
        fn aborted(&self, _: &JournalError) {}
    }
    let rig = rig(1024);
    let client = Arc::new(Client::default());
    let weak: std::sync::Weak<dyn JournalClient> = Arc::downgrade(&(client.clone() as Arc<_>));
    rig.journal.set_client(weak);
    let half = rig.journal.max_credits() / 2;
    client.0.store(half - 1, Ordering::Relaxed);
    let tid = fill(&rig.journal, FREE, 1);
    thread::sleep(Duration::from_millis(50));
    assert!(!rig.journal.is_committed(tid), "it is not large yet");
    // With the block above the transaction is half full, and handles for the other half do not wait
    // for its commit.
    assert_eq!(fill(&rig.journal, FREE + 1, 1), tid);
    let until = Instant::now() + Duration::from_secs(30);
    while !rig.journal.is_committed(tid) {
        assert!(
            Instant::now() < until,
            "a large transaction is not committed"
        );
        thread::yield_now();
    }
    assert_eq!(client.0.load(Ordering::Relaxed), 0);
}

#[test]
fn reclaim_keeps_buffers_that_are_not_home() {
    let rig = rig(1024);
    for i in 0..100 {
        rig.journal.get(FREE + i).unwrap();
    }
    let tid = fill(&rig.journal, FREE, 7);
    let held = rig.journal.get(FREE + 1).unwrap();
    let before = rig.budget.used_by(Kind::Metadata);
    rig.budget.set_limit(1);
    for _ in 0..4 {
        rig.budget.make_room();
    }
    let after = rig.budget.used_by(Kind::Metadata);
    assert!(after * 10 < before, "{before} → {after}");
    assert_eq!(rig.journal.get(FREE).unwrap().data()[0], 7);
    rig.journal.commit(tid).unwrap();
    rig.budget.make_room();
    // The buffer is committed but not home. The device still has the old content.
    assert_eq!(rig.journal.get(FREE).unwrap().data()[0], 7);
    rig.journal.flush().unwrap();
    rig.budget.make_room();
    assert_eq!(rig.journal.get(FREE).unwrap().data()[0], 7);
    drop(held);
    let budget = rig.budget.clone();
    drop(rig);
    // Another thread may return memory at this moment.
    let start = std::time::Instant::now();
    while budget.used_by(Kind::Metadata) > 0 {
        assert!(start.elapsed().as_secs() < 20, "memory is not given back");
        std::thread::yield_now();
    }
}

#[test]
fn the_budget_balances_when_blocks_change_while_committed() {
    let rig = rig(256);
    for round in 0..50u8 {
        let mut last = None;
        for i in 0..20 {
            last = Some(fill(&rig.journal, FREE + i, round));
        }
        rig.journal.commit(last.unwrap()).unwrap();
        fill(&rig.journal, FREE + 3, round);
        if round % 7 == 0 {
            let handle = rig.journal.start(1).unwrap();
            handle.forget(FREE + 5);
        }
    }
    let budget = rig.budget.clone();
    rig.journal.close().unwrap();
    drop(rig);
    assert_eq!(budget.used_by(Kind::Metadata), 0);
}

#[test]
fn prefetch_reads_neighbours_at_once() {
    let rig = rig(1024);
    let requests = rig.disk.counts().requests;
    let blocks: Vec<FsBlock> = (0..64).map(|i| FREE + i).chain([FREE + 100]).collect();
    rig.journal.prefetch(&blocks);
    rig.journal.prefetch(&blocks);
    rig.journal.prefetch(&[u64::MAX, 1 << 40].map(FsBlock));
    for block in blocks {
        rig.journal.get(block).unwrap();
    }
    assert_eq!(rig.disk.counts().requests - requests, 2);
}

#[test]
fn a_read_only_journal_reads_through_the_log() {
    let rig = rig(1024);
    rig.journal.commit(fill(&rig.journal, FREE, 1)).unwrap();
    let disk = recorded(rig.disk.crash(&mut Rng::from_seed(1)));
    let queue = disk.queue();
    let (overlay, _) = jbd2::recover_to_memory(&queue, &place(1024), BLOCK, &rig.budget).unwrap();
    let before = disk.bytes();
    let journal = Journal::read_only(queue.clone(), overlay, rig.budget.clone(), options());
    assert_eq!(journal.get(FREE).unwrap().data()[0], 1);
    assert_eq!(journal.get(FREE + 1).unwrap().data()[0], 0);
    assert!(matches!(journal.start(1), Err(JournalError::ReadOnly)));
    journal.commit(Tid(99)).unwrap();
    journal.close().unwrap();
    assert_eq!(disk.bytes(), before);
    assert!(matches!(
        Journal::open(queue, &place(1024), rig.budget.clone(), options()),
        Err(JournalError::Corrupt { block, .. }) if block.0 == 0
    ));
}

#[test]
fn the_background_thread_commits_at_intervals() {
    let mut options = options();
    options.commit_interval = std::time::Duration::from_millis(20);
    let rig = rig_with(volume(VOLUME, 1024, 0), 1024, options);
    let tid = fill(&rig.journal, FREE, 1);
    let start = std::time::Instant::now();
    while !rig.journal.is_committed(tid) {
        assert!(start.elapsed().as_secs() < 20, "never committed");
        std::thread::yield_now();
    }
}

#[test]
fn a_panic_within_a_handle_stops_the_journal() {
    let rig = rig(1024);
    let journal = rig.journal.clone();
    let result = std::thread::spawn(move || {
        let handle = journal.start(2).unwrap();
        let buffer = handle.get(FREE).unwrap();
        handle.modify(&buffer, None, |bytes| bytes.fill(1));
        panic!("half of a change");
    })
    .join();
    assert!(result.is_err());
    assert!(rig.journal.error().is_some());
    assert!(rig.journal.start(1).is_err());
}

#[test]
fn logs_of_any_format_are_taken_over() {
    use jbd2::format::{compat, incompat, put_u32};
    for (features, v1) in [
        (0, false),
        (0, true),
        (incompat::BITS64, false),
        (incompat::CSUM_V2, false),
        (incompat::CSUM_V2 | incompat::BITS64, false),
        (incompat::CSUM_V3, false),
    ] {
        for (format, async_commit) in [
            (LogFormat::Kept, AsyncCommit::Never),
            (LogFormat::Kept, AsyncCommit::Adaptive),
            (LogFormat::ChecksumV3, AsyncCommit::Never),
            (LogFormat::ChecksumV3, AsyncCommit::Always),
        ] {
            let mut image = volume(VOLUME, 1024, features);
            if v1 {
                put_u32(&mut image[2000 * 4096..], 0x24, compat::CHECKSUM);
            }
            let options = JournalOptions {
                format,
                async_commit,
                ..options()
            };
            let rig = rig_with(image, 1024, options);
            for i in 0..400 {
                fill(&rig.journal, FREE + i, 1 + (i % 100) as u8);
            }
            rig.journal.commit(rig.journal.running_tid()).unwrap();
            let handle = rig.journal.start(1).unwrap();
            handle.forget(FREE + 5);
            let tid = handle.tid();
            drop(handle);
            rig.journal.commit(tid).unwrap();
            let (image, report) = recovered(rig.disk.crash(&mut Rng::from_seed(1)), 1024);
            let case = format!("{features:#x} {v1} {format:?} {async_commit:?}");
            assert_eq!(report.replayed + report.revoked, 400, "{case}");
            assert_eq!(report.revoked, 1, "{case}");
            assert_eq!(block_of(&image, FREE + 399)[0], 1 + 99, "{case}");
        }
    }
}

#[test]
fn journals_and_buffers_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Journal>();
    shared::<jbd2::Buffer>();
}
