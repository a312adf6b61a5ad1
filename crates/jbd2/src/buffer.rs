//! One metadata block in memory.
//!
//! The content is a shared, copy-on-write buffer ([`Buf`]). Readers, the commit and the checkpoint
//! hold references to it. A change of shared content makes a copy first.
//!
//! A buffer is charged to the budget while it exists. Content that only the journal holds is
//! charged in addition, from the change that replaced it until [`Buffer::release`].
//!
//! ```text
//!            load ok                  modify/create: joins the running transaction
//!  loading ───────────▶ clean ─────────────────────────────────────────────▶ dirty
//!     │ load failed       ▲ │                                                  │ freeze (commit closes the transaction)
//!     ▼                   │ └── shrink (nobody else holds it) ──▶ gone          ▼
//!   gone                  └───────────────── release (checkpointed) ─────── frozen, and may become dirty again
//! ```
//!
//! Invariant: the running transaction, the commit and the checkpoint set hold the `Arc` of each of
//! their buffers. So a buffer whose only reference is the cache's is clean and can be evicted.

use crate::Tid;
use block::{Buf, BufMut};
use cache::{Budget, Kind};
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use sync::{Mutex, Rank};
use units::FsBlock;

/// Approximate bytes that a buffer takes in addition to its content: fields, reference counts, slot
/// in the map.
const OVERHEAD_BYTES: u64 = 192;

/// Computes a block's checksum, once per commit instead of once per change.
#[derive(Clone, Copy)]
pub struct Seal {
    /// Called as `seal(seed, block number, bytes)` on the content for the log.
    pub seal: fn(u32, FsBlock, &mut [u8]),
    /// Seed of the checksum.
    pub seed: u32,
}

/// The state of a buffer's read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Load {
    Loading = 0,
    Ready = 1,
    /// The buffer is no longer in the cache.
    Failed = 2,
}

/// One metadata block in memory.
pub struct Buffer {
    block: FsBlock,
    block_size: u32,
    budget: Arc<Budget>,
    state: Mutex<State>,
    /// It holds file data (see `data.rs`).
    is_data: bool,
    /// The content passed a check, or was made in memory.
    verified: AtomicBool,
    /// A transaction has changed the content.
    changed: AtomicBool,
    /// It was read ahead and not used yet.
    read_ahead: AtomicBool,
    /// The cache's time of the last use.
    used: AtomicU32,
    load: AtomicU8,
}

/// The steps in which a commit without a log writes its blocks home. The blocks of one step are
/// durable before the next step begins ([`crate::Journal::without_log`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeStep {
    /// Blocks that the transaction created: no committed block points to them.
    New,
    /// Blocks that were in use before, and blocks at fixed places.
    Changed,
    /// Blocks of names ([`crate::Handle::modify_last`]).
    Last,
}

struct State {
    /// `None` only while loading.
    data: Option<Buf>,
    /// The transaction that changed the content and has not frozen it yet.
    dirty_in: Option<Tid>,
    /// Seals the content when its transaction commits.
    seal: Option<Seal>,
    /// The commit or the checkpoint set holds a reference to the current content.
    journal_holds: bool,
    /// The transaction `dirty_in` created the block.
    is_new: bool,
    /// A change has asked for [`HomeStep::Last`].
    is_last: bool,
}

