//! Threads: members of the run that started them, or the system's.

use super::scheduler::{Scheduler, current as member, point};
use super::wait::Key;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

pub use std::thread::{Scope, ScopedJoinHandle, ThreadId, panicking, scope};

/// A handle to a thread.
#[derive(Clone)]
pub struct Thread {
    real: std::thread::Thread,
    member: Option<(Arc<Scheduler>, usize)>,
}

impl Thread {
    /// The thread's identity.
    pub fn id(&self) -> ThreadId {
        self.real.id()
    }
    /// The thread's name.
    pub fn name(&self) -> Option<&str> {
        self.real.name()
    }
    /// Lets the thread return from [`park`].
    pub fn unpark(&self) {
        match &self.member {
            Some((scheduler, thread)) => scheduler.unpark(*thread),
            None => self.real.unpark(),
        }
    }
}

thread_local! {
    /// The calling thread's handle, if it is a member of a run.
    static HANDLE: std::cell::RefCell<Option<(Arc<Scheduler>, usize)>> =
        const { std::cell::RefCell::new(None) };
}

/// The calling thread.
pub fn current() -> Thread {
    Thread {
        real: std::thread::current(),
        member: HANDLE.with(|h| h.borrow().clone()),
    }
}

/// Waits for [`Thread::unpark`].
#[track_caller]
pub fn park() {
    let Some((scheduler, me)) = member() else {
        return std::thread::park();
    };
    point();
    while !scheduler.take_unpark(me) {
        scheduler.block(me, Key::Park(me), None, Location::caller());
    }
}

/// Sleeps.
#[track_caller]
pub fn sleep(pause: Duration) {
    let Some((scheduler, me)) = member() else {
        return std::thread::sleep(pause);
    };
    let until = scheduler.now().saturating_add(pause.as_nanos() as u64);
    scheduler.block(me, Key::Sleep, Some(until), Location::caller());
}

/// Lets other threads run first.
#[track_caller]
pub fn yield_now() {
    match member() {
        Some((scheduler, me)) => {
            point();
            scheduler.give_way(me, Location::caller());
        }
        None => std::thread::yield_now(),
    }
}

/// A number for the calling thread: small, dense, not reused in a run.
pub fn ordinal() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    match member() {
        Some((_, me)) => me,
        None => NUMBER.with(|number| *number),
    }
}

/// The result of a thread that has ended.
type Returned<T> = Arc<parking_lot::Mutex<Option<T>>>;

enum Join<T> {
    Real(std::thread::JoinHandle<T>),
    Member(Arc<Scheduler>, usize, Returned<T>),
}

/// A handle to wait for a thread.
pub struct JoinHandle<T> {
    join: Join<T>,
    thread: Thread,
}

impl<T> JoinHandle<T> {
    /// The thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }
    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.join {
            Join::Real(real) => real.is_finished(),
            Join::Member(scheduler, thread, _) => scheduler.is_finished(*thread),
        }
    }
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// The thread panicked. In a run, this ends the run.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        match self.join {
            Join::Real(real) => real.join(),
            Join::Member(scheduler, thread, returned) => {
                let (_, me) = member().expect("threads of a run are joined in it");
                point();
                while !scheduler.is_finished(thread) {
                    scheduler.block(me, Key::Join(thread), None, Location::caller());
                }
                let value = returned.lock().take();
                Ok(value.expect("a thread that has ended returned something"))
            }
        }
    }
}

/// Parameters of a new thread.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
}

impl Builder {
    /// A thread without a name.
    pub fn new() -> Builder {
        Builder::default()
    }
    /// Sets the name.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }
    /// Sets the stack's size in bytes.
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.stack_size = Some(size);
        self
    }
    /// Starts a thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        point();
        let run = HANDLE.with(|h| h.borrow().clone());
        if let Some((scheduler, _)) = run {
            let name = self.name.unwrap_or_default();
            return start(&scheduler, name, self.stack_size, body);
        }
        let real = real(self.name, self.stack_size).spawn(body)?;
        let thread = Thread {
            real: real.thread().clone(),
            member: None,
        };
        let join = Join::Real(real);
        Ok(JoinHandle { join, thread })
    }
}

fn real(name: Option<String>, stack_size: Option<usize>) -> std::thread::Builder {
    let mut real = std::thread::Builder::new();
    if let Some(name) = name {
        real = real.name(name);
    }
    if let Some(size) = stack_size {
        real = real.stack_size(size);
    }
    real
}

/// Starts a thread.
#[track_caller]
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(body).expect("a thread")
}

/// Starts a member of a run.
pub(super) fn start<T: Send + 'static>(
    scheduler: &Arc<Scheduler>,
    name: String,
    stack_size: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (number, baton) = scheduler.add(&name);
    let returned: Returned<T> = Arc::default();
    let (theirs, given) = (scheduler.clone(), returned.clone());
    let real = real(Some(name), stack_size).spawn(move || {
        HANDLE.set(Some((theirs.clone(), number)));
        let value = theirs.clone().run_member(number, &baton, body);
        *given.lock() = Some(value);
        HANDLE.set(None);
        theirs.finish(number);
    })?;
    scheduler.set_thread(number, real.thread().clone());
    let thread = Thread {
        real: real.thread().clone(),
        member: Some((scheduler.clone(), number)),
    };
    let join = Join::Member(scheduler.clone(), number, returned);
    Ok(JoinHandle { join, thread })
}
