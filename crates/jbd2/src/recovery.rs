//! Replay of the log after a crash.
use crate::{JournalError, JournalExtent};
use block::{Buf, Queue};
use std::collections::HashMap;

/// What a log would have replayed, by block number of the volume.
pub type Overlay = HashMap<u64, Buf>;

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Transactions found in the log.
    pub transactions: u32,
    /// Blocks written home.
    pub replayed: u64,
    /// Blocks left out because a revoke record covers them.
    pub revoked: u64,
}
/// Replays the log onto the volume and leaves an empty one. Does nothing for a clean journal.
pub fn recover(
    queue: &Queue,
    extents: &[JournalExtent],
    block_size: u32,
) -> Result<RecoveryReport, JournalError> {
    let _ = (queue, extents, block_size);
    todo!()
}
/// The same without writing: what a replay would write.
pub fn recover_to_memory(
    queue: &Queue,
    extents: &[JournalExtent],
    block_size: u32,
) -> Result<(Overlay, RecoveryReport), JournalError> {
    let _ = (queue, extents, block_size);
    todo!()
}
