//! The journal of a volume: its state. The modules above operate on it.
//!
//! # Locks, in the order in which they are taken
//!
//! | lock                    | guards                                              | held over I/O        |
//! |-------------------------|-----------------------------------------------------|----------------------|
//! | `committing`            | the commit; one at a time                           | yes                  |
//! | `checkpointing`         | the checkpoint; one at a time                       | yes                  |
//! | `gate` (read: handles)  | which transaction is running                        | reads of metadata    |
//! | `tail`                  | the journal's super block                           | its own write        |
//! | `set`                   | committed blocks that are not home, the log's space | no                   |
//! | a shard of the cache    | the map from block to buffer                        | no                   |
//! | `held`                  | the map of data blocks that are in the log          | no                   |
//! | a buffer's state        | its content                                         | no                   |
//! | lists of a transaction  | themselves                                          | no                   |
//!
//! A thread that holds a handle (the gate, for reading) never waits for `committing` or
//! `checkpointing`. If the transaction is full, `start` commits it, or waits until another thread
//! has closed it, before it takes the gate. Only the commit waits for log space. While it closes
//! the transaction, it waits until all running handles have ended.
//!
//! # States
//!
//! ```text
//!  open ── close ──▶ closed (log empty, super block clean)
//!    │
//!    └── I/O error, abort, panic ──▶ aborted (log kept for recovery)
//!
//!  panic: in a change, a commit or a checkpoint
//! ```
//!
//! # Invariants
//!
//! - A transaction has at most a quarter of the log, reservations included. A commit that finds too
//!   little room writes a checkpoint of everything first, which empties the log. So each
//!   transaction fits.
//! - The first error stops the journal for good: no later transaction is committed.

pub(crate) mod background;
mod changes;
pub(crate) mod checkpoint_set;
mod client;
pub(crate) mod commit_lock;
pub(crate) mod flush_steps;
pub(crate) mod handle;
mod held_data;
pub(crate) mod log_format;
mod pacing;
pub(crate) mod stop_on_panic;

pub use client::{JournalClient, Phase};
pub use handle::Handle;

use crate::buffer_cache::BufferCache;
use crate::format::superblock::{JournalSuperblock, SUPERBLOCK_BYTES};
use crate::log::LogMap;
use crate::log_block::LogBlock;
use crate::tid::AtomicTid;
use crate::transaction::{Frozen, Transaction};
use crate::{Buffer, JournalError, JournalOptions, Overlay, Tid};
use background::{Background, CommitRequest};
use block::{Buf, BufMut, Queue, Reason};
use cache::Budget;
use changes::WriteBacks;
use checkpoint_set::CheckpointSet;
use commit_lock::CommitLock;
use flush_steps::FlushSteps;
use held_data::HeldData;
use log_format::Formats;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;
use sync::ShardedLock;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use sync::{Condvar, Mutex, Rank};
use units::FsBlock;

/// Counters since the journal was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalStats {
    /// Committed transactions.
    pub commits: u64,
    /// Blocks written to the log (descriptors and commit records included).
    pub logged_blocks: u64,
    /// Blocks written home by the checkpoint.
    pub checkpointed_blocks: u64,
    /// Commits that had to wait for log space.
    pub stalls: u64,
    /// Bytes of the log; 0 on a read-only volume.
    pub log_bytes: u64,
    /// Of them, bytes of committed transactions that have blocks which are not home.
    pub log_used_bytes: u64,
    /// Pauses of threads because the journal was about to be full.
    pub pauses: u64,
    /// Time of these pauses, of all threads.
    pub pause_time: Duration,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub commits: AtomicU64,
    pub logged_blocks: AtomicU64,
    pub checkpointed_blocks: AtomicU64,
    pub stalls: AtomicU64,
    pub pauses: AtomicU64,
    pub pause_ns: AtomicU64,
}

/// Blocks that a transaction may have even with a small memory budget: a quarter of the smallest
/// log.
const MIN_TRANSACTION: u64 = 256;

/// The fill of a full log ([`Journal::log_fill`]).
const FULL: u64 = 1024;
/// Above this fill the checkpoint thread writes.
pub(crate) const START: u64 = FULL / 2;
/// From this fill on checkpoints are not limited for the sake of other requests.
pub(crate) const URGENT: u64 = FULL / 8 * 5;

