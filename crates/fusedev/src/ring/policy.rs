//! The scheduling policy of workers, which decides where their callers wake up.
//!
//! A caller sleeps on the processor of its worker. When the worker replies, the scheduler looks for
//! an idle processor for the caller, and finds another one: this one is busy with the worker. So a
//! lone caller would move with almost every reply, and each time an idle processor would have to
//! wake up. That takes longer than the request. But a processor whose only thread has the policy
//! `SCHED_IDLE` counts as idle. So the caller of such a worker stays, and takes the processor at
//! once.
//!
//! A thread with `SCHED_IDLE` gets next to no time while others want its processor. So workers have
//! that policy only while it helps. A thread, the watcher, looks at the queues every [`TICK`]. It
//! gives the workers of a queue
//!
//! - `SCHED_IDLE` if the queue is busy, almost only for one caller, and another queue is busy for
//!   the same one: it moves. (Two callers on one processor would stay although another one is
//!   idle.)
//! - `SCHED_OTHER` again if the queue has come to a halt, whatever the reason. So a worker that
//!   gets no time, because other programs need the processor, waits for two ticks at most. While
//!   all processors are needed no caller moves, so that this is rare.
//!
//! The watcher sleeps while there are no requests. If the process has another policy, or may not
//! leave `SCHED_IDLE` (which takes `CAP_SYS_NICE` or the limit RLIMIT_NICE), nothing is changed.

use super::judge::{Judge, Tick, is_busy_for_one};
use super::queue::{Queue, Traffic};
use rustix::thread::{Pid, gettid};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;
use sync::{Mutex, Rank};

/// How often the watcher looks.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a request after which the watcher sleeps.
const PATIENCE: u32 = 50;

/// See the module.
#[derive(Debug)]
pub struct Policy {
    queues: Mutex<Vec<Watched>>,
    watcher: OnceLock<Thread>,
    is_asleep: AtomicBool,
    has_ended: AtomicBool,
}

/// A queue that has had workers.
#[derive(Debug)]
struct Watched {
    queue: Arc<Queue>,
    seen: Traffic,
    /// In the last tick.
    traffic: Traffic,
    judge: Judge,
    workers: Vec<(Pid, Class)>,
}

/// A policy of the kernel for threads that are not real-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Other,
    Idle,
}

/// A worker that is watched until this is dropped.
#[must_use]
pub struct Seat<'a> {
    policy: &'a Policy,
    queue: &'a Queue,
    thread: Pid,
}

