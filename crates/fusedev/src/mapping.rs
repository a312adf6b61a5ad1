//! Memory from the system itself: its pages exist from their first use, and are returned at once.
//!
//! Buffers of requests are large, many, and rarely used in full. The allocator would keep them.

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::{self, NonNull};

/// Anonymous memory of this process.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread. Safe methods follow the rules of
// references; who uses the pointer of `base` has to order its uses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeroes, of which no page exists yet.
    ///
    /// # Errors
    /// The system, or a limit of this process, allows no more memory.
    pub fn new(len: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { base, len })
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes, zeroed by the system, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.len) }
    }

    /// Returns all pages to the system. The contents become zero.
    pub fn clear(&mut self) {
        // SAFETY: `self` is borrowed for writing, so nobody uses the memory.
        unsafe { self.give_back(0) };
    }

    /// Returns the pages behind the first `kept` bytes to the system. Their contents become zero.
    ///
    /// # Safety
    /// Neither this process nor the kernel uses these bytes during the call. `kept` is a multiple
    /// of the page size.
    pub unsafe fn give_back(&self, kept: usize) {
        let rest = self.len.saturating_sub(kept);
        // SAFETY: the range is a part of the mapping, and the caller promises that nobody uses it.
        let done = unsafe {
            let start = self.base().add(self.len - rest);
            madvise(start.cast(), rest, Advice::LinuxDontNeed)
        };
        if let Err(error) = done {
            tracing::debug!("memory of requests cannot be given back: {error}");
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was created by `new` with this length. Nobody has a pointer to it:
        // the owner is dropped.
        let unmapped = unsafe { munmap(self.base().cast(), self.len) };
        if let Err(error) = unmapped {
            tracing::error!("memory of requests cannot be unmapped: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the mapping that are in memory.
    fn resident(mapping: &Mapping) -> usize {
        let page = rustix::param::page_size();
        let mut pages = vec![0_u8; mapping.len.div_ceil(page)];
        // SAFETY: the range is the mapping, and there is a byte for each of its pages.
        let done = unsafe {
            libc::mincore(
                mapping.base().cast(),
                mapping.len,
                pages.as_mut_ptr().cast(),
            )
        };
        assert_eq!(done, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count() * page
    }

    #[test]
    fn pages_exist_from_their_first_use_until_they_are_given_back() {
        let mut mapping = Mapping::new(1 << 20).unwrap();
        assert_eq!(resident(&mapping), 0);
        mapping.bytes().fill(7);
        assert_eq!(resident(&mapping), 1 << 20);
        // SAFETY: nobody has a reference to the bytes.
        unsafe { mapping.give_back(64 << 10) };
        assert_eq!(resident(&mapping), 64 << 10);
        assert_eq!(mapping.bytes()[(64 << 10) - 1], 7);
        assert_eq!(mapping.bytes()[64 << 10], 0);
        mapping.clear();
        assert_eq!(resident(&mapping), 0);
    }
}
