//! How workers are scheduled, which also decides where their callers wake up.
//!
//! A worker is bound to the processor of its queue, where its caller sleeps. That is best for
//! several callers. For one caller there are two exceptions.
//!
//! **A caller that moves.** When a worker replies, the scheduler looks for an idle processor for
//! the caller, and finds another one: this one is busy with the worker. So a lone caller would move
//! with almost every reply, and each time an idle processor would have to wake up. That takes
//! longer than the request. But a processor whose only thread has the policy `SCHED_IDLE` counts as
//! idle. So the caller of such a worker stays, and takes the processor at once.
//!
//! A thread with `SCHED_IDLE` gets next to no time while others want its processor. So workers have
//! that policy only while it helps: while the queue is busy for one caller, from a tick on in which
//! another queue was busy for the same one. It ends in the first tick without a request, whatever
//! the reason. So a worker that gets no time, because other programs need the processor, waits for
//! two ticks at most. While all processors are needed no caller moves, so that this is rare. (Two
//! callers on one processor would stay although another one is idle.)
//!
//! Their I/O keeps its priority. The kernel derives it from the policy: the device's queue would
//! serve a read by a thread with `SCHED_IDLE` after all writes. So each worker has one of its own.
//!
//! **Many requests in flight** (asynchronous I/O, readahead). One processor would carry out all
//! requests of the caller. So their workers may run on any, unless most of the requests are writes.
//! Writes to a file exclude one another. On one processor they take turns. On two a worker would
//! wait for the lock of the other's write, then all others behind it, and each would be woken twice
//! for a request.
//!
//! A thread, the watcher, looks at the queues every [`TICK`]. It sleeps while there are no
//! requests. The kernel lets a thread leave `SCHED_IDLE` only with `CAP_SYS_NICE` or the limit
//! RLIMIT_NICE; without them nobody gets it.

use super::judge::{Class, Judge, Tick, is_busy_for_one};
use super::queue::{Queue, Traffic};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::io;
use std::mem;
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
pub struct Scheduling {
    idling: Idling,
    queues: Mutex<Vec<Watched>>,
    watcher: OnceLock<Thread>,
    is_asleep: AtomicBool,
    has_ended: AtomicBool,
}

/// Whether workers may have the policy `SCHED_IDLE` ([`check_scheduling`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idling {
    Allowed,
    Forbidden,
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

/// A worker that is watched until this is dropped.
#[must_use]
pub struct Seat<'a> {
    scheduling: &'a Scheduling,
    queue: &'a Queue,
    thread: Pid,
}

