//! The unit of I/O: a [`Bio`] owns its buffers until its [`EndIo`] gets them back.

use crate::buf::{Buf, BufMut};
use crate::io::{Class, Durability, IoError, Op, Reason};
use smallvec::SmallVec;
use std::sync::Arc;

/// The buffers of a bio.
pub enum Payload {
    /// Buffers to write, in order of offset.
    Write(SmallVec<[Buf; 1]>),
    /// Buffers to fill, in order of offset.
    Read(SmallVec<[BufMut; 1]>),
    /// A flush has no buffers.
    None,
}

impl Payload {
    /// Bytes in the buffers.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Write(bufs) => bufs.iter().map(|b| b.len() as u64).sum(),
            Payload::Read(bufs) => bufs.iter().map(|b| b.len() as u64).sum(),
            Payload::None => 0,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of buffers.
    pub(crate) fn buf_count(&self) -> usize {
        match self {
            Payload::Write(bufs) => bufs.len(),
            Payload::Read(bufs) => bufs.len(),
            Payload::None => 0,
        }
    }
}

/// The owner of a bio, which is called when the bio completes.
pub trait EndIo: Send + Sync {
    /// Called once for each bio, on any thread, with the bio's `tag` and `payload`. Must not block
    /// and must not submit.
    fn end_io(&self, tag: u64, payload: Payload, result: Result<(), IoError>);
}

/// One read or write of contiguous bytes, or a flush.
pub struct Bio {
    /// Read, write or flush.
    pub op: Op,
    /// Byte offset on the device, a multiple of [`crate::SECTOR`].
    pub offset: u64,
    /// The buffers; their lengths add up to the bio's.
    pub payload: Payload,
    /// The kind of bytes.
    pub class: Class,
    /// Why the bio was sent.
    pub reason: Reason,
    /// When a write is durable.
    pub durability: Durability,
    /// The owner.
    pub end: Arc<dyn EndIo>,
    /// The owner's number for this bio.
    pub tag: u64,
}

impl Bio {
    /// A write of `bufs` at byte `offset`.
    pub fn write(
        offset: u64,
        bufs: SmallVec<[Buf; 1]>,
        class: Class,
        reason: Reason,
        end: Arc<dyn EndIo>,
        tag: u64,
    ) -> Bio {
        Bio {
            op: Op::Write,
            offset,
            payload: Payload::Write(bufs),
            class,
            reason,
            durability: Durability::Cached,
            end,
            tag,
        }
    }

    /// A read into `bufs` from byte `offset`.
    pub fn read(
        offset: u64,
        bufs: SmallVec<[BufMut; 1]>,
        class: Class,
        reason: Reason,
        end: Arc<dyn EndIo>,
        tag: u64,
    ) -> Bio {
        Bio {
            op: Op::Read,
            offset,
            payload: Payload::Read(bufs),
            class,
            reason,
            durability: Durability::Cached,
            end,
            tag,
        }
    }

    /// A flush.
    pub fn flush(reason: Reason, end: Arc<dyn EndIo>, tag: u64) -> Bio {
        Bio {
            op: Op::Flush,
            offset: 0,
            payload: Payload::None,
            class: Class::Data,
            reason,
            durability: Durability::Cached,
            end,
            tag,
        }
    }

    /// The same bio with this durability.
    pub fn with_durability(self, durability: Durability) -> Bio {
        Bio { durability, ..self }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.payload.len()
    }

    /// Whether there are no bytes (a flush).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands the buffers back to the owner.
    pub fn complete(self, result: Result<(), IoError>) {
        self.end.end_io(self.tag, self.payload, result);
    }

    /// Completes the bio with `errno`.
    pub(crate) fn fail(self, errno: i32) {
        let error = IoError {
            op: self.op,
            offset: self.offset,
            len: self.len(),
            errno,
        };
        self.complete(Err(error));
    }
}
