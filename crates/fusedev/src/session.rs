//! The life of a connection.
//!
//! ```text
//!  Session::start: INIT, the choice of a transport
//!       │
//!  Session::run ──┬─> the threads of a pool, each with a descriptor:
//!                 │      look ─> read ─> split ─> dispatch ─> look ...
//!                 │      └─ ENODEV: unmounted, or the connection is aborted
//!                 │
//!                 └─> with rings: their threads, and one descriptor for forgets
//! ```

use crate::buffers::{self, HEADROOM, MAX_WRITE};
use crate::channel::{Channel, release_reply_buffer};
use crate::choice::{Transport, TransportChoice, TransportMonitor};
use crate::dispatch::{Dispatcher, Next};
use crate::features::Features;
use crate::init::{Init, Terms, answer_init};
use crate::look::{Looker, Lookers};
use crate::mapping::Mapping;
use crate::message::Message;
use crate::notify::Notifier;
use crate::pool::{Pool, Step};
use crate::ring::{Idling, Rings, check_scheduling, possible};
use crate::server::Server;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

/// How requests are served.
#[derive(Clone, Copy, Debug)]
pub struct Serving {
    /// The transport.
    pub transport: TransportChoice,
    /// Number of threads that read `/dev/fuse` or carry out requests, without those that wait. With
    /// rings it is one, for forgets.
    pub threads: usize,
    /// Bytes that the buffers of all requests may have together. The kernel splits reads and writes
    /// into requests of 128 KiB to 1 MiB by it.
    pub memory: u64,
}

/// A connection to the kernel.
pub struct Session<S> {
    channel: Arc<Channel>,
    dispatcher: Arc<Dispatcher<S>>,
    threads: usize,
    max_write: u32,
    rings: Option<Rings>,
    monitor: TransportMonitor,
}

impl<S> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.channel).finish()
    }
}

impl<S: Server> Session<S> {
    /// Answers the kernel's INIT on `fd`, the connection of a mount.
    ///
    /// # Errors
    /// The kernel is too old, or ends the connection. [`TransportChoice::Ring`] is not possible.
    pub fn start(fd: OwnedFd, server: Arc<S>, serving: Serving) -> io::Result<Session<S>> {
        let channel = Arc::new(Channel::new(fd));
        let monitor = TransportMonitor::default();
        let threads = serving.threads.max(1);
        let (queues, undetected) = match (serving.transport, possible()) {
            (TransportChoice::Device, _) => (0, None),
            (_, Ok(queues)) => (queues, None),
            (_, Err(error)) => (0, Some(error)),
        };
        let readers = Pool::most(threads);
        let lanes = readers + usize::from(queues);
        let dispatcher = Arc::new(Dispatcher::new(server, lanes));
        let prepare = |offered: Features| -> io::Result<Rings> {
            if let Some(error) = &undetected {
                return Err(io::Error::new(error.kind(), error.to_string()));
            }
            if !offered.contains(Features::OVER_IO_URING) {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the kernel does not offer FUSE over io_uring (Linux 6.14 or later, with Y in \
                     /sys/module/fuse/parameters/enable_uring)",
                ));
            }
            let idling = match (check_scheduling(), serving.transport) {
                (Err(error), TransportChoice::Auto) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!(
                            "over io_uring a lone caller would be slower, because this process may \
                             not change how its threads are scheduled ({error}); CAP_SYS_NICE \
                             allows it"
                        ),
                    ));
                }
                (Err(error), _) => {
                    tracing::debug!("the workers of rings keep their scheduling policy: {error}");
                    Idling::Forbidden
                }
                (Ok(()), _) => Idling::Allowed,
            };
            let lanes = (queues, readers);
            Rings::prepare(&dispatcher, &channel, &monitor.usage, lanes, idling)
        };
        let choose = |offered: Features| -> io::Result<Option<Rings>> {
            if serving.transport == TransportChoice::Device {
                monitor.decide(Transport::Device, "it was chosen");
                return Ok(None);
            }
            match (prepare(offered), serving.transport) {
                (Ok(rings), _) => Ok(Some(rings)),
                (Err(error), TransportChoice::Ring) => Err(io::Error::new(
                    error.kind(),
                    format!("the transport over io_uring: {error}"),
                )),
                (Err(error), _) => {
                    monitor.decide(Transport::Device, error.to_string());
                    Ok(None)
                }
            }
        };
        let (mut rings, mut max_write) = (None, MAX_WRITE);
        let mut agree = |offered: Features| -> io::Result<Terms> {
            rings = choose(offered)?;
            let (features, count) = match &rings {
                Some(rings) => (Features::OVER_IO_URING, rings.entries()),
                // A thread has a buffer for its request, and one for its reply.
                None => (Features::empty(), 2 * readers),
            };
            max_write = buffers::max_write(serving.memory, count);
            Ok(Terms {
                features,
                max_write,
            })
        };
        let mut buffer = vec![0; HEADROOM];
        loop {
            let len = channel
                .read(&mut buffer)?
                .ok_or_else(|| io::Error::other("the kernel ended the connection before INIT"))?;
            let server = dispatcher.server();
            if answer_init(&channel, server, &buffer[..len], &mut agree)? == Init::Done {
                break;
            }
        }
        Ok(Session {
            channel,
            dispatcher,
            threads,
            max_write,
            rings,
            monitor,
        })
    }

    /// Returns a sender of notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.channel.clone())
    }

    /// Returns a view of the transport.
    pub fn monitor(&self) -> TransportMonitor {
        self.monitor.clone()
    }

    /// Serves requests until the file system is unmounted.
    ///
    /// # Errors
    /// No thread can be started; the connection fails.
    pub fn run(self) -> io::Result<()> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let buffer = self.max_write as usize + HEADROOM;
        let read = |threads, lookers| {
            read_device(
                (&self.channel, buffer),
                &self.dispatcher,
                (threads, lookers),
            )
        };
        let Some(rings) = self.rings else {
            return read(self.threads, Lookers::new(processors));
        };
        let (serving, started) = rings.start();
        let read = match started {
            Ok(()) => {
                self.monitor.decide(Transport::Ring, "the kernel offers it");
                // Only forgets come. No caller waits for them.
                read(1, Lookers::none())
            }
            Err(error) => {
                tracing::warn!("the kernel refuses the rings, /dev/fuse is used: {error}");
                self.monitor.decide(Transport::Device, error.to_string());
                read(self.threads, Lookers::new(processors))
            }
        };
        // The threads of the rings have a descriptor, too, and end when the connection has ended.
        drop(self.channel);
        read.and(serving.join())
    }
}

