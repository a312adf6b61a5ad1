//! [`Read`], [`Write`] and [`Seek`] for files.

use super::handle::File;
use crate::error::Cause;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{MutexGuard, PoisonError};

impl File {
    fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream_read(&self, position: &mut u64, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.read_at(buf, *position)?;
        *position += n as u64;
        Ok(n)
    }

    fn stream_write(&self, position: &mut u64, buf: &[u8]) -> io::Result<usize> {
        if self.access.append {
            let (offset, n) = self.ctx("write", self.append(buf))?;
            *position = offset + n as u64;
            return Ok(n);
        }
        let n = self.ctx("write", self.write_to(*position, buf))?;
        *position += n as u64;
        Ok(n)
    }

    fn stream_seek(&self, position: &mut u64, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(delta) => position.checked_add_signed(delta),
            SeekFrom::End(delta) => self.inode.attr().size.checked_add_signed(delta),
        };
        let target = target.filter(|&t| i64::try_from(t).is_ok());
        *position = self.ctx(
            "seek in",
            target.ok_or(Cause::Invalid("the position is negative or too large")),
        )?;
        Ok(*position)
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream_read(&mut self.position(), buf)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream_write(&mut self.position(), buf)
    }
    /// A no-op: [`File::sync_all`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.stream_seek(&mut self.position(), to)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
