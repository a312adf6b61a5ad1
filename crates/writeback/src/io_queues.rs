//! The flusher's own lists of inodes. [`crate::dirty_list`] draws them.

use crate::backing_dev::BackingDev;
use crate::dirty_list::{Entry, Written};
use crate::interface::WritebackFs;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// First delay after a failed batch, and before a blocked inode is tried again. Both double each
/// time.
pub(crate) const BACKOFF: Duration = Duration::from_millis(20);
/// The longest of both.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// A time of becoming dirty for an inode that had its slice: it is eligible at any age.
pub(crate) const ALWAYS_ELIGIBLE: u64 = 0;

/// The `n`th delay, from 0.
pub(crate) fn backoff(n: u32) -> Duration {
    (BACKOFF * (1 << n.min(10))).min(MAX_BACKOFF)
}

/// An inode of which nothing could be written.
struct Blocked<I> {
    entry: Entry<I>,
    retry_at: Duration,
}

/// Which blocked inodes a pass takes up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Those that are due.
    Due,
    All,
}

/// Inodes that the flusher has taken from `b_dirty`.
pub(crate) struct IoQueues<F: WritebackFs> {
    /// Inodes of this pass, oldest first. A background pass may leave some.
    b_io: VecDeque<Entry<F::Inode>>,
    /// Inodes that had their slice and have more.
    b_more_io: VecDeque<Entry<F::Inode>>,
    blocked: Vec<Blocked<F::Inode>>,
    /// Inodes for the second round of a sync. A panic leaves them here.
    second_round: VecDeque<Entry<F::Inode>>,
    /// The inode that is being written. A panic leaves it here.
    current: Option<Entry<F::Inode>>,
}

impl<F: WritebackFs> IoQueues<F> {
    pub(crate) fn new() -> IoQueues<F> {
        IoQueues {
            b_io: VecDeque::new(),
            b_more_io: VecDeque::new(),
            blocked: Vec::new(),
            second_round: VecDeque::new(),
            current: None,
        }
    }

    /// Moves inodes to `b_io` that became dirty up to `until_ns`, after those of `b_more_io` and
    /// the blocked ones.
    pub(crate) fn refill(&mut self, dev: &BackingDev<F>, until_ns: u64, retry: Retry) {
        let now = dev.clock.monotonic();
        let is_due =
            |blocked: &mut Blocked<F::Inode>| retry == Retry::All || blocked.retry_at <= now;
        let due = self.blocked.extract_if(.., is_due);
        self.b_more_io.extend(due.map(|blocked| blocked.entry));
        if self.b_io.is_empty() {
            std::mem::swap(&mut self.b_io, &mut self.b_more_io);
        } else {
            for entry in self.b_more_io.drain(..).rev() {
                self.b_io.push_front(entry);
            }
        }
        dev.b_dirty.lock().take(until_ns, &mut self.b_io);
    }

    pub(crate) fn is_b_io_empty(&self) -> bool {
        self.b_io.is_empty()
    }

    /// The oldest inode of `b_io`, unless it became dirty after `until_ns` (a background pass may
    /// have left it to a periodic one).
    pub(crate) fn next(&mut self, until_ns: u64) -> Option<Entry<F::Inode>> {
        let oldest = self.b_io.front()?;
        (oldest.dirtied_ns <= until_ns)
            .then(|| self.b_io.pop_front())
            .flatten()
    }

    /// The file system is about to write this inode.
    pub(crate) fn begin(&mut self, entry: &Entry<F::Inode>) {
        self.current = Some(Entry {
            inode: entry.inode.clone(),
            ..*entry
        });
    }
    /// It has returned.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }

    /// Lists the inodes of a pass in which the file system panicked.
    pub(crate) fn recover(&mut self, dev: &BackingDev<F>) {
        self.b_more_io.append(&mut self.second_round);
        if let Some(entry) = self.current.take() {
            self.requeue_blocked(dev, entry);
        }
    }

    /// Lists an inode of which nothing could be written. The delay grows each time in a row.
    pub(crate) fn requeue_blocked(&mut self, dev: &BackingDev<F>, mut entry: Entry<F::Inode>) {
        if !list_again(dev, &entry) {
            return;
        }
        let retry_at = dev.clock.monotonic() + backoff(entry.blocked.into());
        entry.blocked = entry.blocked.saturating_add(1);
        entry.dirtied_ns = ALWAYS_ELIGIBLE;
        self.blocked.push(Blocked { entry, retry_at });
    }

    /// Lists an inode that had its slice and has more.
    pub(crate) fn requeue_more(&mut self, dev: &BackingDev<F>, mut entry: Entry<F::Inode>) {
        if list_again(dev, &entry) {
            entry.dirtied_ns = ALWAYS_ELIGIBLE;
            self.b_more_io.push_back(entry);
        }
    }

    /// Lists an inode that was dirty after its slice of a sync.
    pub(crate) fn requeue_second_round(&mut self, dev: &BackingDev<F>, entry: Entry<F::Inode>) {
        if list_again(dev, &entry) {
            self.second_round.push_back(entry);
        }
    }
    /// Takes an inode of the second round.
    pub(crate) fn next_of_second_round(&mut self) -> Option<Entry<F::Inode>> {
        self.second_round.pop_front()
    }

    /// Whether an inode can be written now.
    pub(crate) fn has_work(&self, dev: &BackingDev<F>, now: Duration) -> bool {
        !self.b_io.is_empty()
            || !self.b_more_io.is_empty()
            || self.has_due(now)
            || !dev.b_dirty.lock().is_empty()
    }
    /// Whether a blocked inode is due.
    pub(crate) fn has_due(&self, now: Duration) -> bool {
        self.next_retry().is_some_and(|retry_at| retry_at <= now)
    }
    /// When the next blocked inode is due.
    pub(crate) fn next_retry(&self) -> Option<Duration> {
        self.blocked.iter().map(|blocked| blocked.retry_at).min()
    }

    /// Takes every inode off its list: the file system is gone.
    pub(crate) fn clear(&mut self) {
        let blocked = self.blocked.drain(..).map(|blocked| blocked.entry);
        let second = self.second_round.drain(..);
        let entries = self.b_io.drain(..).chain(self.b_more_io.drain(..));
        for inode in entries
            .chain(second)
            .chain(blocked)
            .filter_map(|entry| entry.inode)
        {
            F::dirty_state(&inode).abandon();
        }
    }
}

/// Gives an inode that was being written the state of one on a list. Returns `false` where it was
/// deleted.
fn list_again<F: WritebackFs>(dev: &BackingDev<F>, entry: &Entry<F::Inode>) -> bool {
    let Some(inode) = &entry.inode else {
        return false;
    };
    let listed = F::dirty_state(inode).list_again() != Written::Forgotten;
    if !listed {
        dev.note_unlisted();
    }
    listed
}

/// Puts an inode that was dirtied while it was written at the end of `b_dirty`.
pub(crate) fn list_redirtied<F: WritebackFs>(dev: &BackingDev<F>, inode: Arc<F::Inode>) {
    let (state, now_ns) = (F::dirty_state(&inode), dev.now_ns());
    let mut b_dirty = dev.b_dirty.lock();
    b_dirty.push(inode.clone(), state, now_ns);
}
