//! The unit of a device: adjacent bios as one [`Request`].

use crate::bio::{Bio, Payload};
use crate::buf::Buf;
use crate::io::{Class, Durability, IoError, Op, Reason};
use crate::tracking::Tracking;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bios that are adjacent on the device, handed to it as one.
pub struct Request {
    /// The same for all bios.
    pub op: Op,
    /// Byte offset of the first bio.
    pub offset: u64,
    /// Bytes of all bios.
    pub len: u64,
    /// The same for all bios.
    pub class: Class,
    /// The most urgent reason of a bio.
    pub reason: Reason,
    /// [`Durability::Fua`] if any bio asks for it.
    pub durability: Durability,
    /// In order of offset, without gaps.
    pub bios: SmallVec<[Bio; 4]>,
    /// The queue's account of the request, from its submission on.
    pub(crate) tracking: Option<Tracking>,
}

impl Request {
    /// A request of one bio, to which others may be appended.
    pub fn of(bio: Bio) -> Request {
        Request {
            op: bio.op,
            offset: bio.offset,
            len: bio.len(),
            class: bio.class,
            reason: bio.reason,
            durability: bio.durability,
            bios: SmallVec::from_iter([bio]),
            tracking: None,
        }
    }

    /// Appends a bio of `len` bytes and of the same operation and class that begins where the
    /// request ends.
    pub(crate) fn append(&mut self, bio: Bio, len: u64) {
        debug_assert_eq!(bio.op, self.op);
        debug_assert_eq!(bio.class, self.class);
        debug_assert_eq!(bio.offset, self.end());
        self.len += len;
        self.durability = self.durability.max(bio.durability);
        self.reason = self.reason.most_urgent(bio.reason);
        self.bios.push(bio);
    }

    /// The first byte after the request.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Moves the bytes of every bio from or to memory: `read` fills a buffer and `write` stores
    /// one, each given the byte offset on the device.
    pub fn copy(&mut self, read: impl Fn(u64, &mut [u8]), write: impl Fn(u64, &Buf)) {
        let mut at = self.offset;
        for bio in &mut self.bios {
            match &mut bio.payload {
                Payload::Write(bufs) => {
                    for buf in bufs {
                        write(at, buf);
                        at += buf.len() as u64;
                    }
                }
                Payload::Read(bufs) => {
                    for buf in bufs {
                        read(at, buf);
                        at += buf.len() as u64;
                    }
                }
                Payload::None => {}
            }
        }
    }

    /// The error of this request failing with `errno` (0: the device ended early).
    pub fn error(&self, errno: i32) -> IoError {
        IoError {
            op: self.op,
            offset: self.offset,
            len: self.len,
            errno,
        }
    }

    /// Completes every bio with `result`.
    pub fn complete(mut self, result: Result<(), IoError>) {
        self.finish(result);
    }

    /// If the owner of a bio panics, the other bios stay.
    fn finish(&mut self, result: Result<(), IoError>) {
        let bios = self.bios.len();
        let _latch = self.tracking.take().and_then(|tracking| {
            tracking.finish(self.op, self.len, bios, self.durability, &result)
        });
        while let Some(bio) = self.bios.pop() {
            bio.complete(result);
        }
    }
}

/// A request that is dropped fails, because its owners wait for it: a device has panicked, or the
/// owner of another bio has.
impl Drop for Request {
    fn drop(&mut self) {
        while !self.bios.is_empty() {
            let failed = Err(self.error(libc::EIO));
            // This thread may be unwinding already, so a panic must not leave this function.
            if catch_unwind(AssertUnwindSafe(|| self.finish(failed))).is_err() {
                tracing::error!("the completion of a request panicked");
            }
        }
    }
}
