//! The scheduler: the running thread, the waits of the others, and virtual time.

use super::outcome::{Failure, Options, Outcome};
use super::strategy::{Chooser, Strategy};
use super::wait::{Access, Key, Place};
use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// Virtual nanoseconds that a point takes, so that time passes for a thread that only computes.
const POINT_NANOS: u64 = 200;

/// The threads among which a switch chooses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Any,
    /// Not the calling thread, if another can run.
    Another,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runnable,
    Blocked(Key),
    Finished,
}

/// The right to run, passed from thread to thread.
pub(super) struct Baton {
    here: AtomicBool,
    thread: std::sync::OnceLock<std::thread::Thread>,
}

impl Baton {
    fn pass(&self) {
        self.here.store(true, SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
    /// Waits for the baton on the thread that it is for.
    pub fn wait(&self) {
        while !self.here.swap(false, SeqCst) {
            std::thread::park();
        }
    }
}

struct Member {
    name: String,
    baton: Arc<Baton>,
    status: Status,
    /// Virtual nanoseconds at which the wait times out.
    deadline: Option<u64>,
    timed_out: bool,
    /// `unpark` was called before `park`.
    unparked: bool,
    priority: u64,
    place: Option<Place>,
}

struct State {
    members: Vec<Member>,
    chooser: Chooser,
    switches: u64,
    finished: bool,
    failure: Option<Failure>,
}

/// The scheduler of one run.
pub(crate) struct Scheduler {
    options: Options,
    /// Points outside of calm parts. Only the running thread counts.
    steps: AtomicU64,
    /// All points.
    points: AtomicU64,
    /// The step at which a choice is due.
    next: AtomicU64,
    fingerprint: AtomicU64,
    calm: AtomicU32,
    /// Virtual nanoseconds by which timers have advanced the clock.
    leapt: AtomicU64,
    trace: parking_lot::Mutex<Vec<(usize, Place)>>,
    state: parking_lot::Mutex<State>,
    over: parking_lot::Condvar,
}

thread_local! {
    /// The run of the calling thread, and the thread's number in it. The thread's closure keeps the
    /// run alive.
    static CURRENT: Cell<Option<(&'static Scheduler, usize)>> = const { Cell::new(None) };
}

/// The run of the calling thread, and the thread's number in it.
#[inline]
pub(crate) fn current() -> Option<(&'static Scheduler, usize)> {
    CURRENT.get()
}

/// A point: the scheduler may switch to another thread here.
#[inline]
#[track_caller]
pub(crate) fn point() {
    if let Some((scheduler, me)) = current() {
        scheduler.point(me, Location::caller());
    }
}

impl Scheduler {
    pub fn new(options: Options) -> Arc<Scheduler> {
        Arc::new(Scheduler {
            options,
            steps: AtomicU64::new(0),
            points: AtomicU64::new(0),
            next: AtomicU64::new(match options.strategy {
                Strategy::Random => 0,
                Strategy::Pct(_) => 1,
            }),
            fingerprint: AtomicU64::new(0),
            calm: AtomicU32::new(0),
            leapt: AtomicU64::new(0),
            trace: parking_lot::Mutex::default(),
            state: parking_lot::Mutex::new(State {
                members: Vec::new(),
                chooser: Chooser::new(options.strategy, options.seed),
                switches: 0,
                finished: false,
                failure: None,
            }),
            over: parking_lot::Condvar::new(),
        })
    }

    /// Gives the baton to the first thread, waits until the run is over, and returns its outcome.
    pub fn finish_run(&self) -> Outcome {
        self.state.lock().members[0].baton.pass();
        let mut state = self.state.lock();
        while !state.finished {
            self.over.wait(&mut state);
        }
        Outcome {
            points: self.points.load(Relaxed),
            switches: state.switches,
            threads: state.members.len(),
            time: Duration::from_nanos(self.now()),
            fingerprint: self.fingerprint.load(Relaxed),
            trace: std::mem::take(&mut self.trace.lock()),
            failure: state.failure.clone(),
        }
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    pub fn random(&self) -> u64 {
        self.state.lock().chooser.random()
    }

    pub fn enter_calm(&self) {
        self.calm.fetch_add(1, Relaxed);
    }

    pub fn leave_calm(&self) {
        self.calm.fetch_sub(1, Relaxed);
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Relaxed) > 0
    }

    /// Virtual time since the run began, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.leapt.load(Relaxed) + self.points.load(Relaxed) * POINT_NANOS
    }

    /// A point of thread `me` at `place`.
    #[inline]
    pub fn point(&self, me: usize, place: Place) {
        let points = self.points.load(Relaxed) + 1;
        self.points.store(points, Relaxed);
        let mixed = self.fingerprint.load(Relaxed).rotate_left(7)
            ^ (u64::from(place.line()) << 8 | me as u64);
        self.fingerprint
            .store(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15), Relaxed);
        if self.options.trace {
            self.trace.lock().push((me, place));
        }
        if self.is_calm() {
            if points > self.options.step_limit {
                self.fail_for_length(me, place);
            }
            return;
        }
        let step = self.steps.load(Relaxed) + 1;
        self.steps.store(step, Relaxed);
        if step >= self.next.load(Relaxed) {
            self.choose(me, place, step);
        }
        if points > self.options.step_limit {
            self.fail_for_length(me, place);
        }
    }

    #[cold]
    fn fail_for_length(&self, me: usize, place: Place) {
        let mut state = self.state();
        state.members[me].place = Some(place);
        let limit = self.options.step_limit;
        let message = format!("no end after {limit} points: a livelock?");
        self.fail(state, message);
    }

    /// A choice is due: it may switch to another thread.
    #[cold]
    fn choose(&self, me: usize, place: Place, step: u64) {
        let mut state = self.state();
        state.members[me].place = Some(place);
        let changes = state.chooser.changes_at(step);
        if changes && state.chooser.is_pct() {
            state.members[me].priority = state.chooser.lowered();
        }
        let rarity = state.chooser.timer_rarity;
        if rarity > 0 && state.chooser.random().is_multiple_of(rarity) {
            self.fire_timer(&mut state);
        }
        self.hand_over(state, me, Next::Any);
    }

    /// Fires the first timer: its thread becomes runnable, and time advances to it. Returns `false`
    /// if there is none.
    fn fire_timer(&self, state: &mut State) -> bool {
        let waiting = |m: &Member| matches!(m.status, Status::Blocked(_));
        let due = state.members.iter().enumerate();
        let first = due
            .filter(|(_, m)| waiting(m))
            .filter_map(|(i, m)| m.deadline.map(|at| (at, i)))
            .min();
        let Some((at, i)) = first else { return false };
        self.leapt.fetch_add(at.saturating_sub(self.now()), Relaxed);
        let member = &mut state.members[i];
        member.status = Status::Runnable;
        member.deadline = None;
        member.timed_out = true;
        true
    }

    /// Passes the baton to the next thread, and returns when the calling thread has it again.
    fn hand_over(&self, mut state: parking_lot::MutexGuard<'_, State>, me: usize, next: Next) {
        let Some(chosen) = self.pick(&mut state, me, next) else {
            let message = "deadlock: no thread can run, and none waits for time".to_owned();
            return self.fail(state, message);
        };
        let step = self.steps();
        let next_choice = state.chooser.next_step(step);
        self.next.store(next_choice, Relaxed);
        if chosen == me {
            return;
        }
        state.switches += 1;
        let theirs = state.members[chosen].baton.clone();
        let is_over = state.members[me].status == Status::Finished;
        let mine = state.members[me].baton.clone();
        drop(state);
        theirs.pass();
        if !is_over {
            mine.wait();
        }
    }

    /// Chooses the next thread. Time advances if no thread can run.
    fn pick(&self, state: &mut State, me: usize, next: Next) -> Option<usize> {
        loop {
            let runnable: Vec<usize> = (0..state.members.len())
                .filter(|&i| state.members[i].status == Status::Runnable)
                .collect();
            let others = runnable.iter().copied().filter(|&i| i != me);
            let candidates: Vec<usize> = match next == Next::Another && runnable.len() > 1 {
                true => others.collect(),
                false => runnable,
            };
            if !candidates.is_empty() {
                // A thread that yields in a loop may wait for a timer.
                if next == Next::Another && candidates == [me] {
                    self.fire_timer(state);
                    if state
                        .members
                        .iter()
                        .enumerate()
                        .any(|(i, m)| i != me && m.status == Status::Runnable)
                    {
                        continue;
                    }
                }
                if self.is_calm() && candidates.contains(&me) {
                    return Some(me);
                }
                if state.chooser.is_pct() {
                    return candidates
                        .into_iter()
                        .max_by_key(|&i| state.members[i].priority);
                }
                let at = state.chooser.below(candidates.len());
                return Some(candidates[at]);
            }
            if !self.fire_timer(state) {
                return None;
            }
        }
    }

    /// Ends the run as failed. The calling thread parks here forever.
    fn fail(&self, state: parking_lot::MutexGuard<'_, State>, message: String) {
        self.note_failure(state, message);
        stay();
    }

    /// Ends the run as failed, from a thread that cannot stay in the scheduler.
    pub fn end_as_failed(&self, message: String) {
        self.note_failure(self.state.lock(), message);
    }

    /// Ends the run as failed.
    fn note_failure(&self, mut state: parking_lot::MutexGuard<'_, State>, mut message: String) {
        for (i, member) in state.members.iter().enumerate() {
            let place = member.place.map_or(String::new(), |p| format!(" at {p}"));
            message += &format!("\n  thread {i} {}: {:?}{place}", member.name, member.status);
        }
        state.failure.get_or_insert(Failure { message });
        state.finished = true;
        // A thread that unwinds stops at the first point of a destructor.
        self.next.store(0, Relaxed);
        self.over.notify_all();
    }

    /// The state, for the running thread. A thread that unwinds out of a failed run parks here
    /// forever.
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        let state = self.state.lock();
        if state.failure.is_some() {
            drop(state);
            stay();
        }
        state
    }

