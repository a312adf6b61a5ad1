//! The queue in front of a device: statistics, plugs, splitting to the device's limits, and blocking conveniences.

use crate::{Bio, Buf, Class, Device, EndIo, IoError, Plug, Stats};
use std::sync::Arc;

/// A device with its plug policy and counters.
pub struct Queue {
    #[allow(dead_code)]
    device: Box<dyn Device>,
    stats: Stats,
}
impl Queue {
    /// Puts a queue in front of `device`.
    pub fn new(device: Box<dyn Device>) -> Arc<Queue> {
        let _ = device;
        todo!()
    }
    /// What the device is called (its path or URL).
    pub fn name(&self) -> &str {
        todo!()
    }
    /// Bytes the device holds.
    pub fn capacity(&self) -> u64 {
        todo!()
    }
    /// Whether writes are refused.
    pub fn read_only(&self) -> bool {
        todo!()
    }
    /// Counters since it was opened.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
    /// Whether plugs hold anything back (the `plug=off` ablation).
    pub fn set_plugging(&self, on: bool) {
        let _ = on;
        todo!()
    }
    /// Starts gathering.
    pub fn plug(&self) -> Plug<'_> {
        Plug::new(self)
    }
    /// Submits one bio at once.
    pub fn submit(&self, bio: Bio) {
        let _ = bio;
        todo!()
    }
    /// Submits sorted or unsorted bios as one batch of merged requests.
    pub fn submit_batch(&self, bios: &mut Vec<Bio>) {
        let _ = bios;
        todo!()
    }
    /// Starts a flush.
    pub fn submit_flush(&self, end: Arc<dyn EndIo>, tag: u64) {
        let _ = (end, tag);
        todo!()
    }
    /// Reads `len` bytes at `offset` and waits; one buffer per `unit` bytes (`unit` ≤ page size). A lone request is
    /// executed by the calling thread (no hand-over to the completion thread).
    pub fn read(
        &self,
        offset: u64,
        len: usize,
        unit: usize,
        class: Class,
    ) -> Result<Vec<Buf>, IoError> {
        let _ = (offset, len, unit, class);
        todo!()
    }
    /// Writes `bufs` at `offset` and waits.
    pub fn write(&self, offset: u64, bufs: &[Buf], class: Class, fua: bool) -> Result<(), IoError> {
        let _ = (offset, bufs, class, fua);
        todo!()
    }
    /// Submits `bios` (already counted on `done` by the caller) and waits for `done`; a single merged request is
    /// executed by the calling thread.
    pub fn submit_and_wait(
        &self,
        bios: &mut Vec<Bio>,
        done: &crate::Completion,
    ) -> Result<(), IoError> {
        let _ = (bios, done);
        todo!()
    }
    /// Makes every completed write durable and waits. Skipped where no write has completed since the last flush began.
    pub fn flush(&self) -> Result<(), IoError> {
        todo!()
    }
    /// Tells the device that `len` bytes at `offset` hold nothing (they read as zeroes or as before).
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let _ = (offset, len);
        todo!()
    }
    /// Makes `len` bytes at `offset` read as zeroes, cheaply where the device can (punch hole, zero range).
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let _ = (offset, len);
        todo!()
    }
}
