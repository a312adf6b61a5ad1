//! The workload on a directory and on a volume, and the threads of a storm.

use super::storm::{Schedule, beside, storms};
use super::{Creators, SyncStorm};
use crate::Device;
use crate::target::{Directory, Target};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Counts syncs. A sync waits until `together` of them have been called.
struct Counting {
    together: usize,
    calls: Mutex<usize>,
    all: Condvar,
    fails: bool,
    commits: AtomicUsize,
}

impl Counting {
    fn new(together: usize) -> Counting {
        Counting {
            together,
            calls: Mutex::new(0),
            all: Condvar::new(),
            fails: false,
            commits: AtomicUsize::new(0),
        }
    }
}

impl Target for Counting {
    fn name(&self) -> String {
        "counting".into()
    }
    fn directory(&self, _path: &Path) -> io::Result<Box<dyn Directory>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync(&self) -> io::Result<()> {
        let mut calls = self.calls.lock().unwrap();
        *calls += 1;
        let storm = calls.div_ceil(self.together);
        self.all.notify_all();
        while *calls < storm * self.together {
            calls = self.all.wait(calls).unwrap();
        }
        self.commits.store(2 * storm, Ordering::SeqCst);
        match self.fails {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
    fn sync_files(&self, _files: &[Box<dyn crate::target::OpenFile>]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn used_percent(&self) -> io::Result<f64> {
        Ok(0.0)
    }
    fn device(&self) -> Option<Device> {
        Some(Device {
            commits: Some(self.commits.load(Ordering::SeqCst) as u64),
            ..Device::default()
        })
    }
}

#[test]
fn the_syncs_of_a_storm_are_called_at_once() {
    // With fewer threads at once the calls would wait for ever.
    let target = Counting::new(20);
    let found = storms(&target, 20, Schedule::Count(3)).unwrap();
    assert_eq!((found.count, found.calls.count), (3, 60));
    assert_eq!((found.commits, found.flushes), (Some(2.0), Some(0.0)));
    assert!(found.max_wall_s >= found.wall_s && found.wall_s > 0.0);
}

#[test]
fn storms_end_with_the_work_and_with_an_error() {
    let target = Counting::new(4);
    let wait_for_two = || {
        let mut calls = target.calls.lock().unwrap();
        while *calls < 8 {
            calls = target.all.wait(calls).unwrap();
        }
        Ok(7)
    };
    let (result, found) = beside(&target, 4, Duration::from_millis(1), wait_for_two).unwrap();
    assert_eq!(result, 7);
    assert!(found.count >= 2, "{found:?}");
    let failing = Counting {
        fails: true,
        ..Counting::new(4)
    };
    let error = storms(&failing, 4, Schedule::Count(100)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(*failing.calls.lock().unwrap(), 4, "one storm");
}

#[test]
fn a_storm_needs_threads_and_files() {
    let work = SyncStorm {
        inodes: 0,
        syncs: 0,
        storms: 1,
        during: None,
        keep: false,
    };
    let error = work.clone().checked().unwrap_err();
    assert!(error.to_string().contains("--syncs"), "{error}");
    let with = |threads, files| SyncStorm {
        syncs: 1,
        during: Some(Creators {
            threads,
            files,
            size: 0,
            every: Duration::ZERO,
        }),
        ..work.clone()
    };
    assert!(with(1, 1).checked().is_ok());
    assert!(with(0, 1).checked().is_err() && with(1, 0).checked().is_err());
}
