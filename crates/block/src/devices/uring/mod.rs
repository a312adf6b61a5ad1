//! An image file or block device, with direct I/O and io_uring if the system has them.
//!
//! Asynchronous requests go to a ring, or to a few threads if io_uring is not available. A lone
//! request whose caller waits for it is executed by the calling thread.

mod direct;
mod open;
mod ring;
mod threads;

use crate::{Device, IoError, OpenMode, Request};
use open::Opened;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How asynchronous requests are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEngine {
    /// By io_uring if the system allows it, otherwise by threads.
    Auto,
    /// By threads (for comparison, and to test the fallback).
    Threads,
}

enum Engine {
    Ring(ring::Ring),
    Threads(threads::Threads),
}

/// An image file or a block device.
pub struct UringDevice {
    name: String,
    mode: OpenMode,
    /// Before `opened`: dropping the engine waits for the requests in flight.
    engine: Engine,
    opened: Arc<Opened>,
}

impl UringDevice {
    /// Opens and locks the image file or block device at `path`.
    ///
    /// # Errors
    /// The system's, with the path; `ResourceBusy` if another process has it open.
    pub fn open(path: &Path, mode: OpenMode) -> io::Result<UringDevice> {
        UringDevice::open_with(path, mode, IoEngine::Auto)
    }

    /// As [`UringDevice::open`], with a choice of engine.
    ///
    /// # Errors
    /// As for [`UringDevice::open`].
    pub fn open_with(path: &Path, mode: OpenMode, engine: IoEngine) -> io::Result<UringDevice> {
        let opened = Arc::new(open::open(path, mode)?);
        opened
            .probe()
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        let engine = match engine {
            IoEngine::Auto => match ring::Ring::start(opened.clone()) {
                Ok(ring) => Engine::Ring(ring),
                Err(e) => {
                    tracing::warn!(error = %e, "io_uring is not available; using threads");
                    Engine::Threads(threads::Threads::start(opened.clone())?)
                }
            },
            IoEngine::Threads => Engine::Threads(threads::Threads::start(opened.clone())?),
        };
        Ok(UringDevice {
            name: path.display().to_string(),
            mode,
            engine,
            opened,
        })
    }

    /// Whether I/O bypasses the host's page cache.
    pub fn is_direct(&self) -> bool {
        self.opened.direct
    }

    /// Whether asynchronous requests go through io_uring.
    pub fn is_uring(&self) -> bool {
        matches!(self.engine, Engine::Ring(_))
    }
}

/// An image file that the calling thread reads and writes through the page cache of the host. Other
/// crates build devices on it.
pub struct ImageFile(Opened);

impl ImageFile {
    /// Opens and locks the image file at `path`.
    ///
    /// # Errors
    /// As for [`UringDevice::open`]; `InvalidInput` if `path` is not a regular file.
    pub fn open(path: &Path, mode: OpenMode) -> io::Result<ImageFile> {
        open::open_buffered(path, mode).map(ImageFile)
    }

    /// Bytes, a multiple of [`crate::SECTOR`].
    pub fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// The file.
    pub(super) fn file(&self) -> &std::fs::File {
        &self.0.file
    }

    /// Moves the bytes of `request` without completing it.
    ///
    /// # Errors
    /// The file system's.
    pub fn transfer(&self, request: &mut Request) -> Result<(), IoError> {
        let result = self.0.carry_out(request, 0);
        result.map_err(|errno| request.error(errno))
    }

    /// Discards a span, which reads as zeroes then. `Ok(false)`: the file system cannot do it.
    ///
    /// # Errors
    /// The file system's.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.0.punch_hole(offset, len)
    }
}

impl Device for UringDevice {
    fn name(&self) -> &str {
        &self.name
    }
    fn capacity(&self) -> u64 {
        self.opened.capacity()
    }
    fn grow(&self, at_least: u64) -> io::Result<u64> {
        self.opened.grow(at_least)
    }
    fn sector_size(&self) -> u64 {
        self.opened.sector_size()
    }
    fn is_rotating(&self) -> Option<bool> {
        // The system's flag is wrong for many virtual disks.
        None
    }
    fn read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }
    fn submit(&self, batch: Vec<Request>) {
        match &self.engine {
            Engine::Ring(ring) => ring.submit(batch),
            Engine::Threads(threads) => threads.submit(batch),
        }
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
