//! An image file or block device, with direct I/O and io_uring where they are to be had.
//!
//! Asynchronous requests go to a ring, or to a few threads where the system has no io_uring for us;
//! lone requests that somebody waits for are carried out on the calling thread.

mod direct;
mod open;
mod ring;
mod threads;

use crate::{Device, IoError, OpenMode, Request};
pub(super) use open::{Opened, open_buffered};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How asynchronous requests are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEngine {
    /// By io_uring where the system allows it, by threads elsewhere.
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
    /// Before `opened`: dropping the engine waits for what is in flight.
    engine: Engine,
    opened: Arc<Opened>,
}

impl UringDevice {
    /// Opens and locks the image file or block device at `path`.
    ///
    /// # Errors
    /// The system's, with the path; `ResourceBusy` where somebody else has it.
    pub fn open(path: &Path, mode: OpenMode) -> io::Result<UringDevice> {
        UringDevice::open_with(path, mode, IoEngine::Auto)
    }

    /// The same with a choice of engine.
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
