//! Contents by offset: reading, writing, allocation, holes.

use super::handle::{File, Result};
use crate::metadata::SetAttributes;
use ext4::{Error, FallocateMode, SeekWhence};
use std::io;

impl File {
    fn read_from(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.readable()?;
        let fs = &self.shared.fs;
        let read = fs.read_by(&self.inode, offset, buf, self.access.reads)?;
        fs.note_access(&self.inode);
        Ok(read)
    }

    pub(super) fn write_to(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        self.writable()?;
        Ok(self.shared.fs.write(&self.inode, offset, buf)?)
    }

    /// Reads at an offset. The position of the stream does not change. The result is shorter than
    /// `buf` only at the end of the file.
    ///
    /// # Errors
    /// Damage and device errors, or a file that was not opened for reading.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.ctx("read", self.read_from(offset, buf))
    }

    /// Reads exactly `buf.len()` bytes at an offset.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the file, and as [`File::read_at`].
    pub fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Writes at an offset. The position of the stream does not change. If the file was opened for
    /// appending, the data is written at its end.
    ///
    /// # Errors
    /// `StorageFull`, `ReadOnlyFilesystem`, …, or a file that was not opened for writing.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        if self.access.append {
            return Ok(self.ctx("write", self.append(buf))?.1);
        }
        self.ctx("write", self.write_to(offset, buf))
    }

    /// Writes all of `buf` at an offset.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => {
                    buf = &buf[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Returns the offset and the number of bytes written.
    pub(super) fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.writable()?;
        Ok(self.shared.fs.append(&self.inode, buf)?)
    }

    /// Sets the size in bytes. Added bytes read as zeroes.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        self.ctx("truncate", self.writable())?;
        self.set_attributes(&SetAttributes::new().len(size))
    }

    /// Drops the file's clean pages from memory, as `POSIX_FADV_DONTNEED` does. Dirty pages stay.
    pub fn drop_cache(&self) {
        self.shared.fs.invalidate(&self.inode);
    }

    /// Allocates blocks, which read as zeroes. The file grows to `offset + len` bytes if it is
    /// smaller.
    ///
    /// # Errors
    /// `StorageFull`, and as fallocate(2).
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mode = FallocateMode::Allocate { keep_size: false };
        self.fallocate("allocate", mode, offset, len)
    }

    /// Allocates blocks, also beyond the end of the file. The size does not change.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn allocate_keep_size(&self, offset: u64, len: u64) -> io::Result<()> {
        let mode = FallocateMode::Allocate { keep_size: true };
        self.fallocate("allocate", mode, offset, len)
    }

    /// Frees the blocks of a range, which then reads as zeroes. The size does not change.
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate("punch a hole into", FallocateMode::PunchHole, offset, len)
    }

    /// Makes a range read as zeroes and keeps its blocks. The file grows to `offset + len` bytes if
    /// it is smaller.
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let mode = FallocateMode::ZeroRange { keep_size: false };
        self.fallocate("zero", mode, offset, len)
    }

    fn fallocate(
        &self,
        op: &'static str,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.ctx(op, self.writable())?;
        let done = self.shared.fs.fallocate(&self.inode, mode, offset, len);
        self.ctx(op, done)
    }

    /// The first offset at or after `offset` that has data; `None` if only a hole follows.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.seek_for(offset, SeekWhence::Data)
    }

    /// The first offset at or after `offset` that is in a hole. The end of the file counts as a
    /// hole. `None` if `offset` is beyond the end.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn seek_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        self.seek_for(offset, SeekWhence::Hole)
    }

    fn seek_for(&self, offset: u64, whence: SeekWhence) -> io::Result<Option<u64>> {
        match self.shared.fs.seek(&self.inode, offset, whence) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NoData) => Ok(None),
            Err(e) => self.ctx("seek in", Err(e)),
        }
    }
}
