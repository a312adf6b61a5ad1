//! The HTTP server: one thread polls a listener and a few connections.
//!
//! Bounds for slow or hostile clients: [`MOST_CONNECTIONS`] connections, of which a new one
//! replaces the oldest; [`PATIENCE`] for each; the memory of a request and a response for each. The
//! thread takes no lock of the volume but those of its statistics.

use super::connection::{Connection, Progress};
use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Connections at a time.
const MOST_CONNECTIONS: usize = 16;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long no connection is accepted after the system has refused one (no descriptors).
const PAUSE: Duration = Duration::from_secs(1);

/// A socket that listens.
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Listens on `address`. The port 0 is any free one.
    ///
    /// # Errors
    /// The address is in use, is not of this machine, or the user may not use it.
    pub fn bind(address: SocketAddr) -> Result<Endpoint> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok::<_, io::Error>(Endpoint { listener, address })
        };
        bind().with_context(|| format!("--metrics {address}"))
    }

    /// The page of the metrics.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Serves requests with a thread. `render` makes the text of the metrics.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn serve(
        self,
        render: impl Fn() -> io::Result<String> + Send + 'static,
    ) -> Result<Serving> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = Arc::new(eventfd(0, flags).context("eventfd")?);
        let mut server = Server::new(self.listener, stop.clone(), render);
        let builder = thread::Builder::new().name("sluice-metrics".into());
        let thread = builder
            .spawn(move || server.run())
            .context("starting a thread")?;
        Ok(Serving {
            stop,
            thread: Some(thread),
        })
    }
}

/// The serving thread. Dropping it ends the thread.
pub struct Serving {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server<R> {
    listener: TcpListener,
    /// Readable when the thread is to end.
    stop: Arc<OwnedFd>,
    /// The oldest first.
    connections: VecDeque<Connection<TcpStream>>,
    paused_until: Duration,
    render: R,
}

impl<R: Fn() -> io::Result<String>> Server<R> {
    fn new(listener: TcpListener, stop: Arc<OwnedFd>, render: R) -> Server<R> {
        Server {
            listener,
            stop,
            connections: VecDeque::new(),
            paused_until: Duration::ZERO,
            render,
        }
    }

    fn run(&mut self) {
        loop {
            let now = sync::time::monotonic();
            let ready = match self.wait(now) {
                Ok(ready) => ready,
                Err(error) => return tracing::error!("metrics: {error}"),
            };
            let Some((has_client, is_ready)) = ready else {
                return;
            };
            let now = sync::time::monotonic();
            self.advance(is_ready, now);
            if has_client {
                self.accept(now);
            }
        }
    }

    /// Continues the connections that are ready, and closes those whose time is over.
    fn advance(&mut self, is_ready: Vec<bool>, now: Duration) {
        let mut ready = is_ready.into_iter();
        let render = &self.render;
        self.connections.retain_mut(|connection| {
            let is_ready = ready.next().unwrap_or(false);
            connection.deadline > now
                && !(is_ready && connection.advance(render) == Progress::Closed)
        });
    }

    /// Waits for an event. Returns whether a client waits, and which connections are ready; `None`
    /// at the end.
    fn wait(&self, now: Duration) -> rustix::io::Result<Option<(bool, Vec<bool>)>> {
        let is_paused = self.paused_until > now;
        let listens = match is_paused {
            true => PollFlags::empty(),
            false => PollFlags::IN,
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), listens),
        ];
        for connection in &self.connections {
            let fd = connection.stream.as_fd();
            fds.push(PollFd::from_borrowed_fd(fd, connection.interest()));
        }
        let oldest = self.connections.front().map(|oldest| oldest.deadline);
        let paused = is_paused.then_some(self.paused_until);
        let until = oldest.into_iter().chain(paused).min();
        // A millisecond more, so that the time is over then.
        let limit = until.map(|until| until.saturating_sub(now) + Duration::from_millis(1));
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if ready.next() == Some(true) {
            return Ok(None);
        }
        let has_client = ready.next() == Some(true);
        Ok(Some((has_client, ready.collect())))
    }

    /// Accepts a connection. One at a time: the others are served in between.
    fn accept(&mut self, now: Duration) {
        let accepted = self.listener.accept().and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        match accepted {
            Ok(stream) => {
                if self.connections.len() == MOST_CONNECTIONS {
                    self.connections.pop_front();
                }
                let connection = Connection::new(stream, now + PATIENCE);
                self.connections.push_back(connection);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => {
                    tracing::warn!("metrics: no connection: {error}");
                    self.paused_until = now + PAUSE;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// Serves `text`.
    fn serve(text: String) -> (SocketAddr, Serving) {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = endpoint.address;
        assert_eq!(endpoint.url(), format!("http://{address}/metrics"));
        let serving = endpoint.serve(move || Ok(text.clone())).unwrap();
        (address, serving)
    }

    fn scrape(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn idle_clients_do_not_keep_others_out() {
        let (address, serving) = serve("up 1\n".into());
        let idle: Vec<_> = (0..10 * MOST_CONNECTIONS)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                // The server may have closed it already.
                let _ = stream.write_all(b"GET /metrics HT");
                stream
            })
            .collect();
        for _ in 0..20 {
            assert!(scrape(address).ends_with("\r\n\r\nup 1\n"));
        }
        drop(serving);
        // The last connections were open until the end; the end closes them.
        for mut stream in idle {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            assert!(rest.is_empty());
        }
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn a_client_that_does_not_read_does_not_hold_up_the_end() {
        // More than the buffers of a connection take.
        let (address, serving) = serve("x".repeat(64 << 20));
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut first = [0; 8];
        slow.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1");
        drop(serving);
    }

    #[test]
    fn a_connection_ends_at_its_deadline() {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let stop = Arc::new(eventfd(0, EventfdFlags::empty()).unwrap());
        let mut client = TcpStream::connect(endpoint.address).unwrap();
        let mut server = Server::new(endpoint.listener, stop, || Ok(String::new()));
        let start = Duration::from_secs(100);
        while server.connections.is_empty() {
            server.accept(start);
        }
        server.advance(vec![true], start + PATIENCE - Duration::from_nanos(1));
        assert_eq!(server.connections.len(), 1);
        server.advance(vec![false], start + PATIENCE);
        assert!(server.connections.is_empty());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn an_address_in_use_is_named() {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = Endpoint::bind(endpoint.address).err().unwrap();
        let text = format!("{error:#}");
        assert!(text.contains(&endpoint.address.to_string()), "{text}");
        assert!(text.contains("in use"), "{text}");
    }
}
