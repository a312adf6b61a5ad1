//! Fsync through the batch engine: a result per file, and no wait for others' pages.

use super::fake::*;
use crate::*;
use ::sync::Mutex;
use ::sync::clock::ManualClock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use units::PageIndex;

/// A file system without a flusher thread.
fn fs() -> Arc<FakeFs> {
    let fs = FakeFs::new(
        Arc::new(ManualClock::default()),
        10_000,
        Tunables::default(),
    );
    fs.dev().control.lock().by_hand = true;
    fs
}

/// Files with `pages` dirty pages each.
fn files(fs: &Arc<FakeFs>, count: u32, pages: u32) -> Vec<Arc<Inode>> {
    let file = |ino| {
        let inode = fs.inode(ino);
        (0..pages).for_each(|page| fs.write(&inode, page, 1));
        inode
    };
    (0..count).map(file).collect()
}

fn fsync(fs: &Arc<FakeFs>, files: &[Arc<Inode>]) -> Vec<Result<(), i32>> {
    let inodes: Vec<_> = files.iter().collect();
    fs.dev().write_and_wait(fs, &inodes, ()).into_vec()
}

#[test]
fn many_files_leave_in_batches_in_their_order() {
    let fs = fs();
    let files = files(&fs, 3000, 1);
    let before = fs.queue.stats().snapshot().write_ios;
    assert!(fsync(&fs, &files).iter().all(Result::is_ok));
    assert!(fs.written().into_iter().eq(0..3000));
    assert!(files.iter().all(|file| file.landed.load(SeqCst) == 1));
    // 1,024 files to a batch.
    assert_eq!(fs.finished.load(SeqCst), 3);
    let writes = fs.queue.stats().snapshot().write_ios - before;
    assert!(writes < 20, "{writes} writes");
}

#[test]
fn each_file_has_its_own_result() {
    let fs = fs();
    let files = files(&fs, 3, 1);
    files[1].damaged.store(true, SeqCst);
    assert_eq!(fsync(&fs, &files), [Ok(()), Err(EUCLEAN), Ok(())]);
    files[1].damaged.store(false, SeqCst);
    fs.write(&files[0], 0, 2);
    fs.fails.store(true, SeqCst);
    assert_eq!(fsync(&fs, &files[..2]), [Err(5), Err(5)]);
    fs.fails.store(false, SeqCst);
    assert_eq!(fsync(&fs, &files), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(fs.dev().dirty_pages(), 0);
}

#[test]
fn a_page_that_others_were_writing_is_written_again() {
    let fs = fs();
    let file = files(&fs, 1, 1).remove(0);
    // The flusher has page 0 in flight, and it is dirtied again.
    file.mapping
        .take_dirty(PageIndex(0)..PageIndex(1), 1, &mut Vec::new());
    fs.write(&file, 0, 2);
    *fs.hook.lock() = Some(Box::new(|fs, inode| {
        if inode.landed.swap(1, SeqCst) == 0 {
            fs.dev()
                .sub_dirty(inode.mapping.end_writeback(PageIndex(0)..PageIndex(1)));
        }
    }));
    assert_eq!(fsync(&fs, std::slice::from_ref(&file)), [Ok(())]);
    assert_eq!(file.landed.load(SeqCst), 2);
}

#[test]
fn a_file_that_grows_all_the_time_does_not_hold_back_its_fsync() {
    let fs = fs();
    let file = files(&fs, 1, 2000).remove(0);
    *fs.hook.lock() = Some(Box::new(|fs, inode| {
        let end = FakeFs::end(inode).0;
        (end..end + 1200).for_each(|page| fs.write(inode, page, 2));
    }));
    assert_eq!(fsync(&fs, std::slice::from_ref(&file)), [Ok(())]);
    assert!(fs.take_log().len() < 12);
    assert!(file.mapping.dirty_pages() > 0);
}

#[test]
fn a_locked_file_is_waited_for_after_the_batch_is_sent() {
    let fs = fs();
    let files = files(&fs, 2, 1);
    let order = Arc::new(Mutex::new(Vec::new()));
    files[1].locked.store(true, SeqCst);
    let seen = order.clone();
    *fs.hook.lock() = Some(Box::new(move |fs, inode| {
        seen.lock()
            .push((inode.ino, fs.queue.stats().snapshot().write_ios));
    }));
    assert_eq!(fsync(&fs, &files), [Ok(()), Ok(())]);
    let order = order.lock();
    let inos: Vec<_> = order.iter().map(|&(ino, _)| ino).collect();
    assert_eq!(inos, [0, 1, 1], "tried, then waited for");
    assert!(order[2].1 > order[1].1, "the first file was on its way");
    assert!(files.iter().all(|file| file.landed.load(SeqCst) == 1));
}

#[test]
fn a_panic_leaves_no_open_batch_and_is_told() {
    let fs = fs();
    let files = files(&fs, 2, 1);
    files[1].panics.store(true, SeqCst);
    let failures = fs.dev().foreground.failures();
    let fsync = AssertUnwindSafe(|| fsync(&fs, &files));
    assert!(catch_unwind(fsync).is_err());
    assert_eq!(fs.open_batches(), (1, 0));
    assert_eq!(fs.panics.load(SeqCst), 1);
    // A sync that began before that reports it.
    assert_eq!(fs.dev().foreground.wait(failures), Some(5));
}