impl Policy {
    pub fn new() -> Policy {
        Policy {
            queues: Rank::RingWorkers.mutex(Vec::new()),
            watcher: OnceLock::new(),
            is_asleep: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Starts the watcher. [`Policy::end`] ends it.
    pub fn start(self: &Arc<Policy>) {
        let policy = self.clone();
        let watch = move || {
            if let Err(error) = probe() {
                tracing::debug!("the workers of rings keep their scheduling policy: {error}");
                return;
            }
            // The cell is set once, here.
            let _ = policy.watcher.set(thread::current());
            policy.watch();
        };
        let started = thread::Builder::new()
            .name("fuse-policy".into())
            .spawn(watch);
        if let Err(error) = started {
            tracing::debug!("no thread can watch the rings: {error}");
        }
    }

    /// Ends the watcher. All workers have their own policy from then on.
    pub fn end(&self) {
        self.has_ended.store(true, SeqCst);
        self.wake();
    }

    /// The calling thread becomes a worker of `queue`.
    pub fn join<'a>(&'a self, queue: &'a Arc<Queue>) -> Seat<'a> {
        let thread = gettid();
        let mut queues = self.queues.lock();
        let place = queues.iter().position(|w| Arc::ptr_eq(&w.queue, queue));
        let place = place.unwrap_or_else(|| {
            queues.push(Watched {
                queue: queue.clone(),
                seen: queue.traffic(),
                traffic: Traffic::default(),
                judge: Judge::default(),
                workers: Vec::new(),
            });
            queues.len() - 1
        });
        queues[place].workers.push((thread, Class::Other));
        Seat {
            policy: self,
            queue,
            thread,
        }
    }

    /// A queue has had a request.
    pub fn note_request(&self) {
        if self.is_asleep.load(SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        self.is_asleep.store(false, SeqCst);
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }

    fn watch(&self) {
        let mut quiet = 0;
        while !self.has_ended.load(SeqCst) {
            thread::sleep(TICK);
            match self.tick() {
                Ok(0) => quiet += 1,
                Ok(_) => quiet = 0,
                Err(error) => {
                    tracing::warn!("the scheduling policy of a worker: {error}");
                    break;
                }
            }
            if quiet > PATIENCE {
                self.sleep();
                quiet = 0;
            }
        }
        for watched in &mut *self.queues.lock() {
            // It has failed before, or all is well.
            let _ = watched.set(Class::Other);
        }
    }

    /// Looks at all queues. Returns the number of requests since the last look.
    fn tick(&self) -> io::Result<u64> {
        let mut queues = self.queues.lock();
        let mut callers = Vec::new();
        for watched in &mut *queues {
            let now = watched.queue.traffic();
            watched.traffic = now.since(watched.seen);
            watched.seen = now;
            if is_busy_for_one(watched.traffic) {
                callers.push(watched.queue.caller());
            }
        }
        for watched in &mut *queues {
            let (traffic, caller) = (watched.traffic, watched.queue.caller());
            let moves =
                is_busy_for_one(traffic) && callers.iter().filter(|c| **c == caller).count() > 1;
            let class = match watched.judge.tick(Tick { traffic, moves }) {
                true => Class::Idle,
                false => Class::Other,
            };
            watched.set(class)?;
        }
        Ok(queues.iter().map(|w| w.traffic.requests).sum())
    }

    /// Sleeps until there is a request. All workers have their own policy, as all queues have come
    /// to a halt.
    fn sleep(&self) {
        self.is_asleep.store(true, SeqCst);
        let has_request = |w: &Watched| w.queue.traffic() != w.seen;
        if self.queues.lock().iter().any(has_request) {
            self.is_asleep.store(false, SeqCst);
        }
        while self.is_asleep.load(SeqCst) && !self.has_ended.load(SeqCst) {
            thread::park();
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        for watched in &mut *self.policy.queues.lock() {
            if std::ptr::eq(&*watched.queue, self.queue) {
                watched.workers.retain(|(thread, _)| *thread != self.thread);
            }
        }
    }
}

impl Watched {
    fn set(&mut self, class: Class) -> io::Result<()> {
        for (thread, has) in &mut self.workers {
            if *has != class {
                class.give(Some(*thread))?;
                *has = class;
            }
        }
        Ok(())
    }
}

impl Class {
    fn number(self) -> libc::c_int {
        match self {
            Class::Other => libc::SCHED_OTHER,
            Class::Idle => libc::SCHED_IDLE,
        }
    }

    /// Gives a thread this policy, or the calling one. Its nice value stays.
    fn give(self, thread: Option<Pid>) -> io::Result<()> {
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: the kernel only reads `param`.
        let set = unsafe {
            libc::sched_setscheduler(Pid::as_raw(thread), self.number(), &raw const param)
        };
        match set {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether a thread may have the policy `SCHED_IDLE` for a while. After an error the calling thread
/// may still have it.
fn probe() -> io::Result<()> {
    // SAFETY: the call has no memory.
    let own = unsafe { libc::sched_getscheduler(0) };
    if own != Class::Other.number() {
        return Err(io::Error::other(format!("it is {own}, not SCHED_OTHER")));
    }
    Class::Idle.give(None)?;
    Class::Other.give(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn policy_of(worker: Pid) -> libc::c_int {
        // SAFETY: the call has no memory.
        unsafe { libc::sched_getscheduler(Pid::as_raw(Some(worker))) }
    }

    /// Sends requests of thread 7 to the queues until a worker has a policy.
    fn send_until(policy: &Policy, queues: &[&Arc<Queue>], worker: Pid, class: Class) {
        let began = Instant::now();
        while policy_of(worker) != class.number() {
            assert!(began.elapsed() < Duration::from_secs(20), "{class:?}");
            for queue in queues {
                (0..10).for_each(|_| queue.note_request(7));
                policy.note_request();
            }
            thread::sleep(TICK / 10);
        }
    }

    #[test]
    fn the_workers_of_a_caller_that_moves_are_idle_until_a_halt() {
        let probed = thread::spawn(|| probe().map_err(|error| error.to_string()));
        if let Err(error) = probed.join().unwrap() {
            println!("SKIPPED: threads may not leave SCHED_IDLE: {error}");
            return;
        }
        let policy = Arc::new(Policy::new());
        policy.start();
        let queues = [0, 1].map(|number| Arc::new(Queue::new(number, 8)));
        let seat = policy.join(&queues[0]);
        let worker = seat.thread;
        for _ in 0..20 {
            thread::sleep(TICK);
            send_until(&policy, &[], worker, Class::Other);
            (0..10).for_each(|_| queues[0].note_request(7));
            policy.note_request();
            assert_eq!(
                policy_of(worker),
                Class::Other.number(),
                "it stays by itself"
            );
        }
        let other = policy.join(&queues[1]);
        send_until(&policy, &[&queues[0], &queues[1]], worker, Class::Idle);
        send_until(&policy, &[], worker, Class::Other);
        // The watcher sleeps, and a request wakes it.
        thread::sleep(2 * PATIENCE * TICK);
        send_until(&policy, &[&queues[0], &queues[1]], worker, Class::Idle);
        policy.end();
        send_until(&policy, &[&queues[0], &queues[1]], worker, Class::Other);
        drop((seat, other));
        assert!(policy.queues.lock().iter().all(|w| w.workers.is_empty()));
    }
}
