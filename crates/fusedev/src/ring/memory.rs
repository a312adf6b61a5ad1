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
use crate::channel::MAX_WRITE;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

/// Bytes of the payload: those of the largest read or write, as the kernel requires.
pub const PAYLOAD: usize = MAX_WRITE as usize;
/// Bytes of the payload that [`Memory::give_back`] keeps.
pub const KEPT: usize = 64 << 10;

/// The mapping of one entry.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    page: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread. The type gives out only raw
// pointers; who may use them is decided by `super::entry`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps memory, of which no page exists yet.
    pub fn map() -> io::Result<Memory> {
        let page = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                page + PAYLOAD,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Memory { base, page })
    }

    pub fn headers(&self) -> *mut Headers {
        self.base.as_ptr().cast()
    }

    /// Start of the payload, [`PAYLOAD`] bytes.
    pub fn payload(&self) -> *mut u8 {
        // SAFETY: the mapping is a page longer than the payload.
        unsafe { self.base.as_ptr().add(self.page) }
    }

    /// Returns the pages behind the first [`KEPT`] bytes of the payload to the system. Their
    /// contents become zero.
    ///
    /// # Safety
    /// Neither this process nor the kernel uses the payload during the call, and neither needs its
    /// contents any more.
    pub unsafe fn give_back(&self) {
        // SAFETY: the range is a part of the mapping, and the caller promises that nobody uses it.
        let done = unsafe {
            let start = self.payload().add(KEPT).cast::<c_void>();
            madvise(start, PAYLOAD - KEPT, Advice::LinuxDontNeed)
        };
        if let Err(error) = done {
            tracing::debug!("memory of a ring cannot be given back: {error}");
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was created by `map` with this length. Nobody has a pointer to it:
        // the owner is dropped.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.page + PAYLOAD) };
        if let Err(error) = unmapped {
            tracing::error!("memory of a ring cannot be unmapped: {error}");
        }
    }
}
