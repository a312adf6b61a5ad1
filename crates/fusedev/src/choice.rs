//! The choice of a transport, and what it has led to.

use crate::ring::Usage;
use std::sync::{Arc, OnceLock};

/// The transport that a session should use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring if the kernel offers it (Linux 6.14, parameter `enable_uring` of its module fuse)
    /// and this process may schedule its threads (`CAP_SYS_NICE`): without that a lone caller would
    /// be slower. Else `/dev/fuse`.
    #[default]
    Auto,
    /// `/dev/fuse`.
    Device,
    /// io_uring. Without it the session fails.
    Ring,
}

/// The transport of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `/dev/fuse`.
    Device,
    /// io_uring, with a queue for each processor. Forgets and notifications use `/dev/fuse`.
    Ring,
}

/// The state of a session's transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportStatus {
    /// The transport.
    pub transport: Transport,
    /// Why it is used, for people.
    pub reason: String,
    /// Threads of the rings.
    pub ring_threads: usize,
    /// Bytes of the rings' buffers that have been used and not given back.
    pub ring_bytes: usize,
}

/// Watches the transport of a session.
#[derive(Clone, Debug, Default)]
pub struct TransportMonitor {
    decided: Arc<OnceLock<(Transport, String)>>,
    pub(crate) usage: Arc<Usage>,
}

impl TransportMonitor {
    pub(crate) fn decide(&self, transport: Transport, reason: impl Into<String>) {
        // The first decision stays.
        let _ = self.decided.set((transport, reason.into()));
    }

    /// The current state.
    pub fn status(&self) -> TransportStatus {
        let undecided = || (Transport::Device, "the session is starting".to_owned());
        let (transport, reason) = self.decided.get().cloned().unwrap_or_else(undecided);
        TransportStatus {
            transport,
            reason,
            ring_threads: self.usage.threads(),
            ring_bytes: self.usage.memory(),
        }
    }
}
