//! The unit of a device: adjacent bios as one [`Request`].

use crate::bio::{Bio, Payload};
use crate::buf::Buf;
use crate::io::{Class, Durability, IoError, Op, Reason};
use crate::tracking::Tracking;
use smallvec::SmallVec;

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
    pub fn complete(self, result: Result<(), IoError>) {
        let latch = self.tracking.and_then(|tracking| {
            let bios = self.bios.len();
            tracking.finish(self.op, self.len, bios, self.durability, &result)
        });
        for bio in self.bios {
            bio.complete(result);
        }
        if let Some(latch) = latch {
            latch.count_down();
        }
    }
}
