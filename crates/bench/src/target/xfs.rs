//! The bulkstat of XFS, as ioctl_xfs_bulkstat(2) documents it.

use crate::threads;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// `f_type` of an XFS.
const XFS_MAGIC: u64 = 0x5846_5342;
/// Inodes in one request.
const INODES: usize = 4096;
/// The request is confined to one allocation group.
const ONE_GROUP: u32 = 1 << 0;
/// The number of the ioctl has the size of the header.
const BULKSTAT: Opcode = opcode::read::<Header>(b'X', 127);

/// `struct xfs_bulk_ireq`.
#[repr(C)]
#[derive(Default)]
struct Header {
    /// The first inode; after the call the one that follows the last.
    ino: u64,
    flags: u32,
    /// Inodes that there is room for.
    count: u32,
    /// Inodes found.
    found: u32,
    group: u32,
    reserved: [u64; 5],
}

/// `struct xfs_bulkstat` of 192 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Inode([u64; 24]);

/// `struct xfs_bulkstat_req`.
#[repr(C)]
struct Request {
    header: Header,
    inodes: [Inode; INODES],
}

/// Whether an open directory is on an XFS.
pub(super) fn is_xfs(dir: &File) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|stat| stat.f_type as u64 == XFS_MAGIC)
}

/// Gets the attributes of all inodes, with up to `threads` allocation groups at the same time.
/// Returns the number of inodes.
pub(super) fn bulkstat(dir: &File, threads: usize) -> io::Result<u64> {
    let next = AtomicU32::new(0);
    let threads: Vec<_> = (0..threads.max(1)).collect();
    let found = threads::each(&threads, |_| {
        let mut request = Box::new(Request {
            header: Header::default(),
            inodes: [Inode([0; 24]); INODES],
        });
        let mut found = 0;
        while let Some(inodes) = group(dir, next.fetch_add(1, Relaxed), &mut request)? {
            found += inodes;
        }
        Ok(found)
    })?;
    Ok(found.into_iter().sum())
}

/// The number of inodes in a group; `None` behind the last group.
fn group(dir: &File, group: u32, request: &mut Request) -> io::Result<Option<u64>> {
    let mut sum = 0;
    let mut ino = 0;
    loop {
        request.header = Header {
            ino,
            flags: ONE_GROUP,
            count: INODES as u32,
            group,
            ..Header::default()
        };
        // SAFETY: the number belongs to a request of this layout. The kernel stores at most `count`
        // inodes behind the header.
        let done = unsafe { ioctl(dir, Updater::<BULKSTAT, Request>::new(request)) };
        match done {
            Ok(()) if request.header.found == 0 => return Ok(Some(sum)),
            Ok(()) => sum += u64::from(request.header.found),
            Err(Errno::INVAL) if ino == 0 => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        ino = request.header.ino;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_interface() {
        assert_eq!(size_of::<Header>(), 64);
        assert_eq!(size_of::<Inode>(), 192);
        assert_eq!(BULKSTAT, 0x8040_587f);
    }
}
