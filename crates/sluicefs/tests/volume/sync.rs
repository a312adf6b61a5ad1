//! Durability through the library: bulk and asynchronous syncs.

use crate::volume;
use sluicefs::{File, FormatOptions, SyncCompletion, Volume, errno};
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use testkit::scratch::Scratch;

fn files(v: &Volume, count: usize) -> Vec<File> {
    let made = (0..count).map(|i| {
        let mut file = v.create_file(format!("/{i}")).unwrap();
        write!(file, "contents of {i}").unwrap();
        file
    });
    made.collect()
}

#[test]
fn many_files_in_any_form() {
    let v = volume();
    let files = files(&v, 20);
    let before = v.stats().journal.commits;
    assert!(v.sync_files(&files).iter().all(Result::is_ok));
    assert_eq!(v.stats().journal.commits, before + 1);
    let some: Vec<&File> = files.iter().take(3).collect();
    assert_eq!(v.sync_files(&some).len(), 3);
    let shared: Vec<Arc<File>> = files.into_iter().map(Arc::new).collect();
    assert!(v.sync_files(&shared).iter().all(Result::is_ok));
    assert!(v.sync_files::<File>(&[]).is_empty());
}

#[test]
fn a_file_of_another_volume_is_refused_by_name() {
    let (v, other) = (volume(), volume());
    let mine = files(&v, 2);
    let theirs = files(&other, 1);
    let results = v.sync_files(&[&mine[0], &theirs[0], &mine[1]]);
    assert!(results[0].is_ok() && results[2].is_ok());
    let error = results[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), errno(error)), (ErrorKind::InvalidInput, 22));
    assert!(error.to_string().contains("/0"), "{error}");
}

/// Polls a future on this thread, like a minimal runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Signal(std::sync::mpsc::SyncSender<()>);
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            let _ = self.0.try_send(());
        }
    }
    let (wake, woken) = std::sync::mpsc::sync_channel(1);
    let waker = Waker::from(Arc::new(Signal(wake)));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        woken.recv().unwrap();
    }
}

#[test]
fn a_completion_can_be_awaited_waited_for_and_looked_at() {
    let v = volume();
    let files = files(&v, 4);
    let mut syncs: Vec<SyncCompletion> = files.iter().map(File::sync_all_async).collect();
    block_on(syncs.remove(0)).unwrap();
    syncs.remove(0).wait().unwrap();
    let mut last = syncs.remove(1);
    let outcome = loop {
        match last.try_wait() {
            Some(outcome) => break outcome,
            None => std::thread::yield_now(),
        }
    };
    outcome.unwrap();
    assert!(last.wait().is_err(), "an outcome is given out once");
    let both = async {
        let (a, b) = (files[0].sync_data_async(), files[1].sync_all_async());
        a.await?;
        b.await
    };
    block_on(both).unwrap();
    // The last sync continues after its handle is dropped.
    drop(syncs);
    v.sync().unwrap();
}

#[test]
fn a_sync_outlives_its_file_and_its_volume() {
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let v = Volume::format(&image, FormatOptions::new().size(64 << 20)).unwrap();
    let syncs: Vec<_> = files(&v, 100).iter().map(File::sync_all_async).collect();
    drop(v);
    for sync in syncs {
        sync.wait().unwrap();
    }
    let v = Volume::open(&image).unwrap();
    assert_eq!(v.read_to_string("/99").unwrap(), "contents of 99");
}

#[test]
fn a_subtree_without_the_rest() {
    let v = volume();
    v.create_dir_all("/inside/deep").unwrap();
    v.write("/inside/deep/file", [1; 8192]).unwrap();
    v.write("/outside", [2; 8192]).unwrap();
    v.sync_tree("inside").unwrap();
    assert_eq!(v.stats().dirty_pages, 2, "those outside");
    v.sync_tree("/outside").unwrap();
    assert_eq!(v.stats().dirty_pages, 0);
    let error = v.sync_tree("/nowhere").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

#[test]
fn a_file_that_was_replaced_in_place_is_written_when_it_is_closed() {
    let v = volume();
    let mut tunables = v.tunables();
    tunables.apply("dirty_expire=3600").unwrap();
    v.set_tunables(tunables).unwrap();
    v.write("/config", b"old").unwrap();
    v.sync().unwrap();
    v.write("/other", b"new, and in no hurry").unwrap();
    v.write("/config", b"new").unwrap();
    let start = std::time::Instant::now();
    while v.stats().dirty_pages > 1 {
        assert!(start.elapsed().as_secs() < 60, "it is not written");
        std::thread::yield_now();
    }
    assert_eq!(v.read("/config").unwrap(), b"new");
}
