//! The thread that holds the entries without a worker.
//!
//! All entries of all queues begin here. A request that finds no waiting worker in its queue comes
//! to one of these entries. The thread starts a worker, which takes the entry with the request and
//! keeps it. So the number of workers of a queue follows the largest number of requests that have
//! been in progress at a time, and this thread never carries out a request: it is always there for
//! the next one.
//!
//! The kernel prefers the entry that began to wait last, so an entry here is used only if no worker
//! of its queue waits.

use super::command::{Ring, is_end};
use super::entry::Entry;
use super::memory::Memory;
use super::queue::{Queue, entries_per_queue};
use super::worker::{Shared, Worker};
use crate::server::Server;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// The thread before it serves.
pub struct Starting {
    reports: Receiver<io::Result<()>>,
    go: Sender<()>,
}

impl Starting {
    /// Starts the thread, with the entries of `queues` queues. Its result, and those of the workers
    /// that it starts, go to `ended`. Returns when it has all that it needs.
    ///
    /// # Errors
    /// The system has no io_uring for this process, too many threads, or no memory.
    pub fn spawn<S: Server>(
        shared: Arc<Shared<S>>,
        queues: u16,
        ended: Sender<io::Result<()>>,
    ) -> io::Result<Starting> {
        let (report, reports) = sync_channel(2);
        let (go, may_go) = channel();
        thread::Builder::new()
            .name("fuse-reserve".into())
            .spawn(move || {
                let reserve = Reserve::prepare(shared, queues, ended);
                if let Some(reserve) = reported(reserve, &report)
                    && may_go.recv().is_ok()
                {
                    reserve.register_and_run(&report);
                }
            })?;
        let starting = Starting { reports, go };
        starting.wait()?;
        Ok(starting)
    }

    /// Lets the thread give its entries to the kernel.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn go(self) -> io::Result<()> {
        // Without a receiver there is no report.
        let _ = self.go.send(());
        self.wait()
    }

    fn wait(&self) -> io::Result<()> {
        let ended = || io::Error::other("the thread of the rings has ended early");
        self.reports.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// Reports whether there is a value, and returns it.
fn reported<T>(result: io::Result<T>, report: &SyncSender<io::Result<()>>) -> Option<T> {
    let (value, outcome) = match result {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // The receiver may have given up.
    let _ = report.send(outcome);
    value
}

struct Reserve<S> {
    shared: Arc<Shared<S>>,
    ended: Sender<io::Result<()>>,
    ring: Ring,
    /// An entry is `None` when a worker has it. The index is the tag of its commands.
    entries: Vec<Option<Arc<Entry>>>,
    /// Entries that are registered and not `None`.
    held: usize,
    /// It is in the log that no thread can be started.
    has_warned: bool,
}

impl<S: Server> Reserve<S> {
    fn prepare(
        shared: Arc<Shared<S>>,
        queues: u16,
        ended: Sender<io::Result<()>>,
    ) -> io::Result<Reserve<S>> {
        let count = entries_per_queue(queues);
        let all: Vec<Arc<Queue>> = (0..queues)
            .map(|number| Arc::new(Queue::new(number, count)))
            .collect();
        // The kernel uses the rings when each queue has an entry, so that the first ones are
        // spread.
        let entries = (0..count)
            .flat_map(|_| &all)
            .map(|queue| Ok(Some(Arc::new(Entry::new(Memory::map()?, queue.clone())))))
            .collect::<io::Result<Vec<_>>>()?;
        let ring = Ring::new(entries.len())?;
        ring.enable()?;
        Ok(Reserve {
            shared,
            ended,
            ring,
            entries,
            held: 0,
            has_warned: false,
        })
    }

    /// Registers the entries, reports whether that has succeeded, and starts workers until the end.
    fn register_and_run(mut self, report: &SyncSender<io::Result<()>>) {
        let registered = self.register();
        // After a failure the entries that are registered stay until the connection has ended.
        reported(registered, report);
        self.shared.scheduling.start();
        let result = self.run();
        self.shared.scheduling.end();
        if result.is_err() {
            // The kernel may still have the entries.
            self.entries.drain(..).for_each(std::mem::forget);
        }
        // The receiver may have given up.
        let _ = self.ended.send(result);
    }

    fn register(&mut self) -> io::Result<()> {
        for (tag, entry) in self.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            // SAFETY: nobody uses the memory before the completion. It stays mapped: `run` ends
            // when there was a completion for each entry, or the entries are leaked.
            unsafe {
                self.ring
                    .register(&self.shared.channel, entry, tag as u64)?
            };
            self.held += 1;
            // The kernel reports a refusal at once.
            if let Some(refused) = self.ring.completed()
                && let Err(errno) = refused.result
            {
                self.held -= 1;
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        Ok(())
    }

    fn run(&mut self) -> io::Result<()> {
        while self.held > 0 {
            self.ring.wait(None)?;
            while let Some(completed) = self.ring.completed() {
                let place = self.entries.get_mut(completed.tag as usize);
                let Some(entry) = place.and_then(Option::take) else {
                    continue;
                };
                match completed.result {
                    Ok(()) => self.delegate(entry, completed.tag)?,
                    Err(errno) => {
                        self.held -= 1;
                        if !is_end(errno) {
                            let error = io::Error::from_raw_os_error(errno);
                            tracing::error!("the kernel refused an entry: {error}");
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives an entry and its request to a new worker.
    fn delegate(&mut self, entry: Arc<Entry>, tag: u64) -> io::Result<()> {
        // SAFETY: the command has been completed, and the entry is not used here after a success.
        let started = unsafe { Worker::start(&self.shared, &entry, self.ended.clone()) };
        let Err(error) = started else {
            self.held -= 1;
            return Ok(());
        };
        // The requests that come meanwhile wait. That is slow, and better than an error.
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!("no thread can be started, requests wait for one another: {error}");
        }
        // SAFETY: the command has been completed, and this thread is the owner.
        let (unique, _) = unsafe { self.shared.serve(&entry) };
        // SAFETY: as in `register`.
        unsafe {
            self.ring
                .commit(&self.shared.channel, &entry, unique, tag)?
        };
        self.entries[tag as usize] = Some(entry);
        Ok(())
    }
}
