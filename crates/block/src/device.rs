//! The interface of a device.

use crate::{IoError, Request};

/// Offsets and lengths on a device are multiples of this many bytes.
pub const SECTOR: u64 = 512;

/// A store of bytes. Any number of threads may submit at the same time.
pub trait Device: Send + Sync {
    /// Path or URL, for messages.
    fn name(&self) -> &str;
    /// Bytes.
    fn capacity(&self) -> u64;
    /// Looks at the size of the device again, and returns it. An image file of fewer than
    /// `at_least` bytes is extended. A device never gets smaller.
    ///
    /// # Errors
    /// The system's, if an image cannot be extended.
    fn grow(&self, _at_least: u64) -> std::io::Result<u64> {
        Ok(self.capacity())
    }
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// The largest request, in bytes.
    fn max_request_bytes(&self) -> u64 {
        1 << 20
    }
    /// Bytes of a sector. The device rewrites a whole one for a write of less, and a power failure
    /// may then damage bytes that were not written.
    fn sector_size(&self) -> u64 {
        SECTOR
    }
    /// Whether the device has a rotating disk; `None` if it does not know.
    fn is_rotating(&self) -> Option<bool> {
        Some(false)
    }
    /// Starts every request; each is completed once ([`Request::complete`]), on any thread, in any
    /// order.
    fn submit(&self, batch: Vec<Request>);
    /// Executes one request on the calling thread and completes it before returning.
    fn execute(&self, request: Request);
    /// See [`crate::Queue::discard`]; the default does nothing.
    fn discard(&self, _offset: u64, _len: u64) -> Result<(), IoError> {
        Ok(())
    }
    /// Whether discarded bytes read as zeroes.
    fn discard_zeroes(&self) -> bool {
        false
    }
    /// See [`crate::Queue::write_zeroes`]; `Ok(false)` if the device has no cheap way.
    fn write_zeroes(&self, _offset: u64, _len: u64) -> Result<bool, IoError> {
        Ok(false)
    }
}

/// How to open a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only; a shared lock.
    ReadOnly,
    /// Reads and writes. An exclusive lock refuses a second opener. A claim on a block device makes
    /// the system refuse to mount it.
    ReadWrite,
    /// As [`OpenMode::ReadWrite`], for a block device that the caller has claimed already, for
    /// example by a mount of type `fuseblk`.
    ReadWriteClaimed,
}
