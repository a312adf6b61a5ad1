//! A modelled device as a [`block::Device`].

use crate::model::Model;
use crate::pages::Pages;
use crate::profile::Profile;
use crate::runner::Runner;
use crate::store::Store;
use crate::url::SimUrl;
use block::devices::ImageFile;
use block::{Backend, Create, Device, IoError, Op, OpenMode, Request, Scheme};
use std::io;
use std::sync::Arc;

/// `sim:KIND,key=value,…`
pub const SCHEME: Scheme = Scheme {
    name: "sim",
    parse: |rest| Ok(Arc::new(SimUrl::parse(rest)?)),
};

impl Backend for SimUrl {
    fn open(&self, mode: OpenMode) -> io::Result<Box<dyn Device>> {
        Ok(Box::new(SimDevice::open(self, mode)?))
    }
    fn is_volatile(&self) -> bool {
        self.file().is_none()
    }
    /// No: `file=` names a file that the sandbox does not know.
    fn works_in_sandbox(&self) -> bool {
        false
    }
    fn create(&self) -> io::Result<()> {
        let Some((path, size)) = self.file().zip(self.size()) else {
            return Ok(());
        };
        match block::create_image(path, size, Create::New) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    }
}

/// A device that takes as long as the modelled one.
pub struct SimDevice {
    name: String,
    capacity: u64,
    read_only: bool,
    cheap_zeroes: bool,
    store: Store,
    runner: Runner,
}

impl SimDevice {
    /// Opens the device: blank memory, or the file, which it locks.
    ///
    /// # Errors
    /// The system's, with the path; `InvalidInput` if the file's size differs from the URL's;
    /// `ResourceBusy` if another process has the file open.
    pub fn open(url: &SimUrl, mode: OpenMode) -> io::Result<SimDevice> {
        let (store, capacity) = match (url.file(), url.size()) {
            (None, size) => (Store::Memory(Pages::new()), size.unwrap_or(0)),
            (Some(path), size) => {
                let file = ImageFile::open(path, mode)?;
                let capacity = file.capacity();
                if let Some(size) = size.filter(|size| *size != capacity) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!(
                            "{url}: {} has {capacity} bytes and not {size}; leave size out, or remove the file",
                            path.display()
                        ),
                    ));
                }
                (Store::File(file), capacity)
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

    /// Returns the request, or completes it with an error and returns `None`.
    fn admit(&self, request: Request) -> Option<Request> {
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
    fn is_rotating(&self) -> Option<bool> {
        None
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn submit(&self, batch: Vec<Request>) {
        let batch = batch.into_iter().filter_map(|r| self.admit(r)).collect();
        self.runner.submit(batch, |r| self.store.transfer(r));
    }
    fn execute(&self, request: Request) {
        if let Some(request) = self.admit(request) {
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
    /// Takes no modelled time, except on a disk, which has to write the zeroes.
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.check(Op::Write, offset, len)?;
        if self.cheap_zeroes {
            self.store.zero(offset, len)
        } else {
            Ok(false)
        }
    }
}