    /// Waits until `key` is woken, or until `deadline`. Returns whether the time was up.
    pub fn block(&self, me: usize, key: Key, deadline: Option<u64>, place: Place) -> bool {
        let mut state = self.state();
        let member = &mut state.members[me];
        member.status = Status::Blocked(key);
        member.deadline = deadline;
        member.timed_out = false;
        member.place = Some(place);
        self.hand_over(state, me, Next::Any);
        self.state.lock().members[me].timed_out
    }

    /// Lets other threads run first.
    pub fn give_way(&self, me: usize, place: Place) {
        let mut state = self.state();
        state.members[me].place = Some(place);
        if state.chooser.is_pct() && !self.is_calm() {
            state.members[me].priority = state.chooser.lowered();
        }
        self.hand_over(state, me, Next::Another);
    }

    /// Makes all threads that wait for `key` runnable.
    pub fn wake_all(&self, key: Key) {
        let mut state = self.state();
        let mut best = 0;
        for member in &mut state.members {
            if let Status::Blocked(on) = member.status
                && on.is_woken_by(key)
            {
                member.status = Status::Runnable;
                member.deadline = None;
                best = best.max(member.priority);
            }
        }
        self.note_woken(&state, best);
    }

    /// Makes one thread that waits for `key` runnable.
    pub fn wake_one(&self, key: Key) {
        let mut state = self.state();
        let waiting: Vec<usize> = (0..state.members.len())
            .filter(|&i| state.members[i].status == Status::Blocked(key))
            .collect();
        if !waiting.is_empty() {
            let at = state.chooser.below(waiting.len());
            let member = &mut state.members[waiting[at]];
            member.status = Status::Runnable;
            member.deadline = None;
            let priority = member.priority;
            self.note_woken(&state, priority);
        }
    }

