//! Fsync and sync beside an unmount.

use super::SyncTarget;
use crate::test_volume::{create, mount};
use crate::{Error, Fs, InodeRef, SyncKind};
use block::{BufMut, Op, PAGE_SIZE};
use cache::Delalloc;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::disk::Disk;
use testkit::volume::Image;
use units::PageIndex;

fn fsync_in_each_way(fs: &Arc<Fs>, file: &InodeRef) -> Vec<Result<(), Error>> {
    let target = SyncTarget {
        inode: file.clone(),
        kind: SyncKind::Fdatasync,
    };
    let mut results = fs.fsync_many(&[target]);
    results.push(fs.fsync(file, SyncKind::Fsync));
    results
}

/// The state after the last writeback of an unmount, and before its last commit.
fn begin_unmount(fs: &Fs) {
    fs.sync_now().unwrap();
    fs.bdi.shutdown();
}

#[test]
fn data_that_an_unmount_has_not_written_is_not_called_durable() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let file = create(&fs, "file");
    begin_unmount(&fs);
    fs.write(&file, 0, b"written after the last writeback")
        .unwrap();
    fs.become_read_only("unmounted");
    for result in fsync_in_each_way(&fs, &file) {
        assert!(matches!(result, Err(Error::ReadOnly)), "{result:?}");
    }
    assert!(fs.sync().is_err());
    assert!(fs.sync_tree(&fs.root().unwrap()).is_err());
    fs.crash();
}

#[test]
fn a_change_before_the_last_commit_of_an_unmount_is_committed() {
    for way in 0..4 {
        let image = Image::ours(64 << 20, &[]);
        let fs = mount(image.queue());
        begin_unmount(&fs);
        let file = create(&fs, "file");
        fs.become_read_only("unmounted");
        match way {
            0 => fs.fsync(&file, SyncKind::Fsync).unwrap(),
            1 => fs.sync().unwrap(),
            2 => fs.sync_tree(&file).unwrap(),
            _ => {
                let target = SyncTarget {
                    inode: file.clone(),
                    kind: SyncKind::Fsync,
                };
                fs.fsync_many(&[target]).remove(0).unwrap();
            }
        }
        fs.crash();
        drop((file, fs));
        let fs = mount(image.queue());
        let found = fs.lookup(&fs.root().unwrap(), b"file");
        assert!(found.is_ok(), "{way}");
        drop(found);
        fs.unmount().unwrap();
    }
}

#[test]
fn after_an_unmount_only_what_it_has_written_is_durable() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let file = create(&fs, "file");
    fs.write(&file, 0, &[1; PAGE_SIZE]).unwrap();
    fs.unmount().unwrap();
    for result in fsync_in_each_way(&fs, &file) {
        result.unwrap();
    }
    fs.sync().unwrap();
    // A page that became dirty after it.
    let page = BufMut::zeroed(PAGE_SIZE).freeze();
    file.mapping.store_dirty(PageIndex(0), page, Delalloc::Keep);
    fs.bdi.add_dirty(1);
    fs.bdi.mark_dirty(&file);
    assert!(fsync_in_each_way(&fs, &file).iter().all(Result::is_err));
    assert!(fs.sync().is_err());
}

/// An error makes the volume read-only when a worker has begun to serve a file with dirty pages.
#[test]
fn an_unmount_waits_for_queued_fsyncs_and_they_do_not_wait_for_it() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let target = |inode| SyncTarget {
        inode,
        kind: SyncKind::Fsync,
    };
    let file = create(&fs, "file");
    fs.write(&file, 0, b"data").unwrap();
    fs.become_read_only("an error");
    // The worker of the queue is busy until the unmount waits for it.
    let (begun, has_begun) = channel();
    let (go, wait) = channel::<()>();
    fs.fsync_later(target(fs.root().unwrap()), move |_| {
        begun.send(()).unwrap();
        wait.recv().unwrap();
    });
    has_begun.recv().unwrap();
    let (told, outcome) = channel();
    fs.fsync_later(target(file.clone()), move |result| {
        told.send(result).unwrap();
    });
    let (over, unmounted) = channel();
    let unmounting = fs.clone();
    std::thread::spawn(move || over.send(unmounting.unmount()));
    while fs.unmounted.try_lock().is_some() {
        std::thread::yield_now();
    }
    go.send(()).unwrap();
    let result = outcome.recv_timeout(Duration::from_secs(20));
    assert!(matches!(result, Ok(Err(Error::ReadOnly))), "{result:?}");
    unmounted
        .recv_timeout(Duration::from_secs(20))
        .unwrap()
        .unwrap();
}

/// A panic while blocks are picked leaves pages that are neither dirty nor in a batch.
#[test]
fn after_a_panic_in_writeback_no_fsync_succeeds() {
    for by_flusher in [false, true] {
        let image = Image::ours(64 << 20, &[]);
        let disk = Disk::from_bytes(std::fs::read(image.path()).unwrap());
        let fs = mount(disk.queue());
        let file = create(&fs, "file");
        fs.write(&file, 0, &[1; PAGE_SIZE]).unwrap();
        let reads = Arc::new(AtomicBool::new(true));
        let panics = reads.clone();
        disk.inject(move |op, _, _, _| {
            let panics = op == Op::Read && panics.swap(false, Ordering::SeqCst);
            assert!(!panics, "expected in this test");
            None
        });
        match by_flusher {
            true => assert!(fs.sync().is_err()),
            false => {
                let fsync = AssertUnwindSafe(|| fs.fsync(&file, SyncKind::Fsync));
                assert!(catch_unwind(fsync).is_err());
            }
        }
        assert!(!reads.load(Ordering::SeqCst), "nothing was read");
        for result in fsync_in_each_way(&fs, &file) {
            assert!(result.is_err(), "by the flusher: {by_flusher}");
        }
        assert!(fs.sync().is_err());
        drop(file);
        assert!(fs.unmount().is_err());
    }
}
