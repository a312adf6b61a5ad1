//! Aligned, reference-counted buffers of at most [`PAGE_SIZE`] bytes.
//!
//! [`BufMut`] is a buffer with one owner, [`Buf`] a shared and therefore immutable one. A page
//! under I/O is a `Buf` held by a bio. A writer copies such a page first ([`Buf::make_mut`]), so
//! pages under I/O are stable.
//!
//! A handle is one pointer into the [`pool`]. Reference count and length lie in a table at the head
//! of the pool's chunk, which the masked pointer addresses, so that buffers stay aligned and
//! adjacent.
//!
//! ```text
//!             BufMut::zeroed/scratch/copy_of            freeze
//!   free (0) ───────────────────────────────▶ BufMut (1) ─────▶ Buf (1) ──clone──▶ Buf (n)
//!      ▲                                        │   ▲            │  │  ◀──drop───
//!      └────────────────drop────────────────────┘   └─try_into_mut  └─drop─▶ free (0)
//! ```

mod huge;
pub mod pool;

use pool::{Class, Slot, alloc, free};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Bytes of the largest buffer: the largest page of a volume. Buffers of 1 and 2 KiB are aligned to
/// their size, all others to this one.
pub const PAGE_SIZE: usize = units::PageSize::KIB_4.as_usize();

/// More references than this are a leak. Beyond it the count could wrap, and memory in use would be
/// reused.
const MAX_REFS: u32 = i32::MAX as u32;

/// A buffer with exactly one owner.
pub struct BufMut {
    slot: Slot,
}

/// A shared, immutable buffer; cloning it clones a reference.
pub struct Buf {
    slot: Slot,
}

impl BufMut {
    /// A buffer of `len` zero bytes (`len` ≤ [`PAGE_SIZE`]).
    ///
    /// # Panics
    /// If `len` exceeds [`PAGE_SIZE`].
    pub fn zeroed(len: usize) -> BufMut {
        let mut buf = BufMut::scratch(len);
        buf.fill(0);
        buf
    }

    /// A buffer of `len` initialised but unspecified bytes, for a caller that overwrites all of it.
    ///
    /// # Panics
    /// If `len` exceeds [`PAGE_SIZE`].
    pub fn scratch(len: usize) -> BufMut {
        assert!(
            len <= PAGE_SIZE,
            "a buffer holds at most a page, not {len} bytes"
        );
        let slot = alloc(Class::of_len(len));
        let entry = slot.entry();
        debug_assert_eq!(entry.refs.load(Ordering::Relaxed), 0);
        entry.len.store(len as u32, Ordering::Relaxed);
        entry.refs.store(1, Ordering::Relaxed);
        BufMut { slot }
    }

    /// A copy of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is longer than [`PAGE_SIZE`].
    pub fn copy_of(bytes: &[u8]) -> BufMut {
        let mut buf = BufMut::scratch(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Gives up unique ownership.
    pub fn freeze(self) -> Buf {
        let slot = self.slot;
        std::mem::forget(self);
        Buf { slot }
    }

    /// The address of the bytes, which is valid as long as the buffer lives.
    pub(crate) fn as_raw(&mut self) -> NonNull<u8> {
        self.slot.ptr()
    }
}

impl Drop for BufMut {
    fn drop(&mut self) {
        self.slot.entry().refs.store(0, Ordering::Relaxed);
        free(self.slot);
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is mapped for the life of the process and initialised (zero or a former
        // use), `len` is at most its size, and this handle is its only owner, so no thread writes
        // while `&self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.slot.ptr().as_ptr(), self.slot.len()) }
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` on the only owner makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.slot.ptr().as_ptr(), self.slot.len()) }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is mapped and initialised, and no thread writes to it while a reference
        // exists: `make_mut` and `try_into_mut` write only at a count of one, with exclusive access
        // to that one handle.
        unsafe { std::slice::from_raw_parts(self.slot.ptr().as_ptr(), self.slot.len()) }
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        // Relaxed as in `Arc`: the new handle is made from one that the thread already has.
        let before = self.slot.entry().refs.fetch_add(1, Ordering::Relaxed);
        if before > MAX_REFS {
            std::process::abort();
        }
        Buf { slot: self.slot }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let refs = &self.slot.entry().refs;
        // A count of one seen through the only handle cannot grow, so no read-modify-write is
        // needed. Acquire pairs with the Release of dropped handles, whose reads must end before
        // the slot is reused.
        if refs.load(Ordering::Acquire) == 1 {
            refs.store(0, Ordering::Relaxed);
        } else {
            if refs.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            refs.load(Ordering::Acquire);
        }
        free(self.slot);
    }
}

impl Buf {
    /// Whether no other reference exists.
    pub fn is_unique(&self) -> bool {
        self.slot.entry().refs.load(Ordering::Acquire) == 1
    }

    /// Whether both handles refer to the same memory.
    pub fn same(&self, other: &Buf) -> bool {
        self.slot.ptr() == other.slot.ptr()
    }

    /// The bytes for writing: in place if this is the only reference, otherwise of a copy.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !self.is_unique() {
            *self = BufMut::copy_of(self).freeze();
        }
        // SAFETY: the count is one and `&mut self` borrows the one handle, so the access is
        // exclusive; Acquire in `is_unique` orders it after the reads through dropped handles.
        unsafe { std::slice::from_raw_parts_mut(self.slot.ptr().as_ptr(), self.slot.len()) }
    }

    /// Returns unique ownership if this is the only reference.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        if !self.is_unique() {
            return Err(self);
        }
        let slot = self.slot;
        std::mem::forget(self);
        Ok(BufMut { slot })
    }

    /// The address of the bytes, which is valid as long as any reference lives.
    pub(crate) fn as_raw(&self) -> NonNull<u8> {
        self.slot.ptr()
    }
}

impl From<BufMut> for Buf {
    fn from(buf: BufMut) -> Buf {
        buf.freeze()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({:p}, {} bytes)", self.slot.ptr(), self.len())
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({:p}, {} bytes)", self.slot.ptr(), self.len())
    }
}

#[cfg(test)]
mod tests;
