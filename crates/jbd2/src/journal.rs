//! The journal of a volume: starting handles, committing, checkpointing.
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
//! | `held`                  | the map of files' blocks that are in the log        | no                   |
//! | a buffer's state        | its content                                         | no                   |
//! | lists of a transaction  | themselves                                          | no                   |
//!
//! A thread that holds a handle (the gate, for reading) never waits for `committing` or
//! `checkpointing`: `start` commits, or waits until another has closed the transaction, before it
//! has taken anything, and log space is a matter of the commit alone. What a commit waits for is
//! only that the handles end.
//!
//! # Log space
//!
//! A transaction may have a quarter of the log at most, reservations included, and a commit that
//! finds too little room checkpoints everything first, which leaves the log empty. So it always
//! fits.

use crate::background::Background;
use crate::buffer_cache::BufferCache;
use crate::checkpoint::CheckpointSet;
use crate::commit::{Frozen, Why};
use crate::commit_lock::CommitLock;
use crate::data::HeldData;
use crate::form::Forms;
use crate::format::superblock::{JournalSuperblock, SUPERBLOCK_BYTES};
use crate::handle::assert_none_held;
use crate::log::LogMap;
use crate::transaction::Transaction;
use crate::{AsyncCommit, Buffer, FreedExtent, Handle, JournalError, Overlay, Tid};
use block::{BufMut, Queue};
use cache::Budget;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;
use sync::ShardedLock;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::{Condvar, Mutex, Rank};

pub use crate::format::superblock::{LogFormat, format_new};

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
    /// Well before the commit, beside handles, and only if somebody has time for it: what is not
    /// going to change until then.
    Ahead,
    /// Handles are running beside this one: do most of the work here.
    Early,
    /// No handle is running and none can start: finish quickly. Credits are not counted.
    Locked,
}

/// What the journal asks of the file system above it. None of these may start a handle, commit or
/// flush, but for the first.
pub trait JournalClient: Send + Sync {
    /// The journal is about to commit without being asked to by somebody who waits: time to put
    /// things into the running transaction that belong there. Called with nothing held.
    fn before_commit(&self) {}
    /// Serialise in-memory metadata (inodes, groups, super block) that the running transaction
    /// covers.
    fn write_back_state(&self, handle: &Handle<'_>, phase: Phase);
    /// Upper bound of the blocks that [`JournalClient::write_back_state`] would add now. Called at
    /// every start of a handle: must be cheap and take no lock.
    fn pending_blocks(&self) -> u32;
    /// The transaction is durable; what it freed may be used again.
    fn committed(&self, tid: Tid, freed: &[FreedExtent]);
    /// The journal stopped for good. Called once, on the thread that met the error, with a handle
    /// perhaps still held.
    fn aborted(&self, error: &JournalError);
}

/// How a journal runs.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// How long a transaction may gather changes.
    pub commit_interval: Duration,
    /// Bytes in a block of the volume.
    pub block_size: u32,
    /// How the log is written.
    pub format: LogFormat,
    /// When commit blocks go out together with what they commit.
    pub async_commit: AsyncCommit,
    /// The volume's UUID, for a journal that has none of its own.
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
    /// Times a commit had to wait for log space, and with it the handles that wait for the commit.
    pub stalls: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub commits: AtomicU64,
    pub logged_blocks: AtomicU64,
    pub checkpointed_blocks: AtomicU64,
    pub stalls: AtomicU64,
}

/// Blocks that a transaction may have however small the memory budget is: what the smallest log
/// allows.
const MIN_TRANSACTION: u64 = 256;

