//! The allocator of buffers.
//!
//! Memory is mapped in regions and used in aligned chunks of 2 MiB, so that the kernel can back a
//! chunk with one huge page if that is cheap (`huge.rs`): one fault instead of 512, and one pin
//! instead of 512 for direct I/O. The first page of a chunk is a table of {reference count, length}
//! for the others.
//!
//! ```text
//!   thread magazine ⇄ (64 at a time) ⇄ global free list ◀── carve ── current chunk ◀── released chunks, new regions
//!                                             ├── trim: wholly free chunks go back to the OS ──▶ released chunks
//!                                             └── trim: runs of free pages, their memory too ──▶ cold list, used next
//! ```
//!
//! Allocation pops the thread's magazine; only every 64th allocation takes the global lock. A
//! refill is sorted, so that pages come out in ascending order. Consecutive buffers are then
//! adjacent, and their iovecs coalesce.

use super::PAGE_SIZE;
use super::huge::Hint;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use sync::{Rank, UnscheduledMutex};

/// Bytes in a chunk, and its alignment.
const CHUNK: usize = 2 << 20;
/// Pages of a chunk that hold data; one holds the table.
const CHUNK_PAGES: usize = CHUNK / PAGE_SIZE - 1;
/// Address space taken from the OS at once. Only touched pages cost memory.
const REGION: usize = 64 << 20;
/// Pages that move between a magazine and the global list at once.
const BATCH: usize = 64;
/// Free pages a thread may keep.
const MAGAZINE: usize = 2 * BATCH;
const _: () = assert!((CHUNK_PAGES + 1) * size_of::<Entry>() <= PAGE_SIZE);

/// The entry of a page in the table.
#[repr(C)]
pub(super) struct Entry {
    /// References; 0 while free, 1 in a `BufMut`.
    pub(super) refs: AtomicU32,
    /// Bytes in use; written by the only owner.
    pub(super) len: AtomicU32,
}

/// A page of the pool. The last handle passes it to [`free`] once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Page(NonNull<u8>);

// SAFETY: a `Page` is an address; the reference count, which is atomic, decides which thread may
// touch the bytes.
unsafe impl Send for Page {}
// SAFETY: as above; no method of `Page` touches the bytes.
unsafe impl Sync for Page {}

impl Page {
    pub(super) fn ptr(self) -> NonNull<u8> {
        self.0
    }

