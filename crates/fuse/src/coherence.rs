//! Coherence of the kernel's page cache with direct writes.
//!
//! The kernel drops the cached pages of a range before it sends an asynchronous direct write. It
//! does not drop them again when the write completes (Linux 6.18, `generic_file_direct_write` and
//! `fuse_aio_complete`). A buffered read in between leaves the old contents in the cache. So the
//! server drops the range again, after the write and before the reply:
//!
//! ```text
//!  kernel   drops pages ─ WRITE ─────────┐                                  ┌─> complete
//!  server                                apply ─ drop pages (notification) ─┘ reply
//!                             READ ─ old contents: page is locked until the reply, then dropped
//!                                            READ ─ new contents
//! ```
//!
//! A notification may also drop pages of a cached write that is in the kernel's pages and that the
//! server has not carried out yet (its pages are clean and not locked). A read then finds no page
//! and gets the old contents from the server:
//!
//! ```text
//!  kernel   fills pages ───────── WRITE ──────────────┐                                  ┌─> complete
//!  server              drop pages       READ ─ old    apply ─ drop pages (notification) ─┘ reply
//! ```
//!
//! So a cached write also drops its own range if pages of the file have been dropped within
//! [`RECENT`]. The write may have locked its last page until its reply, if it fills the page in
//! part and the page was not cached. It does not wait long for that page: no program can have read
//! it while it was locked.
//!
//! A notification waits for locked pages, and so for other requests. Two rules prevent a deadlock:
//! - One serving thread at a time sends a notification, and only if there are more serving threads.
//!   A thread that serves no requests sends all others.
//! - At most [`MAX_HELD`] replies are held back. The kernel limits the number of background
//!   requests. Direct writes must not use up this limit while they wait for a READ, which counts
//!   too. Beyond the limit, or if the transport cannot hold one more reply ([`Hold`]), the reply is
//!   sent before the notification.
//!
//! No notification is sent for a file that has no cached reads or writes: each file with direct
//! writes has a record of whether the kernel may have pages of it. Other files have no record; for
//! them the check is one atomic load.

use crate::nodes::node_of;
use crossbeam_channel::{Sender, bounded, unbounded};
use fusedev::{Hold, Notifier, guarded};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use sync::time::now;
use sync::{Mutex, Rank};
use units::Ino;

/// Bytes of a page of the kernel's cache. A kernel with larger pages drops more.
const PAGE: u64 = 4096;
/// Most replies that wait for a notification. The kernel's limit of background requests is 512, or
/// less for users other than root on machines with less than 2 GiB.
const MAX_HELD: usize = 128;
/// Number of direct writes without cached I/O between them after which all pages of the file are
/// dropped, so that later ones need no notification. The number doubles each time, since a reader
/// may need its cached pages.
const QUIET_WRITES: u32 = 64;
/// Longest time from the kernel's filling of the pages of a cached write to the WRITE request.
const RECENT: Duration = Duration::from_secs(10);
/// Longest time that a cached write of whole pages waits until they are dropped. A request that
/// waits for the same serving thread may have locked them.
const WHOLE_PAGES_WAIT: Duration = Duration::from_millis(100);
/// The same for other cached writes, which may have locked their last page themselves.
const PART_OF_PAGE_WAIT: Duration = Duration::from_millis(5);

/// A range of a file, in bytes.
#[derive(Clone, Copy)]
struct Range {
    ino: Ino,
    offset: u64,
    len: u64,
}

/// The record of a file with direct writes.
struct Record {
    /// Number of cached reads and writes; it detects one that runs during a notification.
    cached_io: u64,
    /// The kernel may have pages of the file.
    has_pages: bool,
    /// Direct writes since the last cached read or write.
    quiet: u32,
    /// Value of `quiet` at which all pages are dropped.
    quiet_limit: u32,
    /// Number of notifications after direct writes that are in progress.
    dropping: u32,
    /// End of the last of them.
    dropped: Option<Instant>,
}

/// The pages to drop after a write.
enum Invalidation {
    Nothing,
    /// The range of a direct write.
    Range,
    /// The range of a cached write. Meanwhile the kernel delays other cached writes of the file.
    OwnRange,
    /// All pages, at this value of [`Record::cached_io`].
    All(u64),
}

struct Records {
    /// Number of records. It is read without the lock.
    count: AtomicUsize,
    by_ino: Mutex<FxHashMap<Ino, Record>>,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            count: AtomicUsize::new(0),
            by_ino: Rank::FuseCoherence.mutex(FxHashMap::default()),
        }
    }
}

