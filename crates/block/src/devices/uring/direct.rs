//! Requests executed by system calls on the calling thread, and the iovecs of all requests.

use super::open::{Kind, Opened};
use crate::{Durability, IoError, Op, Payload, Request};
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// The most entries in one vectored call (`UIO_MAXIOV`).
const MAX_IOVECS: usize = 1024;
/// `BLKDISCARD` and `BLKZEROOUT` take a {start, length} pair.
const BLKDISCARD: libc::Ioctl = 0x1277;
const BLKZEROOUT: libc::Ioctl = 0x127f;

thread_local! {
    static IOVECS: RefCell<Vec<libc::iovec>> = const { RefCell::new(Vec::new()) };
}

/// Describes the buffers of `request` from byte `skip` on, as far as [`MAX_IOVECS`] go. Buffers
/// that are adjacent in memory share an entry.
///
/// The entries stay valid as long as `request` is neither completed nor dropped: it owns the
/// buffers (read buffers exclusively), whose memory does not move with it.
pub(super) fn gather(request: &mut Request, mut skip: u64, out: &mut Vec<libc::iovec>) {
    out.clear();
    let mut push = |ptr: *mut u8, len: usize| {
        if skip >= len as u64 {
            skip -= len as u64;
            return true;
        }
        let start = std::mem::take(&mut skip) as usize;
        let (ptr, len) = (ptr.wrapping_add(start), len - start);
        let full = out.len() == MAX_IOVECS;
        match out.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == ptr => {
                last.iov_len += len;
            }
            _ if full => return false,
            _ => out.push(libc::iovec {
                iov_base: ptr.cast(),
                iov_len: len,
            }),
        }
        true
    };
    for bio in &mut request.bios {
        let room = match &mut bio.payload {
            Payload::Write(bufs) => bufs.iter().all(|b| push(b.as_raw().as_ptr(), b.len())),
            Payload::Read(bufs) => bufs.iter_mut().all(|b| push(b.as_raw().as_ptr(), b.len())),
            Payload::None => true,
        };
        if !room {
            return;
        }
    }
}

/// The error of a call that moved no bytes: a read past the end, or a full device.
pub(super) fn errno_of_nothing(op: Op) -> i32 {
    match op {
        Op::Read => 0,
        Op::Write | Op::Flush => libc::EIO,
    }
}

impl Opened {
    /// Executes `request` and completes it.
    pub(super) fn execute(&self, mut request: Request) {
        let result = self.carry_out(&mut request, 0);
        let result = result.map_err(|errno| request.error(errno));
        request.complete(result);
    }

    /// Flags of a vectored write.
    pub(super) fn write_flags(&self, request: &Request) -> i32 {
        match request.durability {
            Durability::Fua if self.has_durable_writes => libc::RWF_DSYNC,
            Durability::Fua | Durability::Cached => 0,
        }
    }

    /// Whether the device has to be flushed after the bytes of a request.
    pub(super) fn flushes_after(&self, request: &Request) -> bool {
        request.durability == Durability::Fua && !self.has_durable_writes
    }

    /// Executes the rest of `request` after `done` bytes.
    pub(super) fn carry_out(&self, request: &mut Request, mut done: u64) -> Result<(), i32> {
        if request.op == Op::Flush {
            return self.flush();
        }
        // The request completes after the borrow, because its owner may start another.
        IOVECS.with_borrow_mut(|iovecs| {
            while done < request.len {
                match self.step(request, done, iovecs) {
                    Ok(0) => return Err(errno_of_nothing(request.op)),
                    Ok(n) => done += n,
                    Err(libc::EINTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            match self.flushes_after(request) {
                true => self.flush(),
                false => Ok(()),
            }
        })
    }

    fn step(
        &self,
        request: &mut Request,
        done: u64,
        iovecs: &mut Vec<libc::iovec>,
    ) -> Result<u64, i32> {
        gather(request, done, iovecs);
        let fd = self.file.as_raw_fd();
        let offset = (request.offset + done) as libc::off_t;
        let (list, count) = (iovecs.as_ptr(), iovecs.len() as libc::c_int);
        // SAFETY: the entries describe buffers that `request` owns, mutably borrowed until the call
        // returns.
        let n = unsafe {
            match request.op {
                Op::Read => libc::preadv2(fd, list, count, offset, 0),
                Op::Write => libc::pwritev2(fd, list, count, offset, self.write_flags(request)),
                Op::Flush => return Err(libc::EINVAL),
            }
        };
        if n < 0 {
            Err(last_errno())
        } else {
            Ok(n as u64)
        }
    }

    fn flush(&self) -> Result<(), i32> {
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.file))
            .map_err(|e| e.raw_os_error())
    }

    /// Discards the bytes on the host; `EOPNOTSUPP` if the host has no discard.
    pub(super) fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        match self.punch_hole(offset, len)? {
            true => Ok(()),
            false => Err(span_error(offset, len, libc::EOPNOTSUPP)),
        }
    }

    /// Discards the bytes; in an image they read as zeroes then. `Ok(false)`: the host cannot do
    /// it.
    pub(super) fn punch_hole(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        match self.punch(offset, len, BLKDISCARD, libc::FALLOC_FL_PUNCH_HOLE) {
            Ok(()) => Ok(true),
            Err(libc::EOPNOTSUPP) => Ok(false),
            Err(errno) => Err(span_error(offset, len, errno)),
        }
    }

    /// Zeroes the bytes without writing them. `Ok(false)`: the host cannot do it.
    pub(super) fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        let zeroed = self
            .punch(offset, len, BLKZEROOUT, libc::FALLOC_FL_ZERO_RANGE)
            .or_else(|errno| match (errno, self.kind) {
                (libc::EOPNOTSUPP, Kind::Image) => {
                    self.punch(offset, len, BLKZEROOUT, libc::FALLOC_FL_PUNCH_HOLE)
                }
                _ => Err(errno),
            });
        match zeroed {
            Ok(()) => Ok(true),
            Err(libc::EOPNOTSUPP) => Ok(false),
            Err(errno) => Err(span_error(offset, len, errno)),
        }
    }

    fn punch(&self, offset: u64, len: u64, ioctl: libc::Ioctl, mode: i32) -> Result<(), i32> {
        if len == 0 {
            return Ok(());
        }
        let fd = self.file.as_raw_fd();
        let rc = match self.kind {
            Kind::BlockDevice => {
                let range = [offset, len];
                // SAFETY: both requests read a pair of u64 through the pointer.
                unsafe { libc::ioctl(fd, ioctl, range.as_ptr()) }
            }
            // SAFETY: plain integers and a descriptor that is open as long as `self`.
            Kind::Image => unsafe {
                let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
                libc::fallocate(fd, mode, offset as libc::off_t, len as libc::off_t)
            },
        };
        if rc == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Reads the first sector, so that a device that cannot be read fails at opening.
    pub(super) fn probe(&self) -> std::io::Result<()> {
        if self.capacity() == 0 {
            return Ok(());
        }
        let mut sector = crate::BufMut::scratch(crate::SECTOR as usize);
        self.file.read_exact_at(&mut sector, 0)
    }
}

fn span_error(offset: u64, len: u64, errno: i32) -> IoError {
    IoError {
        op: Op::Write,
        offset,
        len,
        errno,
    }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
