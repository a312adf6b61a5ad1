//! Discarding the free space of a mounted volume, for programs.

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::path::Path;

/// FITRIM of the kernel's `linux/fs.h`.
const TRIM: Opcode = 0xc018_5879;

/// `struct fstrim_range`, in bytes.
#[repr(C)]
struct TrimRange {
    start: u64,
    /// The request: to the end. The answer: how many bytes were discarded.
    len: u64,
    least: u64,
}

/// Discards the free space of the volume that is mounted at `dir`, in runs of at least `least`
/// bytes. Returns how many bytes were discarded. It works on all file systems with FITRIM.
///
/// # Errors
/// `dir` is no directory, or its file system or device cannot discard.
pub fn trim(dir: &Path, least: u64) -> Result<u64> {
    let name = dir.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())
        .with_context(|| format!("{name}: not a readable directory"))?;
    let mut range = TrimRange {
        start: 0,
        len: u64::MAX,
        least,
    };
    // SAFETY: the command reads and writes one `struct fstrim_range`, which this is.
    unsafe { ioctl(fd, Updater::<TRIM, TrimRange>::new(&mut range)) }
        .with_context(|| format!("{name}: its free space cannot be discarded"))?;
    Ok(range.len)
}
