//! The process's heap.

/// Returns free memory to the system. glibc returns memory at the top of an arena by itself, and
/// memory between blocks in use only on request.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim may be called at any time from any thread; it changes free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
