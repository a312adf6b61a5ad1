//! An image file or block device behind io_uring, with direct I/O.

mod direct;
mod open;

use crate::{Device, IoError, OpenMode, Request};
use open::Opened;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// An image file or a block device.
pub struct UringDevice {
    name: String,
    mode: OpenMode,
    opened: Arc<Opened>,
}

impl UringDevice {
    /// Opens and locks the image file or block device at `path`.
    ///
    /// # Errors
    /// The system's, with the path; `ResourceBusy` where somebody else has it.
    pub fn open(path: &Path, mode: OpenMode) -> io::Result<UringDevice> {
        let opened = open::open(path, mode)?;
        opened
            .probe()
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(UringDevice {
            name: path.display().to_string(),
            mode,
            opened: Arc::new(opened),
        })
    }

    /// Whether I/O bypasses the host's page cache.
    pub fn is_direct(&self) -> bool {
        self.opened.direct
    }
}

impl Device for UringDevice {
    fn name(&self) -> &str {
        &self.name
    }
    fn capacity(&self) -> u64 {
        self.opened.capacity
    }
    fn read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }
    fn submit(&self, batch: Vec<Request>) {
        batch.into_iter().for_each(|r| self.opened.execute(r));
    }
    fn execute(&self, request: Request) {
        self.opened.execute(request);
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.opened.discard(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.opened.write_zeroes(offset, len)
    }
}
