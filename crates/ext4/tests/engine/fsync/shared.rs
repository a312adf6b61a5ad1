//! Syncs of the whole volume: concurrent ones share their work, and one without work costs nothing.

use crate::fsync::volume::{Cost, Disk, cost, get, put, write};
use block::Op;
use ext4::{Fs, Result, SyncKind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Asks for `count` syncs that nobody waits for in place.
fn ask(fs: &Fs, count: usize) -> Receiver<Result<()>> {
    let (tell, told) = channel();
    for _ in 0..count {
        let tell = tell.clone();
        fs.sync_later(move |outcome| tell.send(outcome).unwrap());
    }
    told
}

/// Holds the next write. The receiver gets a message when the write begins; a message to the sender
/// lets it continue.
fn hold_next_write(disk: &Disk) -> (Receiver<()>, Sender<()>) {
    let (begun, has_begun) = channel();
    let (go, wait) = channel();
    let mut held = false;
    disk.inject(move |op, _, _| {
        if op == Op::Write && !std::mem::replace(&mut held, true) {
            begun.send(()).unwrap();
            let _ = wait.recv();
        }
        None
    });
    (has_begun, go)
}

#[test]
fn syncs_during_a_sync_share_the_next() {
    let disk = Disk::new();
    let fs = disk.mount();
    put(&fs, "first", b"before all syncs");
    let (cost, ()) = cost(&fs, || {
        let (has_begun, go) = hold_next_write(&disk);
        let first = ask(&fs, 1);
        has_begun.recv().unwrap();
        // The sync that runs may have passed this file, so it must not serve those who ask now.
        put(&fs, "second", b"during a sync");
        let rest = ask(&fs, 100);
        assert!(rest.try_recv().is_err(), "no answer comes too early");
        go.send(()).unwrap();
        assert!(first.iter().all(|outcome| outcome.is_ok()));
        assert_eq!(rest.iter().filter(Result::is_ok).count(), 100);
    });
    assert_eq!((cost.commits, cost.flushes), (2, 2));
    disk.heal();
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "first"), b"before all syncs");
    assert_eq!(get(&fs, "second"), b"during a sync");
}

#[test]
fn a_sync_of_a_clean_volume_is_answered_at_once() {
    let disk = Disk::new();
    let fs = disk.mount();
    let file = put(&fs, "file", &[1; 100_000]);
    fs.sync().unwrap();
    let nothing = Cost {
        writes: 0,
        flushes: 0,
        commits: 0,
    };
    let (once, ()) = cost(&fs, || {
        let answers = ask(&fs, 100);
        assert_eq!(answers.try_iter().filter(Result::is_ok).count(), 100);
        thread::scope(|scope| {
            (0..16).for_each(|_| {
                scope.spawn(|| fs.sync().unwrap());
            });
        });
    });
    assert_eq!(once, nothing);
    // Metadata alone, data in place alone, and a deletion alone are something to do.
    fs.truncate(&file, 50_000).unwrap();
    let (truncated, done) = cost(&fs, || fs.sync());
    assert_eq!((truncated.commits, done.is_ok()), (1, true));
    write(&fs, &file, 0, &[2; 4096]);
    let (overwritten, done) = cost(&fs, || fs.sync());
    assert!(overwritten.writes > 0 && done.is_ok());
    drop(file);
    testkit::volume::remove(&fs, "file").unwrap();
    let (removed, done) = cost(&fs, || fs.sync());
    assert_eq!((removed.commits, done.is_ok()), (1, true));
    assert_eq!(cost(&fs, || fs.sync().unwrap()).0, nothing);
}

#[test]
fn a_sync_waits_for_the_commit_that_has_its_change() {
    let disk = Disk::new();
    let fs = disk.mount();
    let file = put(&fs, "file", b"");
    let (has_begun, go) = hold_next_write(&disk);
    thread::scope(|scope| {
        let fsync = scope.spawn(|| fs.fsync(&file, SyncKind::Fsync));
        has_begun.recv().unwrap();
        // The transaction that created the file is closed and not durable: nothing is dirty, and
        // the running transaction is empty.
        let answers = ask(&fs, 1);
        assert!(answers.try_recv().is_err());
        go.send(()).unwrap();
        assert!(answers.recv().unwrap().is_ok());
        assert!(fsync.join().unwrap().is_ok());
    });
}

#[test]
fn every_caller_of_a_shared_sync_gets_its_error() {
    let disk = Disk::new();
    let fs = disk.mount();
    // Its requests are larger than those of the log.
    let contents = vec![7; 4 << 20];
    let file = put(&fs, "bad", &contents);
    disk.inject(|op, _, len| (op == Op::Write && len >= 256 << 10).then_some(28));
    let outcomes: Vec<_> = ask(&fs, 50).iter().collect();
    assert_eq!(outcomes.len(), 50);
    let errno = |outcome: &Result<()>| outcome.as_ref().err().map(ext4::Error::errno);
    assert!(
        outcomes.iter().all(|o| errno(o) == Some(28)),
        "{outcomes:?}"
    );
    assert_eq!(errno(&fs.sync()), Some(28), "until the data is written");
    assert_eq!(errno(&fs.fsync(&file, SyncKind::Fsync)), Some(28));
    assert!(!fs.is_read_only());
    disk.heal();
    fs.sync().unwrap();
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "bad"), contents);
}

#[test]
fn an_unmount_answers_syncs_that_wait() {
    let disk = Disk::new();
    let fs = disk.mount();
    put(&fs, "file", &[3; 4096]);
    let (has_begun, go) = hold_next_write(&disk);
    let answers = ask(&fs, 1);
    has_begun.recv().unwrap();
    put(&fs, "later", &[4; 4096]);
    let later = ask(&fs, 10);
    thread::scope(|scope| {
        let unmount = scope.spawn(|| fs.unmount());
        go.send(()).unwrap();
        assert!(unmount.join().unwrap().is_ok());
    });
    let all: Vec<_> = answers.iter().chain(later.iter()).collect();
    assert_eq!(all.len(), 11);
    assert!(all.iter().all(Result::is_ok));
    assert!(ask(&fs, 1).recv().unwrap().is_ok(), "the unmount's outcome");
}
