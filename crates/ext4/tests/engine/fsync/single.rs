//! The requests of an fsync of one file.

use crate::fsync::volume::{Cost, Disk, cost, get, put, through_the_log, write};
use ext4::{AsyncCommit, SetAttr, SyncKind};

#[test]
fn a_new_file() {
    for async_commit in [AsyncCommit::Never, AsyncCommit::Always] {
        let disk = Disk::new().with_async_commit(async_commit);
        let fs = disk.mount();
        fs.fsync(
            &put(&fs, "first", b"marks the journal as in use"),
            SyncKind::Fsync,
        )
        .unwrap();
        let file = put(&fs, "file", &[7; 4096]);
        let (cost, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fsync));
        done.unwrap();
        assert_eq!(cost, through_the_log(&disk));
        let fs = disk.crash(fs);
        assert_eq!(get(&fs, "file"), [7; 4096]);
    }
}

#[test]
fn fdatasync_of_an_overwrite_is_a_write_and_a_flush() {
    let disk = Disk::new();
    let fs = disk.mount();
    let file = put(&fs, "file", &[1; 128 << 10]);
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    write(&fs, &file, 8192, &[2; 4096]);
    let (cost_of_data, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fdatasync));
    done.unwrap();
    let expected = Cost {
        writes: 1,
        flushes: 1,
        commits: 0,
    };
    assert_eq!(cost_of_data, expected);
    // The times have changed, and fsync covers them.
    let (cost_of_all, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fsync));
    done.unwrap();
    assert_eq!(cost_of_all.commits, 1);
    let (nothing, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fsync));
    done.unwrap();
    assert_eq!((nothing.writes, nothing.commits), (0, 0));
}

#[test]
fn fdatasync_ignores_times_and_modes() {
    let disk = Disk::new();
    let fs = disk.mount();
    let file = put(&fs, "file", b"contents");
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    fs.queue().flush(block::Reason::Other).unwrap();
    let set = SetAttr {
        mode: Some(0o600),
        mtime: Some(ext4::SetTime::Now),
        ..SetAttr::default()
    };
    fs.set_attr(&file, &set).unwrap();
    let (free, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fdatasync));
    done.unwrap();
    let nothing = Cost {
        writes: 0,
        flushes: 0,
        commits: 0,
    };
    assert_eq!(free, nothing);
    let (full, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fsync));
    done.unwrap();
    assert_eq!(full.commits, 1);
}

#[test]
fn fdatasync_commits_a_size_that_grew() {
    let disk = Disk::new();
    let fs = disk.mount();
    let file = put(&fs, "log", b"one ");
    fs.fsync(&file, SyncKind::Fdatasync).unwrap();
    write(&fs, &file, 4, b"two");
    let (append, done) = cost(&fs, || fs.fsync(&file, SyncKind::Fdatasync));
    done.unwrap();
    assert_eq!(append.commits, 1);
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "log"), b"one two");
}
