//! Where the bytes of a modelled device are: in memory, or in a sparse file.
//!
//! Moving them costs no modelled time, and as little real time as can be. The file is written
//! through the page cache of the host and never synced: it outlives the process, not the host.

use super::pages::Pages;
use crate::devices::uring::Opened;
use crate::{IoError, Op, Payload, Request};

pub(super) enum Store {
    Memory(Pages),
    File(Box<Opened>),
}

impl Store {
    /// Moves the bytes of `request`, without completing it.
    pub(super) fn transfer(&self, request: &mut Request) -> Result<(), IoError> {
        if request.op == Op::Flush {
            return Ok(());
        }
        match self {
            Store::Memory(pages) => {
                let mut at = request.offset;
                for bio in &mut request.bios {
                    at = move_bio(pages, at, &mut bio.payload);
                }
                Ok(())
            }
            Store::File(file) => {
                // Durability is modelled: the host is not asked for any.
                let fua = std::mem::replace(&mut request.flags.fua, false);
                let result = file.carry_out(request, 0);
                request.flags.fua = fua;
                result.map_err(|errno| request.error(errno))
            }
        }
    }

    /// Makes a span read as zeroes. `Ok(false)` where the host of the file has no cheap way.
    pub(super) fn zero(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        match self {
            Store::Memory(pages) => {
                pages.zero(offset, len);
                Ok(true)
            }
            Store::File(file) => file.punch_hole(offset, len),
        }
    }
}

/// Moves a bio's bytes; the offset after it.
fn move_bio(pages: &Pages, mut at: u64, payload: &mut Payload) -> u64 {
    match payload {
        Payload::Write(bufs) => {
            for buf in bufs {
                pages.write(at, buf);
                at += buf.len() as u64;
            }
        }
        Payload::Read(bufs) => {
            for buf in bufs {
                pages.read(at, buf);
                at += buf.len() as u64;
            }
        }
        Payload::None => {}
    }
    at
}
