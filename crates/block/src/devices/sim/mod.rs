//! Modelled devices: real storage of bytes, modelled time. See `docs/MODELLED_DEVICES.md`.
//!
//! ```text
//!   url · params    sim:ssd,size=8GiB,read_us=60
//!   model           when a request ends: pure, over a clock that is given
//!     flash · raid0 · disk (lookahead, disk_cache)      over admission and link
//!   schedule        which request is to be completed when
//!   runner · clock  the schedule in real time: one thread that completes requests at their ends
//!   store · pages   where the bytes are
//! ```

mod admission;
mod clock;
mod disk;
mod disk_cache;
mod flash;
mod link;
mod lookahead;
mod model;
mod pages;
mod params;
mod raid0;
mod runner;
mod schedule;
mod store;
mod url;

pub use model::{Decision, Id, Io, Model, Ns};
pub use params::{DiskParams, FlashParams, RAID0_MEMBERS, Raid0Params};
pub use url::{Profile, SimUrl};

use crate::{Device, IoError, Op, OpenMode, Request};
use pages::Pages;
use runner::Runner;
use std::io;
use store::Store;

/// A device that takes as long as another would.
pub struct SimDevice {
    name: String,
    capacity: u64,
    read_only: bool,
    cheap_zeroes: bool,
    store: Store,
    runner: Runner,
}

impl SimDevice {
    /// Opens it: blank memory, or the file, locked.
    ///
    /// # Errors
    /// The system's, with the path; `InvalidInput` where the file has another size than the URL
    /// says; `ResourceBusy` where somebody else has the file.
    pub fn open(url: &SimUrl, mode: OpenMode) -> io::Result<SimDevice> {
        let (store, capacity) = match (url.file(), url.size()) {
            (None, size) => (Store::Memory(Pages::new()), size.unwrap_or(0)),
            (Some(path), size) => {
                let file = crate::devices::uring::open_buffered(path, mode)?;
                let capacity = file.capacity;
                if let Some(size) = size.filter(|size| *size != capacity) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!(
                            "{url}: {} has {capacity} bytes and not {size}; leave size out, or remove the file",
                            path.display()
                        ),
                    ));
                }
                (Store::File(Box::new(file)), capacity)
            }
        };
        Ok(SimDevice {
            name: url.to_string(),
            capacity,
            read_only: mode == OpenMode::ReadOnly,
            cheap_zeroes: !matches!(url.profile(), Profile::Hdd(_)),
            store,
            runner: Runner::start(Model::new(url.profile(), capacity))?,
        })
    }

    fn check(&self, op: Op, offset: u64, len: u64) -> Result<(), IoError> {
        let inside = offset
            .checked_add(len)
            .is_some_and(|end| end <= self.capacity);
        let errno = match op {
            Op::Flush => return Ok(()),
            Op::Write if self.read_only => libc::EROFS,
            _ if !inside => libc::EIO,
            _ => return Ok(()),
        };
        Err(IoError {
            op,
            offset,
            len,
            errno,
        })
    }

    /// The request, unless it cannot be carried out and was failed.
    fn sieve(&self, request: Request) -> Option<Request> {
        match self.check(request.op, request.offset, request.len) {
            Ok(()) => Some(request),
            Err(error) => {
                request.complete(Err(error));
                None
            }
        }
    }
}

impl Device for SimDevice {
    fn name(&self) -> &str {
        &self.name
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn submit(&self, batch: Vec<Request>) {
        let batch = batch.into_iter().filter_map(|r| self.sieve(r)).collect();
        self.runner.submit(batch, |r| self.store.transfer(r));
    }
    fn execute(&self, request: Request) {
        if let Some(request) = self.sieve(request) {
            self.runner.execute(request, |r| self.store.transfer(r));
        }
    }
    /// Takes no modelled time.
    fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.check(Op::Write, offset, len)?;
        match self.store.zero(offset, len)? {
            true => Ok(()),
            false => Err(IoError {
                op: Op::Write,
                offset,
                len,
                errno: libc::EOPNOTSUPP,
            }),
        }
    }
    fn discard_zeroes(&self) -> bool {
        true
    }
    /// Takes no modelled time, except on a disk, which has to write them.
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.check(Op::Write, offset, len)?;
        if self.cheap_zeroes {
            self.store.zero(offset, len)
        } else {
            Ok(false)
        }
    }
}
