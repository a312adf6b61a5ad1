//! Metadata blocks in memory.
use block::Buf;
use std::sync::Arc;

/// Stamps a block with what depends on all its bytes (its checksum), once per commit instead of once per change.
#[derive(Clone, Copy)]
pub struct Seal {
    /// Called as `seal(seed, block number, bytes)` on the content that goes to the log.
    pub seal: fn(u32, u64, &mut [u8]),
    /// First argument.
    pub seed: u32,
}

/// One metadata block. Its content is a shared buffer: readers clone a reference, the commit keeps one, and whoever
/// changes it while it is shared works on a copy.
pub struct Buffer {}
impl Buffer {
    /// Its block number on the volume.
    pub fn block(&self) -> u64 {
        todo!()
    }
    /// Its content now.
    pub fn data(&self) -> Buf {
        todo!()
    }
    /// Runs `check` on the content unless an earlier check passed; for verifying what came from the device once.
    pub fn verify_once<E>(&self, check: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let _ = check;
        todo!()
    }
}
/// Shorthand.
pub type BufferRef = Arc<Buffer>;
