//! The plug: gathers bios, sorts them by offset, merges what is adjacent, and submits one batch.
//!
//! A plug is a value that the caller holds over as much work as belongs together (a whole pass of
//! the flusher over many inodes) and passes down as `&mut Plug`. It flushes itself past a byte or
//! request limit or when it has been held too long, so that memory is bounded and the device does
//! not idle.
//!
//! The idea is Dave Chinner's (Linux 3.11, 2013, and 4.3, 2015): merging needs the plug above the
//! loop over inodes. Before it the kernel had a plug for each mapping, and the ablation
//! (`plug=off`, [`Queue::set_plugging`]) is just that: whoever writes several files under one plug
//! calls [`Plug::boundary`] between two of them, and the plug flushes there.

use crate::{Bio, Queue};
use std::time::{Duration, Instant};

/// Bytes held back at most.
pub const PLUG_BYTES: u64 = 16 << 20;
/// Bios held back at most.
pub const PLUG_BIOS: usize = 8192;
/// How long the oldest bio may wait for company; looked at when the next one comes.
pub const PLUG_AGE: Duration = Duration::from_millis(10);

/// Bios held back for merging. Dropping it submits them.
pub struct Plug<'q> {
    queue: &'q Queue,
    bios: Vec<Bio>,
    bytes: u64,
    /// When the oldest was taken; meaningful while there is one.
    since: Instant,
}

impl<'q> Plug<'q> {
    pub(crate) fn new(queue: &'q Queue) -> Plug<'q> {
        Plug {
            queue,
            bios: Vec::new(),
            bytes: 0,
            since: sync::time::now(),
        }
    }

    /// Takes a bio; may flush.
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

    /// What follows belongs to another file than what was added so far. Flushes if the plug may not
    /// reach across files.
    pub fn boundary(&mut self) {
        if !self.queue.plugging() {
            self.flush();
        }
    }

    /// Submits what is held.
    pub fn flush(&mut self) {
        self.bytes = 0;
        if !self.bios.is_empty() {
            self.queue.submit_batch(&mut self.bios);
            self.bios.clear();
        }
    }

    /// Submits what is held, on behalf of a caller that is about to wait for it: see
    /// [`Queue::submit_inline`].
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

    /// Whether nothing is held back.
    pub fn is_empty(&self) -> bool {
        self.bios.is_empty()
    }

    /// The queue it submits to.
    pub fn queue(&self) -> &'q Queue {
        self.queue
    }
}

impl Drop for Plug<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