impl Buffer {
    /// Returns a buffer whose content is being read.
    pub(crate) fn loading(block: FsBlock, block_size: u32, budget: &Arc<Budget>) -> Buffer {
        Buffer::with(block, block_size, budget, None, Load::Loading)
    }
    /// Returns a buffer of zeroes.
    pub(crate) fn zeroed(block: FsBlock, block_size: u32, budget: &Arc<Budget>) -> Buffer {
        let data = BufMut::zeroed(block_size as usize).freeze();
        let buffer = Buffer::with(block, block_size, budget, Some(data), Load::Ready);
        buffer.verified.store(true, Ordering::Relaxed);
        buffer
    }
    /// Returns a buffer of file data.
    pub(crate) fn of_data(block: FsBlock, content: Buf, budget: &Arc<Budget>) -> Buffer {
        let block_size = content.len() as u32;
        let mut buffer = Buffer::with(block, block_size, budget, Some(content), Load::Ready);
        buffer.is_data = true;
        buffer
    }
    fn with(
        block: FsBlock,
        block_size: u32,
        budget: &Arc<Budget>,
        data: Option<Buf>,
        load: Load,
    ) -> Buffer {
        budget.charge(Kind::Metadata, cost(block_size));
        Buffer {
            block,
            block_size,
            budget: budget.clone(),
            state: Rank::Buffer.mutex(State {
                data,
                dirty_in: None,
                seal: None,
                journal_holds: false,
                is_new: false,
                is_last: false,
            }),
            is_data: false,
            verified: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            read_ahead: AtomicBool::new(false),
            used: AtomicU32::new(0),
            load: AtomicU8::new(load as u8),
        }
    }

