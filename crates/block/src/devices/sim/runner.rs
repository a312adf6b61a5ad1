//! A model in real time.
//!
//! ```text
//!   submit ──▶ schedule ──▶ bytes move ──▶ Request::complete at its end        (the timer's thread)
//!   execute ─▶ schedule ──▶ bytes move ──▶ sleeps itself ─▶ Request::complete   (the caller's)
//! ```
//!
//! A request is known to the model from the moment that it comes; its bytes move while the modelled
//! device works on it, as by DMA. The timer's thread sleeps until something is to be completed or
//! the model has to be asked again. A submitter waits only where [`BACKLOG`] requests wait already.

use super::clock::{self, Lead};
use super::model::{Io, Model, Ns, earlier};
use super::schedule::{Ended, Owner, Schedule};
use crate::{IoError, Request};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use sync::thread::JoinHandle;
use sync::{Condvar, Mutex, MutexGuard};

/// Requests that are not complete before submitters have to wait.
const BACKLOG: usize = 4096;
/// How long a submitter that is not done with its batch may keep completions to itself.
const GATHER: Ns = 50_000;

/// A handle on the timer's thread. Dropping it waits for all that was submitted.
pub(super) struct Runner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Of callers that sleep by themselves.
    lead: Lead,
}

struct Shared {
    state: Mutex<State>,
    /// The timer has to look earlier than it thought.
    wake: Condvar,
    /// The backlog has room again.
    room: Condvar,
}

struct State {
    schedule: Schedule,
    /// Submitted and not complete; those of `execute` are not counted.
    pending: usize,
    /// When the timer looks next; 0 while it is awake.
    timer: Ns,
    stopping: bool,
}

type Locked<'a> = MutexGuard<'a, State>;

impl Runner {
    pub(super) fn start(model: Model) -> io::Result<Runner> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                schedule: Schedule::new(model),
                pending: 0,
                timer: 0,
                stopping: false,
            }),
            wake: Condvar::new(),
            room: Condvar::new(),
        });
        let for_thread = shared.clone();
        let thread = sync::thread::Builder::new().name("sluice-sim".into());
        Ok(Runner {
            thread: Some(thread.spawn(move || for_thread.serve())?),
            shared,
            lead: Lead::default(),
        })
    }

    /// Starts every request; `transfer` moves the bytes of one.
    pub(super) fn submit(
        &self,
        batch: Vec<Request>,
        transfer: impl Fn(&mut Request) -> Result<(), IoError>,
    ) {
        let mut state = self.shared.state.lock();
        while state.pending >= BACKLOG {
            self.shared.room.wait(&mut state);
        }
        state.pending += batch.len();
        let now = clock::now();
        let slots: Vec<_> = batch
            .iter()
            .map(|request| state.schedule.take_in(now, io_of(request), Owner::Moving))
            .collect();
        self.shared.look_at_events(&mut state);
        drop(state);
        // When the first of those whose bytes have moved is to be completed at the latest. Waking
        // the timer's thread takes longer than moving a page, so it is told of many together.
        let mut latest = None;
        let mut told = now;
        let mut left = batch.len();
        for (mut request, slot) in batch.into_iter().zip(slots) {
            let result = transfer(&mut request);
            let mut state = self.shared.state.lock();
            latest = earlier(
                latest,
                state.schedule.moved(slot, (Box::new(request), result)),
            );
            left -= 1;
            let Some(moment) = latest else {
                continue;
            };
            let now = clock::now();
            if left == 0 || now >= moment.max(told + GATHER) {
                self.shared.look_at(&mut state, moment);
                (latest, told) = (None, now);
            }
        }
    }

    /// Carries a request out on the calling thread.
    pub(super) fn execute(
        &self,
        mut request: Request,
        transfer: impl Fn(&mut Request) -> Result<(), IoError>,
    ) {
        let mut state = self.shared.state.lock();
        let owner = Owner::Caller(sync::thread::current());
        let slot = state.schedule.take_in(clock::now(), io_of(&request), owner);
        self.shared.look_at_events(&mut state);
        drop(state);
        let result = transfer(&mut request);
        let end = loop {
            if let Some(end) = self.shared.state.lock().schedule.take_decided(slot) {
                break end;
            }
            sync::thread::park();
        };
        self.lead.sleep_until(end);
        self.shared.state.lock().schedule.tell(end, clock::now());
        request.complete(result);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_one();
        // A completion may have held the last reference to the device: then this is that thread,
        // and it ends by itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != sync::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The timer's thread.
    fn serve(&self) {
        clock::become_punctual();
        let lead = Lead::default();
        let mut ended = Vec::new();
        let mut state = self.state.lock();
        loop {
            state.schedule.take_ended(clock::now(), &mut ended);
            if !ended.is_empty() {
                let was_full = state.pending >= BACKLOG;
                state.pending -= ended.len();
                if was_full && state.pending < BACKLOG {
                    self.room.notify_all();
                }
                MutexGuard::unlocked(&mut state, || complete(&mut ended));
                continue;
            }
            if state.stopping && state.pending == 0 {
                return;
            }
            state.timer = state.schedule.next_look().unwrap_or(Ns::MAX);
            self.sleep(&mut state, &lead);
            state.timer = 0;
        }
    }

    /// Lets the timer's thread sleep until it has to look, or is woken for an earlier moment.
    fn sleep(&self, state: &mut Locked<'_>, lead: &Lead) {
        if state.timer == Ns::MAX {
            return self.wake.wait(state);
        }
        let now = clock::now();
        if let Some(asked) = lead.ask(now, state.timer) {
            let timeout = Duration::from_nanos(asked - now);
            if self.wake.wait_for(state, timeout).timed_out() {
                lead.learn(asked, clock::now());
            }
        } else {
            let until = state.timer;
            MutexGuard::unlocked(state, || clock::spin_until(until));
        }
    }

    /// Tells the timer of the model's next event, where that comes before it looks.
    fn look_at_events(&self, state: &mut Locked<'_>) {
        if let Some(event) = state.schedule.next_event() {
            self.look_at(state, event);
        }
    }

    fn look_at(&self, state: &mut Locked<'_>, moment: Ns) {
        if moment < state.timer {
            state.timer = moment;
            self.wake.notify_one();
        }
    }
}

/// What the model is told of a request.
fn io_of(request: &Request) -> Io {
    Io {
        op: request.op,
        offset: request.offset,
        len: request.len,
        fua: request.flags.fua,
    }
}

fn complete(ended: &mut Vec<Ended>) {
    for (request, result) in ended.drain(..) {
        if catch_unwind(AssertUnwindSafe(|| request.complete(result))).is_err() {
            tracing::error!("the completion of a request panicked");
        }
    }
}