    pub(super) fn entry(self) -> &'static Entry {
        let addr = self.0.as_ptr().addr();
        let table = self.0.as_ptr().map_addr(|a| a & !(CHUNK - 1));
        let index = (addr & (CHUNK - 1)) / PAGE_SIZE;
        // SAFETY: pages lie in aligned chunks whose first page is a table with an entry for each;
        // chunks stay mapped for the life of the process, are zero at first (valid atomics) and are
        // only accessed as atomics.
        unsafe { &*table.cast::<Entry>().add(index) }
    }

    pub(super) fn len(self) -> usize {
        self.entry().len.load(std::sync::atomic::Ordering::Relaxed) as usize
    }

    fn addr(self) -> usize {
        self.0.as_ptr().addr()
    }

    fn chunk(self) -> Chunk {
        let start = self.0.as_ptr().map_addr(|a| a & !(CHUNK - 1));
        Chunk(NonNull::new(start).expect("a chunk is not at address zero"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Chunk(NonNull<u8>);

// SAFETY: an address; see `Page`.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Data page `index` of the chunk, from 0.
    fn page(self, index: usize) -> Page {
        debug_assert!(index < CHUNK_PAGES);
        // SAFETY: within the chunk's mapping of `CHUNK` bytes.
        Page(unsafe { self.0.add((1 + index) * PAGE_SIZE) })
    }

    /// Advises the kernel which page size to back an unused chunk with.
    fn advise_size(self, advice: Advice) {
        // SAFETY: `CHUNK` mapped bytes, whose contents the advice does not change. It is a hint and
        // its refusal harmless.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), CHUNK, advice) };
    }

    /// Makes the kernel back at least the table with memory.
    fn touch(self) {
        // SAFETY: entry 0 of the table stands for the table itself: it is mapped, aligned, and
        // counts no page.
        let entry = unsafe { self.0.cast::<Entry>().as_ref() };
        entry.refs.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A chunk that asked for a huge page and has not been touched. The thread that took its first
/// pages touches it, without the lock.
#[must_use]
struct Untouched(Chunk);

impl Untouched {
    fn touch(self) {
        HUGE_PAGES.first_touch(|| self.0.touch());
    }
}

/// The pages that are neither in a magazine nor in use.
struct Global {
    /// Free pages with memory.
    free: Vec<Page>,
    /// Free pages without memory, in chunks that are partly in use.
    cold: Vec<Page>,
    /// The chunk being carved, and the first page not yet carved.
    current: Option<(Chunk, usize)>,
    /// Chunks without memory, to be carved again.
    released: Vec<Chunk>,
    /// Address space not yet used: start and bytes left.
    region: Option<(Chunk, usize)>,
    chunks: usize,
}

static GLOBAL: UnscheduledMutex<Global> = Rank::PagePool.unscheduled_mutex(Global {
    free: Vec::new(),
    cold: Vec::new(),
    current: None,
    released: Vec::new(),
    region: None,
    chunks: 0,
});

static HUGE_PAGES: Hint = Hint::new();

struct Magazine(Vec<Page>);

impl Drop for Magazine {
    fn drop(&mut self) {
        GLOBAL.lock().free.append(&mut self.0);
    }
}

thread_local! {
    static LOCAL: RefCell<Magazine> = const { RefCell::new(Magazine(Vec::new())) };
}

impl Global {
    /// Moves up to `count` pages to `out`, the lowest address last, so that popping ascends.
    fn take(&mut self, count: usize, out: &mut Vec<Page>) -> Option<Untouched> {
        let from = out.len();
        let list = if self.free.is_empty() {
            &mut self.cold
        } else {
            &mut self.free
        };
        if !list.is_empty() {
            let keep = list.len().saturating_sub(count);
            out.extend(list.drain(keep..));
            out[from..].sort_unstable_by(|a, b| b.cmp(a));
            return None;
        }
        let (chunk, first, untouched) = match self.current.take() {
            Some((chunk, first)) => (chunk, first, None),
            None => {
                let chunk = self.new_chunk();
                let huge = HUGE_PAGES.wanted();
                chunk.advise_size(match huge {
                    true => Advice::LinuxHugepage,
                    false => Advice::LinuxNoHugepage,
                });
                (chunk, 0, huge.then_some(Untouched(chunk)))
            }
        };
        let end = CHUNK_PAGES.min(first + count);
        out.extend((first..end).rev().map(|i| chunk.page(i)));
        self.current = (end < CHUNK_PAGES).then_some((chunk, end));
        untouched
    }

    /// A chunk without memory.
    fn new_chunk(&mut self) -> Chunk {
        self.chunks += 1;
        if let Some(chunk) = self.released.pop() {
            return chunk;
        }
        let (chunk, left) = self.region.take().unwrap_or_else(map_region);
        if left > CHUNK {
            // SAFETY: `left` bytes from `chunk` on are mapped, so the next chunk lies in the
            // region.
            self.region = Some((Chunk(unsafe { chunk.0.add(CHUNK) }), left - CHUNK));
        }
        chunk
    }
}

/// Maps a region aligned to chunks. It maps one chunk more than needed and leaves the misaligned
/// ends unused.
fn map_region() -> (Chunk, usize) {
    let bytes = REGION + CHUNK;
    // SAFETY: a new private mapping at an address of the kernel's choice; nothing else refers to
    // it.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let Ok(start) = mapped else {
        handle_alloc_error(Layout::from_size_align(bytes, CHUNK).expect("constants"));
    };
    let start = start.cast::<u8>().map_addr(|a| a.next_multiple_of(CHUNK));
    let start = NonNull::new(start).expect("a mapping is not at address zero");
    (Chunk(start), REGION)
}

/// Moves up to `count` pages from the global list to `out`.
fn refill(count: usize, out: &mut Vec<Page>) {
    let untouched = GLOBAL.lock().take(count, out);
    if let Some(chunk) = untouched {
        chunk.touch();
    }
}

/// A free page; contents unspecified.
pub(super) fn alloc() -> Page {
    LOCAL
        .try_with(|local| {
            let pages = &mut local.borrow_mut().0;
            if pages.is_empty() {
                pages.reserve(MAGAZINE);
                refill(BATCH, pages);
            }
            pages.pop()
        })
        .ok()
        .flatten()
        .unwrap_or_else(alloc_without_magazine)
}

/// For an ending thread, which has no magazine any more.
#[cold]
fn alloc_without_magazine() -> Page {
    let mut one = Vec::with_capacity(1);
    refill(1, &mut one);
    one.pop().expect("the pool grows or aborts")
}

/// Takes back a page without references.
pub(super) fn free(page: Page) {
    let kept = LOCAL.try_with(|local| {
        let pages = &mut local.borrow_mut().0;
        if pages.len() >= MAGAZINE {
            // The bottom of the stack has the pages used longest ago.
            GLOBAL.lock().free.extend(pages.drain(..BATCH));
        } else if pages.capacity() == 0 {
            pages.reserve(MAGAZINE);
        }
        pages.push(page);
    });
    if kept.is_err() {
        GLOBAL.lock().free.push(page);
    }
}

/// The memory of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes that may have memory.
    pub chunk_bytes: u64,
    /// Bytes on the global free list or not yet carved (magazines, at most 512 KiB a thread, count
    /// as used).
    pub free_bytes: u64,
    /// Bytes whose memory [`trim`] gave back to the OS, and that are not in use again.
    pub released_bytes: u64,
}

impl PoolStats {
    /// Bytes in buffers, in magazines and in tables.
    pub fn used_bytes(&self) -> u64 {
        self.chunk_bytes - self.free_bytes
    }
}

/// The memory of the pool now.
pub fn stats() -> PoolStats {
    let global = GLOBAL.lock();
    let uncarved = global.current.map_or(0, |(_, carved)| CHUNK_PAGES - carved);
    PoolStats {
        chunk_bytes: (global.chunks * CHUNK - global.cold.len() * PAGE_SIZE) as u64,
        free_bytes: ((global.free.len() + uncarved) * PAGE_SIZE) as u64,
        released_bytes: (global.released.len() * CHUNK + global.cold.len() * PAGE_SIZE) as u64,
    }
}

/// Gives free memory back to the OS: chunks that are wholly free, and the free pages of the others.
/// It gives back at most `most` bytes, those used longest ago, and keeps the `keep` bytes used
/// last. It leaves the magazines of other threads alone. Returns the bytes given back.
///
/// Each run of adjacent pages costs a system call. If several processors run the process, each call
/// waits for all of them: 30 µs, and several times as long if they are busy.
pub fn trim(keep: u64, most: u64) -> u64 {
    let (keep, most) = (keep as usize / PAGE_SIZE, most as usize / PAGE_SIZE);
    let _ = LOCAL.try_with(|local| {
        let pages = &mut local.borrow_mut().0;
        GLOBAL.lock().free.append(pages);
    });
    let mut pages: Vec<(Page, bool)> = {
        let mut global = GLOBAL.lock();
        let unneeded = global.free.len().saturating_sub(keep);
        let kept = global.free.split_off(unneeded.min(most));
        let warm = std::mem::replace(&mut global.free, kept);
        let cold = std::mem::take(&mut global.cold);
        let warm = warm.into_iter().map(|page| (page, true));
        warm.chain(cold.into_iter().map(|page| (page, false)))
            .collect()
    };
    // Most of the pages were found cold, in order.
    pages.sort();
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    let mut released = Vec::new();
    let mut bytes = 0;
    let is_warm = |&&(_, warm): &&(Page, bool)| warm;
    for group in pages.chunk_by(|(a, _), (b, _)| a.chunk() == b.chunk()) {
        let chunk = group[0].0.chunk();
        if group.len() == CHUNK_PAGES {
            // SAFETY: every page of the chunk is free and in `pages`, which only this thread has;
            // no handle can read the table. The chunk reads as zeroes afterwards: all free, no
            // references.
            if unsafe { madvise(chunk.0.as_ptr().cast(), CHUNK, Advice::LinuxDontNeed) }.is_ok() {
                released.push(chunk);
                bytes += (group.iter().filter(is_warm).count() * PAGE_SIZE) as u64;
                continue;
            }
        }
        for run in group.chunk_by(|(a, _), (b, _)| a.addr() + PAGE_SIZE == b.addr()) {
            let with_memory = run.iter().filter(is_warm).count();
            let len = run.len() * PAGE_SIZE;
            let give_back = || {
                let start = run[0].0.ptr().as_ptr().cast();
                // SAFETY: the pages of the run are free and only this thread has them; they read as
                // zeroes afterwards.
                unsafe { madvise(start, len, Advice::LinuxDontNeed) }.is_ok()
            };
            if with_memory > 0 && give_back() {
                bytes += (with_memory * PAGE_SIZE) as u64;
                cold.extend(run.iter().map(|&(page, _)| page));
            } else {
                for &(page, is_warm) in run {
                    let list = if is_warm { &mut warm } else { &mut cold };
                    list.push(page);
                }
            }
        }
    }
    warm.reverse();
    cold.reverse();
    let mut global = GLOBAL.lock();
    global.chunks -= released.len();
    global.released.append(&mut released);
    // Below the pages that were freed in the meantime, so that warm pages are used first.
    warm.append(&mut global.free);
    global.free = warm;
    cold.append(&mut global.cold);
    global.cold = cold;
    bytes
}
