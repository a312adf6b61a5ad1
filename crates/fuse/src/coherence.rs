//! The kernel's page cache beside direct writes.
//!
//! The kernel drops the cached pages of a range before it sends an asynchronous direct write, and
//! does not look again when the write is answered (Linux 6.18, `generic_file_direct_write` and
//! `fuse_aio_complete`). A buffered read that comes in between leaves the old contents in the
//! cache. So the server drops the range once more, after the write and before its answer:
//!
//! ```text
//!  kernel   drops pages ─ WRITE ─────────┐                                  ┌─> complete
//!  server                                apply ─ drop pages (notification) ─┘ answer
//!                             READ ─ old contents: its page is locked until it is answered, then dropped
//!                                            READ ─ new contents
//! ```
//!
//! A notification may also meet a cached write that the kernel has in its pages and that the server
//! has not carried out (its pages are clean and not locked). Then a read finds no page, and the
//! server's old contents become a new one:
//!
//! ```text
//!  kernel   fills pages ─────────── WRITE ─────────────────┐                                  ┌─> complete
//!  server                 drop pages        READ ─ old     apply ─ drop pages (notification) ─┘ answer
//! ```
//!
//! So a cached write drops its own range, too, if pages of the file have been dropped within
//! [`RECENT`]. The last page may be locked until the write is answered, where it is written in part
//! and was not cached. The write does not wait long for it: nobody can have read a page that was
//! locked.
//!
//! A notification waits for locked pages, hence for other requests. Two rules keep that from ending
//! in a deadlock:
//! - One serving thread at a time sends a notification, and only if there are more threads. All
//!   others are sent by a thread that serves no requests.
//! - At most [`MAX_HELD`] answers are held back. Requests in the background share a limit in the
//!   kernel, which direct writes must not use up while a READ that they wait for needs a place.
//!   Beyond it the answer goes first.
//!
//! Nothing is sent for files that nobody reads through the cache: each file with direct writes has
//! a record of whether the kernel may have pages of it. Other files have no record, and cost one
//! atomic load.

use crate::server::node_of;
use crossbeam_channel::{Sender, bounded, unbounded};
use fusedev::{Notifier, guarded};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a page of the kernel's cache. Where its pages are larger, more is dropped than these.
const PAGE: u64 = 4096;
/// Answers that wait for a notification, at most. The kernel's limit of requests in the background
/// is 512, and less than that for users other than root on machines with less than 2 GiB.
const MAX_HELD: usize = 128;
/// Direct writes without cached I/O between them after which all pages of the file are dropped, so
/// that the next ones need no notification. It doubles each time, for readers whose cached pages
/// are needed.
const PATIENCE: u32 = 64;
/// The longest time from when the kernel fills the pages of a cached write until the server is
/// asked to carry it out.
const RECENT: Duration = Duration::from_secs(10);
/// The longest time that a cached write waits for its pages to be dropped, where it is of whole
/// pages: they may be locked by a request that waits for the same serving thread.
const WHOLE_PAGES_WAIT: Duration = Duration::from_millis(100);
/// The same where it is not: it may itself have locked its last page.
const PART_OF_PAGE_WAIT: Duration = Duration::from_millis(5);

/// A range of a file, in bytes.
#[derive(Clone, Copy)]
struct Range {
    ino: u32,
    offset: u64,
    len: u64,
}

/// A file with direct writes.
struct Record {
    /// Counts cached reads and writes, to notice one beside a notification.
    cached_io: u64,
    /// The kernel may have pages of the file.
    has_pages: bool,
    /// Direct writes since the last cached read or write.
    quiet: u32,
    patience: u32,
    /// Notifications after direct writes that are under way.
    dropping: u32,
    /// When the last of them ended.
    dropped: Option<Instant>,
}

/// What has to be dropped after a direct write.
enum Drop {
    Nothing,
    Range,
    /// The range of a cached write, while the kernel keeps other cached writes of the file back.
    OwnRange,
    /// All pages, at this value of [`Record::cached_io`].
    All(u64),
}

#[derive(Default)]
struct Records {
    /// Number of records, read without the lock.
    count: AtomicUsize,
    by_ino: Mutex<FxHashMap<u32, Record>>,
}

