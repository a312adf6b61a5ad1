//! Data in the log that is not home yet is read, overwritten, freed and replayed.

use crate::fsync::volume::{Disk, all, contents, cost, get, put, through_the_log, write};
use block::Op;
use ext4::{AsyncCommit, FallocateMode, Fs, InodeRef, SyncKind};
use std::sync::Arc;

const PAGE: usize = 4096;

/// Runs a test with both forms of the log.
fn in_both_forms(test: impl Fn(Disk)) {
    for async_commit in [AsyncCommit::Never, AsyncCommit::Always] {
        test(Disk::new().with_async_commit(async_commit));
    }
}

/// Mounts, with the journal marked as in use.
fn mount(disk: &Disk) -> Arc<Fs> {
    let fs = disk.mount();
    fs.fsync(&put(&fs, "first", b""), SyncKind::Fsync).unwrap();
    fs
}

/// Creates a file whose data is in the log.
fn held(disk: &Disk, fs: &Fs, name: &str, data: &[u8]) -> InodeRef {
    let file = put(fs, name, data);
    fsync_by_log(disk, fs, &file);
    file
}

fn fsync_by_log(disk: &Disk, fs: &Fs, file: &InodeRef) {
    let (cost, done) = cost(fs, || fs.fsync(file, SyncKind::Fsync));
    done.unwrap();
    assert_eq!(cost, through_the_log(disk));
}

fn read_at(fs: &Fs, file: &InodeRef, offset: usize, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    assert_eq!(fs.read(file, offset as u64, &mut data).unwrap(), len);
    data
}

/// Bytes that differ from page to page.
fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i / PAGE * 7 + i % 251 + salt) as u8)
        .collect()
}

#[test]
fn logged_data_is_read_from_the_log() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        let data = pattern(10 * PAGE + 100, 1);
        let file = held(&disk, &fs, "file", &data);
        for offset in [0, 3 * PAGE + 5, 10 * PAGE] {
            fs.invalidate(&file);
            assert_eq!(read_at(&fs, &file, offset, 90), data[offset..offset + 90]);
        }
        fs.invalidate(&file);
        assert!(contents(&fs, &file) == data, "read in sequence, ahead too");
        // Changes a part of a page that is not cached.
        fs.invalidate(&file);
        write(&fs, &file, (2 * PAGE + 50) as u64, b"changed");
        let mut expected = data;
        expected[2 * PAGE + 50..2 * PAGE + 57].copy_from_slice(b"changed");
        assert!(contents(&fs, &file) == expected);
        fs.fsync(&file, SyncKind::Fdatasync).unwrap();
        let fs = disk.crash(fs);
        assert!(get(&fs, "file") == expected);
    });
}

#[test]
fn a_file_that_is_held_in_parts() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        let mut data = pattern(300 * PAGE, 2);
        let file = put(&fs, "file", &data);
        fs.fsync(&file, SyncKind::Fsync).unwrap();
        for page in [0, 5, 6, 100, 299] {
            let new = pattern(PAGE, 100 + page);
            write(&fs, &file, (page * PAGE) as u64, &new);
            data[page * PAGE..(page + 1) * PAGE].copy_from_slice(&new);
        }
        fsync_by_log(&disk, &fs, &file);
        fs.invalidate(&file);
        assert!(contents(&fs, &file) == data);
        // Overwrites the whole file, partly in place, partly through the log.
        let data = pattern(300 * PAGE, 3);
        write(&fs, &file, 0, &data);
        fs.fsync(&file, SyncKind::Fdatasync).unwrap();
        fs.invalidate(&file);
        assert!(contents(&fs, &file) == data);
        let fs = disk.crash(fs);
        assert!(get(&fs, "file") == data);
    });
}

