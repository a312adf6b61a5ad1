//! The journal of a volume: starting handles, committing, checkpointing.
use crate::{Buffer, FreedExtent, Handle, JournalError, Overlay, Tid};
use block::Queue;
use cache::Budget;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Where a run of the journal's blocks lies on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalExtent {
    /// First block within the journal.
    pub logical: u32,
    /// First block on the volume.
    pub physical: u64,
    /// Blocks.
    pub len: u32,
}

/// When the client is asked to put its in-memory state into buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Handles are running beside this one: do most of the work here.
    Early,
    /// No handle is running and none can start: finish quickly. Credits are not counted.
    Locked,
}

/// What the journal asks of the file system above it.
pub trait JournalClient: Send + Sync {
    /// Serialise in-memory metadata (inodes, groups, super block) that the running transaction covers.
    fn write_back_state(&self, handle: &Handle<'_>, phase: Phase);
    /// Upper bound of the blocks that [`JournalClient::write_back_state`] would add now.
    fn pending_blocks(&self) -> u32;
    /// The transaction is durable; what it freed may be used again.
    fn committed(&self, tid: Tid, freed: &[FreedExtent]);
    /// The journal stopped for good.
    fn aborted(&self, error: &JournalError);
}

/// How a journal runs.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// How long a transaction may gather changes.
    pub commit_interval: Duration,
    /// Bytes in a block of the volume.
    pub block_size: u32,
    /// Whether the log is to carry checksums (csum v3); set for a volume with `metadata_csum`. Where it is `false` the
    /// journal keeps the format that its super block names.
    pub checksums: bool,
    /// The volume's UUID; becomes the seed of the log's checksums where the journal has none of its own.
    pub uuid: [u8; 16],
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalStats {
    /// Transactions committed.
    pub commits: u64,
    /// Blocks written to the log (descriptors and commit records included).
    pub logged_blocks: u64,
    /// Blocks written home by the checkpoint.
    pub checkpointed_blocks: u64,
    /// Times a handle had to wait for log space.
    pub stalls: u64,
}

/// A journal.
pub struct Journal {}

impl Journal {
    /// Opens the (recovered, clean) journal whose super block is journal block 0, marks it in use at the first commit and
    /// starts its background thread (commit every `commit_interval`, checkpoint when the log fills up).
    pub fn open(
        queue: Arc<Queue>,
        extents: Vec<JournalExtent>,
        budget: Arc<Budget>,
        options: JournalOptions,
    ) -> Result<Arc<Journal>, JournalError> {
        let _ = (queue, extents, budget, options);
        todo!()
    }
    /// A journal for a read-only volume: blocks can be read (through `overlay`, what an unrecovered log would have
    /// replayed), handles cannot start.
    pub fn read_only(
        queue: Arc<Queue>,
        overlay: Overlay,
        budget: Arc<Budget>,
        options: JournalOptions,
    ) -> Arc<Journal> {
        let _ = (queue, overlay, budget, options);
        todo!()
    }
    /// Connects the file system; before the first handle.
    pub fn set_client(&self, client: Weak<dyn JournalClient>) {
        let _ = client;
        todo!()
    }
    /// Joins the running transaction. May wait for a commit or for log space, so the caller must not hold what these need.
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, JournalError> {
        let _ = credits;
        todo!()
    }
    /// Credits that one handle can have at most.
    pub fn max_credits(&self) -> u32 {
        todo!()
    }
    /// A metadata block, read from the device if need be.
    pub fn get(&self, block: u64) -> Result<Arc<Buffer>, JournalError> {
        let _ = block;
        todo!()
    }
    /// Starts reading `blocks` that are not cached, adjacent ones in one request, and returns at once.
    pub fn prefetch(&self, blocks: &[u64]) {
        let _ = blocks;
        todo!()
    }
    /// The running transaction's number.
    pub fn running_tid(&self) -> Tid {
        todo!()
    }
    /// Makes everything up to and including `tid` durable; the calling thread does the commit if no other is at it.
    /// Returns at once if that has happened. Many callers share one commit.
    pub fn commit(&self, tid: Tid) -> Result<(), JournalError> {
        let _ = tid;
        todo!()
    }
    /// Whether `tid` is durable.
    pub fn is_committed(&self, tid: Tid) -> bool {
        let _ = tid;
        todo!()
    }
    /// Commits what is running and writes everything home; the log is empty afterwards.
    pub fn flush(&self) -> Result<(), JournalError> {
        todo!()
    }
    /// Flush, mark the journal clean, stop the background thread. Handles can no longer start.
    pub fn close(&self) -> Result<(), JournalError> {
        todo!()
    }
    /// Stops the journal after an error.
    pub fn abort(&self, why: &JournalError) {
        let _ = why;
        todo!()
    }
    /// Why it was stopped, if it was.
    pub fn error(&self) -> Option<JournalError> {
        todo!()
    }
    /// Counters since it was opened.
    pub fn stats(&self) -> JournalStats {
        todo!()
    }
}
