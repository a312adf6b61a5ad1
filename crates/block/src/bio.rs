//! The unit of I/O: a [`Bio`] owns its buffers until its [`EndIo`] gets them back.

use crate::{Buf, BufMut};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::{fmt, sync::Arc};

/// What a bio does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Make every completed write durable.
    Flush,
}

/// What the bytes are; merging keeps classes apart, statistics and throttling tell them from one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// File contents.
    Data,
    /// Metadata written to its home (checkpoint) or read from it.
    Metadata,
    /// Journal blocks.
    Journal,
}

/// How a bio is to be treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BioFlags {
    /// The write is durable when it completes (forced unit access).
    pub fua: bool,
    /// Somebody waits for it.
    pub sync: bool,
    /// Speculative: a reader may want it soon.
    pub readahead: bool,
}

/// The buffers of a bio.
pub enum Payload {
    /// To be written, in order of offset.
    Write(SmallVec<[Buf; 1]>),
    /// To be filled, in order of offset.
    Read(SmallVec<[BufMut; 1]>),
    /// Nothing (flush).
    None,
}

/// A failed request: what was asked, where, and the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError {
    /// What was asked.
    pub op: Op,
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// `errno`; 0 where the device ended early (short read past the end).
    pub errno: i32,
}

/// Called once for each bio, on whichever thread completes it; must not block and must not submit.
pub trait EndIo: Send + Sync {
    /// `tag` and `payload` are the bio's own.
    fn end_io(&self, tag: u64, payload: Payload, result: Result<(), IoError>);
}

/// One read or write of contiguous bytes, or a flush.
pub struct Bio {
    /// What it does.
    pub op: Op,
    /// Byte offset on the device, a multiple of 512 (1024 in practice).
    pub offset: u64,
    /// Its buffers; their lengths add up to its length.
    pub payload: Payload,
    /// What the bytes are.
    pub class: Class,
    /// How to treat it.
    pub flags: BioFlags,
    /// Whom to tell.
    pub end: Arc<dyn EndIo>,
    /// Handed back to `end`.
    pub tag: u64,
}

/// Bios that are adjacent on the device, handed to it as one.
pub struct Request {
    /// Common to all its bios.
    pub op: Op,
    /// Byte offset of the first.
    pub offset: u64,
    /// Bytes of all.
    pub len: u64,
    /// Common to all its bios.
    pub class: Class,
    /// FUA where any of them asks for it.
    pub flags: BioFlags,
    /// In order of offset, without gaps.
    pub bios: SmallVec<[Bio; 4]>,
}

/// Waits for a number of bios and keeps the first error.
pub struct Completion {
    #[allow(dead_code)]
    state: Mutex<CompletionState>,
    #[allow(dead_code)]
    done: Condvar,
}

#[derive(Default)]
#[allow(dead_code)]
struct CompletionState {
    pending: usize,
    error: Option<IoError>,
    reads: Vec<(u64, SmallVec<[BufMut; 1]>)>,
}

impl Completion {
    /// One that nothing is pending on.
    pub fn new() -> Arc<Completion> {
        todo!()
    }
    /// Announces `count` more bios, before they are submitted.
    pub fn expect(&self, count: usize) {
        let _ = count;
        todo!()
    }
    /// Waits for all that was expected; the first error, if any.
    pub fn wait(&self) -> Result<(), IoError> {
        todo!()
    }
    /// After [`Completion::wait`]: buffers of the reads, by tag.
    pub fn take_reads(&self) -> Vec<(u64, SmallVec<[BufMut; 1]>)> {
        todo!()
    }
}
impl EndIo for Completion {
    fn end_io(&self, _tag: u64, _payload: Payload, _result: Result<(), IoError>) {
        todo!()
    }
}
impl Bio {
    /// A write of `bufs` at byte `offset`.
    pub fn write(
        offset: u64,
        bufs: SmallVec<[Buf; 1]>,
        class: Class,
        end: Arc<dyn EndIo>,
        tag: u64,
    ) -> Bio {
        Bio {
            op: Op::Write,
            offset,
            payload: Payload::Write(bufs),
            class,
            flags: BioFlags::default(),
            end,
            tag,
        }
    }
    /// A read into `bufs` from byte `offset`.
    pub fn read(
        offset: u64,
        bufs: SmallVec<[BufMut; 1]>,
        class: Class,
        end: Arc<dyn EndIo>,
        tag: u64,
    ) -> Bio {
        Bio {
            op: Op::Read,
            offset,
            payload: Payload::Read(bufs),
            class,
            flags: BioFlags::default(),
            end,
            tag,
        }
    }
    /// Bytes it moves.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// Whether it moves none (a flush).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
impl Request {
    /// Completes every bio with `result`.
    pub fn complete(self, _result: Result<(), IoError>) {
        todo!()
    }
}
impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = f;
        todo!()
    }
}
impl std::error::Error for IoError {}
impl From<IoError> for std::io::Error {
    fn from(e: IoError) -> Self {
        std::io::Error::from_raw_os_error(e.errno)
    }
}
