//! The threads that flushers run on.
//!
//! A flusher is asked for one turn after another ([`Turns::turn`]); whoever asks it for something
//! rings its thread's bell. With [`Flushers::PerDevice`] a flusher has a thread of its own.
//!
//! [`Flushers::Shared`] is the ablation: one thread for all such devices of the process, as pdflush
//! was (Linux before 2.6.32), with a pool of one. It goes round the devices; in a turn a device
//! gets one batch, which stays in flight while the thread is at the others (the queues of that time
//! took 128 requests, so that is generous), and whose metadata is recorded when the thread comes by
//! again. It waits where a device makes it wait: for the batch of the turn before to land, for log
//! space, for a sync. What one device makes it wait for, all wait for.

use std::io;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;
use sync::thread::{self, ThreadId};
use sync::{Condvar, Mutex};

/// Which threads write dirty data back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flushers {
    /// One for each device: no device waits for another.
    #[default]
    PerDevice,
    /// One for all devices of this process that say so (an ablation for measurements).
    Shared,
}

/// What becomes of a flusher after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It may have more to do.
    Again,
    /// It has nothing to do for so long, unless the bell rings.
    After(Duration),
    /// It is over.
    Over,
}

/// A flusher, whatever file system it is for.
pub(crate) trait Turns: Send {
    /// Does one piece of what there is to do.
    fn turn(&mut self) -> Next;
}

/// Wakes a thread of flushers.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }
    /// Waits until it rings, or has rung since last waited for.
    fn wait(&self, at_most: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.changed.wait_for(&mut rung, at_most);
        }
        *rung = false;
    }
}

/// Whether a flusher still runs, and on which thread.
#[derive(Default)]
pub(crate) struct Life {
    thread: OnceLock<ThreadId>,
    over: Mutex<bool>,
    ended: Condvar,
}

impl Life {
    /// The flusher runs on the calling thread.
    pub(crate) fn runs_here(&self) {
        self.thread.get_or_init(|| thread::current().id());
    }
    /// Waits until the flusher is gone, with all that it held; not on its own thread.
    pub(crate) fn wait(&self) {
        if self.thread.get() == Some(&thread::current().id()) {
            return;
        }
        let mut over = self.over.lock();
        while !*over {
            self.ended.wait(&mut over);
        }
    }
}

/// A flusher's own end of [`Life`]; dropping it says that the flusher is gone.
pub(crate) struct Alive(pub(crate) Arc<Life>);
impl Drop for Alive {
    fn drop(&mut self) {
        *self.0.over.lock() = true;
        self.0.ended.notify_all();
    }
}

/// Runs a flusher on a thread of its own.
pub(crate) fn spawn(
    name: String,
    bell: Arc<Bell>,
    mut flusher: impl Turns + 'static,
) -> io::Result<()> {
    let run = move || {
        loop {
            match flusher.turn() {
                Next::Again => {}
                Next::After(nap) => bell.wait(nap),
                Next::Over => return,
            }
        }
    };
    thread::Builder::new().name(name).spawn(run).map(drop)
}

/// One thread for many flushers. It starts with the first and ends with the last.
#[derive(Default)]
pub(crate) struct Pool {
    pub(crate) bell: Arc<Bell>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Flushers that the thread has not taken up yet.
    joining: Vec<Box<dyn Turns>>,
    running: bool,
}

impl Pool {
    /// The process's.
    pub(crate) fn of_process() -> &'static Arc<Pool> {
        static POOL: LazyLock<Arc<Pool>> = LazyLock::new(Arc::default);
        &POOL
    }
    /// Runs one more flusher.
    pub(crate) fn join(self: &Arc<Pool>, flusher: Box<dyn Turns>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.running {
            let pool = self.clone();
            let thread = thread::Builder::new().name("flush-shared".into());
            thread.spawn(move || pool.run())?;
            state.running = true;
        }
        state.joining.push(flusher);
        drop(state);
        self.bell.ring();
        Ok(())
    }
    fn run(&self) {
        let mut rota = Rota::default();
        loop {
            let mut state = self.state.lock();
            rota.flushers.append(&mut state.joining);
            if rota.flushers.is_empty() {
                state.running = false;
                return;
            }
            drop(state);
            if let Some(nap) = rota.round() {
                self.bell.wait(nap);
            }
        }
    }
}

/// Flushers that share a thread, in the order of their turns.
#[derive(Default)]
pub(crate) struct Rota {
    pub(crate) flushers: Vec<Box<dyn Turns>>,
}

impl Rota {
    /// A turn for each; how long to wait before the next round, if nobody has anything to do.
    pub(crate) fn round(&mut self) -> Option<Duration> {
        let mut nap = Some(Duration::MAX);
        self.flushers.retain_mut(|flusher| {
            let next = flusher.turn();
            match next {
                Next::After(after) => nap = nap.map(|nap| nap.min(after)),
                Next::Again | Next::Over => nap = None,
            }
            next != Next::Over
        });
        nap
    }
}