#[test]
fn an_overwrite_by_writeback_is_newer_after_a_crash() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        let file = held(&disk, &fs, "file", &[1; PAGE]);
        for round in 2..6 {
            write(&fs, &file, 0, &[round; PAGE]);
            // The flusher writes in place.
            fs.sync().unwrap();
            fs.invalidate(&file);
            assert_eq!(contents(&fs, &file), [round; PAGE]);
        }
        let fs = disk.crash(fs);
        assert_eq!(get(&fs, "file"), [5; PAGE]);
        // The log is empty, so the write is in place.
        let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
        write(&fs, &file, 0, &[6; PAGE]);
        let (cost, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fdatasync));
        done.unwrap();
        assert_eq!((cost.writes, cost.flushes, cost.commits), (1, 1, 0));
    });
}

/// Appends until the volume is full; returns the number of bytes.
fn fill(fs: &Fs, file: &InodeRef, byte: u8) -> usize {
    let mut at = 0;
    loop {
        match fs.write(file, at as u64, &[byte; 1 << 16]) {
            Ok(n) if n == 1 << 16 => at += n,
            Ok(n) => return at + n,
            Err(_) => return at,
        }
    }
}

#[test]
fn replay_does_not_overwrite_a_reused_block() {
    for async_commit in [AsyncCommit::Never, AsyncCommit::Always] {
        let disk = Disk::small().with_async_commit(async_commit);
        let fs = mount(&disk);
        let victims: Vec<String> = (0..12).map(|i| format!("victim {i}")).collect();
        for name in &victims {
            held(&disk, &fs, name, &[1; 16 * PAGE]);
        }
        fill(&fs, &put(&fs, "filler", b""), 2);
        fs.sync().unwrap();
        for name in &victims {
            fs.unlink(&fs.root().unwrap(), name.as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        // More than was free before, so that blocks of the victims are among them, and written in
        // place. The held data is less than half of the log, so no checkpoint has run.
        let len = fill(&fs, &put(&fs, "heir", b""), 3);
        assert!(len >= 12 * 16 * PAGE);
        fs.sync().unwrap();
        let fs = disk.crash(fs);
        assert!(get(&fs, "heir") == vec![3; len]);
    }
}

/// Contents that begin like a block of the log.
#[test]
fn data_that_looks_like_a_block_of_the_log() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        let mut data = pattern(6 * PAGE, 9);
        for page in [0, 2, 5] {
            let block = [0xC03B_3998_u32, 2, 3, 4].map(u32::to_be_bytes).concat();
            data[page * PAGE..page * PAGE + 16].copy_from_slice(&block);
        }
        let file = held(&disk, &fs, "file", &data);
        fs.invalidate(&file);
        assert!(contents(&fs, &file) == data);
        let fs = disk.crash(fs);
        assert!(get(&fs, "file") == data);
    });
}

#[test]
fn truncated_punched_and_rewritten_pages() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        let file = held(&disk, &fs, "file", &pattern(12 * PAGE, 5));
        fs.truncate(&file, 100).unwrap();
        fs.truncate(&file, 3 * PAGE as u64).unwrap();
        write(&fs, &file, 2 * PAGE as u64, &[9; 10]);
        fs.fsync(&file, SyncKind::Fdatasync).unwrap();
        let mut expected = pattern(12 * PAGE, 5)[..100].to_vec();
        expected.resize(3 * PAGE, 0);
        expected[2 * PAGE..2 * PAGE + 10].fill(9);
        fs.invalidate(&file);
        assert!(contents(&fs, &file) == expected);
        let zero = FallocateMode::ZeroRange { keep_size: true };
        fs.fallocate(&file, zero, 2 * PAGE as u64, PAGE as u64)
            .unwrap();
        write(&fs, &file, 2 * PAGE as u64, &[8; 5]);
        // The flusher writes the block. The log has an older copy of it.
        fs.sync().unwrap();
        expected[2 * PAGE..].fill(0);
        expected[2 * PAGE..2 * PAGE + 5].fill(8);
        fs.invalidate(&file);
        assert!(contents(&fs, &file) == expected);
        let fs = disk.crash(fs);
        assert!(get(&fs, "file") == expected);
        fs.unmount().unwrap();
    });
}

