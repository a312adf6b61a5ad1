//! Extended attributes of host files.

use super::endpoint::Xattrs;
use rustix::fs::XattrFlags;
use rustix::io::{Errno, Result};
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buffer for names at the first attempt, in bytes. Most files have no attributes.
const NAMES: usize = 256;

/// The file that has the attributes.
#[derive(Clone, Copy)]
pub enum On<'a> {
    /// An open file or directory.
    Fd(BorrowedFd<'a>),
    /// An entry of a directory. It is neither opened nor followed.
    Entry(BorrowedFd<'a>, &'a OsStr),
}

/// Attributes that the host refused: not supported, or not allowed without privilege.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Number of attributes that the host refused.
pub fn refused() -> u64 {
    REFUSED.load(Relaxed)
}

impl On<'_> {
    fn list(self, buf: &mut [u8]) -> Result<usize> {
        match self {
            On::Fd(fd) => rustix::fs::flistxattr(fd, buf),
            On::Entry(dir, name) => rustix::fs::llistxattr(proc_path(dir, name), buf),
        }
    }
    fn get(self, name: &OsStr, buf: &mut [u8]) -> Result<usize> {
        match self {
            On::Fd(fd) => rustix::fs::fgetxattr(fd, name, buf),
            On::Entry(dir, entry) => rustix::fs::lgetxattr(proc_path(dir, entry), name, buf),
        }
    }
    fn set(self, name: &OsStr, value: &[u8]) -> Result<()> {
        let flags = XattrFlags::empty();
        match self {
            On::Fd(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
            On::Entry(dir, entry) => {
                rustix::fs::lsetxattr(proc_path(dir, entry), name, value, flags)
            }
        }
    }
}

/// All names and values that the caller may read.
pub fn get_all(on: On<'_>) -> io::Result<Xattrs> {
    let mut few = [0; NAMES];
    let mut many = Vec::new();
    let names: &[u8] = match on.list(&mut few) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Xattrs::new()),
        Ok(n) => &few[..n],
        Err(Errno::RANGE) => {
            many.resize(64 << 10, 0);
            let n = on.list(&mut many)?;
            &many[..n]
        }
        Err(e) => return Err(e.into()),
    };
    let mut xattrs = Xattrs::new();
    let mut value = vec![0; 64 << 10];
    for name in names.split_inclusive(|&b| b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let name = OsString::from_vec(name.to_bytes().to_vec());
        match on.get(&name, &mut value) {
            Ok(n) => xattrs.push((name, value[..n].to_vec())),
            // It was removed meanwhile, or reading it requires privilege.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(xattrs)
}

/// Sets all attributes. Those that the target does not support or allow are counted ([`refused`])
/// and skipped. For attributes in the user namespace that is an error.
pub fn set_all(on: On<'_>, xattrs: &Xattrs) -> io::Result<()> {
    for (name, value) in xattrs {
        match on.set(name, value) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::PERM) if !name.as_bytes().starts_with(b"user.") => {
                REFUSED.fetch_add(1, Relaxed);
            }
            Err(e) => {
                let text = format!("attribute {}: {e}", name.display());
                return Err(io::Error::new(e.kind(), text));
            }
        }
    }
    Ok(())
}

/// The path of an entry of an open directory, for system calls that take no descriptor.
fn proc_path(dir: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    let mut path = OsString::from(format!("/proc/self/fd/{}/", dir.as_raw_fd()));
    path.push(name);
    PathBuf::from(path)
}