/// A journal.
///
/// Dropping it without [`Journal::close`] writes nothing: the volume is then as after a crash.
pub struct Journal {
    pub(crate) queue: Arc<Queue>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) options: JournalOptions,
    pub(crate) cache: Arc<BufferCache>,
    pub(crate) held: HeldData,
    read_only: bool,

    pub(crate) log: LogMap,
    /// How its log may be written.
    pub(crate) forms: Forms,
    /// The journal's UUID, for tags.
    pub(crate) uuid: [u8; 16],
    /// First block of the log and the one past its last.
    pub(crate) bounds: (u32, u32),
    /// Blocks that a transaction may have: what log and memory allow.
    max_transaction: u32,

    /// The running transaction; handles hold it for reading.
    pub(crate) gate: ShardedLock<Arc<Transaction>>,
    /// Its number, readable without the gate.
    pub(crate) running: AtomicU32,
    /// Number of the last durable transaction.
    pub(crate) committed: AtomicU32,
    pub(crate) committing: CommitLock,
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) tail: Mutex<JournalSuperblock>,
    pub(crate) set: Mutex<CheckpointSet>,
    /// Signalled when checkpoint writes have ended.
    pub(crate) set_changed: Condvar,

    /// Blocks of a transaction that failed to reach the log, kept so that they stay cached.
    pub(crate) lost: Mutex<Vec<Frozen>>,

    client: OnceLock<Weak<dyn JournalClient>>,
    failed: OnceLock<JournalError>,
    closed: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) background: Background,
}

