//! Calls that wake the flusher or wait for it.

use crate::backing_dev::BackingDev;
use crate::control::{Requests, stopped};
use crate::flusher::Flusher;
use crate::interface::WritebackFs;
use crate::sync::Group;
use crate::threads::{self, Flushers, SharedThread};
use crate::tunables::Tunables;
use std::io;
use std::sync::Arc;
use sync::atomic::Ordering;

/// Reclaim writes dirty pages back early if they take more than this part of the budget: one 32nd.
const RECLAIM_PART: u64 = 32;

impl<F: WritebackFs> BackingDev<F> {
    /// Puts the inode on the dirty list if it is not on a list. Cheap when it is (one atomic load).
    /// Call it after the pages were made dirty.
    #[inline]
    pub fn mark_dirty(&self, inode: &Arc<F::Inode>) {
        if self.list_if_dirty(inode) {
            self.ensure_flusher();
        }
    }
    /// Slows the caller if too much is dirty, and wakes the flusher above the background threshold.
    /// No locks may be held. A pause is 100 ms at most. Only far above the hard threshold does the
    /// caller wait until pages are written, and that wait is bounded.
    pub fn balance_dirty_pages(&self) {
        self.limits.balance(
            &self.share,
            || self.thresholds(),
            &*self.clock,
            || self.kick_background(),
        );
    }
    /// Writes what is dirty now, and waits until it has completed and is recorded. Later changes
    /// are not waited for. The caller then commits the journal. Returns the first error of any
    /// inode; each inode is tried once and stays dirty where it failed. Must not be called from the
    /// flusher ([`WritebackFs::tick`]).
    pub fn sync(&self) -> io::Result<()> {
        let failures = self.foreground.failures();
        let outcome = if self.is_idle() {
            Ok(())
        } else {
            let group = self.request_sync();
            group.and_then(|group| group.wait())
        };
        // Last: an fsync that began after this call may have taken pages that were dirty before it.
        // If it failed, these pages are dirty again, and the flusher has not seen them.
        match self.foreground.wait(failures) {
            Some(errno) => outcome.and(Err(io::Error::from_raw_os_error(errno))),
            None => outcome,
        }
    }
    /// Whether a sync would neither write nor wait for anything.
    pub fn is_clean(&self) -> bool {
        // In this order: what leaves the dirty lists is in foreground writeback, or recorded. A
        // failed write goes back.
        let failures = self.foreground.failures();
        self.is_idle() && self.foreground.is_idle_since(failures)
    }
    /// Makes the flusher write half of the dirty pages, because the budget is exceeded. The call
    /// has no effect if too few pages are dirty to matter. A repeated call is cheap.
    pub fn kick_reclaim(&self) {
        let dirty = self.limits.to_write();
        if dirty > self.limits.budget().limit() / RECLAIM_PART
            && !self.is_idle()
            && !self.control.reclaim.swap(true, Ordering::SeqCst)
        {
            self.queue.throttle().kick();
            self.kick(|_| ());
        }
    }
    /// Has the flusher call [`WritebackFs::tick`] soon. Starts the flusher if it is not running.
    pub fn kick_tick(&self) {
        self.kick(|requests| requests.tick = true);
    }
    /// Changes the writeback parameters, with immediate effect.
    ///
    /// # Errors
    /// `InvalidInput` for a value that makes no sense ([`Tunables::validate`]); then nothing has
    /// changed.
    pub fn set_tunables(&self, tunables: Tunables) -> io::Result<()> {
        tunables.validate()?;
        self.queue.throttle().configure(tunables.wbt);
        *self.tunables.write() = tunables;
        if !self.is_idle() {
            self.kick_background();
        }
        Ok(())
    }
    /// Has the flusher look at the thresholds. Cheap where it has yet to look since the last call.
    #[inline]
    pub(crate) fn kick_background(&self) {
        if !self.control.kicked.load(Ordering::SeqCst) {
            self.kick(|_| ());
        }
    }
    /// Makes a request and wakes the flusher.
    pub(crate) fn kick(&self, request: impl FnOnce(&mut Requests)) {
        self.control.kicked.store(true, Ordering::SeqCst);
        request(&mut self.control.lock());
        self.control.wakeup.notify();
        self.ensure_flusher();
    }
    /// Joins the group of syncs that is served next.
    pub(crate) fn request_sync(&self) -> io::Result<Arc<Group>> {
        let mut requests = self.control.lock();
        if requests.stop {
            return Err(stopped());
        }
        let group = requests.sync.get_or_insert_default().clone();
        self.control.sync_waits.store(true, Ordering::SeqCst);
        drop(requests);
        self.queue.throttle().kick();
        self.control.wakeup.notify();
        self.start_flusher()?;
        Ok(group)
    }
    /// Starts the flusher if it is not running, so that its next tick comes. Cheap where it is.
    #[inline]
    pub fn ensure_flusher(&self) {
        if !self.control.running.load(Ordering::SeqCst)
            && let Err(error) = self.start_flusher()
        {
            // The next inode that becomes dirty tries again.
            tracing::error!("no flusher for {}: {error}", self.queue.name());
        }
    }
    #[cold]
    fn start_flusher(&self) -> io::Result<()> {
        let mut requests = self.control.lock();
        if requests.stop || requests.by_hand || self.control.running.load(Ordering::SeqCst) {
            return Ok(());
        }
        let Some(me) = self.me.upgrade() else {
            return Ok(());
        };
        let flusher = Flusher::new(me);
        let lifetime = flusher.lifetime();
        match self.flushers {
            Flushers::PerDevice => {
                // The system keeps fifteen bytes of a thread's name.
                let name = self.queue.name();
                let name = name.rsplit('/').next().unwrap_or(name);
                let name = format!("flush-{name}").chars().take(15).collect();
                threads::spawn(name, self.control.wakeup.clone(), flusher)?;
            }
            Flushers::Shared => SharedThread::of_process().join(Box::new(flusher))?,
        }
        requests.lifetime = Some(lifetime);
        self.control.running.store(true, Ordering::SeqCst);
        Ok(())
    }
}
