//! Contents of files, in streams and by position.

use crate::completion::SyncCompletion;
use crate::dir::Dir;
use crate::error::Cause;
use crate::metadata::{FileTimes, Metadata, SetAttributes};
use crate::options::OpenOptions;
use crate::volume::Shared;
use ext4::{Error, FallocateMode, InodeRef, SeekWhence, SetXattrMode, SyncTarget};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a file was opened for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
    pub append: bool,
}

/// An open file, as [`std::fs::File`]. It keeps its volume mounted, and its contents even when its
/// last name is removed.
///
/// One that was opened empty over old contents ([`File::create`]) begins to be written when it is
/// dropped, so that a crash soon after does not leave an empty file.
///
/// Errors of earlier writeback are reported by [`File::sync_all`] until the data is on the device.
///
/// ```
/// use sluicefs::{File, FormatOptions, Volume};
/// use std::io::{Read, Seek, SeekFrom, Write};
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// let mut file = File::create_new(&volume, "data")?;
/// file.write_all(b"0123456789")?;
/// file.write_all_at(b"xx", 3)?;
/// file.seek(SeekFrom::Start(2))?;
/// let mut four = [0; 4];
/// file.read_exact(&mut four)?;
/// assert_eq!(&four, b"2xx5");
/// file.sync_all()?;
/// # Ok(())
/// # }
/// ```
pub struct File {
    // Before `shared`: a pin goes before what might be the last hold on the volume.
    inode: InodeRef,
    access: Access,
    /// Where `Read` and `Write` continue; held over the I/O, so that threads that share the file
    /// take turns.
    position: Mutex<u64>,
    /// The directory it was opened through and its path from there, for messages.
    from: Arc<Path>,
    name: Box<OsStr>,
    shared: Arc<Shared>,
}

type Result<T> = std::result::Result<T, Cause>;

impl File {
    pub(crate) fn new(dir: &Dir, inode: InodeRef, path: &Path, access: Access) -> File {
        File {
            inode,
            access,
            position: Mutex::new(0),
            from: dir.path_arc().clone(),
            name: path.as_os_str().into(),
            shared: dir.shared().clone(),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(dir, path)
    }
    /// Opens a file for writing, empty; creates it if it is not there.
    ///
    /// # Errors
    /// As open(2).
    pub fn create(dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(dir, path)
    }
    /// Creates a file that must not exist, for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as open(2).
    pub fn create_new(dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(dir, path)
    }
    /// How to open in any other way.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// The path it was opened by (it may have been renamed since).
    pub fn path(&self) -> PathBuf {
        self.from.join(&*self.name)
    }

    pub(crate) fn inode(&self) -> &InodeRef {
        &self.inode
    }

    pub(crate) fn is_on(&self, volume: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, volume)
    }

    fn ctx<T, E: Into<Cause>>(
        &self,
        op: &'static str,
        result: std::result::Result<T, E>,
    ) -> io::Result<T> {
        result.map_err(|e| e.into().at(op, self.path()))
    }

    fn readable(&self) -> Result<()> {
        match self.access.read {
            true => Ok(()),
            false => Err(Cause::NotOpenFor("reading")),
        }
    }

    fn writable(&self) -> Result<()> {
        match self.access.write {
            true => Ok(()),
            false => Err(Cause::NotOpenFor("writing")),
        }
    }

    fn read_from(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.readable()?;
        Ok(self.shared.fs.read(&self.inode, offset, buf)?)
    }

    fn write_to(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        self.writable()?;
        Ok(self.shared.fs.write(&self.inode, offset, buf)?)
    }