impl Records {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Notes that a cached read or write will be carried out.
    fn note_cached(&self, ino: Ino) {
        if self.is_empty() {
            return;
        }
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.cached_io += 1;
            record.has_pages = true;
            record.quiet = 0;
        }
    }

    /// Notes that a direct write has been carried out. Returns the pages to drop.
    fn note_direct(&self, ino: Ino) -> Invalidation {
        let mut by_ino = self.by_ino.lock();
        let record = by_ino.entry(ino).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::SeqCst);
            Record {
                cached_io: 0,
                has_pages: true,
                quiet: 0,
                quiet_limit: QUIET_WRITES,
                dropping: 0,
                dropped: None,
            }
        });
        if !record.has_pages {
            return Invalidation::Nothing;
        }
        record.quiet += 1;
        if record.quiet < record.quiet_limit {
            return Invalidation::Range;
        }
        record.quiet = 0;
        record.quiet_limit = record.quiet_limit.saturating_mul(2);
        Invalidation::All(record.cached_io)
    }

    /// Returns whether a cached write that has just been carried out may have lost its pages.
    fn may_be_stale(&self, ino: Ino) -> bool {
        let is_recent = |record: &Record| {
            let recently = |at: Instant| now().duration_since(at) < RECENT;
            record.dropping > 0 || record.dropped.is_some_and(recently)
        };
        !self.is_empty() && self.by_ino.lock().get(&ino).is_some_and(is_recent)
    }

    /// Notes the start of a notification.
    fn begin_drop(&self, ino: Ino) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.dropping += 1;
        }
    }

    /// Notes the end of a notification.
    fn end_drop(&self, ino: Ino) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.dropping = record.dropping.saturating_sub(1);
            record.dropped = Some(now());
        }
    }

    /// Notes that the reply to a cached write is sent before its notification has ended, which may
    /// drop pages of the next write.
    fn note_late(&self, ino: Ino) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.dropped = Some(now());
        }
    }

    /// Notes that all pages have been dropped, except those of reads and writes after `cached_io`.
    fn note_dropped(&self, ino: Ino, cached_io: u64) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino)
            && record.cached_io == cached_io
        {
            record.has_pages = false;
        }
    }

    fn forget(&self, ino: Ino) {
        if !self.is_empty() && self.by_ino.lock().remove(&ino).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

type SendReply = Box<dyn FnOnce() + Send>;

struct Job {
    range: Range,
    drop: Invalidation,
    reply: Option<SendReply>,
}

struct Shared {
    records: Records,
    notifier: OnceLock<Notifier>,
    /// Number of replies that wait in the queue.
    held: AtomicUsize,
}

impl Shared {
    fn drop_pages(&self, range: Range, drop: &Invalidation) {
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        let node = node_of(range.ino);
        if let Invalidation::OwnRange = drop {
            return notifier.contents_changed(node, range.offset, range.len);
        }
        self.records.begin_drop(range.ino);
        match drop {
            Invalidation::Nothing | Invalidation::OwnRange => {}
            Invalidation::Range => notifier.contents_changed(node, range.offset, range.len),
            Invalidation::All(cached_io) => {
                notifier.contents_changed(node, 0, 0);
                self.records.note_dropped(range.ino, *cached_io);
            }
        }
        self.records.end_drop(range.ino);
    }

    fn run(&self, job: Job) {
        guarded("notification", || self.drop_pages(job.range, &job.drop));
        if let Some(reply) = job.reply {
            guarded("write", reply);
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Keeps the kernel's page cache coherent with direct writes.
pub(crate) struct Coherence {
    shared: Arc<Shared>,
    /// There are several serving threads, so one of them may wait.
    may_wait: bool,
    /// A serving thread waits for its notification.
    waiting: AtomicBool,
    queue: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Coherence {
    /// `threads` is the number of serving threads.
    ///
    /// # Errors
    /// The thread that sends notifications cannot be started.
    pub fn start(threads: usize) -> std::io::Result<Coherence> {
        let shared = Arc::new(Shared {
            records: Records::default(),
            notifier: OnceLock::new(),
            held: AtomicUsize::new(0),
        });
        let (queue, jobs) = unbounded::<Job>();
        let thread = thread::Builder::new().name("sluice-inval".into()).spawn({
            let shared = shared.clone();
            move || jobs.iter().for_each(|job| shared.run(job))
        })?;
        Ok(Coherence {
            shared,
            may_wait: threads > 1,
            waiting: AtomicBool::new(false),
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Sets the sender of notifications.
    pub fn set_notifier(&self, notifier: Notifier) {
        let _ = self.shared.notifier.set(notifier);
    }

    /// Notes that a read or write through the kernel's page cache will be carried out.
    pub fn note_cached(&self, ino: Ino) {
        self.shared.records.note_cached(ino);
    }

    /// Removes the record of a file that the kernel has forgotten, with all its pages.
    pub fn forget(&self, ino: Ino) {
        self.shared.records.forget(ino);
    }

    /// Drops `len` bytes at `offset`, which a direct write has written, from the kernel's page
    /// cache, then calls `reply`: before this returns, or later on another thread. `hold` is the
    /// answer of the reply.
    pub fn after_direct_write(
        &self,
        ino: Ino,
        (offset, len): (u64, u64),
        hold: Hold,
        reply: impl FnOnce() + Send + 'static,
    ) {
        let drop = self.shared.records.note_direct(ino);
        if len == 0 || matches!(drop, Invalidation::Nothing) {
            return reply();
        }
        let range = Range { ino, offset, len };
        let may_hold = hold == Hold::Granted;
        if may_hold && self.may_wait && !self.waiting.swap(true, Ordering::Acquire) {
            self.shared.drop_pages(range, &drop);
            self.waiting.store(false, Ordering::Release);
            return reply();
        }
        let held = self.shared.held.fetch_add(1, Ordering::Relaxed);
        let reply = if may_hold && held < MAX_HELD {
            Some(Box::new(reply) as SendReply)
        } else {
            self.shared.held.fetch_sub(1, Ordering::Relaxed);
            reply();
            None
        };
        if let Some(queue) = &self.queue {
            // The thread lives as long as the queue, so sending cannot fail.
            let _ = queue.send(Job { range, drop, reply });
        }
    }

    /// Drops `len` bytes at `offset`, which a cached write has written, from the kernel's page
    /// cache if the write may have lost its pages. The caller then replies.
    pub fn after_cached_write(&self, ino: Ino, (offset, len): (u64, u64)) {
        if !self.shared.records.may_be_stale(ino) {
            return;
        }
        let Some(queue) = &self.queue else {
            return;
        };
        let (dropped, wait) = bounded(1);
        let job = Job {
            range: Range { ino, offset, len },
            drop: Invalidation::OwnRange,
            reply: Some(Box::new(move || _ = dropped.try_send(()))),
        };
        self.shared.held.fetch_add(1, Ordering::Relaxed);
        let _ = queue.send(job);
        let is_whole_pages = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let waited = wait.recv_timeout(match is_whole_pages {
            true => WHOLE_PAGES_WAIT,
            false => PART_OF_PAGE_WAIT,
        });
        if waited.is_err() {
            self.shared.records.note_late(ino);
        }
    }
}

impl Drop for Coherence {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_direct_writes_have_no_record() {
        let records = Records::default();
        records.note_cached(Ino(7));
        assert!(records.is_empty());
        assert!(matches!(records.note_direct(Ino(7)), Invalidation::Range));
        assert!(!records.is_empty());
        records.forget(Ino(8));
        records.forget(Ino(7));
        assert!(records.is_empty());
    }

    #[test]
    fn a_file_with_only_direct_writes_needs_no_notification() {
        let records = Records::default();
        let mut drops = (0..QUIET_WRITES).map(|_| records.note_direct(Ino(7)));
        let all = drops.find(|drop| matches!(drop, Invalidation::All(_)));
        let Some(Invalidation::All(at)) = all else {
            panic!("all pages are never dropped");
        };
        assert!(drops.next().is_none());
        // Until this notification has ended, other writes send theirs.
        assert!(matches!(records.note_direct(Ino(7)), Invalidation::Range));
        records.note_dropped(Ino(7), at);
        assert!(matches!(records.note_direct(Ino(7)), Invalidation::Nothing));
        records.note_cached(Ino(7));
        assert!(matches!(records.note_direct(Ino(7)), Invalidation::Range));
    }

    #[test]
    fn a_cached_write_after_a_notification_may_have_lost_its_pages() {
        let records = Records::default();
        assert!(!records.may_be_stale(Ino(7)));
        records.note_direct(Ino(7));
        assert!(!records.may_be_stale(Ino(7)));
        records.begin_drop(Ino(7));
        assert!(records.may_be_stale(Ino(7)) && !records.may_be_stale(Ino(8)));
        records.end_drop(Ino(7));
        assert!(records.may_be_stale(Ino(7)));
    }

    #[test]
    fn a_cached_read_during_the_notification_counts() {
        let records = Records::default();
        let at = (0..QUIET_WRITES).find_map(|_| match records.note_direct(Ino(7)) {
            Invalidation::All(at) => Some(at),
            _ => None,
        });
        records.note_cached(Ino(7));
        records.note_dropped(Ino(7), at.unwrap());
        assert!(matches!(records.note_direct(Ino(7)), Invalidation::Range));
    }
}
