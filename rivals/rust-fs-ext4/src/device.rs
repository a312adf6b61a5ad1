//! An image file with I/O counters.

use bench::Device;
use fs_ext4::block_io::BlockDevice;
use fs_ext4::{Error, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The crate's `FileDevice` holds a lock during each call. This device has no lock, and it counts.
/// It uses the page cache, because the crate's buffers are not aligned for direct I/O.
pub struct Image {
    file: File,
    bytes: u64,
    read_ios: AtomicU64,
    read_bytes: AtomicU64,
    write_ios: AtomicU64,
    write_bytes: AtomicU64,
    flushes: AtomicU64,
}

impl Image {
    pub fn open(path: &Path) -> io::Result<Image> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Image {
            bytes: file.metadata()?.len(),
            file,
            read_ios: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            write_ios: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        })
    }

    /// The crate's I/O so far.
    pub fn counters(&self) -> Device {
        Device {
            read_ios: self.read_ios.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            write_ios: self.write_ios.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            ..Device::default()
        }
    }
}

impl BlockDevice for Image {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_ios.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(buf.len() as u64, Relaxed);
        self.file.read_exact_at(buf, offset).map_err(Error::Io)
    }
    fn size_bytes(&self) -> u64 {
        self.bytes
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_ios.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(buf.len() as u64, Relaxed);
        self.file.write_all_at(buf, offset).map_err(Error::Io)
    }
    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Relaxed);
        self.file.sync_data().map_err(Error::Io)
    }
    fn is_writable(&self) -> bool {
        true
    }
}
