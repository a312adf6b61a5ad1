//! A model in real time.
//!
//! ```text
//!   submit ──▶ schedule ──▶ bytes move ──▶ Request::complete at its end        (the timer's thread)
//!   execute ─▶ schedule ──▶ bytes move ──▶ sleeps itself ─▶ Request::complete   (the caller's)
//! ```
//!
//! A request enters the model when it arrives. Its bytes move while the modelled device works on
//! it, as by DMA. The timer's thread sleeps until a request must be completed or the model has an
//! event. A submitter waits only if [`BACKLOG`] requests are pending.

use crate::io::{Io, Ns, earlier};
use crate::model::Model;
use crate::schedule::{Ended, Owner, Schedule};
use crate::timer::{self, Lead};
use block::{Durability, IoError, Request};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use sync::thread::JoinHandle;
use sync::{Condvar, Mutex, MutexGuard, Rank};

/// Pending requests from which on submitters wait.
const BACKLOG: usize = 4096;
/// How long a submitter may delay the timer's notification while it works on its batch.
const GATHER: Ns = 50_000;

/// A handle on the timer's thread. Dropping it waits for all submitted requests.
pub(crate) struct Runner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// For callers that sleep on their own threads.
    lead: Lead,
}

struct Shared {
    state: Mutex<State>,
    /// Signalled when the timer must wake up earlier than planned.
    wake: Condvar,
    /// Signalled when the backlog has room again.
    room: Condvar,
}

struct State {
    schedule: Schedule,
    /// Requests of `submit` that are not complete.
    pending: usize,
    /// When the timer wakes up next; 0 while it is awake.
    timer: Ns,
    stopping: bool,
}

type Locked<'a> = MutexGuard<'a, State>;

impl Runner {
    pub(crate) fn start(model: Model) -> io::Result<Runner> {
        let shared = Arc::new(Shared {
            state: Rank::SimRunner.mutex(State {
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
    pub(crate) fn submit(
        &self,
        batch: Vec<Request>,
        transfer: impl Fn(&mut Request) -> Result<(), IoError>,
    ) {
        let mut state = self.shared.state.lock();
        while state.pending >= BACKLOG {
            self.shared.room.wait(&mut state);
        }
        state.pending += batch.len();
        let now = timer::now();
        let slots: Vec<_> = batch
            .iter()
            .map(|request| state.schedule.take_in(now, io_of(request), Owner::Moving))
            .collect();
        self.shared.look_at_events(&mut state);
        drop(state);
        // The latest time for the first completion among the requests whose bytes have moved. To
        // wake the timer's thread takes longer than to move a page, so one wake-up serves many
        // requests.
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
            let now = timer::now();
            if left == 0 || now >= moment.max(told + GATHER) {
                self.shared.look_at(&mut state, moment);
                (latest, told) = (None, now);
            }
        }
    }

    /// Executes a request on the calling thread.
    pub(crate) fn execute(
        &self,
        mut request: Request,
        transfer: impl Fn(&mut Request) -> Result<(), IoError>,
    ) {
        let mut state = self.shared.state.lock();
        let owner = Owner::Caller(sync::thread::current());
        let slot = state.schedule.take_in(timer::now(), io_of(&request), owner);
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
        self.shared.state.lock().schedule.tell(end, timer::now());
        request.complete(result);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_one();
        // If a completion held the last reference to the device, this is the timer's thread. It
        // ends when this call returns.
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
        timer::become_punctual();
        let lead = Lead::default();
        let mut ended = Vec::new();
        let mut state = self.state.lock();
        loop {
            state.schedule.take_ended(timer::now(), &mut ended);
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

    /// The timer's thread sleeps until `state.timer`, or until it is woken for an earlier time.
    fn sleep(&self, state: &mut Locked<'_>, lead: &Lead) {
        if state.timer == Ns::MAX {
            return self.wake.wait(state);
        }
        let now = timer::now();
        if let Some(asked) = lead.ask(now, state.timer) {
            let timeout = Duration::from_nanos(asked - now);
            if self.wake.wait_for(state, timeout).timed_out() {
                lead.learn(asked, timer::now());
            }
        } else {
            let until = state.timer;
            MutexGuard::unlocked(state, || timer::spin_until(until));
        }
    }

    /// Wakes the timer if the model's next event comes before it wakes up by itself.
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

/// A request as the model sees it.
fn io_of(request: &Request) -> Io {
    Io {
        op: request.op,
        offset: request.offset,
        len: request.len,
        fua: request.durability == Durability::Fua,
    }
}

fn complete(ended: &mut Vec<Ended>) {
    for (request, result) in ended.drain(..) {
        if catch_unwind(AssertUnwindSafe(|| request.complete(result))).is_err() {
            tracing::error!("the completion of a request panicked");
        }
    }
}
