//! The transport over io_uring (Linux 6.14 or later, module parameter `enable_uring` of fuse).
//!
//! ```text
//!  reserve     the thread that has the entries without a worker; starts workers
//!     │
//!  worker      a thread: its ring, its entry, the loop that serves
//!     │
//!  command     a ring, and the commands REGISTER and COMMIT_AND_FETCH
//!     │
//!  entry       one request and its reply, in memory that is shared with the kernel
//!     │
//!  scheduling  the processors and the scheduling policy of workers; judge decides
//!     │
//!  queue       a processor: its entries, its requests, and which replies may wait
//!     │
//!  memory, usage, processors, abi
//! ```
//!
//! Each processor has a queue, and a request goes to the queue of the processor on which its caller
//! runs. A queue has entries, and each entry in use has a thread with a ring, so a thread that is
//! busy holds no other request. docs/decisions/fuse-over-io-uring.md gives the reasons.
//!
//! Everything is prepared before INIT is answered ([`Rings::prepare`]): after an answer with
//! OVER_IO_URING the kernel delays all requests until each queue has an entry ([`Rings::start`]).
//! Forgets, interrupts and notifications use `/dev/fuse` under this transport, too.

mod abi;
mod command;
mod entry;
mod judge;
mod memory;
mod processors;
mod queue;
mod reserve;
mod scheduling;
mod usage;
mod worker;

use crate::channel::Channel;
use crate::dispatch::Dispatcher;
use crate::server::Server;
pub(crate) use processors::possible;
use queue::entries_per_queue;
use reserve::Starting;
use scheduling::Scheduling;
pub(crate) use scheduling::{Idling, check_scheduling};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
pub(crate) use usage::Usage;
use worker::Shared;

/// Entries that are ready for the kernel.
pub(crate) struct Rings {
    reserve: Starting,
    entries: usize,
    ended: Receiver<io::Result<()>>,
}

impl Rings {
    /// Prepares entries for the queues of `queues` processors. The threads of queue 0 are in the
    /// lane `first_lane` of `dispatcher`, the others follow. `idling` follows from
    /// [`check_scheduling`].
    ///
    /// # Errors
    /// The system has no io_uring for this process, too many threads, or no memory.
    pub fn prepare(
        dispatcher: &Arc<Dispatcher<impl Server>>,
        device: &Arc<Channel>,
        usage: &Arc<Usage>,
        (queues, first_lane): (u16, usize),
        idling: Idling,
    ) -> io::Result<Rings> {
        let shared = Arc::new(Shared {
            dispatcher: dispatcher.clone(),
            channel: device.clone(),
            usage: usage.clone(),
            scheduling: Arc::new(Scheduling::new(idling)),
            first_lane,
        });
        let (tell, ended) = channel();
        let reserve = Starting::spawn(shared, queues, tell)?;
        Ok(Rings {
            reserve,
            entries: usize::from(queues) * entries_per_queue(queues),
            ended,
        })
    }

    /// The number of entries. Each has a buffer.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Gives the entries to the kernel. INIT is answered.
    ///
    /// Returns an error if the kernel refuses one. It then sends requests to `/dev/fuse`.
    pub fn start(self) -> (Serving, io::Result<()>) {
        let registered = self.reserve.go();
        (Serving { ended: self.ended }, registered)
    }
}

/// Threads that serve.
pub(crate) struct Serving {
    ended: Receiver<io::Result<()>>,
}

impl Serving {
    /// Waits until the connection has ended and all threads, too.
    ///
    /// # Errors
    /// A ring has failed.
    pub fn join(self) -> io::Result<()> {
        self.ended.iter().fold(Ok(()), Result::and)
    }
}
