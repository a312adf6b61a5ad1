//! Loads into the processor's cache ahead of their use.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Begins to load `bytes` bytes at an address into the processor's cache. Nothing may be there: the
/// address is a hint.
#[inline]
pub(crate) fn prefetch(address: usize, bytes: usize) {
    let first = address & !(LINE - 1);
    for line in (first..address.saturating_add(bytes)).step_by(LINE) {
        prefetch_line(line);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction reads nothing that the program can see, and an address that is not
    // mapped causes no fault.
    unsafe { _mm_prefetch(std::ptr::without_provenance(address), _MM_HINT_T0) }
}

/// The standard library has no stable function for other processors.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line(_: usize) {}
