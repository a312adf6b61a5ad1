//! One metadata block in memory.
//!
//! The content is a shared buffer ([`Buf`]): readers clone a reference, the commit and the
//! checkpoint keep one, and whoever changes it while it is shared works on a copy. A buffer is
//! charged to the budget for as long as it lives, in the cache or not; the journal's own references
//! only once they differ from the current content (see `Buffer::release`).
//!
//! ```text
//!            load ok                  modify/create: joins the running transaction
//!  loading ───────────▶ clean ─────────────────────────────────────────────▶ dirty
//!     │ load failed       ▲ │                                                  │ freeze (commit closes the transaction)
//!     ▼                   │ └── shrink (nobody else holds it) ──▶ gone          ▼
//!   gone                  └───────────────── release (checkpointed) ─────── frozen, and may become dirty again
//! ```
//!
//! Whoever needs a buffer to stay cached holds its `Arc`: the running transaction, the commit, the
//! checkpoint set. Eviction therefore needs no state of its own: a buffer with one reference, the
//! cache's, is clean.

use crate::Tid;
use crate::buffer_cache::OVERHEAD_BYTES;
use block::{Buf, BufMut};
use cache::{Budget, Kind};
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU8, Ordering};
use sync::{Mutex, Rank};

/// Stamps a block with what depends on all its bytes (its checksum), once per commit instead of
/// once per change.
#[derive(Clone, Copy)]
pub struct Seal {
    /// Called as `seal(seed, block number, bytes)` on the content that goes to the log.
    pub seal: fn(u32, u64, &mut [u8]),
    /// First argument.
    pub seed: u32,
}

/// Whether a buffer has its content yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Load {
    /// Being read.
    Loading = 0,
    /// There.
    Ready = 1,
    /// The read failed; the buffer is out of the cache.
    Failed = 2,
}

/// One metadata block. Its content is a shared buffer: readers clone a reference, the commit keeps
/// one, and whoever changes it while it is shared works on a copy.
pub struct Buffer {
    block: u64,
    block_size: u32,
    budget: Arc<Budget>,
    state: Mutex<State>,
    /// It holds a file's data (see `data.rs`).
    data: bool,
    /// A check of the content has passed, or it was made in memory.
    verified: AtomicBool,
    /// Used since the shrinker last came by.
    referenced: AtomicBool,
    load: AtomicU8,
}

struct State {
    /// `None` only while loading.
    data: Option<Buf>,
    /// The running transaction that the current content belongs to.
    dirty_in: Option<Tid>,
    /// How to seal the content when its transaction commits.
    seal: Option<Seal>,
    /// The commit or the checkpoint set holds a reference to the current content.
    journal_holds: bool,
}

