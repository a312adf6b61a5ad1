//! Fsyncs of many files in one call.

use crate::fsync::volume::{Disk, all, cost, get, put, through_the_log, write};
use block::Op;
use ext4::SyncKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;

#[test]
fn many_files_cost_one_commit_and_one_flush() {
    let disk = Disk::new();
    let fs = disk.mount();
    let data = |i: usize| vec![i as u8; 4096];
    let files: Vec<_> = (0..500)
        .map(|i| put(&fs, &format!("{i}"), &data(i)))
        .collect();
    let (cost, results) = cost(&fs, || fs.fsync_many(&all(&files)));
    assert!(results.iter().all(Result::is_ok));
    assert_eq!((cost.commits, cost.flushes), (1, 1));
    // Two requests of a megabyte of data; the log's super block, the log blocks and the commit
    // block.
    assert!(cost.writes <= 8, "{cost:?}");
    let fs = disk.crash(fs);
    for i in 0..500 {
        assert_eq!(get(&fs, &format!("{i}")), data(i));
    }
}

#[test]
fn clean_files_and_files_named_twice_cost_nothing_more() {
    let disk = Disk::new();
    let fs = disk.mount();
    let clean = put(&fs, "clean", b"before");
    fs.fsync(&clean, SyncKind::Fsync).unwrap();
    let dirty = put(&fs, "dirty", b"now");
    let files = [clean.clone(), dirty.clone(), dirty, clean];
    let (once, results) = cost(&fs, || fs.fsync_many(&all(&files)));
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(results.len(), 4);
    assert_eq!(once, through_the_log(&disk));
    let (again, results) = cost(&fs, || fs.fsync_many(&all(&files)));
    assert!(results.iter().all(Result::is_ok));
    assert_eq!((again.writes, again.commits), (0, 0), "all is durable");
    assert!(fs.fsync_many(&[]).is_empty());
}

#[test]
fn nothing_else_is_written() {
    let disk = Disk::new();
    let fs = disk.mount();
    let unrelated = put(&fs, "unrelated", &vec![1; 8 << 20]);
    let files: Vec<_> = (0..10).map(|i| put(&fs, &format!("{i}"), b"x")).collect();
    let before = fs.stats().device.write_bytes;
    assert!(fs.fsync_many(&all(&files)).iter().all(Result::is_ok));
    assert_eq!(fs.stats().dirty_pages, 8 << 8, "the unrelated file's");
    assert!(fs.stats().device.write_bytes - before < 1 << 20);
    drop(unrelated);
}

/// The device offset of the first write of `work`.
fn first_write(disk: &Disk, work: impl FnOnce()) -> u64 {
    let seen = Arc::new(AtomicU64::new(0));
    let first = seen.clone();
    disk.inject(move |op, offset, _| {
        if op == Op::Write {
            let _ = first.compare_exchange(0, offset, Ordering::SeqCst, Ordering::SeqCst);
        }
        None
    });
    work();
    disk.heal();
    seen.load(Ordering::SeqCst)
}

/// Too large for the log.
const LARGE: usize = 128 << 10;

#[test]
fn an_error_fails_only_the_fsync_of_its_file() {
    let disk = Disk::new();
    let fs = disk.mount();
    let victim = put(&fs, "victim", &[1; LARGE]);
    let at = first_write(&disk, || fs.fsync(&victim, SyncKind::Fsync).unwrap());
    // Separates the next files from the victim on the device.
    let spacer = put(&fs, "spacer", &[2; LARGE]);
    fs.fsync(&spacer, SyncKind::Fsync).unwrap();

    write(&fs, &victim, 0, &[3; LARGE]);
    let mut files = vec![put(&fs, "a", b"a"), victim.clone(), put(&fs, "b", b"b")];
    disk.inject(move |op, offset, len| {
        let hit = op == Op::Write && offset < at + PAGE && at < offset + len;
        hit.then_some(5)
    });
    for _ in 0..3 {
        let results = fs.fsync_many(&all(&files));
        assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
        assert_eq!(results[1].as_ref().unwrap_err().errno(), 5);
        write(&fs, &files[0], 0, b"A");
    }
    assert!(
        fs.fsync(&victim, SyncKind::Fdatasync).is_err(),
        "from every caller"
    );
    disk.heal();
    files.push(victim);
    assert!(fs.fsync_many(&all(&files)).iter().all(Result::is_ok));
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "victim"), [3; LARGE]);
    assert_eq!((get(&fs, "a"), get(&fs, "b")), (b"A".into(), b"b".into()));
}

#[test]
fn a_stopped_journal_fails_the_fsync_of_every_file_that_needs_it() {
    let disk = Disk::new();
    let fs = disk.mount();
    let durable = put(&fs, "durable", b"before");
    fs.fsync(&durable, SyncKind::Fsync).unwrap();
    let files: Vec<_> = (0..5)
        .map(|i| put(&fs, &format!("{i}"), b"never"))
        .collect();
    disk.inject(|op, _, _| (op != Op::Read).then_some(5));
    let mut targets = all(&files);
    let results = fs.fsync_many(&targets);
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert!(fs.is_read_only());
    targets.extend(all(&[durable]));
    assert!(fs.fsync_many(&targets).iter().all(Result::is_err));
}

#[test]
fn a_file_larger_than_many_batches() {
    let disk = Disk::new();
    let fs = disk.mount();
    let data: Vec<u8> = (0..40usize << 20).map(|i| (i / 4096) as u8).collect();
    let files = [put(&fs, "large", &data), put(&fs, "small", b"beside it")];
    let (cost, results) = cost(&fs, || fs.fsync_many(&all(&files)));
    assert!(results.iter().all(Result::is_ok));
    assert_eq!((cost.commits, cost.flushes), (1, 1));
    assert!(cost.writes <= 50, "in requests of a megabyte: {cost:?}");
    let fs = disk.crash(fs);
    assert!(get(&fs, "large") == data);
    assert_eq!(get(&fs, "small"), b"beside it");
}
