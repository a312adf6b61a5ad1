//! Ranges of a device that are known to read as zeroes.
//!
//! Inode tables and the journal of a new volume must not hold old data. Ranges that are zero
//! already need no write, so a new image stays sparse.

use crate::layout::Run;
use crate::{MkfsOptions, Result};
use block::{BufMut, Class, Durability, Queue, Reason};
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
enum Discarded {
    WholeDevice,
    Nothing,
}

impl Zeroed {
    /// Examines the device.
    fn probe(queue: &Queue, discarded: Discarded) -> Zeroed {
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

/// Removes what was on the device. Returns what is known to be zero.
pub(crate) fn clear(queue: &Queue, options: &MkfsOptions) -> Result<Zeroed> {
    // Discarding is optional: a device without it works as well.
    let discarded = match options.discard && queue.discard(0, queue.capacity() & !511).is_ok() {
        true => Discarded::WholeDevice,
        false => Discarded::Nothing,
    };
    wipe_old_signatures(queue)?;
    Ok(Zeroed::probe(queue, discarded))
}

/// Removes the signatures of other file systems, RAID and partition tables at both ends of a
/// device, and the old superblock.
fn wipe_old_signatures(queue: &Queue) -> Result<()> {
    const ENDS: u64 = 64 << 10;
    let capacity = queue.capacity() & !4095;
    let page = BufMut::zeroed(block::PAGE_SIZE).freeze();
    let head = capacity.min(ENDS);
    let pages = |len: u64| vec![page.clone(); (len / 4096) as usize];
    queue.write(
        0,
        &pages(head),
        Class::Metadata,
        Reason::Format,
        Durability::Cached,
    )?;
    if capacity > 2 * ENDS {
        let last = capacity - ENDS;
        queue.write(
            last,
            &pages(ENDS),
            Class::Metadata,
            Reason::Format,
            Durability::Cached,
        )?;
    }
    queue.flush(Reason::Format)?;
    Ok(())
}

/// Zeroes the journal's blocks, unless they are known to be zero. Blocks of an old journal could be
/// mistaken for blocks of the new one.
pub(crate) fn zero_runs(
    queue: &Queue,
    block_size: u32,
    zeroed: &Zeroed,
    runs: &[Run],
) -> Result<()> {
    let block_size = u64::from(block_size);
    for (start, len) in runs {
        let (offset, bytes) = (start * block_size, len * block_size);
        if !zeroed.covers(offset, bytes) {
            queue.write_zeroes(offset, bytes, Reason::Format)?;
        }
    }
    Ok(())
}

/// Returns whether the range is a hole.
fn no_data(file: &OwnedFd, offset: u64, len: u64) -> bool {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data >= offset.saturating_add(len),
        Err(rustix::io::Errno::NXIO) => true,
        Err(_) => false,
    }
}
