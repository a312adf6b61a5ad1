//! Contents of files.

use super::privileges::Caller;
use super::{Server, errno};
use ext4::{Error, FallocateMode, InodeRef, PrivilegeBits, ReadMode, Result, SeekWhence};
use fusedev::{NodeId, Reply};
use std::cell::RefCell;

/// Most bytes that one request copies. The kernel sends another request for the rest.
const MAX_COPY: u64 = 16 << 20;
/// Bytes of one read and write of a copy.
const COPY_CHUNK: usize = 1 << 20;

thread_local! {
    /// A thread serves one request at a time and needs one buffer.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `len` bytes of the thread's buffer.
pub(super) fn with_buffer<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        work(&mut buffer[..len])
    })
}

/// The treatment of a write that writes only a part of its data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortWrite {
    /// It succeeds with the number of bytes written.
    Report,
    /// The rest is tried again. The write succeeds if all is written, else it fails.
    Retry,
}

/// Whether a read changes the access time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Noted,
    Hidden,
}

impl Server {
    /// Reads into the buffer of the reply.
    pub(super) fn read_and_reply(
        &self,
        node: NodeId,
        (offset, len): (u64, u32),
        (mode, access): (ReadMode, Access),
        reply: Reply,
    ) {
        match self.inode(node) {
            Ok(inode) => reply.filled(len as usize, |buffer| {
                let read = self.fs.read_by(&inode, offset, buffer, mode);
                if access == Access::Noted {
                    self.fs.note_access(&inode);
                }
                read.map_err(errno)
            }),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Writes and returns the number of bytes written.
    pub(super) fn write(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        short_write: ShortWrite,
    ) -> Result<u32> {
        let mut written = self.write_some(inode, offset, data);
        while let (Ok(n), ShortWrite::Retry) = (&mut written, short_write)
            && *n < data.len()
        {
            match self.write_some(inode, offset + *n as u64, &data[*n..]) {
                Ok(more) => *n += more,
                Err(error) => written = Err(error),
            }
        }
        written.map(|n| n as u32)
    }

    fn write_some(&self, inode: &InodeRef, offset: u64, data: &[u8]) -> Result<usize> {
        match self.fs.write_by(inode, offset, data, PrivilegeBits::Keep) {
            // The kernel sends an append as a write at the end of the file, and is the only writer.
            Err(Error::NotPermitted) if offset == inode.size() => self
                .fs
                .append_by(inode, data, PrivilegeBits::Keep)
                .map(|(_, n)| n),
            result => result,
        }
    }

    pub(super) fn fallocate(
        &self,
        node: NodeId,
        (offset, len): (u64, u64),
        mode: i32,
        caller: Caller,
    ) -> Result<()> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let mode = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => FallocateMode::Allocate { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => FallocateMode::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => FallocateMode::ZeroRange { keep_size },
            _ => return Err(Error::NotSupported),
        };
        let inode = self.inode(node)?;
        self.fs.fallocate(&inode, mode, offset, len)?;
        self.clear_privileges_of_users(&inode, caller)
    }

    pub(super) fn lseek(&self, node: NodeId, offset: i64, whence: i32) -> Result<u64> {
        let whence = match whence {
            libc::SEEK_DATA => SeekWhence::Data,
            libc::SEEK_HOLE => SeekWhence::Hole,
            _ => return Err(Error::Invalid("whence")),
        };
        let offset = u64::try_from(offset).map_err(|_| Error::NoData)?;
        self.fs.seek(&self.inode(node)?, offset, whence)
    }

    /// Copies within the volume. Returns the number of bytes, which may be less than `len`.
    pub(super) fn copy_file_range(
        &self,
        from: (NodeId, u64),
        to: (NodeId, u64),
        len: u64,
        caller: Caller,
    ) -> Result<u32> {
        let source = self.inode(from.0)?;
        let target = self.inode(to.0)?;
        self.clear_privileges_of_users(&target, caller)?;
        let len = len.min(MAX_COPY);
        if self.fs.note_access(&source) {
            // The kernel does not expect that of a copy.
            self.forget_attributes(&source);
        }
        with_buffer(COPY_CHUNK, |buffer| {
            let mut done = 0;
            while done < len {
                let want = (len - done).min(COPY_CHUNK as u64) as usize;
                let part = &mut buffer[..want];
                let step = self
                    .fs
                    .read_by(&source, from.1 + done, part, ReadMode::Cached)
                    .and_then(|n| match n {
                        0 => Ok((0, 0)),
                        n => self
                            .write(&target, to.1 + done, &buffer[..n], ShortWrite::Report)
                            .map(|written| (n, written as usize)),
                    });
                match step {
                    Ok((read, written)) => {
                        done += written as u64;
                        if written < want || read < want {
                            break;
                        }
                    }
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            Ok(done as u32)
        })
    }
}
