//! The plug: gathers bios, sorts them by offset, merges what is adjacent, and submits one batch.
//!
//! A plug is a value that the caller holds over work that belongs together (a whole pass of the
//! flusher over many inodes) and passes down as `&mut Plug`. It flushes itself at a limit of bytes,
//! bios or age, so that memory is bounded and the device does not idle.
//!
//! The idea is Dave Chinner's (Linux 3.11, 2013, and 4.3, 2015): merging needs the plug above the
//! loop over inodes. Before it the kernel had a plug for each mapping, and the ablation
//! (`plug=off`, [`Queue::set_plugging`]) does the same: a caller that writes several files under
//! one plug calls [`Plug::boundary`] between two files, and the plug flushes there.

use crate::{Bio, Queue};
use std::time::{Duration, Instant};

/// The most bytes held back.
pub const PLUG_BYTES: u64 = 16 << 20;
/// The most bios held back.
pub const PLUG_BIOS: usize = 8192;
/// The age of the oldest bio at which the next bio flushes the plug.
pub const PLUG_AGE: Duration = Duration::from_millis(10);

/// Bios held back for merging. Dropping it submits them.
pub struct Plug<'q> {
    queue: &'q Queue,
    bios: Vec<Bio>,
    bytes: u64,
    /// When the oldest bio was added; meaningless without bios.
    since: Instant,
}

impl<'q> Plug<'q> {
    pub(super) fn new(queue: &'q Queue) -> Plug<'q> {
        Plug {
            queue,
            bios: Vec::new(),
            bytes: 0,
            since: sync::time::now(),
        }
    }

    /// Adds a bio; may flush.
    pub fn add(&mut self, bio: Bio) {
        let now = sync::time::now();
        if self.bios.is_empty() {
            self.since = now;
        }
        self.bytes += bio.len();
        self.bios.push(bio);
        if self.bytes >= PLUG_BYTES
            || self.bios.len() >= PLUG_BIOS
            || now.duration_since(self.since) >= PLUG_AGE
        {
            self.flush();
        }
    }

    /// Marks the end of a file. Flushes if the plug may not merge across files.
    pub fn boundary(&mut self) {
        if !self.queue.plugging() {
            self.flush();
        }
    }

    /// Submits the held bios.
    pub fn flush(&mut self) {
        self.bytes = 0;
        if !self.bios.is_empty() {
            self.queue.submit_batch(&mut self.bios);
            self.bios.clear();
        }
    }

    /// Submits the held bios for a caller that waits for them next: see [`Queue::submit_inline`].
    pub fn flush_inline(&mut self) {
        self.bytes = 0;
        if !self.bios.is_empty() {
            self.queue.submit_inline(&mut self.bios);
            self.bios.clear();
        }
    }

    /// Bytes held back.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bios held back.
    pub fn len(&self) -> usize {
        self.bios.len()
    }

    /// Whether no bio is held back.
    pub fn is_empty(&self) -> bool {
        self.bios.is_empty()
    }

    /// The queue to which the plug submits.
    pub fn queue(&self) -> &'q Queue {
        self.queue
    }
}

impl Drop for Plug<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
