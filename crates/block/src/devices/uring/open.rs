//! Opening an image file or block device: direct I/O, the lock, the size.

use crate::OpenMode;
use crate::SECTOR;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering};

/// `BLKGETSIZE64`: bytes of a block device.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
/// `BLKROGET`: whether it is write-protected.
const BLKROGET: libc::Ioctl = 0x125e;
/// `BLKSSZGET`: bytes of its logical sector.
const BLKSSZGET: libc::Ioctl = 0x1268;

/// The kind of file at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    BlockDevice,
}

/// An open image or block device that this process has locked.
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) kind: Kind,
    /// Bytes, a multiple of [`SECTOR`].
    capacity: AtomicU64,
    /// Whether I/O bypasses the page cache of the host.
    pub(super) direct: bool,
    /// Whether the host makes a write with RWF_DSYNC durable. On FUSE an asynchronous one is not,
    /// unless the server does what the kernel leaves out.
    pub(super) has_durable_writes: bool,
}

impl Opened {
    pub(super) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Acquire)
    }

    /// Looks at the size again. An image of fewer than `at_least` bytes is extended, by a hole.
    pub(super) fn grow(&self, at_least: u64) -> io::Result<u64> {
        let mut bytes = size(&self.file, self.kind)?;
        if bytes < at_least && self.kind == Kind::Image {
            self.file.set_len(at_least)?;
            bytes = at_least;
        }
        // Requests for the old bytes may be in flight, so a device never gets smaller.
        let bytes = bytes - bytes % SECTOR;
        Ok(self.capacity.fetch_max(bytes, Ordering::AcqRel).max(bytes))
    }

    /// The sector of a block device. The host decides how it writes an image; the kernel's loop
    /// driver takes such images as devices of 512-byte sectors, too.
    pub(super) fn sector_size(&self) -> u64 {
        match self.kind {
            Kind::BlockDevice => direct_align(&self.file, self.kind),
            Kind::Image => SECTOR,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Closing the file is not enough: a ring in teardown may hold it open a moment longer.
        let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
    }
}

/// Opens with direct I/O if possible.
pub(super) fn open(path: &Path, mode: OpenMode) -> io::Result<Opened> {
    open_as(path, mode, libc::O_DIRECT)
}

/// Opens an image file through the page cache of the host.
pub(super) fn open_buffered(path: &Path, mode: OpenMode) -> io::Result<Opened> {
    let opened = open_as(path, mode, 0)?;
    if opened.kind != Kind::Image {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a regular file", path.display()),
        ));
    }
    Ok(opened)
}

fn open_as(path: &Path, mode: OpenMode, how: i32) -> io::Result<Opened> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let kind = kind(path).map_err(named)?;
    let try_open = |flags: i32| {
        OpenOptions::new()
            .read(true)
            .write(mode != OpenMode::ReadOnly)
            .custom_flags(libc::O_CLOEXEC | flags)
            .open(path)
    };
    // O_EXCL without O_CREAT claims a block device. It fails with EBUSY if the device is mounted or
    // claimed.
    let excl = match (kind, mode) {
        (Kind::BlockDevice, OpenMode::ReadWrite) => libc::O_EXCL,
        _ => 0,
    };
    let (file, mut direct) = match try_open(excl | how) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (try_open(excl), false),
        other => (other, how == libc::O_DIRECT),
    };
    let file = match file {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            let holder = File::open(path).ok().and_then(|file| holder(&file));
            let system = || "the system (mounted?) or another process".to_owned();
            let by = holder.map_or_else(system, describe);
            return Err(in_use(path, &by));
        }
        other => other.map_err(named).and_then(|f| {
            if direct && direct_align(&f, kind) > SECTOR {
                direct = false;
                // The file holds a claim on the device, which refuses another one.
                drop(f);
                return try_open(excl).map_err(named);
            }
            Ok(f)
        })?,
    };
    if !direct && how == libc::O_DIRECT {
        tracing::warn!(device = %path.display(), "direct I/O is not possible here; going through the page cache");
    }
    // The system opens such a device for writing, and each write fails.
    if kind == Kind::BlockDevice
        && mode != OpenMode::ReadOnly
        && ioctl_u64(&file, BLKROGET).is_ok_and(|flag| flag != 0)
    {
        return Err(named(rustix::io::Errno::ROFS.into()));
    }
    lock(&file, path, mode)?;
    let bytes = size(&file, kind).map_err(named)?;
    let has_durable_writes = kind == Kind::BlockDevice || !is_on_fuse(&file).map_err(named)?;
    Ok(Opened {
        file,
        kind,
        has_durable_writes,
        capacity: AtomicU64::new(bytes - bytes % SECTOR),
        direct,
    })
}