/// Serves the requests of `/dev/fuse`, which have up to `buffer` bytes; `threads` threads run at a
/// time ([`Pool`]).
fn read_device(
    (channel, buffer): (&Arc<Channel>, usize),
    dispatcher: &Dispatcher<impl Server>,
    (threads, lookers): (usize, Lookers),
) -> io::Result<()> {
    let pool = Pool::new(threads);
    thread::scope(|scope| {
        let mut running = Vec::new();
        while pool.next_start().is_some() {
            let n = running.len();
            let start = || {
                // The reply to a request goes to the descriptor that it was read from.
                let channel = match n {
                    0 => channel.clone(),
                    _ => Arc::new(channel.duplicate()?),
                };
                let buffer = Mapping::new(buffer)?;
                let (pool, lookers) = (&pool, &lookers);
                thread::Builder::new()
                    .name(format!("fuse-{n}"))
                    .spawn_scoped(scope, move || {
                        serve((&channel, buffer), dispatcher, n, (pool, lookers))
                    })
            };
            match start() {
                Ok(thread) => running.push(thread),
                Err(error) if n == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!("only {n} threads serve requests: {error}");
                    pool.cannot_start();
                }
            }
        }
        running
            .into_iter()
            .map(|thread| {
                let panicked = || io::Error::other("a thread that serves requests panicked");
                thread.join().unwrap_or_else(|_| Err(panicked()))
            })
            .fold(Ok(()), Result::and)
    })
}

/// Serves the requests of one channel, as the only thread of the lane `lane`.
fn serve(
    (channel, mut buffer): (&Arc<Channel>, Mapping),
    dispatcher: &Dispatcher<impl Server>,
    lane: usize,
    (pool, lookers): (&Arc<Pool>, &Lookers),
) -> io::Result<()> {
    let mut member = pool.join();
    let mut looker = Looker::new(lookers);
    loop {
        looker.look(|| channel.is_ready());
        let Some(len) = channel.read(buffer.bytes())? else {
            break;
        };
        let message = Message::split(&buffer.bytes()[..len])
            .map_err(|error| io::Error::other(error.to_string()))?;
        let next = dispatcher.dispatch(lane, message, channel);
        // A parked thread needs no memory.
        let release = || {
            buffer.clear();
            release_reply_buffer();
        };
        if next == Next::End || member.served(release) == Step::End {
            break;
        }
    }
    Ok(())
}