/// How the volume is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// The journal of a volume.
///
/// Dropping it without [`Journal::close`] writes nothing and leaves the volume as after a crash.
pub struct Journal {
    // Fixed while the journal is open.
    pub(crate) queue: Arc<Queue>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) options: JournalOptions,
    pub(crate) read_only: bool,
    client: OnceLock<Weak<dyn JournalClient>>,
    pub(crate) log: LogMap,
    pub(crate) formats: Formats,
    /// The journal's UUID, which tags contain.
    pub(crate) uuid: [u8; 16],
    /// First block and end of the log.
    pub(crate) bounds: (LogBlock, LogBlock),
    /// Most blocks of a transaction; 0 on a read-only volume.
    pub(crate) max_transaction: u32,

    // Of the handles.
    pub(crate) cache: Arc<BufferCache>,
    pub(crate) held: HeldData,
    /// The running transaction. Handles hold the lock for reading.
    pub(crate) gate: ShardedLock<Arc<Transaction>>,
    pub(crate) closed: AtomicBool,

    // Of the commit.
    pub(crate) committing: CommitLock,
    pub(crate) write_backs: WriteBacks,
    /// The number of the running transaction, readable without the gate.
    pub(crate) running: AtomicTid,
    /// The last durable transaction.
    pub(crate) committed: AtomicTid,
    /// The newest transaction whose commit a handle waits for, to start in the next one.
    pub(crate) awaited: AtomicTid,
    /// How often a commit has found the running transaction empty. No handle was running then, so a
    /// handle that waits for room fits.
    pub(crate) found_empty: AtomicU64,
    /// Blocks of a transaction that could not be written to the log. They stay in memory, so
    /// readers never see the older content of the device.
    pub(crate) lost: Mutex<Vec<Frozen>>,

    // Of the checkpoint, to which the commit adds.
    pub(crate) checkpointing: Mutex<FlushSteps>,
    /// Threads that wait for a checkpoint.
    pub(crate) checkpoint_waiters: AtomicUsize,
    /// Log blocks in use, readable without the lock of `set`.
    log_used: AtomicU32,
    /// Log blocks of the transaction that is being committed and is not in the set.
    pub(crate) log_claimed: AtomicU32,
    pub(crate) set: Mutex<CheckpointSet>,
    /// Signalled when checkpoint writes have completed.
    pub(crate) set_changed: Condvar,
    pub(crate) tail: Mutex<JournalSuperblock>,

    // Of all.
    pub(crate) background: Background,
    pub(crate) counters: Counters,
    failed: OnceLock<JournalError>,
}

impl Journal {
    pub(crate) fn new(
        queue: Arc<Queue>,
        log: LogMap,
        sb: JournalSuperblock,
        budget: Arc<Budget>,
        options: JournalOptions,
        overlay: Overlay,
        access: Access,
    ) -> Arc<Journal> {
        let bounds = (sb.first(), sb.log_end());
        let log_blocks = bounds.1 - bounds.0;
        let last = sb.sequence();
        let in_memory = budget.limit() / 8 / u64::from(options.block_size);
        let max_transaction = match access {
            Access::ReadOnly => 0,
            Access::ReadWrite => {
                u64::from(log_blocks / 4).min(in_memory.max(MIN_TRANSACTION)) as u32
            }
        };
        let cache = BufferCache::new(queue.clone(), options.block_size, budget.clone(), overlay);
        Arc::new(Journal {
            queue,
            budget,
            options,
            cache,
            held: HeldData::default(),
            read_only: access == Access::ReadOnly,
            log,
            formats: Formats::new(&sb),
            uuid: sb.uuid(),
            bounds,
            max_transaction,
            gate: Rank::Handle.sharded_lock(Arc::new(Transaction::new(last.next()))),
            running: AtomicTid::new(last.next()),
            committed: AtomicTid::new(last),
            awaited: AtomicTid::new(last),
            found_empty: AtomicU64::new(0),
            committing: CommitLock::default(),
            write_backs: WriteBacks::default(),
            checkpoint_waiters: AtomicUsize::new(0),
            log_used: AtomicU32::new(0),
            log_claimed: AtomicU32::new(0),
            checkpointing: Rank::Checkpoint.mutex(FlushSteps::default()),
            tail: Rank::JournalTail.mutex(sb),
            set: Rank::CheckpointSet.mutex(CheckpointSet::new(bounds.0)),
            set_changed: Condvar::new(),
            lost: Rank::LostBlocks.mutex(Vec::new()),
            client: OnceLock::new(),
            failed: OnceLock::new(),
            closed: AtomicBool::new(false),
            counters: Counters::default(),
            background: Background::default(),
        })
    }
    /// Sets the file system to call. Must be called before the first handle; later calls have no
    /// effect.
    pub fn set_client(&self, client: Weak<dyn JournalClient>) {
        let _ = self.client.set(client);
    }
    pub(crate) fn client(&self) -> Option<Arc<dyn JournalClient>> {
        self.client.get()?.upgrade()
    }
    /// Returns the blocks that the client would add to the running transaction.
    pub(crate) fn pending_blocks(&self) -> u32 {
        self.client().map_or(0, |client| client.pending_blocks())
    }

