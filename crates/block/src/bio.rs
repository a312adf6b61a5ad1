//! The unit of I/O: a [`Bio`] owns its buffers until its [`EndIo`] gets them back.

use crate::queue::Tracking;
use crate::{Buf, BufMut};
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

/// What the bytes are; merging keeps classes apart, statistics and throttling tell them from one
/// another.
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
    /// What the queue wants to know at completion.
    pub(crate) tracking: Option<Tracking>,
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
    /// A flush.
    pub fn flush(end: Arc<dyn EndIo>, tag: u64) -> Bio {
        Bio {
            op: Op::Flush,
            offset: 0,
            payload: Payload::None,
            class: Class::Data,
            flags: BioFlags::default(),
            end,
            tag,
        }
    }

    /// The same bio with other flags.
    pub fn with_flags(self, flags: BioFlags) -> Bio {
        Bio { flags, ..self }
    }

    /// Bytes it moves.
    pub fn len(&self) -> u64 {
        self.payload.len()
    }

    /// Whether it moves none (a flush).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands it back to whoever waits for it.
    pub fn complete(self, result: Result<(), IoError>) {
        self.end.end_io(self.tag, self.payload, result);
    }

    /// Hands it back as failed with `errno`.
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

impl Payload {
    /// Bytes in its buffers.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Write(bufs) => bufs.iter().map(|b| b.len() as u64).sum(),
            Payload::Read(bufs) => bufs.iter().map(|b| b.len() as u64).sum(),
            Payload::None => 0,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Buffers it has.
    pub fn buf_count(&self) -> usize {
        match self {
            Payload::Write(bufs) => bufs.len(),
            Payload::Read(bufs) => bufs.len(),
            Payload::None => 0,
        }
    }
}

impl Request {
    /// A request of one bio, which others may be appended to.
    pub fn of(bio: Bio) -> Request {
        Request {
            op: bio.op,
            offset: bio.offset,
            len: bio.len(),
            class: bio.class,
            flags: bio.flags,
            bios: SmallVec::from_iter([bio]),
            tracking: None,
        }
    }

    /// Appends a bio of the same operation and class that begins where the request ends.
    pub(crate) fn append(&mut self, bio: Bio, len: u64) {
        debug_assert_eq!(bio.op, self.op);
        debug_assert_eq!(bio.class, self.class);
        debug_assert_eq!(bio.offset, self.end());
        self.len += len;
        self.flags.fua |= bio.flags.fua;
        self.flags.sync |= bio.flags.sync;
        self.flags.readahead &= bio.flags.readahead;
        self.bios.push(bio);
    }

    /// First byte after it.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The error that says that this request failed with `errno` (0: the device ended early).
    pub fn error(&self, errno: i32) -> IoError {
        IoError {
            op: self.op,
            offset: self.offset,
            len: self.len,
            errno,
        }
    }

    /// Completes every bio with `result`.
    pub fn complete(self, result: Result<(), IoError>) {
        let latch = self.tracking.and_then(|tracking| {
            tracking.finish(self.op, self.len, self.bios.len(), self.flags, &result)
        });
        for bio in self.bios {
            bio.complete(result);
        }
        if let Some(latch) = latch {
            latch.count_down();
        }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
        };
        write!(f, "{op} of {} bytes at byte {}: ", self.len, self.offset)?;
        match self.errno {
            0 => f.write_str("the device ended early"),
            errno => std::io::Error::from_raw_os_error(errno).fmt(f),
        }
    }
}

impl std::error::Error for IoError {}
impl From<IoError> for std::io::Error {
    fn from(e: IoError) -> Self {
        match e.errno {
            0 => std::io::Error::new(std::io::ErrorKind::UnexpectedEof, e),
            errno => std::io::Error::from_raw_os_error(errno),
        }
    }
}