impl Journal {
    /// Opens the (recovered, clean) journal whose super block is journal block 0, marks it in use
    /// at the first commit and starts its background thread (commit every `commit_interval`,
    /// checkpoint when the log fills up).
    pub fn open(
        queue: Arc<Queue>,
        extents: Vec<JournalExtent>,
        budget: Arc<Budget>,
        options: JournalOptions,
    ) -> Result<Arc<Journal>, JournalError> {
        let log = LogMap::new(&extents, options.block_size, &queue)?;
        let first_block = log.read(&queue, 0, 1)?;
        let mut sb = JournalSuperblock::parse(&first_block[0], options.block_size, log.blocks())?;
        if sb.start() != 0 {
            return Err(JournalError::Corrupt {
                block: 0,
                what: "the log has not been recovered",
            });
        }
        let bits64 = queue.capacity() / u64::from(options.block_size) > u64::from(u32::MAX);
        sb.upgrade(options.format, bits64, &options.uuid);
        let journal = Journal::new(queue, log, sb, budget, options, Overlay::new(), false);
        journal.background.spawn(&journal);
        Ok(journal)
    }
    /// A journal for a read-only volume: blocks can be read (through `overlay`, what an unrecovered
    /// log would have replayed), handles cannot start.
    pub fn read_only(
        queue: Arc<Queue>,
        overlay: Overlay,
        budget: Arc<Budget>,
        options: JournalOptions,
    ) -> Arc<Journal> {
        let log = LogMap::empty(options.block_size);
        let sb = JournalSuperblock::fresh(1024, options.block_size, options.uuid, 0);
        Journal::new(queue, log, sb, budget, options, overlay, true)
    }
    fn new(
        queue: Arc<Queue>,
        log: LogMap,
        sb: JournalSuperblock,
        budget: Arc<Budget>,
        options: JournalOptions,
        overlay: Overlay,
        read_only: bool,
    ) -> Arc<Journal> {
        let bounds = (sb.first(), sb.log_end());
        let log_blocks = bounds.1 - bounds.0;
        let last = Tid(sb.sequence());
        let in_memory = budget.limit() / 8 / u64::from(options.block_size);
        let max_transaction = match read_only {
            true => 0,
            false => u64::from(log_blocks / 4).min(in_memory.max(MIN_TRANSACTION)) as u32,
        };
        let cache = BufferCache::new(queue.clone(), options.block_size, budget.clone(), overlay);
        Arc::new(Journal {
            queue,
            budget,
            options,
            cache,
            held: HeldData::default(),
            read_only,
            log,
            forms: Forms::new(&sb),
            uuid: sb.uuid(),
            bounds,
            max_transaction,
            gate: Rank::Handle.sharded_lock(Arc::new(Transaction::new(last.next()))),
            running: AtomicU32::new(last.next().0),
            committed: AtomicU32::new(last.0),
            committing: CommitLock::default(),
            checkpointing: Rank::Checkpoint.mutex(()),
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
    /// Connects the file system; before the first handle. Only the first call counts.
    pub fn set_client(&self, client: Weak<dyn JournalClient>) {
        let _ = self.client.set(client);
    }
    pub(crate) fn client(&self) -> Option<Arc<dyn JournalClient>> {
        self.client.get()?.upgrade()
    }
    /// Blocks that the client would add to the running transaction.
    pub(crate) fn pending_blocks(&self) -> u32 {
        self.client().map_or(0, |client| client.pending_blocks())
    }

    /// Joins the running transaction. May wait for a commit or for log space, so the caller must
    /// not hold what these need.
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, JournalError> {
        assert_none_held("a handle is started");
        if self.read_only {
            return Err(JournalError::ReadOnly);
        }
        if credits > self.max_transaction {
            return Err(JournalError::TooLarge {
                asked: credits,
                most: self.max_transaction,
            });
        }
        loop {
            self.check()?;
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            // Under the gate: `close` sets this while it has the gate for itself.
            if self.closed.load(Ordering::Relaxed) {
                return Err(JournalError::Closed);
            }
            if self.reserve(&gate, credits) {
                return Ok(Handle::counted(self, gate, credits));
            }
            let full = gate.tid;
            drop(gate);
            self.leave_full(full)?;
        }
    }
    /// Reserves credits in a transaction; `false` where there is no room. Asks the background
    /// thread for a commit once it is half full, with what the client has pending, so that there is
    /// room for others while that is written.
    pub(crate) fn reserve(&self, transaction: &Transaction, credits: u32) -> bool {
        let reserved = transaction.reserve(credits);
        let revokes = self.forms.revoke_blocks(transaction.revoke_count());
        let members = u64::from(transaction.members())
            + u64::from(revokes)
            + u64::from(self.pending_blocks());
        if members >= u64::from(self.max_transaction / 2) && transaction.kick() {
            self.background.ask_commit();
        }
        let weight = members + u64::from(reserved);
        // A handle that is alone in a transaction fits, whatever the client has pending: that is
        // written by the commit with the slack that a quarter of the log leaves, and waiting would
        // not make it less.
        let alone = transaction.members() == 0 && reserved == credits;
        let fits = alone || weight <= u64::from(self.max_transaction);
        if !fits {
            transaction.unreserve(credits);
        }
        fits
    }
    /// Credits that one handle can have at most.
    pub fn max_credits(&self) -> u32 {
        self.max_transaction
    }
    /// A metadata block, read from the device if need be.
    pub fn get(&self, block: u64) -> Result<Arc<Buffer>, JournalError> {
        self.cache.get(block)
    }
    /// Starts reading `blocks` that are not cached, adjacent ones in one request, and returns at
    /// once.
    pub fn prefetch(&self, blocks: &[u64]) {
        self.cache.prefetch(blocks);
    }
    /// The running transaction's number.
    pub fn running_tid(&self) -> Tid {
        Tid(self.running.load(Ordering::Acquire))
    }
    /// About how many blocks a commit would write to the log now.
    pub fn running_blocks(&self) -> u32 {
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        gate.members() + self.pending_blocks()
    }
    /// Makes everything up to and including `tid` durable; the calling thread does the commit if no
    /// other is at it. Returns at once if that has happened. Many callers share one commit.
    ///
    /// Data that a handle of the transaction depends on ([`Handle::depends_on`]) is durable then,
    /// too. Where the running transaction has changed nothing, nothing is written or flushed.
    pub fn commit(&self, tid: Tid) -> Result<(), JournalError> {
        self.commit_because(tid, Why::WaitedFor)
    }
    /// Does a part of the next commit's work, for whoever waits for something else before asking
    /// for one: the client's state goes into buffers as far as it is final ([`Phase::Ahead`]). Does
    /// nothing beside a commit. Holds up no handle.
    pub fn prepare_commit(&self) {
        if self.read_only || self.check().is_err() {
            return;
        }
        if let Some(state) = self.committing.try_lock() {
            self.write_back_early(&state, Phase::Ahead);
        }
    }
    /// Sees to it that transaction `full` is closed. Only where nobody else closes it this commits
    /// it; nobody waits for the log of somebody else's commit.
    fn leave_full(&self, full: Tid) -> Result<(), JournalError> {
        assert_none_held("a commit is waited for");
        let closed = || self.running_tid() != full;
        let Some(mut state) = self.committing.or_until(closed) else {
            return Ok(());
        };
        let result = self.commit_running(&mut state, Why::Due);
        self.stop_on_error(result)
    }
    pub(crate) fn commit_because(&self, tid: Tid, why: Why) -> Result<(), JournalError> {
        assert_none_held("a commit is waited for");
        if self.read_only || self.is_committed(tid) {
            return Ok(());
        }
        let mut state = self.committing.lock();
        if self.is_committed(tid) {
            return Ok(());
        }
        let result = self.commit_running(&mut state, why);
        self.stop_on_error(result)
    }
    /// Whether `tid` is durable.
    pub fn is_committed(&self, tid: Tid) -> bool {
        Tid(self.committed.load(Ordering::Acquire)).reached(tid)
    }
    /// Commits what is running and writes everything home; the log is empty afterwards.
    pub fn flush(&self) -> Result<(), JournalError> {
        assert_none_held("a flush is waited for");
        if self.read_only {
            return Ok(());
        }
        let mut state = self.committing.lock();
        let result = self
            .commit_running(&mut state, Why::Due)
            .and_then(|()| self.checkpoint_all())
            .and_then(|()| self.mark_empty(&mut state));
        self.stop_on_error(result)
    }
    /// Flush, mark the journal clean, stop the background thread. Handles can no longer start.
    pub fn close(&self) -> Result<(), JournalError> {
        assert_none_held("the journal is closed");
        {
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            if self.closed.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
        }
        let result = self.flush();
        self.background.stop();
        result
    }
    /// Stops the journal after an error.
    pub fn abort(&self, why: &JournalError) {
        self.stop(why.clone());
    }
    /// Stops the journal as if the process had ended: nothing is written any more, not even a note
    /// for the next mount.
    pub fn crash(&self) {
        let _ = self
            .failed
            .set(JournalError::Aborted("crash requested".into()));
    }
    /// Why it was stopped, if it was.
    pub fn error(&self) -> Option<JournalError> {
        self.failed.get().cloned()
    }
    /// The error (a negative errno) that an earlier user of the journal recorded in its super block
    /// when it stopped, or 0.
    pub fn recorded_errno(&self) -> i32 {
        self.tail.lock().errno()
    }
    /// Forgets the recorded error, durably: for a client that has noted it elsewhere.
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
    /// Counters since it was opened.
    pub fn stats(&self) -> JournalStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        JournalStats {
            commits: get(&self.counters.commits),
            logged_blocks: get(&self.counters.logged_blocks),
            checkpointed_blocks: get(&self.counters.checkpointed_blocks),
            stalls: get(&self.counters.stalls),
        }
    }

    /// Fails where the journal was stopped.
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
    /// Latches the first error, tells the client, and leaves a note in the super block for the next
    /// mount. Not to be called with `tail` or `set` held.
    pub(crate) fn stop(&self, why: JournalError) {
        if self.read_only || self.failed.set(why.clone()).is_err() {
            return;
        }
        tracing::error!(volume = self.queue.name(), %why, "the journal stops");
        if let Some(client) = self.client() {
            client.aborted(&why);
        }
        let mut tail = self.tail.lock();
        tail.set_errno(-libc_eio());
        // Best effort: the device may be what failed. The log itself is left as it is, for
        // recovery.
        let _ = self.write_superblock(&mut tail);
    }
    /// Writes the super block durably.
    pub(crate) fn write_superblock(&self, sb: &mut JournalSuperblock) -> Result<(), JournalError> {
        let mut buf = BufMut::zeroed(self.block_size());
        buf[..SUPERBLOCK_BYTES].copy_from_slice(sb.encode());
        self.log.write_fua(&self.queue, 0, buf.freeze())
    }
    /// Bytes in a block.
    pub(crate) fn block_size(&self) -> usize {
        self.options.block_size as usize
    }
    /// Blocks of the log.
    pub(crate) fn log_len(&self) -> u32 {
        self.bounds.1 - self.bounds.0
    }
}

/// The number that Linux calls EIO, which is what the kernel records for most aborts.
const fn libc_eio() -> i32 {
    5
}

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
