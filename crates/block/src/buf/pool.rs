//! The allocator of buffers.
//!
//! Memory is mapped in regions and used in aligned chunks of 2 MiB, so that the kernel can back a
//! chunk with one huge page if that is cheap (`huge.rs`): one fault instead of 512, and one pin
//! instead of 512 for direct I/O. A chunk is divided into slots of one class: 4, 2 or 1 KiB. Its
//! first slots hold a table of {reference count, length} for the others.
//!
//! ```text
//!   for each class:
//!   thread magazine ⇄ (64 at a time) ⇄ global free list ◀── carve ── current chunk ◀── released chunks, new regions
//!                                             ├── trim: wholly free chunks go back to the OS ──▶ released chunks
//!                                             └── trim: runs of free slots, their memory too ──▶ cold list, used next
//! ```
//!
//! Allocation pops the thread's magazine; only every 64th allocation takes the global lock. A
//! refill is sorted, so that slots come out in ascending order. Consecutive buffers are then
//! adjacent, and their iovecs coalesce. A released chunk may get slots of another class.

mod trim;

use super::PAGE_SIZE;
use super::huge::Hint;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use sync::{Rank, UnscheduledMutex};
pub use trim::trim;

/// Bytes in a chunk, and its alignment.
const CHUNK: usize = 2 << 20;
/// Address space taken from the OS at once. Only touched pages cost memory.
const REGION: usize = 64 << 20;
/// Slots that move between a magazine and the global list at once.
const BATCH: usize = 64;
/// Free slots of a class that a thread may keep.
const MAGAZINE: usize = 2 * BATCH;

/// The size of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(u8);

impl Class {
    const COUNT: usize = 3;
    const ALL: [Class; Class::COUNT] = [Class(0), Class(1), Class(2)];
    /// The bits of a slot's address that hold its class. Slots are aligned, so they are free.
    const MASK: usize = 3;

