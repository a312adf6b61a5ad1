//! Asynchronous fsyncs.

use crate::fsync::volume::{Disk, all, cost, get, put};
use block::Op;
use ext4::{Fs, InodeRef, Result};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Starts an fsync of each file; the receiver gets the results in the order of completion.
fn ask(fs: &Fs, files: &[InodeRef]) -> Receiver<(usize, Result<()>)> {
    let (tell, told) = channel();
    for (i, target) in all(files).into_iter().enumerate() {
        let tell = tell.clone();
        fs.fsync_later(target, move |outcome| tell.send((i, outcome)).unwrap());
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
fn requests_during_a_commit_share_the_next() {
    let disk = Disk::new();
    let fs = disk.mount();
    let files: Vec<_> = (0..1000)
        .map(|i| put(&fs, &format!("{i}"), format!("contents of {i}").as_bytes()))
        .collect();
    let (cost, ()) = cost(&fs, || {
        let (has_begun, go) = hold_next_write(&disk);
        let first = ask(&fs, &files[..1]);
        has_begun.recv().unwrap();
        let rest = ask(&fs, &files[1..]);
        assert!(rest.try_recv().is_err(), "no answer comes too early");
        go.send(()).unwrap();
        assert!(first.iter().all(|(_, outcome)| outcome.is_ok()));
        let rest: Vec<_> = rest.iter().collect();
        assert!(rest.iter().all(|(_, outcome)| outcome.is_ok()));
        assert!(rest.iter().map(|(i, _)| *i).eq(0..999), "in their order");
    });
    assert_eq!((cost.commits, cost.flushes), (2, 2));
    disk.heal();
    let fs = disk.crash(fs);
    for i in 0..1000 {
        let expected = format!("contents of {i}");
        assert_eq!(get(&fs, &format!("{i}")), expected.as_bytes());
    }
}

#[test]
fn every_waiter_gets_the_error_of_a_stopped_journal() {
    let disk = Disk::new();
    let fs = disk.mount();
    let files: Vec<_> = (0..100)
        .map(|i| put(&fs, &format!("{i}"), &[0; 80_000]))
        .collect();
    disk.inject(|op, _, _| (op == Op::Flush).then_some(5));
    let outcomes: Vec<_> = ask(&fs, &files).iter().collect();
    assert_eq!(outcomes.len(), 100);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_err()));
    assert!(fs.is_read_only());
    let later: Vec<_> = ask(&fs, &files).iter().collect();
    assert!(later.iter().all(|(_, outcome)| outcome.is_err()));
}

#[test]
fn a_failed_write_is_reported_until_it_succeeds() {
    let disk = Disk::new();
    let fs = disk.mount();
    let contents = [1; 80_000];
    let file = put(&fs, "file", &contents);
    disk.inject(|op, _, _| (op == Op::Write).then_some(28));
    for _ in 0..3 {
        let (_, outcome) = ask(&fs, std::slice::from_ref(&file)).recv().unwrap();
        assert_eq!(outcome.unwrap_err().errno(), 28);
    }
    disk.heal();
    let (_, outcome) = ask(&fs, &[file]).recv().unwrap();
    outcome.unwrap();
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "file"), contents);
}

#[test]
fn unmount_serves_what_is_queued() {
    let disk = Disk::new();
    let fs = disk.mount();
    let files: Vec<_> = (0..50).map(|i| put(&fs, &format!("{i}"), b"x")).collect();
    let told = ask(&fs, &files);
    fs.unmount().unwrap();
    assert!(told.try_iter().all(|(_, outcome)| outcome.is_ok()));
    // A later fsync returns at once.
    let after = ask(&fs, &files);
    assert_eq!(after.try_iter().count(), 50);
}
