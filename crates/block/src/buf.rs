//! Aligned, reference-counted buffers of at most one page.
//!
//! [`BufMut`] is a buffer with one owner, [`Buf`] a shared and therefore immutable one. A page under I/O is a `Buf`
//! held by a bio; a writer that meets it copies it first ([`Buf::make_mut`]), so pages under I/O are stable.

use std::ops::{Deref, DerefMut};

/// Bytes in a page of the page cache, and the capacity and alignment of every buffer.
pub const PAGE_SIZE: usize = 4096;

/// A buffer with exactly one owner.
pub struct BufMut {}

/// A shared, immutable buffer; cloning it clones a reference.
#[derive(Clone)]
pub struct Buf {}

impl BufMut {
    /// A buffer of `len` zero bytes (`len` ≤ [`PAGE_SIZE`]).
    pub fn zeroed(len: usize) -> BufMut {
        let _ = len;
        todo!()
    }
    /// A buffer of `len` initialised but unspecified bytes, for a caller that overwrites all of it.
    pub fn scratch(len: usize) -> BufMut {
        let _ = len;
        todo!()
    }
    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> BufMut {
        let _ = bytes;
        todo!()
    }
    /// Gives up unique ownership.
    pub fn freeze(self) -> Buf {
        todo!()
    }
}
impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}
impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        todo!()
    }
}
impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}
impl Buf {
    /// Whether no other reference exists.
    pub fn is_unique(&self) -> bool {
        todo!()
    }
    /// Whether both are the same memory.
    pub fn same(&self, other: &Buf) -> bool {
        let _ = other;
        todo!()
    }
    /// The bytes for writing: in place where this is the only reference, after a copy otherwise.
    pub fn make_mut(&mut self) -> &mut [u8] {
        todo!()
    }
    /// Unique ownership back, if this is the only reference.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        todo!()
    }
}