    /// With priorities, a choice is due at the next point after a wake-up.
    fn note_woken(&self, state: &State, priority: u64) {
        if priority > 0 && state.chooser.is_pct() {
            self.next.store(0, Relaxed);
        }
    }

    /// Whether a thread waits for exclusive access to the lock at `address`.
    pub fn writer_waits(&self, address: usize) -> bool {
        let access = Access::Exclusive;
        let key = Key::Lock { address, access };
        let state = self.state.lock();
        state
            .members
            .iter()
            .any(|m| m.status == Status::Blocked(key))
    }

    pub fn is_finished(&self, thread: usize) -> bool {
        self.state.lock().members[thread].status == Status::Finished
    }

    /// Takes the calling thread's `unpark`, if it was called.
    pub fn take_unpark(&self, me: usize) -> bool {
        std::mem::take(&mut self.state.lock().members[me].unparked)
    }

    pub fn unpark(&self, thread: usize) {
        self.state.lock().members[thread].unparked = true;
        self.wake_all(Key::Park(thread));
    }

    /// Adds a runnable thread. Returns its number and its baton.
    pub fn add(&self, name: &str) -> (usize, Arc<Baton>) {
        let mut state = self.state.lock();
        let baton = Arc::new(Baton {
            here: AtomicBool::new(false),
            thread: std::sync::OnceLock::new(),
        });
        let priority = state.chooser.priority();
        state.members.push(Member {
            name: name.to_owned(),
            baton: baton.clone(),
            status: Status::Runnable,
            deadline: None,
            timed_out: false,
            unparked: false,
            priority,
            place: None,
        });
        self.note_woken(&state, priority);
        (state.members.len() - 1, baton)
    }

    /// Sets the system's thread of thread `number`, before it can get the baton.
    pub fn set_thread(&self, number: usize, thread: std::thread::Thread) {
        let _ = self.state.lock().members[number].baton.thread.set(thread);
    }

    /// Waits for the baton and runs `body` as thread `me` on the calling thread of the system.
    pub fn run_member<T>(self: Arc<Self>, me: usize, baton: &Baton, body: impl FnOnce() -> T) -> T {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(None);
            }
        }
        // SAFETY: the reference is used by this thread only and only until `CURRENT` is reset, on
        // return or unwinding, while `self` keeps the scheduler alive.
        let kept: &'static Scheduler = unsafe { &*Arc::as_ptr(&self) };
        baton.wait();
        CURRENT.set(Some((kept, me)));
        let _reset = Reset;
        body()
    }

    /// Ends thread `me` and switches to another.
    pub fn finish(&self, me: usize) {
        self.wake_all(Key::Join(me));
        let mut state = self.state.lock();
        state.members[me].status = Status::Finished;
        if state.members.iter().all(|m| m.status == Status::Finished) {
            state.finished = true;
            self.over.notify_all();
            return;
        }
        self.hand_over(state, me, Next::Any);
    }
}

/// Parks forever.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}
