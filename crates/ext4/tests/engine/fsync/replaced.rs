//! Files that are emptied and written again without an fsync.

use crate::fsync::volume::{Disk, get, put, write};
use ext4::{Fs, InodeRef, SyncKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A durable file that was emptied and has its new contents only in memory.
fn replaced(fs: &Arc<Fs>) -> InodeRef {
    let file = put(fs, "config", b"old");
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    fs.truncate(&file, 0).unwrap();
    write(fs, &file, 0, &[7; 10_000]);
    file
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn close_starts_writeback_of_a_rewritten_file() {
    let disk = Disk::new();
    let fs = disk.mount();
    let file = replaced(&fs);
    assert_eq!(fs.stats().dirty_pages, 3);
    fs.release(&file);
    wait_until("it does not land", || fs.stats().dirty_pages == 0);
    // The next commit covers them.
    let other = put(&fs, "other", b"x");
    fs.fsync(&other, SyncKind::Fsync).unwrap();
    drop((file, other));
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "config"), [7; 10_000]);
}

#[test]
fn a_file_that_was_not_emptied_is_not_written_on_close() {
    let disk = Disk::new();
    let fs = disk.mount();
    let file = put(&fs, "new", b"x");
    fs.release(&file);
    // An fsync that is queued behind it is served after it.
    let (tell, told) = std::sync::mpsc::channel();
    let other = ext4::SyncTarget {
        inode: put(&fs, "other", b"x"),
        kind: SyncKind::Fsync,
    };
    fs.fsync_later(other, move |result| tell.send(result).unwrap());
    told.recv().unwrap().unwrap();
    assert_eq!(fs.stats().dirty_pages, 1);
}

#[test]
fn a_timed_commit_covers_the_contents_and_the_truncation() {
    let disk = Disk::new();
    let commits = |fs: &Arc<Fs>| fs.stats().journal.commits;
    let soon = Duration::from_millis(200);
    for attempt in 0..10 {
        let fs = disk.mount_with(|options| options.commit_interval = soon);
        let name = format!("config{attempt}");
        let file = put(&fs, &name, b"old");
        fs.fsync(&file, SyncKind::Fsync).unwrap();
        let before = commits(&fs);
        fs.truncate(&file, 0).unwrap();
        write(&fs, &file, 0, &[7; 10_000]);
        if commits(&fs) != before {
            // The commit ran between the two, when there were no contents yet.
            drop(file);
            fs.crash();
            continue;
        }
        wait_until("no commit", || commits(&fs) != before);
        drop(file);
        let fs = disk.crash(fs);
        assert_eq!(get(&fs, &name), [7; 10_000]);
        return;
    }
    panic!("a commit came between two calls, ten times");
}
