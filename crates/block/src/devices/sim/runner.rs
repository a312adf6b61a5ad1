//! A model in real time.
//!
//! ```text
//!   submit ──▶ model ──▶ bytes move ──▶ due, by end ──▶ Request::complete       (the timer's thread)
//!   execute ─▶ model ──▶ bytes move ──▶ sleeps itself ─▶ Request::complete       (the caller's)
//! ```
//!
//! A request is known to the model from the moment that it comes; its bytes move while the modelled device works on it,
//! as by DMA. The timer's thread sleeps until a request is due or the model has to be asked again. Requests that end
//! close to one another share one waking in their middle (see [`tolerance`]), so that on average none is early or late.
//!
//! A submitter waits only where [`BACKLOG`] requests wait already.

use super::clock::{self, Lead};
use super::model::{Decision, Io, Model, Ns, earlier};
use crate::{IoError, Request};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// Requests that are not complete before submitters have to wait.
const BACKLOG: usize = 4096;
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
    model: Model,
    decisions: Vec<Decision>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Requests that the timer completes, by their end.
    due: BinaryHeap<Reverse<(Ns, usize)>>,
    /// Submitted and not complete; those of `execute` are not counted.
    pending: usize,
    /// When the timer looks next; `0` while it is awake.
    timer: Ns,
    stopping: bool,
}

/// A request that the model knows.
struct Slot {
    since: Ns,
    end: Option<Ns>,
    owner: Owner,
}

/// Who completes it.
enum Owner {
    /// Its bytes are being moved.
    Moving,
    /// The timer, with this result.
    Timer(Box<Request>, Result<(), IoError>),
    /// The thread that called `execute`.
    Caller(Thread),
}

type Ended = (Box<Request>, Result<(), IoError>);
type Locked<'a> = MutexGuard<'a, State>;

impl Runner {
    pub(super) fn start(model: Model) -> io::Result<Runner> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                model,
                decisions: Vec::new(),
                slots: Vec::new(),
                free: Vec::new(),
                due: BinaryHeap::new(),
                pending: 0,
                timer: 0,
                stopping: false,
            }),
            wake: Condvar::new(),
            room: Condvar::new(),
        });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new().name("sluice-sim".into());
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
        let slots: Vec<_> = batch
            .iter()
            .map(|request| state.take_in(request, Owner::Moving))
            .collect();
        self.shared.look_at_events(&mut state);
        drop(state);
        for (mut request, slot) in batch.into_iter().zip(slots) {
            let result = transfer(&mut request);
            let mut state = self.shared.state.lock();
            state.slots[slot].owner = Owner::Timer(Box::new(request), result);
            if state.slots[slot].end.is_some() {
                self.shared.queue_due(&mut state, slot);
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
        let slot = state.take_in(&request, Owner::Caller(std::thread::current()));
        self.shared.look_at_events(&mut state);
        drop(state);
        let result = transfer(&mut request);
        let end = loop {
            if let Some(end) = self.shared.state.lock().take_decided(slot) {
                break end;
            }
            std::thread::park();
        };
        self.lead.sleep_until(end);
        request.complete(result);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
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
            let now = clock::now();
            state.advance(now);
            let was_full = state.pending >= BACKLOG;
            state.take_ended(now, &mut ended);
            if was_full && state.pending < BACKLOG {
                self.room.notify_all();
            }
            if !ended.is_empty() {
                state.timer = 0;
                MutexGuard::unlocked(&mut state, || complete(&mut ended));
                continue;
            }
            if state.stopping && state.pending == 0 {
                return;
            }
            state.timer = state.next_look().unwrap_or(Ns::MAX);
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
        if let Some(event) = state.model.next_event() {
            self.look_at(state, event);
        }
    }

    /// The timer is to complete a decided request.
    fn queue_due(&self, state: &mut Locked<'_>, slot: usize) {
        let latest = state.queue_due(slot);
        self.look_at(state, latest);
    }

    fn look_at(&self, state: &mut Locked<'_>, moment: Ns) {
        if moment < state.timer {
            state.timer = moment;
            self.wake.notify_one();
        }
    }
}