    /// The class for buffers of `len` bytes. Only the sizes of smaller blocks have classes of their
    /// own: other short buffers are few.
    #[inline]
    pub(super) fn of_len(len: usize) -> Class {
        match len {
            1024 => Class(2),
            2048 => Class(1),
            _ => Class(0),
        }
    }
    /// Bytes of a slot, as a power of two.
    #[inline]
    const fn bits(self) -> u32 {
        PAGE_SIZE.trailing_zeros() - self.0 as u32
    }
    /// Bytes of a slot.
    #[inline]
    const fn bytes(self) -> usize {
        1 << self.bits()
    }
    /// Slots at the head of a chunk that hold the table.
    const fn table_slots(self) -> usize {
        let entries = CHUNK / self.bytes();
        (entries * size_of::<Entry>()).div_ceil(self.bytes())
    }
    /// Slots of a chunk that hold data.
    const fn slots(self) -> usize {
        CHUNK / self.bytes() - self.table_slots()
    }
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The entry of a slot in the table.
#[repr(C)]
pub(super) struct Entry {
    /// References; 0 while free, 1 in a `BufMut`.
    pub(super) refs: AtomicU32,
    /// Bytes in use; written by the only owner.
    pub(super) len: AtomicU32,
}

/// A slot of the pool: its address, with the class in the two lowest bits. The last handle passes
/// it to [`free`] once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(NonNull<u8>);

// SAFETY: a `Slot` is an address; the reference count, which is atomic, decides which thread may
// touch the bytes.
unsafe impl Send for Slot {}
// SAFETY: as above; no method of `Slot` touches the bytes.
unsafe impl Sync for Slot {}

impl Slot {
    #[inline]
    pub(super) fn ptr(self) -> NonNull<u8> {
        // SAFETY: slots lie behind the table of their chunk, so no address is zero without the
        // bits of the class.
        unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|a| a & !Class::MASK)) }
    }

    #[inline]
    fn class(self) -> Class {
        Class((self.0.as_ptr().addr() & Class::MASK) as u8)
    }

    #[inline]
    pub(super) fn entry(self) -> &'static Entry {
        let table = self.0.as_ptr().map_addr(|a| a & !(CHUNK - 1));
        let index = (self.0.as_ptr().addr() & (CHUNK - 1)) >> self.class().bits();
        // SAFETY: slots lie in aligned chunks whose first slots are a table with an entry for each;
        // chunks stay mapped for the life of the process, are zero at first (valid atomics) and are
        // only accessed as atomics.
        unsafe { &*table.cast::<Entry>().add(index) }
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.entry().len.load(std::sync::atomic::Ordering::Relaxed) as usize
    }

    /// The address of the first byte.
    fn addr(self) -> usize {
        self.ptr().as_ptr().addr()
    }

    fn chunk(self) -> Chunk {
        let start = self.0.as_ptr().map_addr(|a| a & !(CHUNK - 1));
        Chunk(NonNull::new(start).expect("a chunk is not at address zero"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Chunk(NonNull<u8>);

// SAFETY: an address; see `Slot`.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Data slot `index` of a chunk of `class`, from 0.
    fn slot(self, class: Class, index: usize) -> Slot {
        debug_assert!(index < class.slots());
        let offset = (class.table_slots() + index) * class.bytes() + class.index();
        // SAFETY: within the chunk's mapping of `CHUNK` bytes.
        Slot(unsafe { self.0.add(offset) })
    }

    /// Advises the kernel which page size to back an unused chunk with.
    fn advise_size(self, advice: Advice) {
        // SAFETY: `CHUNK` mapped bytes, whose contents the advice does not change. It is a hint and
        // its refusal harmless.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), CHUNK, advice) };
    }

    /// Makes the kernel back at least the head of the table with memory.
    fn touch(self) {
        // SAFETY: entry 0 of the table stands for the table itself: it is mapped, aligned, and
        // counts no slot.
        let entry = unsafe { self.0.cast::<Entry>().as_ref() };
        entry.refs.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A chunk that asked for a huge page and has not been touched. The thread that took its first
/// slots touches it, without the lock.
#[must_use]
struct Untouched(Chunk);

impl Untouched {
    fn touch(self) {
        HUGE_PAGES.first_touch(|| self.0.touch());
    }
}

/// The slots of a class that are neither in a magazine nor in use.
struct FreeSlots {
    /// Free slots with memory.
    warm: Vec<Slot>,
    /// Free slots without memory, in chunks that are partly in use. A small one may have memory
    /// again, if a neighbour in its page of the system is in use.
    cold: Vec<Slot>,
    /// The chunk being carved, and the first slot not yet carved.
    current: Option<(Chunk, usize)>,
}

impl FreeSlots {
    const NONE: FreeSlots = FreeSlots {
        warm: Vec::new(),
        cold: Vec::new(),
        current: None,
    };
}

/// The memory that is neither in a magazine nor in use.
struct Global {
    /// The slots of each class.
    free: [FreeSlots; Class::COUNT],
    /// Chunks without memory, to be carved again.
    released: Vec<Chunk>,
    /// Address space not yet used: start and bytes left.
    region: Option<(Chunk, usize)>,
    chunks: usize,
}

static GLOBAL: UnscheduledMutex<Global> = Rank::PagePool.unscheduled_mutex(Global {
    free: [FreeSlots::NONE; Class::COUNT],
    released: Vec::new(),
    region: None,
    chunks: 0,
});

static HUGE_PAGES: Hint = Hint::new();

/// A thread's free slots of each class.
struct Magazine([Vec<Slot>; Class::COUNT]);

impl Drop for Magazine {
    fn drop(&mut self) {
        GLOBAL.lock().take_back(self);
    }
}

thread_local! {
    static LOCAL: RefCell<Magazine> = const { RefCell::new(Magazine([const { Vec::new() }; 3])) };
}

impl Global {
    /// Moves up to `count` slots to `out`, the lowest address last, so that popping ascends.
    fn take(&mut self, class: Class, count: usize, out: &mut Vec<Slot>) -> Option<Untouched> {
        let from = out.len();
        let free = &mut self.free[class.index()];
        let list = if free.warm.is_empty() {
            &mut free.cold
        } else {
            &mut free.warm
        };
        if !list.is_empty() {
            let keep = list.len().saturating_sub(count);
            out.extend(list.drain(keep..));
            out[from..].sort_unstable_by(|a, b| b.cmp(a));
            return None;
        }
        let (chunk, first, untouched) = match free.current.take() {
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
        let end = class.slots().min(first + count);
        out.extend((first..end).rev().map(|i| chunk.slot(class, i)));
        self.free[class.index()].current = (end < class.slots()).then_some((chunk, end));
        untouched
    }

    /// Empties a magazine.
    fn take_back(&mut self, magazine: &mut Magazine) {
        for (free, slots) in self.free.iter_mut().zip(&mut magazine.0) {
            free.warm.append(slots);
        }
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

/// Moves up to `count` slots from the global list to `out`.
fn refill(class: Class, count: usize, out: &mut Vec<Slot>) {
    let untouched = GLOBAL.lock().take(class, count, out);
    if let Some(chunk) = untouched {
        chunk.touch();
    }
}

/// A free slot; contents unspecified.
pub(super) fn alloc(class: Class) -> Slot {
    LOCAL
        .try_with(|local| {
            let slots = &mut local.borrow_mut().0[class.index()];
            if slots.is_empty() {
                slots.reserve(MAGAZINE);
                refill(class, BATCH, slots);
            }
            slots.pop()
        })
        .ok()
        .flatten()
        .unwrap_or_else(|| alloc_without_magazine(class))
}

/// For an ending thread, which has no magazine any more.
#[cold]
fn alloc_without_magazine(class: Class) -> Slot {
    let mut one = Vec::with_capacity(1);
    refill(class, 1, &mut one);
    one.pop().expect("the pool grows or aborts")
}

/// Takes back a slot without references.
pub(super) fn free(slot: Slot) {
    let class = slot.class().index();
    let kept = LOCAL.try_with(|local| {
        let slots = &mut local.borrow_mut().0[class];
        if slots.len() >= MAGAZINE {
            // The bottom of the stack has the slots used longest ago.
            GLOBAL.lock().free[class].warm.extend(slots.drain(..BATCH));
        } else if slots.capacity() == 0 {
            slots.reserve(MAGAZINE);
        }
        slots.push(slot);
    });
    if kept.is_err() {
        GLOBAL.lock().free[class].warm.push(slot);
    }
}

/// The memory of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes that may have memory.
    pub chunk_bytes: u64,
    /// Bytes on the global free lists or not yet carved (magazines, at most 512 KiB a thread for
    /// each size of buffers that it uses, count as used).
    pub free_bytes: u64,
    /// Bytes whose memory [`trim()`] gave back to the OS, and that are not in use again.
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
    let (mut free, mut cold) = (0, 0);
    for class in Class::ALL {
        let slots = &global.free[class.index()];
        let carved = |(_, carved): (Chunk, usize)| class.slots() - carved;
        let uncarved = slots.current.map_or(0, carved);
        free += (slots.warm.len() + uncarved) * class.bytes();
        cold += slots.cold.len() * class.bytes();
    }
    PoolStats {
        chunk_bytes: (global.chunks * CHUNK - cold) as u64,
        free_bytes: free as u64,
        released_bytes: (global.released.len() * CHUNK + cold) as u64,
    }
}
