//! One HTTP connection. No call waits for the client.
//!
//! ```text
//!  READING ── request complete, or not valid ──▶ WRITING ── response sent ──▶ DRAINING ──▶ closed
//! ```
//!
//! A connection that is closed with unread input makes the client lose the response. So after the
//! response the rest of the input is discarded, up to the deadline. Each connection serves one
//! request, has a deadline, and keeps at most [`MOST_REQUEST`] bytes of input.

use rustix::event::PollFlags;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// Bytes of the longest request line with headers.
const MOST_REQUEST: usize = 8 << 10;
/// Headers of a request.
const MOST_HEADERS: usize = 64;

/// Reads and writes for one connection before others have their turn.
const TURN: usize = 64;

/// Prometheus's text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

enum State {
    Reading(Vec<u8>),
    Writing { response: Vec<u8>, sent: usize },
    Draining,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Open,
    Closed,
}

/// See the module.
pub struct Connection<S> {
    pub stream: S,
    /// The time at which it is closed in any case.
    pub deadline: Duration,
    state: State,
}

/// The end of the output of a stream.
pub trait EndOutput {
    /// Sends the end of the output.
    fn end_output(&mut self) -> io::Result<()>;
}

impl EndOutput for std::net::TcpStream {
    fn end_output(&mut self) -> io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }
}

impl<S: Read + Write + EndOutput> Connection<S> {
    /// `stream` returns `WouldBlock` instead of waiting.
    pub fn new(stream: S, deadline: Duration) -> Connection<S> {
        Connection {
            stream,
            deadline,
            state: State::Reading(Vec::new()),
        }
    }

    /// The event that it waits for.
    pub fn interest(&self) -> PollFlags {
        match self.state {
            State::Writing { .. } => PollFlags::OUT,
            State::Reading(_) | State::Draining => PollFlags::IN,
        }
    }

    /// Continues until the client has to do something, or its turn is over. `render` makes the
    /// metrics.
    pub fn advance(&mut self, render: &impl Fn() -> io::Result<String>) -> Progress {
        for _ in 0..TURN {
            match self.step(render) {
                Ok(Progress::Open) => {}
                Ok(Progress::Closed) => return Progress::Closed,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Progress::Open,
                    ErrorKind::Interrupted => {}
                    _ => return Progress::Closed,
                },
            }
        }
        Progress::Open
    }

    fn step(&mut self, render: &impl Fn() -> io::Result<String>) -> io::Result<Progress> {
        let mut buf = [0; 1024];
        match &mut self.state {
            State::Reading(request) => {
                let n = self.stream.read(&mut buf)?;
                if n == 0 {
                    return Ok(Progress::Closed);
                }
                request.extend_from_slice(&buf[..n]);
                if let Some(response) = respond(request, render) {
                    self.state = State::Writing { response, sent: 0 };
                }
            }
            State::Writing { response, sent } => {
                *sent += self.stream.write(&response[*sent..])?;
                if *sent == response.len() {
                    self.stream.end_output()?;
                    self.state = State::Draining;
                }
            }
            State::Draining => {
                if self.stream.read(&mut buf)? == 0 {
                    return Ok(Progress::Closed);
                }
            }
        }
        Ok(Progress::Open)
    }
}

/// The response to a request; `None` while the request is not complete.
fn respond(request: &[u8], render: &impl Fn() -> io::Result<String>) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() < MOST_REQUEST => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            return Some(response(
                status,
                PLAIN,
                "the request is too long\n",
                Body::Sent,
            ));
        }
        Err(error) => {
            let text = format!("{error}\n");
            return Some(response("400 Bad Request", PLAIN, &text, Body::Sent));
        }
    }
    let body = match parsed.method {
        Some("GET") => Body::Sent,
        Some("HEAD") => Body::Counted,
        _ => {
            let status = "405 Method Not Allowed\r\nAllow: GET, HEAD";
            return Some(response(status, PLAIN, "only GET and HEAD\n", Body::Sent));
        }
    };
    let target = parsed.path.unwrap_or("");
    Some(match target.split('?').next() {
        Some("/metrics") => match render() {
            Ok(text) => response("200 OK", TEXT_FORMAT, &text, body),
            Err(error) => {
                let text = format!("{error}\n");
                response("500 Internal Server Error", PLAIN, &text, body)
            }
        },
        Some("/") => response("200 OK", PLAIN, "SluiceFS: see /metrics\n", body),
        _ => response("404 Not Found", PLAIN, "see /metrics\n", body),
    })
}

/// The part that a response has of its body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Sent,
    /// Only its length (HEAD).
    Counted,
}