impl Records {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// A cached read or write is about to be carried out.
    fn note_cached(&self, ino: u32) {
        if self.is_empty() {
            return;
        }
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.cached_io += 1;
            record.has_pages = true;
            record.quiet = 0;
        }
    }

    /// A direct write has been carried out.
    fn note_direct(&self, ino: u32) -> Drop {
        let mut by_ino = self.by_ino.lock();
        let record = by_ino.entry(ino).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::SeqCst);
            Record {
                cached_io: 0,
                has_pages: true,
                quiet: 0,
                patience: PATIENCE,
                dropping: 0,
                dropped: None,
            }
        });
        if !record.has_pages {
            return Drop::Nothing;
        }
        record.quiet += 1;
        if record.quiet < record.patience {
            return Drop::Range;
        }
        record.quiet = 0;
        record.patience = record.patience.saturating_mul(2);
        Drop::All(record.cached_io)
    }

    /// Whether a cached write that has been carried out now may have lost its pages before.
    fn may_be_stale(&self, ino: u32) -> bool {
        let is_recent = |record: &Record| {
            let recently = |at: Instant| at.elapsed() < RECENT;
            record.dropping > 0 || record.dropped.is_some_and(recently)
        };
        !self.is_empty() && self.by_ino.lock().get(&ino).is_some_and(is_recent)
    }

    /// A notification begins.
    fn begin_drop(&self, ino: u32) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.dropping += 1;
        }
    }

    /// A notification has ended.
    fn end_drop(&self, ino: u32) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.dropping = record.dropping.saturating_sub(1);
            record.dropped = Some(Instant::now());
        }
    }

    /// A cached write is answered before its notification has ended, which may meet the next write.
    fn note_late(&self, ino: u32) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino) {
            record.dropped = Some(Instant::now());
        }
    }

    /// All pages have been dropped. Those of reads and writes after `cached_io` may be there.
    fn note_dropped(&self, ino: u32, cached_io: u64) {
        if let Some(record) = self.by_ino.lock().get_mut(&ino)
            && record.cached_io == cached_io
        {
            record.has_pages = false;
        }
    }

    fn forget(&self, ino: u32) {
        if !self.is_empty() && self.by_ino.lock().remove(&ino).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

type Answer = Box<dyn FnOnce() + Send>;

struct Job {
    range: Range,
    drop: Drop,
    answer: Option<Answer>,
}

struct Shared {
    records: Records,
    notifier: OnceLock<Notifier>,
    /// Answers that wait in the queue.
    held: AtomicUsize,
}

impl Shared {
    fn drop_pages(&self, range: Range, drop: &Drop) {
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        let node = node_of(range.ino);
        if let Drop::OwnRange = drop {
            return notifier.contents_changed(node, range.offset, range.len);
        }
        self.records.begin_drop(range.ino);
        match drop {
            Drop::Nothing | Drop::OwnRange => {}
            Drop::Range => notifier.contents_changed(node, range.offset, range.len),
            Drop::All(cached_io) => {
                notifier.contents_changed(node, 0, 0);
                self.records.note_dropped(range.ino, *cached_io);
            }
        }
        self.records.end_drop(range.ino);
    }

    fn run(&self, job: Job) {
        guarded("notification", || self.drop_pages(job.range, &job.drop));
        if let Some(answer) = job.answer {
            guarded("write", answer);
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Keeps the kernel's page cache coherent with direct writes.
pub(crate) struct Coherence {
    shared: Arc<Shared>,
    /// There are several serving threads, so that one may wait for another.
    may_wait: bool,
    /// A serving thread waits for its notification.
    waiting: AtomicBool,
    queue: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Coherence {
    /// For `threads` threads that serve requests.
    ///
    /// # Errors
    /// No thread is to be had.
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

    /// The way to tell the kernel.
    pub fn set_notifier(&self, notifier: Notifier) {
        let _ = self.shared.notifier.set(notifier);
    }

    /// A read or write through the kernel's page cache is about to be carried out.
    pub fn note_cached(&self, ino: u32) {
        self.shared.records.note_cached(ino);
    }

    /// The kernel has forgotten the file, and all pages of it.
    pub fn forget(&self, ino: u32) {
        self.shared.records.forget(ino);
    }

    /// `len` bytes at `offset` have been written directly: drops them from the kernel's page cache,
    /// and calls `answer`, before this returns or later on another thread.
    pub fn after_direct_write(
        &self,
        ino: u32,
        (offset, len): (u64, u64),
        answer: impl FnOnce() + Send + 'static,
    ) {
        let drop = self.shared.records.note_direct(ino);
        if len == 0 || matches!(drop, Drop::Nothing) {
            return answer();
        }
        let range = Range { ino, offset, len };
        if self.may_wait && !self.waiting.swap(true, Ordering::Acquire) {
            self.shared.drop_pages(range, &drop);
            self.waiting.store(false, Ordering::Release);
            return answer();
        }
        let held = self.shared.held.fetch_add(1, Ordering::Relaxed);
        let answer = if held < MAX_HELD {
            Some(Box::new(answer) as Answer)
        } else {
            self.shared.held.fetch_sub(1, Ordering::Relaxed);
            answer();
            None
        };
        if let Some(queue) = &self.queue {
            // It cannot fail: the thread ends when the queue is dropped. A job that is dropped
            // answers EIO.
            let _ = queue.send(Job {
                range,
                drop,
                answer,
            });
        }
    }

    /// `len` bytes at `offset` have been written through the page cache, and the write is to be
    /// answered when this returns.
    pub fn after_cached_write(&self, ino: u32, (offset, len): (u64, u64)) {
        if !self.shared.records.may_be_stale(ino) {
            return;
        }
        let Some(queue) = &self.queue else {
            return;
        };
        let (dropped, wait) = bounded(1);
        let job = Job {
            range: Range { ino, offset, len },
            drop: Drop::OwnRange,
            answer: Some(Box::new(move || _ = dropped.try_send(()))),
        };
        self.shared.held.fetch_add(1, Ordering::Relaxed);
        let _ = queue.send(job);
        let whole = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let waited = wait.recv_timeout(match whole {
            true => WHOLE_PAGES_WAIT,
            false => PART_OF_PAGE_WAIT,
        });
        if waited.is_err() {
            self.shared.records.note_late(ino);
        }
    }
}

impl std::ops::Drop for Coherence {
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
        records.note_cached(7);
        assert!(records.is_empty());
        assert!(matches!(records.note_direct(7), Drop::Range));
        assert!(!records.is_empty());
        records.forget(8);
        records.forget(7);
        assert!(records.is_empty());
    }

    #[test]
    fn a_file_that_is_only_written_directly_needs_no_notification() {
        let records = Records::default();
        let mut drops = (0..PATIENCE).map(|_| records.note_direct(7));
        let all = drops.find(|drop| matches!(drop, Drop::All(_)));
        let Some(Drop::All(at)) = all else {
            panic!("never dropped");
        };
        assert!(drops.next().is_none());
        // Until the notification has been answered, others send theirs.
        assert!(matches!(records.note_direct(7), Drop::Range));
        records.note_dropped(7, at);
        assert!(matches!(records.note_direct(7), Drop::Nothing));
        records.note_cached(7);
        assert!(matches!(records.note_direct(7), Drop::Range));
    }

    #[test]
    fn a_cached_write_after_a_notification_may_have_lost_its_pages() {
        let records = Records::default();
        assert!(!records.may_be_stale(7));
        records.note_direct(7);
        assert!(!records.may_be_stale(7));
        records.begin_drop(7);
        assert!(records.may_be_stale(7) && !records.may_be_stale(8));
        records.end_drop(7);
        assert!(records.may_be_stale(7));
    }

    #[test]
    fn a_read_beside_the_notification_counts() {
        let records = Records::default();
        let at = (0..PATIENCE).find_map(|_| match records.note_direct(7) {
            Drop::All(at) => Some(at),
            _ => None,
        });
        records.note_cached(7);
        records.note_dropped(7, at.unwrap());
        assert!(matches!(records.note_direct(7), Drop::Range));
    }
}
