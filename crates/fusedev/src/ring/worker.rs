//! A thread that serves, with a ring of its own and one entry.
//!
//! ```text
//!  start: takes an entry, and the request in it, from the reserve
//!    │
//!    └──> serve ─> await the reply ─> COMMIT_AND_FETCH: one system call replies and waits ──┐
//!           ^                                                                             │
//!           └── a request ──────────────────────────────────────────────────────────────────┤
//!                                                    the connection has ended: the thread ends
//! ```
//!
//! The thread runs on the processor of its queue, where the caller sleeps until the reply. So a
//! request is two switches between threads on one processor, and no processor wakes another
//! ([`super::scheduling`]). Spinning before the wait would only delay the caller, so there is none,
//! and an idle mount uses no processor.
//!
//! A thread ends only when the connection has ended. If it ended earlier, the kernel would cancel
//! its entry, and could lose a request that it has just given to it.

use super::command::{Ring, Wait, is_end};
use super::entry::Entry;
use super::memory::KEPT;
use super::scheduling::Scheduling;
use super::usage::Usage;
use crate::channel::Channel;
use crate::dispatch::Dispatcher;
use crate::reply::Reply;
use crate::server::Server;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use sync::waits::{WaitObserver, observe};

/// How long memory stays after it was used.
const KEEP_TIME: Duration = Duration::from_secs(2);

/// The parts of a connection that all its threads share.
pub struct Shared<S> {
    pub dispatcher: Arc<Dispatcher<S>>,
    pub channel: Arc<Channel>,
    pub usage: Arc<Usage>,
    pub scheduling: Arc<Scheduling>,
    /// The lane of queue 0 in `dispatcher`; the others follow.
    pub first_lane: usize,
}

impl<S: Server> Shared<S> {
    /// Carries out the request in `entry`, and waits for its answer. Returns its number, and the
    /// bytes of memory that it has used.
    ///
    /// # Safety
    /// The kernel has completed the command that it held for the entry, and has not got it back.
    /// The calling thread is its owner.
    pub unsafe fn serve(&self, entry: &Arc<Entry>) -> (u64, usize) {
        let lane = self.first_lane + usize::from(entry.queue().number());
        // SAFETY: the caller's promise. The message does not leave the block.
        let unique = unsafe {
            let (unique, message) = entry.begin();
            match message {
                Ok(message) => {
                    let queue = entry.queue();
                    let (opcode, caller) = (message.header.opcode, message.header.pid);
                    queue.note_request(opcode, caller, sync::thread::ordinal());
                    self.scheduling.note_request();
                    // The kernel ends the connection after DESTROY; the thread waits for that.
                    self.dispatcher.dispatch(lane, message, entry);
                }
                Err(error) => {
                    tracing::error!("the kernel sent a message that is {error}");
                    Reply::new(entry.clone(), unique).error(Errno::IO);
                }
            }
            unique
        };
        entry.wait();
        // SAFETY: the message is dropped, and the answer has been given.
        (unique, unsafe { entry.finish(unique) })
    }
}

/// Yields within long work: shorter requests may wait for this processor, too.
struct Yielding;

impl WaitObserver for Yielding {
    fn begin_wait(&self) {}
    fn end_wait(&self) {}
    fn give_way(&self) {
        thread::yield_now();
    }
}

/// A thread that serves.
pub struct Worker<S> {
    shared: Arc<Shared<S>>,
    ring: Ring,
    entry: Arc<Entry>,
    /// Bytes of the payload whose pages may exist.
    touched: usize,
}

impl<S: Server> Worker<S> {
    /// Starts a thread that takes over `entry` and the request in it. Its result goes to `ended`.
    ///
    /// # Errors
    /// There are too many threads or open files. The request has not been begun.
    ///
    /// # Safety
    /// The kernel has completed the command that it held for `entry`. The caller leaves the entry
    /// alone after a success.
    pub unsafe fn start(
        shared: &Arc<Shared<S>>,
        entry: &Arc<Entry>,
        ended: Sender<io::Result<()>>,
    ) -> io::Result<()> {
        let mut worker = Worker {
            shared: shared.clone(),
            ring: Ring::new(1)?,
            entry: entry.clone(),
            touched: 0,
        };
        let name = format!("fuse-cpu{}", entry.queue().number());
        thread::Builder::new().name(name).spawn(move || {
            let result = worker.run();
            if let Err(error) = &result {
                tracing::error!("a ring has failed: {error}");
                // The kernel may still have the entry.
                std::mem::forget(worker.entry.clone());
            }
            // The receiver may have given up.
            let _ = ended.send(result);
        })?;
        shared.usage.add_thread();
        Ok(())
    }

    fn run(&mut self) -> io::Result<()> {
        self.ring.enable()?;
        let (shared, entry) = (self.shared.clone(), self.entry.clone());
        let _seat = shared.scheduling.join(entry.queue());
        observe(Some(Arc::new(Yielding)));
        loop {
            // SAFETY: this thread is the owner. At first `start` has promised the rest, later the
            // command has been completed.
            let (unique, used) = unsafe { self.shared.serve(&self.entry) };
            self.note_touched(used);
            let (channel, entry) = (&self.shared.channel, &self.entry);
            // SAFETY: this thread leaves the memory alone until the completion. It stays mapped:
            // after a failure `start` leaks it.
            unsafe { self.ring.commit(channel, entry, unique, 0)? };
            while self.ring.wait(self.patience())? == Wait::TimedOut {
                self.give_back();
            }
            match self.ring.completed().map(|completed| completed.result) {
                Some(Err(errno)) if is_end(errno) => return Ok(()),
                Some(Err(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                Some(Ok(())) | None => {}
            }
        }
    }

    /// How long to wait before memory is given back.
    fn patience(&self) -> Option<Duration> {
        (self.touched > KEPT).then_some(KEEP_TIME)
    }

    fn note_touched(&mut self, used: usize) {
        if used > self.touched {
            self.shared.usage.add_memory(used - self.touched);
            self.touched = used;
        }
    }

    fn give_back(&mut self) {
        // SAFETY: this thread is the owner. The kernel uses the entry only while this thread is in
        // the ring.
        unsafe { self.entry.give_back() };
        self.shared.usage.remove_memory(self.touched - KEPT);
        self.touched = KEPT;
    }
}
