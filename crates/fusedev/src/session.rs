//! The threads that serve requests.
//!
//! ```text
//!  Session::start: INIT
//!       │
//!  Session::run: one thread per descriptor
//!       │
//!       └─> read ─> split ─> parse ─> Server::request ─> read ...
//!             │                │
//!             │                └─ DESTROY: wait for the other threads, Server::destroy, reply
//!             └─ ENODEV: unmounted, or the connection is aborted
//! ```

use crate::abi::opcode;
use crate::channel::{Channel, HEADROOM, MAX_WRITE};
use crate::drain::Threads;
use crate::guard::guarded;
use crate::init::{Init, answer_init};
use crate::message::Message;
use crate::notify::Notifier;
use crate::reply::Reply;
use crate::request::{each_forget, parse};
use crate::server::Server;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

/// A connection to the kernel.
#[derive(Debug)]
pub struct Session<S> {
    channel: Arc<Channel>,
    server: Arc<S>,
}

impl<S: Server> Session<S> {
    /// Answers the kernel's INIT on `fd`, the connection of a mount.
    ///
    /// # Errors
    /// The kernel is too old, or ends the connection.
    pub fn start(fd: OwnedFd, server: Arc<S>) -> io::Result<Session<S>> {
        let channel = Arc::new(Channel::new(fd));
        let mut buffer = vec![0; HEADROOM];
        loop {
            let len = channel
                .read(&mut buffer)?
                .ok_or_else(|| io::Error::other("the kernel ended the connection before INIT"))?;
            if answer_init(&channel, &*server, &buffer[..len])? == Init::Done {
                return Ok(Session { channel, server });
            }
        }
    }

    /// Returns a sender of notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.channel.clone())
    }

    /// Serves requests with `threads` threads until the file system is unmounted.
    ///
    /// # Errors
    /// No thread can be started; the connection fails.
    pub fn run(self, threads: usize) -> io::Result<()> {
        let mut channels = vec![self.channel];
        for _ in 1..threads {
            channels.push(Arc::new(channels[0].duplicate()?));
        }
        let all = Arc::new(Threads::new(channels.len()));
        let mut running = Vec::new();
        for (n, channel) in channels.into_iter().enumerate() {
            let (server, all) = (self.server.clone(), all.clone());
            let thread = thread::Builder::new().name(format!("fuse-{n}"));
            match thread.spawn(move || serve(&channel, &*server, (&all, n))) {
                Ok(thread) => running.push(thread),
                Err(error) if running.is_empty() => return Err(error),
                Err(error) => tracing::warn!("only {n} threads serve requests: {error}"),
            }
        }
        running
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| {
                    Err(io::Error::other("a thread that serves requests panicked"))
                })
            })
            .fold(Ok(()), Result::and)
    }
}

/// Serves the requests of one channel, as thread `n` of `all`.
fn serve(
    channel: &Arc<Channel>,
    server: &impl Server,
    (all, n): (&Threads, usize),
) -> io::Result<()> {
    let mut buffer = vec![0; MAX_WRITE as usize + HEADROOM];
    while let Some(len) = channel.read(&mut buffer)? {
        let message =
            Message::split(&buffer[..len]).map_err(|error| io::Error::other(error.to_string()))?;
        let (code, unique) = (message.header.opcode, message.header.unique);
        let Some(_busy) = all.enter(n) else {
            // A forget after DESTROY; the kernel waits for no answer.
            continue;
        };
        if matches!(code, opcode::FORGET | opcode::BATCH_FORGET) {
            // Forgets have no reply.
            let forgotten = guarded(code, || {
                each_forget(message, |node, lookups| server.forget(node, lookups))
            });
            match forgotten {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::error!("the kernel sent a forget that is {error}"),
                None => server.panicked(code),
            }
            continue;
        }
        let reply = Reply::new(channel.clone(), unique);
        if code == opcode::DESTROY {
            all.end(n);
            if guarded(code, || server.destroy()).is_none() {
                server.panicked(code);
            }
            reply.ok();
            return Ok(());
        }
        match parse(message) {
            Ok(request) => {
                if guarded(code, || server.request(request, reply)).is_none() {
                    server.panicked(code);
                }
            }
            Err(error) => {
                tracing::error!("the kernel sent a request {code} that is {error}");
                reply.error(Errno::INVAL);
            }
        }
    }
    Ok(())
}
