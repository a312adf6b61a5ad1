//! The calls from the journal up to the file system.

use super::handle::Handle;
use crate::{FreedExtent, JournalError, Tid};

/// When the client is asked to write its in-memory state into buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before a commit that is expected soon, concurrently with handles. The client writes only
    /// state that will not change until then.
    Ahead,
    /// At the start of a commit, concurrently with handles. The client does most of the work here.
    Early,
    /// No handle runs and none can start: the client must finish quickly. Credits are not counted.
    Locked,
}

/// The file system above a journal. Only [`JournalClient::before_commit`] may start a handle,
/// commit or flush.
pub trait JournalClient: Send + Sync {
    /// The background thread is about to commit. The client may add to the running transaction. No
    /// lock is held.
    fn before_commit(&self) {}
    /// Writes in-memory metadata (inodes, groups, super block) of the running transaction into
    /// buffers.
    fn write_back_state(&self, handle: &Handle<'_>, phase: Phase);
    /// Returns an upper bound of the blocks that [`JournalClient::write_back_state`] would add now.
    /// Every start of a handle calls this: it must be cheap and take no lock.
    fn pending_blocks(&self) -> u32;
    /// Returns whether [`JournalClient::write_back_state`] would add something now, for a caller
    /// without a handle. Takes no lock that is held over I/O.
    fn has_changes(&self) -> bool {
        self.pending_blocks() > 0
    }
    /// The transaction is durable, and the blocks that it freed may be used again.
    fn committed(&self, tid: Tid, freed: &[FreedExtent]);
    /// The journal stopped for good. Called once, on the thread that met the error, which may hold
    /// a handle.
    fn aborted(&self, error: &JournalError);
}