#[test]
fn a_read_only_mount_sees_it() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        let data = pattern(9 * PAGE, 6);
        held(&disk, &fs, "file", &data);
        fs.crash();
        drop(fs);
        let fs = disk.mount_read_only();
        assert!(fs.is_read_only());
        assert!(get(&fs, "file") == data);
    });
}

#[test]
fn the_checkpoint_writes_logged_data_home() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        for i in 0..200 {
            let file = put(&fs, &format!("{i}"), &pattern(3 * PAGE, i));
            fs.fsync(&file, SyncKind::Fsync).unwrap();
        }
        fs.unmount().unwrap();
        drop(fs);
        let fs = disk.mount();
        for i in 0..200 {
            assert!(get(&fs, &format!("{i}")) == pattern(3 * PAGE, i));
        }
    });
}

#[test]
fn the_log_may_be_filled_many_times() {
    in_both_forms(|disk| {
        // More than the log holds, so that checkpoints run.
        let fs = mount(&disk);
        let threads = 4;
        std::thread::scope(|scope| {
            for t in 0..threads {
                let fs = &fs;
                scope.spawn(move || {
                    let file = put(fs, &format!("{t}"), b"");
                    for round in 0..600usize {
                        let page = round * 13 % 50;
                        write(fs, &file, (page * PAGE) as u64, &pattern(PAGE, t + round));
                        let kind = match round % 3 {
                            0 => SyncKind::Fsync,
                            _ => SyncKind::Fdatasync,
                        };
                        fs.fsync(&file, kind).unwrap();
                        if round % 7 == 0 {
                            fs.invalidate(&file);
                            let back = read_at(fs, &file, page * PAGE, PAGE);
                            assert!(back == pattern(PAGE, t + round));
                        }
                    }
                });
            }
        });
        let fs = disk.crash(fs);
        for t in 0..threads {
            let data = get(&fs, &format!("{t}"));
            for round in 550..600 {
                let at = round * 13 % 50 * PAGE;
                assert!(data[at..at + PAGE] == pattern(PAGE, t + round));
            }
        }
    });
}

#[test]
fn bulk_and_alone() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        let files: Vec<_> = (0..40)
            .map(|i| put(&fs, &format!("{i}"), &[i; PAGE]))
            .inspect(|file| fs.fsync(file, SyncKind::Fsync).unwrap())
            .collect();
        for (i, file) in files.iter().enumerate() {
            write(&fs, file, 0, &[100 + i as u8; PAGE]);
        }
        // Together they are many pages, but each goes where its last copy is.
        let results = fs.fsync_many(&all(&files));
        assert!(results.iter().all(Result::is_ok));
        let fs = disk.crash(fs);
        for i in 0..40 {
            assert_eq!(get(&fs, &format!("{i}")), [100 + i; PAGE]);
        }
    });
}

#[test]
fn every_fsync_reports_a_failed_journal_write() {
    in_both_forms(|disk| {
        let fs = mount(&disk);
        held(&disk, &fs, "durable", &[1; PAGE]);
        let file = put(&fs, "file", &[2; PAGE]);
        disk.inject(|op, _, _| (op == Op::Write).then_some(5));
        for kind in [SyncKind::Fsync, SyncKind::Fdatasync, SyncKind::Fsync] {
            fs.fsync(&file, kind).unwrap_err();
            assert!(fs.is_read_only());
        }
        disk.heal();
        fs.fsync(&file, SyncKind::Fdatasync).unwrap_err();
        // The data can still be read, although it is not on the device.
        fs.invalidate(&file);
        assert_eq!(contents(&fs, &file), [2; PAGE]);
        assert_eq!(get(&fs, "durable"), [1; PAGE]);
        let fs = disk.crash(fs);
        assert_eq!(get(&fs, "durable"), [1; PAGE]);
    });
}
