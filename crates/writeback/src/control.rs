//! What a flusher is asked to do, and its life.
//!
//! ```text
//!              ensure_flusher                    stop
//!  no flusher ────────────────▶ running ──────────────────▶ stopped, for good
//!       ▲                          │
//!       └──── idle for a minute ───┘ (retire)
//! ```
//!
//! A flusher retires only if nothing is listed after it has said so (`running` off), and whoever
//! lists an inode counts it before looking at `running`: one of the two sees the other.

use crate::backing_dev::{BackingDev, WritebackFs};
use crate::flusher::Flusher;
use crate::sync::Group;
use crate::threads::{self, Bell, Flushers, Life, Pool};
use std::io;
use std::sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, MutexGuard};

/// What is asked and not yet taken up.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) sync: Option<Arc<Group>>,
    pub(crate) tick: bool,
    pub(crate) stop: bool,
    /// A test drives the flusher by hand.
    pub(crate) by_hand: bool,
    /// Of the flusher that runs.
    life: Option<Arc<Life>>,
}

/// See the module.
pub(crate) struct Control {
    asked: Mutex<Asked>,
    /// Wakes the flusher's thread.
    bell: Arc<Bell>,
    /// Something was asked since the flusher last looked: who only repeats it need not lock.
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
            asked: Mutex::default(),
            bell: match flushers {
                Flushers::PerDevice => Arc::default(),
                Flushers::Shared => Pool::of_process().bell.clone(),
            },
            kicked: AtomicBool::new(false),
            sync_waits: AtomicBool::new(false),
            reclaim: AtomicBool::new(false),
            running: AtomicBool::new(false),
        }
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock()
    }
    /// The flusher looks at what is asked; whoever asks from here on wakes it.
    pub(crate) fn looked(&self, _asked: &mut Asked) {
        self.kicked.store(false, Ordering::SeqCst);
    }
    /// The flusher ends for want of work, unless `is_idle` turns out to be wrong.
    pub(crate) fn retire(&self, asked: &mut Asked, is_idle: impl Fn() -> bool) -> bool {
        self.running.store(false, Ordering::SeqCst);
        let retires = is_idle();
        if retires {
            // Nobody waits for it: it has nothing left to do.
            asked.life = None;
        } else {
            self.running.store(true, Ordering::SeqCst);
        }
        retires
    }
    /// The flusher cannot go on: nobody will serve what is asked.
    pub(crate) fn gone(&self) {
        let mut asked = self.asked.lock();
        asked.stop = true;
        let group = asked.sync.take();
        drop(asked);
        if let Some(group) = group {
            group.end(Err(stopped()));
        }
    }
    /// Has the flusher end, and waits until it is gone.
    pub(crate) fn stop(&self) {
        let mut asked = self.asked.lock();
        asked.stop = true;
        let life = asked.life.take();
        drop(asked);
        self.bell.ring();
        if let Some(life) = life {
            life.wait();
        }
    }
}

/// What a sync is told that nobody will serve.
pub(crate) fn stopped() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "writeback of this device has stopped",
    )
}

impl<F: WritebackFs> BackingDev<F> {
    /// Has the flusher look at the thresholds. Cheap where it has yet to look since the last time.
    #[inline]
    pub(crate) fn kick_background(&self) {
        if !self.control.kicked.load(Ordering::SeqCst) {
            self.kick(|_| ());
        }
    }
    /// Asks the flusher for something.
    pub(crate) fn kick(&self, ask: impl FnOnce(&mut Asked)) {
        self.control.kicked.store(true, Ordering::SeqCst);
        ask(&mut self.control.lock());
        self.control.bell.ring();
        self.ensure_flusher();
    }
    /// Joins the group of syncs that is served next.
    pub(crate) fn request_sync(&self) -> io::Result<Arc<Group>> {
        let mut asked = self.control.lock();
        if asked.stop {
            return Err(stopped());
        }
        let group = asked.sync.get_or_insert_default().clone();
        self.control.sync_waits.store(true, Ordering::SeqCst);
        drop(asked);
        self.control.bell.ring();
        self.start_flusher()?;
        Ok(group)
    }
    /// Starts the flusher where it is not running, so that its next tick comes. Cheap where it is.
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
        let mut asked = self.control.lock();
        if asked.stop || asked.by_hand || self.control.running.load(Ordering::SeqCst) {
            return Ok(());
        }
        let Some(me) = self.me.upgrade() else {
            return Ok(());
        };
        let flusher = Flusher::new(me);
        let life = flusher.life();
        match self.flushers {
            Flushers::PerDevice => {
                // Fifteen bytes are what the system keeps of a thread's name.
                let name = self.queue.name();
                let name = name.rsplit('/').next().unwrap_or(name);
                let name = format!("flush-{name}").chars().take(15).collect();
                threads::spawn(name, self.control.bell.clone(), flusher)?;
            }
            Flushers::Shared => Pool::of_process().join(Box::new(flusher))?,
        }
        asked.life = Some(life);
        self.control.running.store(true, Ordering::SeqCst);
        Ok(())
    }
}
