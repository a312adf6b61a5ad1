//! Every interleaving of threads that fill, empty and end a run of the inode table, by loom.

#![allow(dead_code)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}
#[path = "../src/occupancy.rs"]
mod occupancy;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use occupancy::Occupancy;

/// A run and the clock that it is listed on.
#[derive(Default)]
struct Model {
    run: Occupancy,
    /// The place of the run, if it is listed.
    clock: Mutex<Option<u32>>,
    ends: AtomicU32,
}

const PLACE: u32 = 7;

impl Model {
    /// An object comes and goes; the thread that finds the run empty ends it.
    fn pass(&self) {
        let list = || {
            let before = self.clock.lock().unwrap().replace(PLACE);
            assert_eq!(before, None, "the run is listed twice");
            PLACE
        };
        if !self.run.hold(list) {
            return;
        }
        if self.run.release() {
            self.end();
        }
    }
    fn end(&self) {
        let unlist = |place| {
            let listed = self.clock.lock().unwrap().take();
            assert_eq!(listed, Some(place), "the place of another run is freed");
        };
        if self.run.end(unlist) {
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_run_is_listed_once_and_its_end_frees_its_place() {
    loom::model(|| {
        let model = Arc::new(Model::default());
        let others = [(); 2].map(|()| {
            let model = model.clone();
            loom::thread::spawn(move || model.pass())
        });
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(model.ends.load(Ordering::Relaxed), 1);
        assert_eq!(*model.clock.lock().unwrap(), None);
        assert!(!model.run.hold(|| unreachable!()), "a dead run is used");
        assert!(!model.run.end(|_| ()), "a run ends twice");
    });
}

#[test]
fn a_new_run_may_end_before_it_is_listed() {
    loom::model(|| {
        let model = Arc::new(Model::default());
        let other = {
            let model = model.clone();
            loom::thread::spawn(move || model.end())
        };
        model.pass();
        other.join().unwrap();
        assert_eq!(model.ends.load(Ordering::Relaxed), 1);
        assert_eq!(*model.clock.lock().unwrap(), None);
    });
}

#[test]
fn a_run_in_use_does_not_end() {
    loom::model(|| {
        let model = Arc::new(Model::default());
        assert!(model.run.hold(|| {
            *model.clock.lock().unwrap() = Some(PLACE);
            PLACE
        }));
        let other = {
            let model = model.clone();
            loom::thread::spawn(move || {
                model.pass();
                model.end();
            })
        };
        model.pass();
        other.join().unwrap();
        assert_eq!(model.run.count(), 1);
        assert_eq!(*model.clock.lock().unwrap(), Some(PLACE));
        assert!(model.run.release());
        model.end();
        assert_eq!(model.ends.load(Ordering::Relaxed), 1);
    });
}
