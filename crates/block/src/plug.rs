//! The plug: gathers bios, sorts them by offset, merges what is adjacent, and submits one batch.
//!
//! A plug is a value that the caller holds over as much work as belongs together (a whole pass of the flusher over
//! many inodes) and passes down as `&mut Plug`. It flushes itself past a byte or request limit or when it has been
//! held too long, so that memory is bounded and the device does not idle.

use crate::{Bio, Queue};

/// Bios held back for merging. Dropping it submits them.
pub struct Plug<'q> {
    #[allow(dead_code)]
    queue: &'q Queue,
    #[allow(dead_code)]
    bios: Vec<Bio>,
}
impl<'q> Plug<'q> {
    #[allow(dead_code)]
    pub(crate) fn new(queue: &'q Queue) -> Plug<'q> {
        Plug {
            queue,
            bios: Vec::new(),
        }
    }
    /// Takes a bio; may flush.
    pub fn add(&mut self, bio: Bio) {
        let _ = bio;
        todo!()
    }
    /// Submits what is held.
    pub fn flush(&mut self) {
        todo!()
    }
    /// Bytes held back.
    pub fn bytes(&self) -> u64 {
        todo!()
    }
}