/// Whether a FUSE server has the file.
fn is_on_fuse(file: &File) -> io::Result<bool> {
    const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;
    Ok(rustix::fs::fstatfs(file)?.f_type == FUSE_SUPER_MAGIC)
}

/// Bytes.
fn size(file: &File, kind: Kind) -> io::Result<u64> {
    match kind {
        Kind::Image => Ok(file.metadata()?.len()),
        Kind::BlockDevice => ioctl_u64(file, BLKGETSIZE64),
    }
}

fn kind(path: &Path) -> io::Result<Kind> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() {
        Ok(Kind::Image)
    } else if kind.is_block_device() {
        Ok(Kind::BlockDevice)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither a regular file nor a block device",
        ))
    }
}

/// The alignment that direct I/O needs; [`SECTOR`] if the system does not report it.
fn direct_align(file: &File, kind: Kind) -> u64 {
    if kind == Kind::BlockDevice {
        // The ioctl stores an int; the upper half stays zero, because supported machines are
        // little-endian.
        return ioctl_u64(file, BLKSSZGET).map_or(SECTOR, |n| n & 0xffff_ffff);
    }
    let mut stat = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an open descriptor, an empty path (AT_EMPTY_PATH) and a buffer of the right type.
    let rc = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            stat.as_mut_ptr(),
        )
    };
    // SAFETY: all zero is a valid statx, and the kernel only stores integers.
    let stat = unsafe { stat.assume_init() };
    if rc == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0 && stat.stx_dio_offset_align > 0 {
        u64::from(stat.stx_dio_offset_align)
    } else {
        SECTOR
    }
}

fn ioctl_u64(file: &File, request: libc::Ioctl) -> io::Result<u64> {
    let mut value = 0u64;
    // SAFETY: the requests used store at most eight bytes through the pointer.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut value) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks the file, exclusively for a writer, until it is closed.
fn lock(file: &File, path: &Path, mode: OpenMode) -> io::Result<()> {
    use rustix::fs::FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared};
    let operation = match mode {
        OpenMode::ReadWrite | OpenMode::ReadWriteClaimed => NonBlockingLockExclusive,
        OpenMode::ReadOnly => NonBlockingLockShared,
    };
    let give_up = sync::time::now() + TEARDOWN;
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            // A killed process holds its lock until the kernel has torn down its ring and its last
            // I/O has ended.
            Err(rustix::io::Errno::WOULDBLOCK)
                if !holder(file).is_some_and(is_alive) && sync::time::now() < give_up =>
            {
                std::thread::sleep(TEARDOWN / 500);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let other = || "another process".to_owned();
                return Err(in_use(path, &holder(file).map_or_else(other, describe)));
            }
            Err(e) => {
                return Err(io::Error::other(format!(
                    "cannot lock {}: {e}",
                    path.display()
                )));
            }
        }
    }
}

/// How long to wait for the lock of a dead process.
const TEARDOWN: Duration = Duration::from_secs(5);

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn in_use(path: &Path, by: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("{} is in use by {by}; unmount it first", path.display()),
    )
}

/// The process that holds the lock, if /proc names it.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (pid, id) = (fields.get(4)?, fields.get(5)?);
        let same =
            fields.get(1) == Some(&"FLOCK") && id.rsplit(':').next() == Some(&inode.to_string());
        same.then(|| pid.parse().ok()).flatten()
    })
}

fn describe(pid: u32) -> String {
    if pid == std::process::id() {
        return "this very process".into();
    }
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(comm) => format!("another process ({}, pid {pid})", comm.trim()),
        Err(_) => format!("another process (pid {pid})"),
    }
}
