//! The bytes of a modelled device, in memory or in a sparse file.
//!
//! Moving them costs no modelled time. The file is written through the page cache of the host and
//! never synced: it survives a crash of the process, but not of the host.

use crate::pages::Pages;
use block::devices::ImageFile;
use block::{Durability, IoError, Op, Request};

pub(crate) enum Store {
    Memory(Pages),
    File(ImageFile),
}

impl Store {
    /// Moves the bytes of `request`, without completing it.
    pub(crate) fn transfer(&self, request: &mut Request) -> Result<(), IoError> {
        if request.op == Op::Flush {
            return Ok(());
        }
        match self {
            Store::Memory(pages) => {
                request.copy(
                    |at, out| pages.read(at, out),
                    |at, buf| pages.write(at, buf),
                );
                Ok(())
            }
            Store::File(file) => {
                // Durability is modelled; the host's is not needed.
                let asked = std::mem::replace(&mut request.durability, Durability::Cached);
                let result = file.transfer(request);
                request.durability = asked;
                result
            }
        }
    }

    /// Makes a span read as zeroes. `Ok(false)`: the file system cannot.
    pub(crate) fn zero(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        match self {
            Store::Memory(pages) => {
                pages.zero(offset, len);
                Ok(true)
            }
            Store::File(file) => file.punch_hole(offset, len),
        }
    }
}
