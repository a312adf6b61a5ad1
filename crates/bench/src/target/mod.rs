//! Targets of a workload: a volume in this process, or directories of mounted file systems.

pub(crate) mod counters;
mod fsync_queue;
mod mounted;
mod together;
mod volume;
mod xfs;

pub use fsync_queue::{FsyncQueue, PendingSync};
pub use mounted::MountedTarget;
pub use together::Together;
pub use volume::VolumeTarget;

use crate::{Device, Throttle};
use memmap2::MmapMut;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A file system that a workload runs on. Every thread works in a directory of its own, which it
/// holds open.
///
/// # Errors
/// Those of the file system, here and in [`Directory`] and [`OpenFile`].
pub trait Target: Sync {
    /// The name in reports.
    fn name(&self) -> String;
    /// Opens a directory; makes it if it does not exist.
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>>;
    /// Makes everything durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes several files durable with one call; `Unsupported` where there is no such call.
    fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()>;
    /// A queue of asynchronous fsyncs for one thread. In mounted directories at most `depth` of
    /// them are in flight.
    fn fsync_queue(&self, _depth: usize) -> io::Result<Box<dyn FsyncQueue>> {
        Ok(Box::<fsync_queue::Pending>::default())
    }
    /// The part of the file system that is not available, in percent.
    fn used_percent(&self) -> io::Result<f64>;
    /// I/O of the device since the target was made; `None` where nothing counts it.
    fn device(&self) -> Option<Device>;
    /// The throttle of background writeback at this moment; `None` where nothing reports it.
    fn throttle(&self) -> Option<Throttle> {
        None
    }
    /// `wbt_lat_usec` of the kernel's block device; `None` if the device has no such setting.
    fn wbt_lat_usec(&self) -> Option<u64> {
        None
    }
    /// Inodes in memory, those of other volumes included where the system counts them together;
    /// `None` where nothing counts them.
    fn cached_inodes(&self) -> Option<u64> {
        None
    }
    /// Drops clean pages, names and inodes from the caches where that is possible.
    fn drop_caches(&self) {}
    /// Leaves no name and no inode in a cache, and describes how. All directories and files of the
    /// target must be closed. `Unsupported` where this cannot be done.
    fn make_cold(&self) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Whether [`Target::bulkstat`] is supported.
    fn has_bulkstat(&self) -> bool {
        false
    }
    /// Gets the attributes of all inodes by the call that the file system has for that, and returns
    /// their number. `threads` is for calls that are not parallel themselves.
    fn bulkstat(&self, _threads: usize) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The parts of directory entries that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Names.
    Names,
    /// Also the attributes of each file, as of lstat(2).
    Attributes,
}

/// How a file is created if it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// The call fails (`O_EXCL`).
    New,
    /// The file is emptied (`O_TRUNC`), as by fs_mark.
    Truncate,
    /// The file is opened unchanged.
    Keep,
}

/// An open directory. Names may be paths relative to it.
pub trait Directory: Send + Sync {
    /// Makes a directory in it if it does not exist.
    fn make_subdirectory(&self, name: &str) -> io::Result<()>;
    /// Creates a file for writing.
    fn create(&self, name: &str, create: Create) -> io::Result<Box<dyn OpenFile>>;
    /// Opens a file for reading.
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;
    /// Opens a file for reads that bypass the cache, if the file system has such reads. Offsets,
    /// lengths and buffers must be multiples of 4096.
    fn open_uncached(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;
    /// Looks up a file and its attributes.
    fn stat(&self, name: &str) -> io::Result<()>;
    /// Removes a file.
    fn unlink(&self, name: &str) -> io::Result<()>;
    /// Removes an empty directory in it.
    fn remove_subdirectory(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Reads a directory in it, and calls `each` for each entry but `.` and `..`.
    fn read_directory(
        &self,
        _name: &str,
        _reading: Reading,
        _each: &mut dyn FnMut(),
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// An open file; dropping it closes it.
pub trait OpenFile: Send + Sync {
    /// Writes all of `data` at an offset.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Reads at an offset: bytes read, 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Makes contents and metadata durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Starts to make them durable; `Unsupported` where there is no such call.
    fn sync_all_async(&self) -> io::Result<PendingSync> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The file, if it is on a volume in this process.
    fn on_volume(&self) -> Option<&sluicefs::File> {
        None
    }
    /// The descriptor, if the file is on a mounted file system.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Drops its pages from the cache.
    fn drop_cache(&self) -> io::Result<()>;
    /// Maps the whole file, shared and writable. Only files of mounted file systems can be mapped.
    /// The file must not be truncated while it is mapped.
    fn map(&self) -> io::Result<MmapMut> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only files of mounted file systems can be mapped",
        ))
    }
}
