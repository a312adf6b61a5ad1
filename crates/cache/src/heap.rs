//! The process's heap.

/// Asks the allocator to give memory that is free back to the system. Only glibc's has to be asked:
/// it returns what lies at the top of an arena by itself, and what lies between blocks in use
/// never.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called at any time, from any thread; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