    /// Returns the block number on the volume.
    pub fn block(&self) -> FsBlock {
        self.block
    }
    /// Returns the current content.
    pub fn data(&self) -> Buf {
        self.state.lock().content().clone()
    }
    /// Runs `check` on the content unless an earlier check passed. So content from the device is
    /// verified once.
    pub fn verify_once<E>(&self, check: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.verified.load(Ordering::Acquire) {
            return Ok(());
        }
        let data = self.data();
        check(&data)?;
        self.verified.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns whether a transaction has changed the content since the buffer was made.
    pub(crate) fn was_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }
    pub(crate) fn load_state(&self) -> Load {
        match self.load.load(Ordering::Acquire) {
            0 => Load::Loading,
            1 => Load::Ready,
            _ => Load::Failed,
        }
    }
    /// Loading → clean.
    pub(crate) fn loaded(&self, data: Buf) {
        self.state.lock().data = Some(data);
        self.load.store(Load::Ready as u8, Ordering::Release);
    }
    /// Loading → gone.
    pub(crate) fn load_failed(&self) {
        self.load.store(Load::Failed as u8, Ordering::Release);
    }
    /// Marks the buffer as read ahead and unused. Its creator calls it once.
    pub(crate) fn begin_read_ahead(&self) {
        self.read_ahead.store(true, Ordering::Relaxed);
    }
    /// Returns whether the buffer was read ahead and is unused.
    pub(crate) fn is_read_ahead(&self) -> bool {
        self.read_ahead.load(Ordering::Relaxed)
    }
    /// Ends the state of a buffer that was read ahead. Returns whether it was in this state.
    pub(crate) fn end_read_ahead(&self) -> bool {
        self.is_read_ahead() && self.read_ahead.swap(false, Ordering::Relaxed)
    }
    /// Records a use at `time`, for the shrinker.
    pub(crate) fn touch(&self, time: u32) {
        // A store of the same value would still take the cache line away from other readers.
        if self.last_use() != time {
            self.used.store(time, Ordering::Relaxed);
        }
    }
    /// Returns the cache's time of the last use.
    pub(crate) fn last_use(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Changes the content as part of transaction `tid`, which the caller's handle keeps open. The
    /// second result is whether this is the buffer's first change in the transaction. The caller
    /// then adds the buffer to it.
    pub(crate) fn modify<R>(
        &self,
        tid: Tid,
        seal: Option<Seal>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> (R, bool) {
        let mut state = self.state.lock();
        let first = state.join(tid, seal);
        self.changed.store(true, Ordering::Release);
        // A check of content that is not sealed yet would fail. The content before the change was
        // verified or made in memory.
        self.verified.store(true, Ordering::Release);
        let shared = state.journal_holds;
        let result = change(state.content_mut().make_mut());
        if shared {
            state.diverged(&self.budget);
        }
        (result, first)
    }
    /// Returns whether the buffer holds file data.
    pub(crate) fn is_data(&self) -> bool {
        self.is_data
    }
    /// Marks the block as one that the running transaction created. The caller's handle has changed
    /// it.
    pub(crate) fn mark_new(&self) {
        self.state.lock().is_new = true;
    }
    /// Marks the block as one that a commit without a log writes last.
    pub(crate) fn mark_last(&self) {
        self.state.lock().is_last = true;
    }
    /// Replaces the content by zeroes as part of transaction `tid`. Returns whether this is its
    /// first change there.
    pub(crate) fn reset(&self, tid: Tid) -> bool {
        self.replace(tid, BufMut::zeroed(self.block_size as usize).freeze())
    }
    /// Replaces the content as part of transaction `tid`. Returns whether this is its first change
    /// there.
    pub(crate) fn replace(&self, tid: Tid, content: Buf) -> bool {
        let mut state = self.state.lock();
        let first = state.join(tid, None);
        self.changed.store(true, Ordering::Release);
        state.seal = None;
        self.verified.store(true, Ordering::Release);
        if state.journal_holds {
            debug_assert!(
                !state.content().same(&content),
                "the same content would be charged twice"
            );
            state.diverged(&self.budget);
        }
        state.data = Some(content);
        first
    }
    /// Removes the buffer from transaction `tid`. Returns whether it was part of it.
    pub(crate) fn leave(&self, tid: Tid) -> bool {
        let mut state = self.state.lock();
        let member = state.dirty_in == Some(tid);
        if member {
            state.dirty_in = None;
            state.is_new = false;
        }
        member
    }
    /// Dirty → frozen. Returns the content that transaction `tid` commits, its seal and its step.
    /// `None` if the buffer has left the transaction.
    pub(crate) fn freeze(&self, tid: Tid) -> Option<(Buf, Option<Seal>, HomeStep)> {
        let mut state = self.state.lock();
        if state.dirty_in != Some(tid) {
            return None;
        }
        state.dirty_in = None;
        state.journal_holds = true;
        let step = match (std::mem::take(&mut state.is_new), state.is_last) {
            (true, _) => HomeStep::New,
            (false, false) => HomeStep::Changed,
            (false, true) => HomeStep::Last,
        };
        Some((state.content().clone(), state.seal, step))
    }
    /// Seals frozen content. If it is still the buffer's content, it is sealed in place for both.
    pub(crate) fn seal_frozen(&self, frozen: Buf, seal: Seal) -> Buf {
        let mut state = self.state.lock();
        let mut frozen = frozen;
        if state.content().same(&frozen) {
            // Without this reference, `make_mut` need not copy.
            drop(frozen);
            (seal.seal)(seal.seed, self.block, state.content_mut().make_mut());
            return state.content().clone();
        }
        drop(state);
        (seal.seal)(seal.seed, self.block, frozen.make_mut());
        frozen
    }
    /// Ends the journal's use of `frozen`.
    pub(crate) fn release(&self, frozen: Buf) {
        let mut state = self.state.lock();
        if state.content().same(&frozen) {
            state.journal_holds = false;
        } else {
            self.budget.uncharge(Kind::Metadata, frozen.len() as u64);
        }
    }
}

/// Returns the bytes that a buffer takes.
pub(crate) fn cost(block_size: u32) -> u64 {
    u64::from(block_size) + OVERHEAD_BYTES
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.budget.uncharge(Kind::Metadata, cost(self.block_size));
    }
}

impl State {
    fn content(&self) -> &Buf {
        self.data
            .as_ref()
            .expect("only loaded buffers are handed out")
    }
    fn content_mut(&mut self) -> &mut Buf {
        self.data
            .as_mut()
            .expect("only loaded buffers are handed out")
    }
    fn join(&mut self, tid: Tid, seal: Option<Seal>) -> bool {
        if seal.is_some() {
            self.seal = seal;
        }
        let first = self.dirty_in != Some(tid);
        self.dirty_in = Some(tid);
        first
    }
    /// Charges the old content, which only the journal holds from now on.
    fn diverged(&mut self, budget: &Budget) {
        self.journal_holds = false;
        budget.charge(Kind::Metadata, self.content().len() as u64);
    }
}
