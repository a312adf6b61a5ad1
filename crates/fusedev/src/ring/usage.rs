//! Threads and memory of the rings of a connection.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts of threads and memory.
#[derive(Debug, Default)]
pub struct Usage {
    threads: AtomicUsize,
    memory: AtomicUsize,
}

impl Usage {
    pub fn add_thread(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// `bytes` more of the payloads have been used.
    pub fn add_memory(&self, bytes: usize) {
        self.memory.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` have been given back.
    pub fn remove_memory(&self, bytes: usize) {
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Threads that have served requests.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Bytes of the payloads whose pages may exist.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }
}