impl Buffer {
    /// A buffer whose content is being read.
    pub(crate) fn loading(block: u64, block_size: u32, budget: &Arc<Budget>) -> Buffer {
        Buffer::with(block, block_size, budget, None, Load::Loading)
    }
    /// A buffer of zeroes.
    pub(crate) fn zeroed(block: u64, block_size: u32, budget: &Arc<Budget>) -> Buffer {
        let data = BufMut::zeroed(block_size as usize).freeze();
        let buffer = Buffer::with(block, block_size, budget, Some(data), Load::Ready);
        buffer.verified.store(true, Ordering::Relaxed);
        buffer
    }
    /// A buffer of a file's data.
    pub(crate) fn of_data(block: u64, content: Buf, budget: &Arc<Budget>) -> Buffer {
        let block_size = content.len() as u32;
        let mut buffer = Buffer::with(block, block_size, budget, Some(content), Load::Ready);
        buffer.data = true;
        buffer
    }
    fn with(
        block: u64,
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
            }),
            data: false,
            verified: AtomicBool::new(false),
            referenced: AtomicBool::new(true),
            load: AtomicU8::new(load as u8),
        }
    }

    /// Its block number on the volume.
    pub fn block(&self) -> u64 {
        self.block
    }
    /// Its content now.
    pub fn data(&self) -> Buf {
        self.state.lock().content().clone()
    }
    /// Runs `check` on the content unless an earlier check passed; for verifying what came from the
    /// device once.
    pub fn verify_once<E>(&self, check: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.verified.load(Ordering::Acquire) {
            return Ok(());
        }
        let data = self.data();
        check(&data)?;
        self.verified.store(true, Ordering::Release);
        Ok(())
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
    /// Marks it as used, for the shrinker.
    pub(crate) fn touch(&self) {
        // A store only where it changes something keeps the line shared between readers.
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }
    /// Whether it was used since the last call.
    pub(crate) fn take_referenced(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }

    /// Changes the content as part of transaction `tid`. The second result is whether this was the
    /// buffer's first change in that transaction, which the caller then adds it to. The caller's
    /// handle keeps the transaction open.
    pub(crate) fn modify<R>(
        &self,
        tid: Tid,
        seal: Option<Seal>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> (R, bool) {
        let mut state = self.state.lock();
        let first = state.join(tid, seal);
        // Changed content is not sealed yet: a check of it would fail, and what it started from was
        // checked or made here.
        self.verified.store(true, Ordering::Release);
        let shared = state.journal_holds;
        let result = change(state.content_mut().make_mut());
        if shared {
            state.diverged(&self.budget);
        }
        (result, first)
    }
    /// Whether it holds a file's data.
    pub(crate) fn is_data(&self) -> bool {
        self.data
    }
    /// Replaces the content by zeroes as part of transaction `tid`; as [`Buffer::modify`].
    pub(crate) fn reset(&self, tid: Tid) -> bool {
        self.replace(tid, BufMut::zeroed(self.block_size as usize).freeze())
    }
    /// Replaces the content as part of transaction `tid`; as [`Buffer::modify`].
    pub(crate) fn replace(&self, tid: Tid, content: Buf) -> bool {
        let mut state = self.state.lock();
        let first = state.join(tid, None);
        state.seal = None;
        self.verified.store(true, Ordering::Release);
        if state.journal_holds {
            debug_assert!(!state.content().same(&content), "it is counted once");
            state.diverged(&self.budget);
        }
        state.data = Some(content);
        first
    }
    /// Takes it out of transaction `tid`; whether it was part of it.
    pub(crate) fn leave(&self, tid: Tid) -> bool {
        let mut state = self.state.lock();
        let member = state.dirty_in == Some(tid);
        if member {
            state.dirty_in = None;
        }
        member
    }
    /// Dirty → frozen: the content that transaction `tid` commits, with its seal; `None` where it
    /// left the transaction.
    pub(crate) fn freeze(&self, tid: Tid) -> Option<(Buf, Option<Seal>)> {
        let mut state = self.state.lock();
        if state.dirty_in != Some(tid) {
            return None;
        }
        state.dirty_in = None;
        state.journal_holds = true;
        Some((state.content().clone(), state.seal))
    }
    /// Seals frozen content: in place and for both where the buffer still has that content, alone
    /// otherwise.
    pub(crate) fn seal_frozen(&self, frozen: Buf, seal: Seal) -> Buf {
        let mut state = self.state.lock();
        let mut frozen = frozen;
        if state.content().same(&frozen) {
            // Dropping our reference makes the buffer's the only one, so that nothing is copied.
            drop(frozen);
            (seal.seal)(seal.seed, self.block, state.content_mut().make_mut());
            return state.content().clone();
        }
        drop(state);
        (seal.seal)(seal.seed, self.block, frozen.make_mut());
        frozen
    }
    /// The journal no longer needs `frozen`.
    pub(crate) fn release(&self, frozen: Buf) {
        let mut state = self.state.lock();
        if state.content().same(&frozen) {
            state.journal_holds = false;
        } else {
            self.budget.uncharge(Kind::Metadata, frozen.len() as u64);
        }
    }
}

/// Bytes that a buffer takes.
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
            .expect("a buffer is given out when loaded")
    }
    fn content_mut(&mut self) -> &mut Buf {
        self.data
            .as_mut()
            .expect("a buffer is given out when loaded")
    }
    fn join(&mut self, tid: Tid, seal: Option<Seal>) -> bool {
        if seal.is_some() {
            self.seal = seal;
        }
        let first = self.dirty_in != Some(tid);
        self.dirty_in = Some(tid);
        first
    }
    /// The journal keeps the old content for itself from now on: that is one more block in memory.
    fn diverged(&mut self, budget: &Budget) {
        self.journal_holds = false;
        budget.charge(Kind::Metadata, self.content().len() as u64);
    }
}

/// Shorthand.
pub type BufferRef = Arc<Buffer>;
