//! Replies to requests.

use crate::abi;
use crate::entries::DirEntries;
use crate::transport::Transport;
use crate::types::{Attr, Entry, StatFs, Time};
use rustix::fs::StatxFlags;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// The answer of [`Reply::hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The reply may wait for another request.
    Granted,
    /// The reply must not wait for another request.
    Refused,
}

/// The pages of a file that the kernel has cached before an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedPages {
    /// The kernel keeps them.
    Kept,
    /// The kernel drops them, so that the next read is a request.
    Dropped,
}

/// The reply to one request. It owns its way to the kernel, so any thread can send it at any time.
/// A reply that is dropped without an answer sends EIO.
#[must_use = "the caller waits for the reply"]
#[derive(Debug)]
pub struct Reply {
    transport: Arc<dyn Transport>,
    unique: u64,
    sent: bool,
}

impl Reply {
    pub(crate) fn new(transport: Arc<dyn Transport>, unique: u64) -> Reply {
        Reply {
            transport,
            unique,
            sent: false,
        }
    }

    /// Asks whether the reply may wait until the kernel has sent another request. After
    /// [`Hold::Refused`] the reply must not: that request may be behind this one.
    pub fn hold(&self) -> Hold {
        match self.transport.hold() {
            true => Hold::Granted,
            false => Hold::Refused,
        }
    }

    /// Reports success.
    pub fn ok(self) {
        self.send(0, &[]);
    }

    /// Reports failure.
    pub fn error(self, error: Errno) {
        self.send(-error.raw_os_error(), &[]);
    }

    /// Returns the inode of a name.
    pub fn entry(self, entry: &Entry) {
        self.value(&entry.encode());
    }

    /// Reports that a file is open.
    pub fn opened(self, pages: CachedPages) {
        self.value(&opened(pages));
    }

    /// Reports that a file has been created and is open.
    pub fn created(self, entry: &Entry) {
        self.send(
            0,
            &[
                entry.encode().as_bytes(),
                opened(CachedPages::Kept).as_bytes(),
            ],
        );
    }

    /// Returns attributes, which the kernel may cache for `ttl`.
    pub fn attr(self, attr: &Attr, ttl: Duration) {
        self.value(&abi::AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            dummy: 0,
            attr: attr.encode(),
        });
    }

    /// Returns attributes, which the kernel may cache for `ttl`, and the time of birth if it is
    /// known.
    pub fn statx(self, attr: &Attr, birth: Option<Time>, ttl: Duration) {
        let time = |time: Time| abi::SxTime {
            tv_sec: time.secs,
            tv_nsec: time.nanos,
            reserved: 0,
        };
        let known = match birth {
            Some(_) => StatxFlags::BASIC_STATS | StatxFlags::BTIME,
            None => StatxFlags::BASIC_STATS,
        };
        self.value(&abi::StatxOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            mask: known.bits(),
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            btime: time(birth.unwrap_or_default()),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major: rustix::fs::major(u64::from(attr.rdev)),
            rdev_minor: rustix::fs::minor(u64::from(attr.rdev)),
            ..abi::StatxOut::default()
        });
    }

    /// Returns bytes.
    pub fn data(self, data: &[u8]) {
        self.send(0, &[data]);
    }

    /// Returns the bytes that `fill` writes into a buffer of `size` bytes. `fill` returns their
    /// number, from the start of the buffer. The transport provides the buffer, so this saves the
    /// copy that a buffer of the caller would cost.
    pub fn filled(mut self, size: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let mut fill = Some(fill);
        self.transport
            .send_filled(self.unique, size, &mut |buffer| {
                // A transport calls it once.
                let fill = fill.take().ok_or(Errno::IO)?;
                fill(buffer)
            });
        // A panic of `fill` leaves the answer to `drop`.
        self.sent = true;
    }

    /// Returns bytes from several slices.
    pub fn data_vectored(self, data: &[&[u8]]) {
        self.send(0, data);
    }

    /// Returns entries of a directory.
    pub fn entries(self, entries: &DirEntries) {
        self.send(0, &[entries.as_bytes()]);
    }

    /// Returns the number of bytes that were written or copied.
    pub fn written(self, bytes: u32) {
        self.value(&abi::WriteOut {
            size: bytes,
            padding: 0,
        });
    }

    /// Returns an extended attribute, or a list of names, for a caller with a buffer of `size`
    /// bytes: only the length of `value` if `size` is 0, ERANGE if the buffer is too small.
    pub fn xattr(self, value: &[u8], size: u32) {
        if size == 0 {
            self.value(&abi::GetxattrOut {
                size: value.len() as u32,
                padding: 0,
            });
        } else if value.len() > size as usize {
            self.error(Errno::RANGE);
        } else {
            self.data(value);
        }
    }

    /// Returns space and inodes.
    pub fn statfs(self, s: &StatFs) {
        self.value(&abi::StatfsOut {
            blocks: s.blocks,
            bfree: s.free,
            bavail: s.available,
            files: s.inodes,
            ffree: s.free_inodes,
            bsize: s.block_size,
            namelen: s.max_name,
            frsize: s.block_size,
            ..abi::StatfsOut::default()
        });
    }

    /// Returns the result of an ioctl, and the data for its argument.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        let out = abi::IoctlOut {
            result,
            ..abi::IoctlOut::default()
        };
        self.send(0, &[out.as_bytes(), data]);
    }

    /// Returns the offset of data or of a hole.
    pub fn offset(self, offset: u64) {
        self.value(&abi::LseekOut { offset });
    }

    pub(crate) fn value(self, value: &(impl IntoBytes + Immutable)) {
        self.send(0, &[value.as_bytes()]);
    }

    fn send(mut self, error: i32, parts: &[&[u8]]) {
        self.sent = true;
        self.transport.send(self.unique, error, parts);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.sent {
            let error = -Errno::IO.raw_os_error();
            self.transport.send(self.unique, error, &[]);
        }
    }
}

fn opened(pages: CachedPages) -> abi::OpenOut {
    abi::OpenOut {
        open_flags: match pages {
            CachedPages::Kept => abi::FOPEN_KEEP_CACHE,
            CachedPages::Dropped => 0,
        },
        ..abi::OpenOut::default()
    }
}
