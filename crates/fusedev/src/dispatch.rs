//! Carrying out one message: the same for all transports.
//!
//! ```text
//!  message ─> parse ─> Server::request ─> reply, now or later
//!     │
//!     ├─ FORGET, BATCH_FORGET: Server::forget, no reply
//!     └─ DESTROY: wait for busy threads, Server::destroy, reply
//! ```

use crate::abi::opcode;
use crate::drain::Drain;
use crate::guard::guarded;
use crate::message::Message;
use crate::reply::Reply;
use crate::request::{each_forget, parse};
use crate::server::Server;
use crate::transport::Transport;
use rustix::io::Errno;
use std::sync::Arc;

/// Whether the kernel sends more requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Request,
    /// DESTROY has been carried out.
    End,
}

/// Gives messages to a server.
pub(crate) struct Dispatcher<S> {
    server: Arc<S>,
    drain: Drain,
}

impl<S: Server> Dispatcher<S> {
    /// The threads that call [`Dispatcher::dispatch`] are counted in `lanes` lanes.
    pub fn new(server: Arc<S>, lanes: usize) -> Dispatcher<S> {
        Dispatcher {
            server,
            drain: Drain::new(lanes),
        }
    }

    pub fn server(&self) -> &S {
        &self.server
    }

    /// Carries out a message, on a thread of the lane `lane`. Its reply goes to `transport`, before
    /// this returns or later.
    pub fn dispatch(
        &self,
        lane: usize,
        message: Message<'_>,
        transport: &Arc<impl Transport + 'static>,
    ) -> Next {
        let (code, unique) = (message.header.opcode, message.header.unique);
        let is_forget = matches!(code, opcode::FORGET | opcode::BATCH_FORGET);
        let Some(_busy) = self.drain.enter(lane) else {
            // After DESTROY. The kernel waits for no answer to a forget, and sends nothing else.
            if !is_forget {
                Reply::new(transport.clone(), unique).error(Errno::NODEV);
            }
            return Next::Request;
        };
        if is_forget {
            self.forget(code, message);
            return Next::Request;
        }
        let reply = Reply::new(transport.clone(), unique);
        if code == opcode::DESTROY {
            self.drain.end(lane);
            if guarded(code, || self.server.destroy()).is_none() {
                self.panicked(code);
            }
            reply.ok();
            return Next::End;
        }
        match parse(message) {
            Ok(request) => {
                if guarded(code, || self.server.request(request, reply)).is_none() {
                    self.panicked(code);
                }
            }
            Err(error) => {
                tracing::error!("the kernel sent a request {code} that is {error}");
                reply.error(Errno::INVAL);
            }
        }
        Next::Request
    }

    /// Forgets have no reply.
    fn forget(&self, code: u32, message: Message<'_>) {
        let forgotten = guarded(code, || {
            each_forget(message, |node, lookups| self.server.forget(node, lookups))
        });
        match forgotten {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!("the kernel sent a forget that is {error}"),
            None => self.panicked(code),
        }
    }

    /// Reports a panic to the server. If that panics, too, the thread goes on: another request may
    /// be behind this one.
    fn panicked(&self, code: u32) {
        guarded(code, || self.server.panicked(code));
    }
}
