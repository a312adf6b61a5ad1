//! The fallback without io_uring: a few threads execute requests by system calls.

use super::open::Opened;
use crate::Request;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use sync::{Condvar, Mutex, Rank};

/// The number of threads, and so of requests in flight.
const THREADS: usize = 4;
/// Waiting requests from which on submitters wait.
const BACKLOG: usize = 4096;

/// A handle on the threads. Dropping it waits for all submitted requests.
pub(super) struct Threads {
    inbox: Arc<Inbox>,
    threads: Vec<JoinHandle<()>>,
}

struct Inbox {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            state: Rank::DeviceInbox.mutex(State::default()),
            work: Condvar::new(),
            room: Condvar::new(),
        }
    }
}

#[derive(Default)]
struct State {
    backlog: VecDeque<Request>,
    stopping: bool,
}

impl Threads {
    pub(super) fn start(opened: Arc<Opened>) -> io::Result<Threads> {
        let inbox = Arc::<Inbox>::default();
        // If a thread does not start, dropping this stops the others.
        let mut all = Threads {
            inbox,
            threads: Vec::new(),
        };
        for n in 0..THREADS {
            let (inbox, opened) = (all.inbox.clone(), opened.clone());
            let thread = std::thread::Builder::new().name(format!("sluice-io-{n}"));
            all.threads
                .push(thread.spawn(move || inbox.serve(&opened))?);
        }
        Ok(all)
    }

    pub(super) fn submit(&self, batch: Vec<Request>) {
        let mut state = self.inbox.state.lock();
        while state.backlog.len() >= BACKLOG {
            self.inbox.room.wait(&mut state);
        }
        state.backlog.extend(batch);
        drop(state);
        self.inbox.work.notify_all();
    }
}

impl Inbox {
    fn serve(&self, opened: &Opened) {
        loop {
            let mut state = self.state.lock();
            let request = loop {
                if let Some(request) = state.backlog.pop_front() {
                    break request;
                }
                if state.stopping {
                    return;
                }
                self.work.wait(&mut state);
            };
            if state.backlog.len() + 1 == BACKLOG {
                self.room.notify_all();
            }
            drop(state);
            if catch_unwind(AssertUnwindSafe(|| opened.execute(request))).is_err() {
                tracing::error!("the completion of a request panicked");
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.inbox.state.lock().stopping = true;
        self.inbox.work.notify_all();
        let current = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // If a completion held the last reference to the device, this is one of the threads. It
            // ends when this call returns.
            if thread.thread().id() != current {
                let _ = thread.join();
            }
        }
    }
}