    /// Reserves credits in a transaction. Returns `false` if there is no room.
    ///
    /// Requests a commit once the transaction and the client's pending blocks fill half of the
    /// limit, so that handles find room while the commit runs.
    pub(crate) fn reserve(&self, transaction: &Transaction, credits: u32) -> bool {
        let reserved = transaction.reserve(credits);
        let revokes = self.formats.revoke_blocks(transaction.revoke_count());
        let members = u64::from(transaction.members())
            + u64::from(revokes)
            + u64::from(self.pending_blocks());
        let log_fill = self.log_fill();
        let enough = match log_fill > START / 2 {
            false => self.max_transaction / 2,
            true => self.max_transaction / 4 * 3,
        };
        if members >= u64::from(enough) && transaction.take_commit_request() {
            self.background.request_commit(CommitRequest::Large);
        }
        self.note_pressure(members, log_fill);
        let weight = members + u64::from(reserved);
        // A handle that is alone in a transaction always fits. The rest of the log has room for the
        // client's pending blocks, and a wait would not make them fewer.
        let alone = transaction.members() == 0 && reserved == credits;
        let fits = alone || weight <= u64::from(self.max_transaction);
        if !fits {
            transaction.unreserve(credits);
        }
        fits
    }
    /// Returns the most credits that one handle can have.
    pub fn max_credits(&self) -> u32 {
        self.max_transaction
    }
    /// Returns a metadata block, from the cache or the device.
    pub fn get(&self, block: FsBlock) -> Result<Arc<Buffer>, JournalError> {
        self.cache.get(block)
    }
    /// Returns whether a block is cached or being read.
    pub fn is_cached(&self, block: FsBlock) -> bool {
        self.cache.has(block)
    }
    /// Returns the content of a block if it is cached. This does not count as a use.
    pub fn peek(&self, block: FsBlock) -> Option<Buf> {
        self.cache.peek(block)
    }
    /// Starts to read those of `blocks` that are not cached, adjacent ones in one request. Those
    /// beyond the device are left out. Blocks that are read ahead and not used take at most an
    /// eighth of the memory budget; the last of `blocks` are left out where that is exceeded.
    pub fn prefetch(&self, blocks: &[FsBlock]) {
        self.cache.prefetch(blocks, Reason::Readahead);
    }
    /// The same for blocks into which a commit is about to write. No reader waits for them, so the
    /// throttle of background writes takes no notice.
    pub fn prefetch_for_commit(&self, blocks: &[FsBlock]) {
        self.cache.prefetch(blocks, Reason::Journal);
    }
    /// Returns the most blocks that a caller should read ahead at once: a power of two. It is
    /// smaller where memory is short, or where blocks that were read ahead are not used.
    pub fn read_ahead_limit(&self) -> u32 {
        self.cache.ahead_limit()
    }
    /// As [`Journal::prefetch`], for a few blocks of which the caller waits for one. The latency of
    /// the request counts as that of a metadata read.
    pub fn prefetch_around(&self, blocks: &[FsBlock]) {
        self.cache.prefetch(blocks, Reason::MetadataRead);
    }
    /// Returns the newest content of each of `blocks`, which ascend, and does not add them to the
    /// cache. A content was the newest one at a moment during the call. Blocks near each other are
    /// read in one request; the caller bounds their number, because all contents are in memory at
    /// once.
    pub fn read_uncached(&self, blocks: &[FsBlock]) -> Vec<Result<Buf, JournalError>> {
        self.cache.read_uncached(blocks)
    }
    /// Returns the device of a log that is not on the volume's device.
    pub fn device(&self) -> Option<&Arc<Queue>> {
        self.log.device()
    }
    /// Returns the running transaction's number.
    pub fn running_tid(&self) -> Tid {
        self.running.load()
    }
    /// Returns an estimate of the blocks that a commit would write to the log now.
    pub fn running_blocks(&self) -> u32 {
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        gate.members() + self.pending_blocks()
    }
    /// Returns whether `tid` is durable.
    pub fn is_committed(&self, tid: Tid) -> bool {
        self.committed.load().reached(tid)
    }
    /// Stops the journal after an error of the client.
    pub fn abort(&self, why: &JournalError) {
        self.stop(why.clone());
    }
    /// Stops the journal as if the process had ended: nothing is written any more, not even the
    /// error in the super block.
    pub fn crash(&self) {
        let _ = self
            .failed
            .set(JournalError::Aborted("crash requested".into()));
        self.committing.notify();
    }
    /// Returns the error that stopped the journal.
    pub fn error(&self) -> Option<JournalError> {
        self.failed.get().cloned()
    }
    /// Returns the error that stopped the journal at an earlier mount, as a negative errno from the
    /// super block, or 0.
    pub fn recorded_errno(&self) -> i32 {
        self.tail.lock().errno()
    }
    /// Clears the recorded error durably, for a client that has recorded it elsewhere.
    pub fn clear_recorded_errno(&self) -> Result<(), JournalError> {
        if self.read_only {
            return Err(JournalError::ReadOnly);
        }
        self.check()?;
        let mut tail = self.tail.lock();
        if tail.errno() == 0 {
            return Ok(());
        }
        tail.set_errno(0);
        self.write_superblock(&mut tail)
    }
    /// Returns the counters, and how full the log is.
    pub fn stats(&self) -> JournalStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bytes = |blocks: u32| u64::from(blocks) * self.block_size() as u64;
        JournalStats {
            commits: get(&self.counters.commits),
            logged_blocks: get(&self.counters.logged_blocks),
            checkpointed_blocks: get(&self.counters.checkpointed_blocks),
            stalls: get(&self.counters.stalls),
            log_bytes: match self.has_log() {
                true => bytes(self.log_len()),
                false => 0,
            },
            log_used_bytes: bytes(self.set.lock().used()),
            pauses: get(&self.counters.pauses),
            pause_time: Duration::from_nanos(get(&self.counters.pause_ns)),
        }
    }

    /// Returns an error if the journal has stopped.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match self.failed.get() {
            None => Ok(()),
            Some(stopped @ JournalError::Aborted(_)) => Err(stopped.clone()),
            Some(error) => Err(JournalError::Aborted(error.to_string())),
        }
    }
    pub(crate) fn stop_on_error<T>(
        &self,
        result: Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        if let Err(error) = &result {
            self.stop(error.clone());
        }
        result
    }
    /// Stops the journal: keeps the first error, notifies the client, and records an error in the
    /// super block for the next mount. Wakes threads that wait for a commit or a checkpoint. The
    /// caller must not hold `tail` or `set`.
    pub(crate) fn stop(&self, why: JournalError) {
        if self.read_only || self.failed.set(why.clone()).is_err() {
            return;
        }
        tracing::error!(volume = self.queue.name(), %why, "the journal stops");
        self.committing.notify();
        // Prevents lost wake-ups.
        drop(self.set.lock());
        self.set_changed.notify_all();
        if let Some(client) = self.client() {
            client.aborted(&why);
        }
        if !self.has_log() {
            return;
        }
        let mut tail = self.tail.lock();
        tail.set_errno(-EIO);
        // The device may be the part that failed, so an error is ignored. The log stays unchanged
        // for recovery.
        let _ = self.write_superblock(&mut tail);
    }
    /// Writes the super block durably.
    pub(crate) fn write_superblock(&self, sb: &mut JournalSuperblock) -> Result<(), JournalError> {
        let mut buf = BufMut::zeroed(self.block_size());
        buf[..SUPERBLOCK_BYTES].copy_from_slice(sb.encode());
        self.log
            .write_fua(&self.queue, LogBlock::SUPERBLOCK, buf.freeze())
    }
    /// Returns whether blocks that are not home take more than a `part`th of the memory budget.
    pub(crate) fn metadata_fills(&self, part: u64) -> bool {
        self.budget.pinned() > self.budget.limit() / part
    }
    /// Counts the change of the set's size since it had `before` blocks, and the log space in use.
    pub(crate) fn note_space(&self, before: usize, set: &CheckpointSet) {
        let more = set.blocks() as i64 - before as i64;
        self.budget.pin(more * self.block_size() as i64);
        self.log_used.store(set.used(), Ordering::SeqCst);
    }
    /// Returns how full the log is, or the memory for blocks that are not home if that is fuller,
    /// in parts of [`FULL`]. Takes no lock.
    pub(crate) fn log_fill(&self) -> u64 {
        let part = |used: u64, all: u64| used.saturating_mul(FULL) / all.max(1);
        let log = part(
            self.log_used.load(Ordering::SeqCst).into(),
            self.log_len().into(),
        );
        log.max(part(self.budget.pinned(), self.budget.limit() / 2))
    }
    /// Returns the bytes in a block.
    pub(crate) fn block_size(&self) -> usize {
        self.options.block_size as usize
    }
    /// Returns whether there is a log: not on a read-only volume, nor on one without a journal,
    /// where a commit writes its blocks home.
    pub fn has_log(&self) -> bool {
        self.log.blocks() > 0
    }
    /// Returns the number of the log's blocks.
    pub(crate) fn log_len(&self) -> u32 {
        self.bounds.1 - self.bounds.0
    }
}

/// Linux's number of EIO, which the kernel records for most aborts.
const EIO: i32 = 5;

impl Drop for Journal {
    fn drop(&mut self) {
        self.background.stop();
        let set = self.set.get_mut();
        let before = set.blocks();
        set.release_all();
        self.budget
            .pin(-(before as i64) * i64::from(self.options.block_size));
        for frozen in std::mem::take(self.lost.get_mut()) {
            frozen.buffer.release(frozen.data);
        }
    }
}