fn response(status: &str, kind: &str, text: &str, body: Body) -> Vec<u8> {
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    if body == Body::Sent {
        response.push_str(text);
    }
    response.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends `input` in pieces and takes `room` bytes at a time.
    struct Client {
        input: Vec<Vec<u8>>,
        output: Vec<u8>,
        room: usize,
        has_ended_output: bool,
    }

    impl Read for Client {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.input.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let mut piece = self.input.remove(0);
            let n = piece.len().min(buf.len());
            buf[..n].copy_from_slice(&piece[..n]);
            if n < piece.len() {
                self.input.insert(0, piece.split_off(n));
            }
            Ok(n)
        }
    }

    impl Write for Client {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let n = std::mem::take(&mut self.room).min(buf.len());
            if n == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.output.extend_from_slice(&buf[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl EndOutput for Client {
        fn end_output(&mut self) -> io::Result<()> {
            self.has_ended_output = true;
            Ok(())
        }
    }

    fn connection(input: &[&[u8]]) -> Connection<Client> {
        let client = Client {
            input: input.iter().map(|piece| piece.to_vec()).collect(),
            output: Vec::new(),
            room: usize::MAX,
            has_ended_output: false,
        };
        Connection::new(client, Duration::ZERO)
    }

    fn metrics() -> io::Result<String> {
        Ok("up 1\n".into())
    }

    /// The response to a whole request.
    fn answer(request: &[u8]) -> String {
        let mut connection = connection(&[request]);
        assert_eq!(connection.advance(&metrics), Progress::Open);
        assert!(connection.stream.has_ended_output);
        String::from_utf8(connection.stream.output).unwrap()
    }

    #[test]
    fn a_request_in_pieces_is_answered_when_it_is_complete() {
        let mut connection = connection(&[b"GET /met", b"rics HTTP/1.1\r\nHost: x\r", b"\n"]);
        assert_eq!(connection.advance(&metrics), Progress::Open);
        assert!(connection.stream.output.is_empty());
        assert_eq!(connection.interest(), PollFlags::IN);
        connection.stream.input.push(b"\r\n".to_vec());
        // The client takes a byte at a time.
        connection.stream.room = 1;
        assert_eq!(connection.advance(&metrics), Progress::Open);
        assert_eq!(connection.interest(), PollFlags::OUT);
        while !connection.stream.has_ended_output {
            connection.stream.room = 1;
            assert_eq!(connection.advance(&metrics), Progress::Open);
        }
        let text = String::from_utf8(connection.stream.output.clone()).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("\r\nContent-Length: 5\r\n"), "{text}");
        assert!(text.contains("version=0.0.4"), "{text}");
        assert!(text.ends_with("\r\n\r\nup 1\n"), "{text}");
        // The rest of the input is discarded until its end.
        connection.stream.input = vec![b"more".to_vec(), Vec::new()];
        assert_eq!(connection.advance(&metrics), Progress::Closed);
    }

    #[test]
    fn other_requests_are_refused() {
        for (request, status) in [
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found"),
            (
                "POST /metrics HTTP/1.1\r\n\r\nbody",
                "405 Method Not Allowed\r\nAllow: GET, HEAD",
            ),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
            ("\x16\x03\x01\x02", "400 Bad Request"),
        ] {
            let text = answer(request.as_bytes());
            let head = format!("HTTP/1.1 {status}\r\n");
            assert!(text.starts_with(&head), "{request:?}: {text}");
        }
        let text = answer(b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(text.contains("\r\nContent-Length: 5\r\n") && text.ends_with("\r\n\r\n"));
    }

    #[test]
    fn a_request_without_end_is_bounded() {
        let endless = [
            b"GET /metrics HTTP/1.1\r\nA: ".as_slice(),
            &[b'a'; MOST_REQUEST],
        ]
        .concat();
        assert!(answer(&endless).starts_with("HTTP/1.1 431 "));
        let headers = "A: b\r\n".repeat(MOST_HEADERS + 1);
        let many = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        assert!(answer(many.as_bytes()).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn a_client_that_leaves_closes_the_connection() {
        let mut connection = connection(&[b"GET /", b""]);
        assert_eq!(connection.advance(&metrics), Progress::Closed);
    }

    #[test]
    fn a_client_that_sends_without_end_has_turns() {
        let mut connection = connection(&[b"GET /metrics HTTP/1.1\r\n\r\n"]);
        let endless = std::iter::repeat_n(b"more".to_vec(), 10 * TURN);
        connection.stream.input.extend(endless);
        for turn in 1..5 {
            assert_eq!(connection.advance(&metrics), Progress::Open);
            assert!(connection.stream.input.len() >= 10 * TURN - turn * TURN);
        }
    }

    #[test]
    fn an_error_of_the_metrics_is_reported() {
        let mut connection = connection(&[b"GET /metrics HTTP/1.1\r\n\r\n"]);
        connection.advance(&|| Err(io::Error::other("broken")));
        let text = String::from_utf8(connection.stream.output).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 500 ") && text.ends_with("broken\n"),
            "{text}"
        );
    }
}
