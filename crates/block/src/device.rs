//! What a device is, and how one is named.

use crate::Request;
use std::io;

/// Something that stores bytes. Any number of threads may submit at once.
pub trait Device: Send + Sync {
    /// Path or URL, for messages.
    fn name(&self) -> &str;
    /// Bytes it holds.
    fn capacity(&self) -> u64;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// Bytes a single request may have.
    fn max_request_bytes(&self) -> u64 {
        1 << 20
    }
    /// Starts every request; each is completed once ([`Request::complete`]), on any thread, in any order.
    fn submit(&self, batch: Vec<Request>);
    /// Carries one request out on the calling thread and completes it before returning.
    fn execute(&self, request: Request);
    /// See [`crate::Queue::discard`]; the default does nothing.
    fn discard(&self, _offset: u64, _len: u64) -> Result<(), crate::IoError> {
        Ok(())
    }
    /// See [`crate::Queue::write_zeroes`]; `Ok(false)` where the device has no cheap way.
    fn write_zeroes(&self, _offset: u64, _len: u64) -> Result<bool, crate::IoError> {
        Ok(false)
    }
}

/// How to open a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only; a shared lock.
    ReadOnly,
    /// Reads and writes; an exclusive lock, so that a second opener is refused.
    ReadWrite,
}

/// A parsed device name: a plain path, or `mem:SIZE` (later `sim:…`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceUrl {
    /// An image file or a block device.
    Path(std::path::PathBuf),
    /// Memory of this many bytes.
    Memory(u64),
}
impl DeviceUrl {
    /// Parses a path or URL.
    pub fn parse(text: &str) -> io::Result<DeviceUrl> {
        let _ = text;
        todo!()
    }
}
/// Opens a device and puts a queue in front of it.
pub fn open(url: &DeviceUrl, mode: OpenMode) -> io::Result<std::sync::Arc<crate::Queue>> {
    let _ = (url, mode);
    todo!()
}
