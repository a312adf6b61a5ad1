//! The seam between requests and the ways in which they travel.
//!
//! A transport receives messages and gives each, as a [`crate::message::Message`], to
//! [`crate::dispatch`]. The reply finds its way back through [`Transport`], from any thread and at
//! any time.

use rustix::io::Errno;
use std::fmt;

/// Writes bytes into a buffer and returns their number, from the start of the buffer.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>;

/// The way of replies to the kernel. Each request is answered once.
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    /// Sends the reply to the request `unique`: an error number (0, or negative as in the
    /// protocol), and `parts` in order.
    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]);

    /// Sends the bytes that `fill` writes into a buffer of `size` bytes, or its error. Sends
    /// nothing if `fill` panics.
    fn send_filled(&self, unique: u64, size: usize, fill: Fill<'_>);

    /// Asks whether a reply may wait until the kernel has sent another request. Returns false if
    /// the transport may not be able to deliver that request before the reply.
    fn hold(&self) -> bool;
}
