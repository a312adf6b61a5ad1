//! Ranges of a device that are known to read as zeroes.
//!
//! Inode tables and the journal of a new volume must not hold old data. Ranges that are zero
//! already need no write, so a new image stays sparse.

use block::Queue;
use rustix::fs::{Mode, OFlags, SeekFrom};
use std::os::fd::OwnedFd;

/// The ranges of a device that are known to be zero.
pub(crate) enum Zeroed {
    /// All of it reads as zeroes.
    Everything,
    /// An image file: holes read as zeroes.
    Holes(OwnedFd),
    /// Nothing is known.
    Unknown,
}

/// The part of a device that was discarded just before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discarded {
    WholeDevice,
    Nothing,
}

impl Zeroed {
    /// Examines the device.
    pub fn probe(queue: &Queue, discarded: Discarded) -> Zeroed {
        if discarded == Discarded::WholeDevice && queue.device().discard_zeroes() {
            return Zeroed::Everything;
        }
        let name = queue.name();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let is_file = std::fs::metadata(name).is_ok_and(|data| data.is_file());
        match is_file.then(|| rustix::fs::open(name, flags, Mode::empty())) {
            Some(Ok(file)) if no_data(&file, 0, queue.capacity()) => Zeroed::Everything,
            Some(Ok(file)) => Zeroed::Holes(file),
            _ => Zeroed::Unknown,
        }
    }

    /// Returns whether `len` bytes at `offset` are known to be zero.
    pub fn covers(&self, offset: u64, len: u64) -> bool {
        match self {
            Zeroed::Everything => true,
            Zeroed::Holes(file) => no_data(file, offset, len),
            Zeroed::Unknown => false,
        }
    }
}

/// Returns whether the range is a hole.
fn no_data(file: &OwnedFd, offset: u64, len: u64) -> bool {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data >= offset.saturating_add(len),
        Err(rustix::io::Errno::NXIO) => true,
        Err(_) => false,
    }
}
