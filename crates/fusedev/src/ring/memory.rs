//! Memory that the kernel and this process share for one entry of a queue.
//!
//! ```text
//!  page 0    Headers     request header and arguments, then the reply's header
//!  page 1    payload     names or data of the request, then data of the reply
//!    ...
//! ```
//!
//! Pages of the payload exist from their first use until [`Memory::give_back`].

use super::abi::Headers;
use crate::buffers::MAX_WRITE;
use crate::mapping::Mapping;
use std::io;

/// Bytes of the payload: those of the largest read or write, as the kernel requires.
pub const PAYLOAD: usize = MAX_WRITE as usize;
/// Bytes of the payload that [`Memory::give_back`] keeps.
pub const KEPT: usize = 64 << 10;

/// The mapping of one entry.
#[derive(Debug)]
pub struct Memory {
    mapping: Mapping,
    page: usize,
}

impl Memory {
    /// Maps memory, of which no page exists yet.
    pub fn map() -> io::Result<Memory> {
        let page = rustix::param::page_size();
        let mapping = Mapping::new(page + PAYLOAD)?;
        Ok(Memory { mapping, page })
    }

    pub fn headers(&self) -> *mut Headers {
        self.mapping.base().cast()
    }

    /// Start of the payload, [`PAYLOAD`] bytes.
    pub fn payload(&self) -> *mut u8 {
        // SAFETY: the mapping is a page longer than the payload.
        unsafe { self.mapping.base().add(self.page) }
    }

    /// Returns the pages behind the first [`KEPT`] bytes of the payload to the system. Their
    /// contents become zero.
    ///
    /// # Safety
    /// Neither this process nor the kernel uses the payload during the call, and neither needs its
    /// contents any more.
    pub unsafe fn give_back(&self) {
        // SAFETY: the caller promises that nobody uses the payload.
        unsafe { self.mapping.give_back(self.page + KEPT) };
    }
}