impl State {
    /// Hands a request to the model.
    fn take_in(&mut self, request: &Request, owner: Owner) -> usize {
        let now = clock::now();
        let slot = Slot {
            since: now,
            end: None,
            owner,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        let io = Io {
            op: request.op,
            offset: request.offset,
            len: request.len,
            fua: request.flags.fua,
        };
        self.model
            .submit(now, index as u64, io, &mut self.decisions);
        self.settle();
        index
    }

    fn advance(&mut self, now: Ns) {
        self.model.advance(now, &mut self.decisions);
        self.settle();
    }

    /// Notes what the model has decided.
    fn settle(&mut self) {
        let mut decisions = std::mem::take(&mut self.decisions);
        for Decision { id, end } in decisions.drain(..) {
            let slot = &mut self.slots[id as usize];
            slot.end = Some(end);
            match &slot.owner {
                Owner::Moving => {}
                Owner::Timer(..) => {
                    self.queue_due(id as usize);
                }
                Owner::Caller(thread) => thread.unpark(),
            }
        }
        self.decisions = decisions;
    }

    /// The end of a caller's request, if it is known; the slot is free then.
    fn take_decided(&mut self, slot: usize) -> Option<Ns> {
        let end = self.slots[slot].end?;
        self.free.push(slot);
        Some(end)
    }

    /// Queues a decided request: when it may be completed at the latest.
    fn queue_due(&mut self, slot: usize) -> Ns {
        let end = self.slots[slot].end.expect("it is decided");
        self.due.push(Reverse((end, slot)));
        end + self.tolerance(end, slot)
    }

    fn tolerance(&self, end: Ns, slot: usize) -> Ns {
        tolerance(end.saturating_sub(self.slots[slot].since))
    }

    /// When to complete the request that ends first, with those that end soon after it: halfway between the ends.
    fn next_completion(&self) -> Option<Ns> {
        let Reverse((first, slot)) = self.due.peek().copied()?;
        let limit = first + 2 * self.tolerance(first, slot);
        let ends = self.due.iter().map(|Reverse((end, _))| *end);
        let last = ends.filter(|end| *end <= limit).max().unwrap_or(first);
        Some(first + (last - first) / 2)
    }

    /// When the timer has something to do.
    fn next_look(&self) -> Option<Ns> {
        earlier(self.next_completion(), self.model.next_event())
    }

    /// Moves out what is to be completed at `now`.
    fn take_ended(&mut self, now: Ns, ended: &mut Vec<Ended>) {
        if self.next_completion().is_none_or(|at| at > now) {
            return;
        }
        while let Some(Reverse((end, slot))) = self.due.peek().copied() {
            if end > now + self.tolerance(end, slot) {
                return;
            }
            self.due.pop();
            self.free.push(slot);
            self.pending -= 1;
            match std::mem::replace(&mut self.slots[slot].owner, Owner::Moving) {
                Owner::Timer(request, result) => ended.push((request, result)),
                Owner::Moving | Owner::Caller(_) => unreachable!("only the timer's are due"),
            }
        }
    }
}

/// How much before or after its end a request that takes `ns` may be completed, so that it shares a waking with others
/// (arming a timer in a virtual machine costs 10 µs of processor time): a twelfth of what it takes, 20 to 50 µs.
fn tolerance(ns: Ns) -> Ns {
    (ns / 12).clamp(20_000, 50_000).min(ns * 2 / 3)
}

fn complete(ended: &mut Vec<Ended>) {
    for (request, result) in ended.drain(..) {
        if catch_unwind(AssertUnwindSafe(|| request.complete(result))).is_err() {
            tracing::error!("the completion of a request panicked");
        }
    }
}