    /// Reads at an offset; the position of the stream stays. Fewer bytes than asked for mean the
    /// end of the file.
    ///
    /// # Errors
    /// The device's or the volume's damage, or a file that was not opened for reading.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.ctx("read", self.read_from(offset, buf))
    }

    /// Reads exactly `buf.len()` bytes at an offset.
    ///
    /// # Errors
    /// `UnexpectedEof`, and as [`File::read_at`].
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

    /// Writes at an offset; the position of the stream stays. A file opened for appending is
    /// written at its end.
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

    /// Where the bytes went and how many.
    fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.writable()?;
        Ok(self.shared.fs.append(&self.inode, buf)?)
    }

    /// Makes contents and metadata durable.
    ///
    /// # Errors
    /// Whatever has kept any of it from the device, now or since; the data stays dirty and the
    /// error comes again until it has landed.
    pub fn sync_all(&self) -> io::Result<()> {
        self.ctx("sync", self.shared.fs.fsync(&self.inode, false))
    }

    /// Makes the contents durable, and of the metadata what is needed to read them.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> io::Result<()> {
        self.ctx("sync", self.shared.fs.fsync(&self.inode, true))
    }

    /// As [`File::sync_all`], without waiting: what many threads or one ask for at about the same
    /// time is done together, with large writes and one commit. Waits only where thousands of such
    /// syncs are queued already.
    ///
    /// What is written after the call may be part of it or not.
    pub fn sync_all_async(&self) -> SyncCompletion {
        self.sync_later(false)
    }

    /// As [`File::sync_data`], without waiting; see [`File::sync_all_async`].
    pub fn sync_data_async(&self) -> SyncCompletion {
        self.sync_later(true)
    }

    fn sync_later(&self, data_only: bool) -> SyncCompletion {
        let (tell, completion) = SyncCompletion::new(self.from.clone(), self.name.clone());
        let target = SyncTarget {
            inode: self.inode.clone(),
            data_only,
        };
        self.shared.fs.fsync_later(target, move |outcome| {
            // Nobody may want to know any more.
            let _ = tell.send(outcome);
        });
        completion
    }

    /// Forgets the file's clean pages in memory, as `POSIX_FADV_DONTNEED` does; what is dirty
    /// stays.
    pub fn drop_cache(&self) {
        self.shared.fs.invalidate(&self.inode);
    }

    /// What stat tells.
    ///
    /// # Errors
    /// None so far; the form is that of std.
    pub fn metadata(&self) -> io::Result<Metadata> {
        Ok(Metadata(self.inode.attr()))
    }

    /// Cuts the file off or lets it grow by zeroes.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        self.ctx("truncate", self.writable())?;
        self.set_attributes(&SetAttributes::new().len(size))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As fchmod(2).
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.set_attributes(&SetAttributes::new().mode(permissions.mode()))
    }

    /// Sets access and modification times.
    ///
    /// # Errors
    /// As futimens(2).
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.set_attributes(&SetAttributes::new().times(times))
    }

    /// Sets several attributes in one step.
    ///
    /// # Errors
    /// As those of each.
    pub fn set_attributes(&self, attributes: &SetAttributes) -> io::Result<()> {
        let done = self.shared.fs.set_attr(&self.inode, &attributes.0);
        self.ctx("change attributes of", done).map(|_| ())
    }

    /// Allocates blocks, which read as zeroes, and lets the file grow to `offset + len`.
    ///
    /// # Errors
    /// `StorageFull`, and as fallocate(2).
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mode = FallocateMode::Allocate { keep_size: false };
        self.fallocate("allocate", mode, offset, len)
    }

    /// Allocates blocks beyond the end, too, and leaves the size alone.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn allocate_keep_size(&self, offset: u64, len: u64) -> io::Result<()> {
        let mode = FallocateMode::Allocate { keep_size: true };
        self.fallocate("allocate", mode, offset, len)
    }

    /// Frees the blocks of a range, which then reads as zeroes; the size stays.
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate("punch a hole into", FallocateMode::PunchHole, offset, len)
    }

    /// Lets a range read as zeroes and keeps its blocks; the file grows to `offset + len`.
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

    /// The first offset from `offset` on that holds data; `None` where only a hole follows.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.seek_for(offset, SeekWhence::Data)
    }

    /// The first offset from `offset` on that is in a hole; the end of the file is one. `None`
    /// beyond the end.
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

    /// Value of an extended attribute, by its full name ("user.origin").
    ///
    /// # Errors
    /// The device's or the volume's damage.
    pub fn get_xattr(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Vec<u8>>> {
        self.ctx(
            "read an attribute of",
            get_xattr(&self.shared, &self.inode, name.as_ref()),
        )
    }

    /// Full names of the extended attributes.
    ///
    /// # Errors
    /// The device's or the volume's damage.
    pub fn list_xattrs(&self) -> io::Result<Vec<OsString>> {
        self.ctx("list attributes of", list_xattrs(&self.shared, &self.inode))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8]) -> io::Result<()> {
        let name = name.as_ref().as_bytes();
        let fs = &self.shared.fs;
        let done = fs.set_xattr(&self.inode, name, value, SetXattrMode::Any);
        self.ctx("set an attribute of", done)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let done = self
            .shared
            .fs
            .remove_xattr(&self.inode, name.as_ref().as_bytes());
        self.ctx("remove an attribute of", done)
    }

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
            target.ok_or(Cause::Invalid("a position before the start or too large")),
        )?;
        Ok(*position)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.access.write {
            self.shared.fs.release(&self.inode);
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path())
            .field("access", &self.access)
            .finish_non_exhaustive()
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
    /// Does nothing: what is written can be read at once. For durability see [`File::sync_all`].
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

/// `None` where there is no such attribute.
pub(crate) fn get_xattr(
    shared: &Shared,
    inode: &InodeRef,
    name: &OsStr,
) -> std::result::Result<Option<Vec<u8>>, Error> {
    match shared.fs.get_xattr(inode, name.as_bytes()) {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoAttribute) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(crate) fn list_xattrs(
    shared: &Shared,
    inode: &InodeRef,
) -> std::result::Result<Vec<OsString>, Error> {
    let names = shared.fs.list_xattr(inode)?;
    Ok(names.into_iter().map(OsString::from_vec).collect())
}
