//! The process's heap.

/// The bytes that a block of the heap takes, with the allocator's header (glibc's `malloc`: 8
/// bytes, and a multiple of 16).
pub const fn heap_bytes(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16)
}

/// Returns free memory to the system. glibc returns memory at the top of an arena by itself, and
/// memory between blocks in use only on request.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim may be called at any time from any thread; it changes free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
