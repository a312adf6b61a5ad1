//! Requests to a flusher, and when it runs.
//!
//! ```text
//!              ensure_flusher                    stop
//!  no flusher ────────────────▶ running ──────────────────▶ stopped, for good
//!       ▲                          │
//!       └──── idle for a minute ───┘ (retire)
//! ```
//!
//! No inode is forgotten when a flusher retires: the flusher clears `running` and then looks whether
//! an inode is listed; a thread that lists an inode counts it and then looks at `running`. One of
//! the two sees the other.

use crate::backing_dev::{BackingDev, WritebackFs};
use crate::flusher::Flusher;
use crate::sync::Group;
use crate::threads::{self, Flushers, Lifetime, SharedThread, Wakeup};
use std::io;
use std::sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, MutexGuard};

/// Requests that the flusher has not taken up yet.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) sync: Option<Arc<Group>>,
    pub(crate) tick: bool,
    pub(crate) stop: bool,
    /// A test drives the flusher: no thread is started.
    pub(crate) by_hand: bool,
    /// Of the flusher that runs.
    lifetime: Option<Arc<Lifetime>>,
}

/// See the module.
pub(crate) struct Control {
    requests: Mutex<Requests>,
    wakeup: Arc<Wakeup>,
    /// A request was made since the flusher last looked: repeating it needs no lock.
    kicked: AtomicBool,
    /// A sync waits: a pass for another reason ends early.
    pub(crate) sync_waits: AtomicBool,
    /// Memory is wanted.
    pub(crate) reclaim: AtomicBool,
    running: AtomicBool,
}

impl Control {
    pub(crate) fn new(flushers: Flushers) -> Control {
        Control {
            requests: Mutex::default(),
            wakeup: match flushers {
                Flushers::PerDevice => Arc::default(),
                Flushers::Shared => SharedThread::of_process().wakeup.clone(),
            },
            kicked: AtomicBool::new(false),
            sync_waits: AtomicBool::new(false),
            reclaim: AtomicBool::new(false),
            running: AtomicBool::new(false),
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
        let lifetime = requests.lifetime.take();
        drop(requests);
        self.wakeup.notify();
        if let Some(lifetime) = lifetime {
            lifetime.wait();
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

impl<F: WritebackFs> BackingDev<F> {
    /// Has the flusher look at the thresholds. Cheap where it has yet to look since the last call.
    #[inline]
    pub(crate) fn kick_background(&self) {
        if !self.control.kicked.load(Ordering::SeqCst) {
            self.kick(|_| ());
        }
    }
    /// Makes a request and wakes the flusher.
    pub(crate) fn kick(&self, request: impl FnOnce(&mut Requests)) {
        self.control.kicked.store(true, Ordering::SeqCst);
        request(&mut self.control.lock());
        self.control.wakeup.notify();
        self.ensure_flusher();
    }
    /// Joins the group of syncs that is served next.
    pub(crate) fn request_sync(&self) -> io::Result<Arc<Group>> {
        let mut requests = self.control.lock();
        if requests.stop {
            return Err(stopped());
        }
        let group = requests.sync.get_or_insert_default().clone();
        self.control.sync_waits.store(true, Ordering::SeqCst);
        drop(requests);
        self.control.wakeup.notify();
        self.start_flusher()?;
        Ok(group)
    }
    /// Starts the flusher if it is not running, so that its next tick comes. Cheap where it is.
    #[inline]
    pub fn ensure_flusher(&self) {
        if !self.control.running.load(Ordering::SeqCst)
            && let Err(error) = self.start_flusher()
        {
            // The next inode that becomes dirty tries again.
            tracing::error!("no flusher for {}: {error}", self.queue.name());
        }
    }
    #[cold]
    fn start_flusher(&self) -> io::Result<()> {
        let mut requests = self.control.lock();
        if requests.stop || requests.by_hand || self.control.running.load(Ordering::SeqCst) {
            return Ok(());
        }
        let Some(me) = self.me.upgrade() else {
            return Ok(());
        };
        let flusher = Flusher::new(me);
        let lifetime = flusher.lifetime();
        match self.flushers {
            Flushers::PerDevice => {
                // The system keeps fifteen bytes of a thread's name.
                let name = self.queue.name();
                let name = name.rsplit('/').next().unwrap_or(name);
                let name = format!("flush-{name}").chars().take(15).collect();
                threads::spawn(name, self.control.wakeup.clone(), flusher)?;
            }
            Flushers::Shared => SharedThread::of_process().join(Box::new(flusher))?,
        }
        requests.lifetime = Some(lifetime);
        self.control.running.store(true, Ordering::SeqCst);
        Ok(())
    }
}
