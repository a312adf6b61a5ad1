//! What a workload runs on: a volume in this process, or directories of mounted file systems.

pub(crate) mod counters;
mod mounted;
mod together;
mod volume;

pub use mounted::MountedTarget;
pub use together::Together;
pub use volume::VolumeTarget;

use crate::Device;
use memmap2::MmapMut;
use std::io;
use std::path::Path;

/// A file system, as workloads see it. Every thread works in a directory of its own, which it holds
/// open.
///
/// # Errors
/// Those of the file system, here and in [`Directory`] and [`OpenFile`].
pub trait Target: Sync {
    /// For reports.
    fn name(&self) -> String;
    /// Opens a directory, and makes it if it is not there.
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>>;
    /// Makes everything durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes several files durable with one call; `Unsupported` where there is no such call.
    fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()>;
    /// How much of the file system is not available any more, in percent.
    fn used_percent(&self) -> io::Result<f64>;
    /// What reached the device since the target was made, where that is known.
    fn device(&self) -> Option<Device>;
}

/// Whether a file may be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must not (`O_EXCL`).
    New,
    /// It is emptied (`O_TRUNC`), as fs_mark does.
    Truncate,
    /// It is opened as it is.
    Keep,
}

/// An open directory. Names may be paths relative to it.
pub trait Directory: Send + Sync {
    /// Makes a directory in it if it is not there.
    fn make_subdirectory(&self, name: &str) -> io::Result<()>;
    /// Creates a file for writing.
    fn create(&self, name: &str, create: Create) -> io::Result<Box<dyn OpenFile>>;
    /// Opens a file for reading.
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;
    /// Asks for a file's attributes.
    fn stat(&self, name: &str) -> io::Result<()>;
    /// Removes a file.
    fn unlink(&self, name: &str) -> io::Result<()>;
}

/// Waits for a sync that has begun.
pub type PendingSync = Box<dyn FnOnce() -> io::Result<()>>;

/// What has no call for a mounted file system.
fn only_in_process() -> io::Error {
    let what = "only a volume in this process (--volume) has bulk and asynchronous fsync";
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// An open file; dropping it closes it.
pub trait OpenFile: Send + Sync {
    /// Writes all of `data` at an offset.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Reads at an offset: bytes read, 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Makes contents and metadata durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Begins to make them durable; `Unsupported` where there is no such call.
    fn sync_all_async(&self) -> io::Result<PendingSync>;
    /// The file of a volume in this process, if it is one.
    fn on_volume(&self) -> Option<&sluicefs::File> {
        None
    }
    /// Forgets what is cached of it.
    fn drop_cache(&self) -> io::Result<()>;
    /// Maps it whole, shared and writable. Only files of mounted file systems can be mapped; nobody
    /// may truncate them meanwhile.
    fn map(&self) -> io::Result<MmapMut> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only files of mounted file systems can be mapped",
        ))
    }
}
