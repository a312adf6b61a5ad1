//! The threads that flushers run on.
//!
//! A thread calls a flusher again and again ([`Task::run_once`]), and sleeps until its [`Wakeup`]
//! is notified. With [`Flushers::PerDevice`] each flusher has a thread of its own.
//!
//! [`Flushers::Shared`] is the ablation: one thread for all such devices of the process, as pdflush
//! was (Linux before 2.6.32), with a pool of one. It serves the devices round robin. In a turn a
//! device gets one batch, which stays in flight while the thread serves the others, and whose
//! metadata is recorded in the device's next turn. (The queues of that time took 128 requests, so a
//! whole batch is generous.) The thread waits where a device makes it wait: for the previous batch,
//! for log space, for a sync. All devices wait then.

use std::io;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;
use sync::thread::{self, ThreadId};
use sync::{Condvar, Mutex, Rank};

/// Which threads write dirty data back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flushers {
    /// One for each device: no device waits for another.
    #[default]
    PerDevice,
    /// One for all devices of this process that use this setting (an ablation for measurements).
    Shared,
}

/// The next action of a thread after a turn of a flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Give it another turn: it may have more to do.
    Continue,
    /// Wait for so long at most, or until the wake-up is notified.
    Sleep(Duration),
    /// Drop it.
    Ended,
}

/// A flusher of any file system.
pub(crate) trait Task: Send {
    /// Carries out one piece of work.
    fn run_once(&mut self) -> Next;
}

/// Wakes a thread of flushers. A notification without a waiter is kept for the next one.
pub(crate) struct Wakeup {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Default for Wakeup {
    fn default() -> Wakeup {
        Wakeup {
            notified: Rank::FlusherWakeup.mutex(false),
            changed: Condvar::new(),
        }
    }
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        *self.notified.lock() = true;
        self.changed.notify_all();
    }
    fn wait(&self, timeout: Duration) {
        let mut notified = self.notified.lock();
        if !*notified {
            self.changed.wait_for(&mut notified, timeout);
        }
        *notified = false;
    }
}

/// Whether a flusher still exists, and on which thread it runs.
pub(crate) struct Lifetime {
    thread: OnceLock<ThreadId>,
    over: Mutex<bool>,
    ended: Condvar,
}

impl Default for Lifetime {
    fn default() -> Lifetime {
        Lifetime {
            thread: OnceLock::new(),
            over: Rank::FlusherEnd.mutex(false),
            ended: Condvar::new(),
        }
    }
}

impl Lifetime {
    /// The flusher runs on the calling thread.
    pub(crate) fn set_thread(&self) {
        self.thread.get_or_init(|| thread::current().id());
    }
    /// Waits until the flusher and all that it held are dropped. Returns at once on its own thread.
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

/// Ends a [`Lifetime`] on drop.
#[derive(Default)]
pub(crate) struct LifetimeGuard(pub(crate) Arc<Lifetime>);

impl Drop for LifetimeGuard {
    fn drop(&mut self) {
        *self.0.over.lock() = true;
        self.0.ended.notify_all();
    }
}

/// Runs a flusher on a thread of its own.
pub(crate) fn spawn(
    name: String,
    wakeup: Arc<Wakeup>,
    mut task: impl Task + 'static,
) -> io::Result<()> {
    let run = move || {
        loop {
            match task.run_once() {
                Next::Continue => {}
                Next::Sleep(timeout) => wakeup.wait(timeout),
                Next::Ended => return,
            }
        }
    };
    thread::Builder::new().name(name).spawn(run).map(drop)
}

/// One thread for many flushers. It starts with the first and ends with the last.
pub(crate) struct SharedThread {
    pub(crate) wakeup: Arc<Wakeup>,
    state: Mutex<SharedState>,
}

impl Default for SharedThread {
    fn default() -> SharedThread {
        SharedThread {
            wakeup: Arc::default(),
            state: Rank::SharedFlusher.mutex(SharedState::default()),
        }
    }
}

#[derive(Default)]
struct SharedState {
    /// Flushers that the thread has not taken up yet.
    joining: Vec<Box<dyn Task>>,
    running: bool,
}

impl SharedThread {
    /// The one of this process.
    pub(crate) fn of_process() -> &'static Arc<SharedThread> {
        static THREAD: LazyLock<Arc<SharedThread>> = LazyLock::new(Arc::default);
        &THREAD
    }
    /// Adds a flusher.
    pub(crate) fn join(self: &Arc<SharedThread>, task: Box<dyn Task>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.running {
            let shared = self.clone();
            let thread = thread::Builder::new().name("flush-shared".into());
            thread.spawn(move || shared.run())?;
            state.running = true;
        }
        state.joining.push(task);
        drop(state);
        self.wakeup.notify();
        Ok(())
    }
    fn run(&self) {
        let mut round_robin = RoundRobin::default();
        loop {
            let mut state = self.state.lock();
            round_robin.tasks.append(&mut state.joining);
            if round_robin.tasks.is_empty() {
                state.running = false;
                return;
            }
            drop(state);
            if let Some(timeout) = round_robin.run_round() {
                self.wakeup.wait(timeout);
            }
        }
    }
}

/// Flushers that share a thread.
#[derive(Default)]
pub(crate) struct RoundRobin {
    pub(crate) tasks: Vec<Box<dyn Task>>,
}

impl RoundRobin {
    /// Gives each flusher a turn. Returns how long to wait before the next round, if none has more
    /// to do.
    pub(crate) fn run_round(&mut self) -> Option<Duration> {
        let mut timeout = Some(Duration::MAX);
        self.tasks.retain_mut(|task| {
            let next = task.run_once();
            match next {
                Next::Sleep(time) => timeout = timeout.map(|timeout| timeout.min(time)),
                Next::Continue | Next::Ended => timeout = None,
            }
            next != Next::Ended
        });
        timeout
    }
}
