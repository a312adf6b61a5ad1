//! Requests to a flusher, and when it runs.
//!
//! ```text
//!              ensure_flusher                    stop
//!  no flusher ────────────────▶ running ──────────────────▶ stopped, for good
//!       ▲                          │
//!       └──── idle for a minute ───┘ (retire)
//! ```
//!
//! No inode is forgotten when a flusher retires: the flusher clears `running` and then looks
//! whether an inode is listed; a thread that lists an inode counts it and then looks at `running`.
//! One of the two sees the other.

use crate::activity::Activity;
use crate::sync::Group;
use crate::threads::{Flushers, Lifetime, SharedThread, Wakeup};
use std::io;
use std::sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, MutexGuard, Rank};

/// Requests that the flusher has not taken up yet.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) sync: Option<Arc<Group>>,
    pub(crate) tick: bool,
    pub(crate) stop: bool,
    /// A test drives the flusher: no thread is started.
    pub(crate) by_hand: bool,
    /// Of the flusher that runs.
    pub(crate) lifetime: Option<Arc<Lifetime>>,
}

/// See the module.
pub(crate) struct Control {
    requests: Mutex<Requests>,
    pub(crate) wakeup: Arc<Wakeup>,
    /// A request was made since the flusher last looked: repeating it needs no lock.
    pub(crate) kicked: AtomicBool,
    /// A sync waits: a pass for another reason ends early.
    pub(crate) sync_waits: AtomicBool,
    /// Memory is wanted.
    pub(crate) reclaim: AtomicBool,
    pub(crate) running: AtomicBool,
    pub(crate) activity: Activity,
}

impl Control {
    pub(crate) fn new(flushers: Flushers) -> Control {
        Control {
            requests: Rank::FlusherControl.mutex(Requests::default()),
            wakeup: match flushers {
                Flushers::PerDevice => Arc::default(),
                Flushers::Shared => SharedThread::of_process().wakeup.clone(),
            },
            kicked: AtomicBool::new(false),
            sync_waits: AtomicBool::new(false),
            reclaim: AtomicBool::new(false),
            running: AtomicBool::new(false),
            activity: Activity::default(),
        }
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock()
    }
    /// The flusher is about to look at the requests: later ones wake it.
    pub(crate) fn clear_kicked(&self, _locked: &mut Requests) {
        self.kicked.store(false, Ordering::SeqCst);
    }
    /// The flusher ends for want of work, unless `is_idle` returns `false`.
    pub(crate) fn retire(&self, requests: &mut Requests, is_idle: impl Fn() -> bool) -> bool {
        self.running.store(false, Ordering::SeqCst);
        let retires = is_idle();
        if retires {
            // Nothing is left to wait for.
            requests.lifetime = None;
        } else {
            self.running.store(true, Ordering::SeqCst);
        }
        retires
    }
    /// The flusher has ended for good: refuses what waits and all later requests.
    pub(crate) fn close(&self) {
        let mut requests = self.requests.lock();
        requests.stop = true;
        let group = requests.sync.take();
        drop(requests);
        if let Some(group) = group {
            group.end(Err(stopped()));
        }
    }
    /// Ends the flusher and waits for its end.
    pub(crate) fn stop(&self) {
        let mut requests = self.requests.lock();
        requests.stop = true;
        let lifetime = requests.lifetime.clone();
        drop(requests);
        self.wakeup.notify();
        match lifetime {
            Some(lifetime) => lifetime.wait(),
            // A sync may wait for a flusher that will not start.
            None => self.close(),
        }
    }
}

/// The error of a sync that no flusher will serve.
pub(crate) fn stopped() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "writeback of this device has stopped",
    )
}