impl Scheduling {
    pub fn new(idling: Idling) -> Scheduling {
        Scheduling {
            idling,
            queues: Rank::RingWorkers.mutex(Vec::new()),
            watcher: OnceLock::new(),
            is_asleep: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Starts the watcher. [`Scheduling::end`] ends it.
    pub fn start(self: &Arc<Scheduling>) {
        let scheduling = self.clone();
        let watch = move || {
            // The cell is set once, here.
            let _ = scheduling.watcher.set(thread::current());
            scheduling.watch();
        };
        let started = thread::Builder::new()
            .name("fuse-watcher".into())
            .spawn(watch);
        if let Err(error) = started {
            tracing::debug!("no thread can watch the rings: {error}");
        }
    }

    /// Ends the watcher. All workers are scheduled as at first from then on.
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
        queues[place].workers.push((thread, Class::Bound));
        bind(thread, queue);
        if let Err(error) = fix_io_priority() {
            tracing::debug!("the I/O priority of a worker follows its policy: {error}");
        }
        Seat {
            scheduling: self,
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
        let processors = sched_getaffinity(None).ok();
        let _end = EndWatch(self, processors.as_ref());
        let mut quiet = 0;
        while !self.has_ended.load(SeqCst) {
            thread::sleep(TICK);
            match self.tick(processors.as_ref()) {
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
    }

    /// Looks at all queues. Returns the number of requests since the last look.
    fn tick(&self, processors: Option<&CpuSet>) -> io::Result<u64> {
        let mut queues = self.queues.lock();
        let mut callers = Vec::new();
        for watched in &mut *queues {
            let now = watched.queue.traffic();
            watched.traffic = now.since(mem::replace(&mut watched.seen, now));
            if is_busy_for_one(watched.traffic) {
                callers.push(watched.queue.caller());
            }
        }
        for watched in &mut *queues {
            let (traffic, caller) = (watched.traffic, watched.queue.caller());
            let workers = watched.queue.take_workers();
            let is_caller = |other: &&u32| **other == caller;
            let moves = self.idling == Idling::Allowed
                && is_busy_for_one(traffic)
                && callers.iter().filter(is_caller).count() > 1;
            let class = watched.judge.tick(Tick {
                traffic,
                workers,
                moves,
            });
            watched.schedule(class, processors)?;
        }
        Ok(queues.iter().map(|w| w.traffic.requests).sum())
    }

    /// Sleeps until there is a request. All workers are scheduled as at first, as all queues have
    /// come to a halt.
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

/// Schedules all workers as at first when it is dropped, also after a panic of the watcher.
struct EndWatch<'a>(&'a Scheduling, Option<&'a CpuSet>);

impl Drop for EndWatch<'_> {
    fn drop(&mut self) {
        for watched in &mut *self.0.queues.lock() {
            // It has failed before, or all is well.
            let _ = watched.schedule(Class::Bound, self.1);
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        for watched in &mut *self.scheduling.queues.lock() {
            if std::ptr::eq(&*watched.queue, self.queue) {
                watched.workers.retain(|(thread, _)| *thread != self.thread);
            }
        }
    }
}

impl Watched {
    fn schedule(&mut self, class: Class, processors: Option<&CpuSet>) -> io::Result<()> {
        for (thread, has) in &mut self.workers {
            let had = mem::replace(has, class);
            if policy(had) != policy(class) {
                set_policy(Some(*thread), policy(class))?;
            }
            match (had == Class::Free, class == Class::Free) {
                (false, true) => {
                    // A worker that stays bound is slower, and correct.
                    let _ = processors.map(|all| sched_setaffinity(Some(*thread), all));
                }
                (true, false) => bind(*thread, &self.queue),
                (true, true) | (false, false) => {}
            }
        }
        Ok(())
    }
}

/// The kernel's policy of a class.
fn policy(class: Class) -> libc::c_int {
    match class {
        Class::Idle => libc::SCHED_IDLE,
        Class::Bound | Class::Free => libc::SCHED_OTHER,
    }
}

/// Makes a thread run on the processor of a queue.
fn bind(thread: Pid, queue: &Queue) {
    let processor = usize::from(queue.number());
    if processor >= CpuSet::MAX_CPU {
        return;
    }
    let mut set = CpuSet::new();
    set.set(processor);
    // It may be offline, or not be allowed. The thread is correct on any other.
    if let Err(error) = sched_setaffinity(Some(thread), &set) {
        tracing::debug!("no thread can be bound to processor {processor}: {error}");
    }
}

/// Checks that this process can give its threads the policy `SCHED_IDLE` and take it from them.
///
/// # Errors
/// It has neither `CAP_SYS_NICE` nor RLIMIT_NICE, or another policy than `SCHED_OTHER`.
pub fn check_scheduling() -> io::Result<()> {
    let trial = || {
        // SAFETY: the call has no memory.
        let own = unsafe { libc::sched_getscheduler(0) };
        match own {
            libc::SCHED_OTHER => set_policy(None, libc::SCHED_IDLE)
                .and_then(|()| set_policy(None, libc::SCHED_OTHER)),
            _ => Err(io::Error::other(format!("it is {own}, not SCHED_OTHER"))),
        }
    };
    // A thread that may not leave the policy would keep it.
    let tried = thread::Builder::new()
        .name("fuse-trial".into())
        .spawn(trial)?
        .join();
    tried.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// A number stands for a thread; 0 is the calling one.
const IOPRIO_WHO_PROCESS: libc::c_long = 1;
/// The best-effort class, above the eight levels.
const IOPRIO_CLASS_BE: libc::c_long = 2 << 13;

/// Gives the calling thread the I/O priority that its nice value stands for, unless it has one that
/// was set. It does not follow the scheduling policy from then on.
fn fix_io_priority() -> io::Result<()> {
    if io_priority()? != 0 {
        return Ok(());
    }
    let nice = rustix::process::getpriority_process(None)?;
    let priority = IOPRIO_CLASS_BE + libc::c_long::from((nice + 20) / 5);
    // SAFETY: the call has no memory.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The I/O priority of the calling thread; 0 if none was set.
fn io_priority() -> io::Result<libc::c_long> {
    // SAFETY: the call has no memory.
    match unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) } {
        -1 => Err(io::Error::last_os_error()),
        priority => Ok(priority),
    }
}

/// Sets the scheduling policy of a thread, or of the calling one. Its nice value stays.
fn set_policy(thread: Option<Pid>, policy: libc::c_int) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel only reads `param`.
    let set = unsafe { libc::sched_setscheduler(Pid::as_raw(thread), policy, &raw const param) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::opcode::READ;
    use std::time::Instant;

    /// The policy of a worker, and on how many processors it may run.
    fn class(worker: Pid) -> (libc::c_int, u32) {
        // SAFETY: the call has no memory.
        let policy = unsafe { libc::sched_getscheduler(Pid::as_raw(Some(worker))) };
        (policy, sched_getaffinity(Some(worker)).unwrap().count())
    }

    /// Sends requests of the thread 7 to the queues, through so many workers of each.
    fn send(scheduling: &Scheduling, queues: &[Arc<Queue>], workers: usize) {
        for queue in queues {
            (0..10).for_each(|n| queue.note_request(READ, 7, n % workers));
            scheduling.note_request();
        }
        thread::sleep(TICK / 10);
    }

    fn until(what: &str, mut is_true: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_true() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        }
    }

    #[test]
    fn workers_are_scheduled_as_their_caller_needs_it() {
        let queues = [0, 1].map(|number| Arc::new(Queue::new(number, 8)));
        let idling = check_scheduling().map_or(Idling::Forbidden, |()| Idling::Allowed);
        let scheduling = Arc::new(Scheduling::new(idling));
        let processors = sched_getaffinity(None).unwrap().count();
        let test = thread::spawn(move || {
            scheduling.start();
            let seats = queues.each_ref().map(|queue| scheduling.join(queue));
            let worker = gettid();
            assert_eq!(io_priority().unwrap(), IOPRIO_CLASS_BE + 4, "of nice 0");
            let bound = (libc::SCHED_OTHER, 1);
            for _ in 0..20 {
                thread::sleep(TICK);
                send(&scheduling, &queues[..1], 2);
                assert_eq!(class(worker), bound, "its caller stays");
            }
            until("free", || {
                send(&scheduling, &queues[..1], 10);
                class(worker).1 == processors
            });
            until("bound", || class(worker) == bound);
            // A request wakes the watcher.
            thread::sleep(2 * PATIENCE * TICK);
            let moving = || send(&scheduling, &queues, 2);
            if idling == Idling::Allowed {
                until("idle", || {
                    moving();
                    class(worker) == (libc::SCHED_IDLE, 1)
                });
                scheduling.end();
                until("the end", || {
                    moving();
                    class(worker) == bound
                });
            } else {
                println!("SKIPPED: threads may not leave SCHED_IDLE");
                scheduling.end();
            }
            drop(seats);
            assert!(
                scheduling
                    .queues
                    .lock()
                    .iter()
                    .all(|w| w.workers.is_empty())
            );
        });
        test.join().unwrap();
    }
}
