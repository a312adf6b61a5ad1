//! What a device is, and how one is named.

use crate::devices::sim::SimUrl;
use crate::devices::{MemoryDevice, SimDevice, UringDevice};
use crate::{Queue, Request};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Something that stores bytes. Any number of threads may submit at once.
pub trait Device: Send + Sync {
    /// Path or URL, for messages.
    fn name(&self) -> &str;
    /// Bytes it holds.
    fn capacity(&self) -> u64;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// Bytes a single request may have.
    fn max_request_bytes(&self) -> u64 {
        1 << 20
    }
    /// Starts every request; each is completed once ([`Request::complete`]), on any thread, in any
    /// order.
    fn submit(&self, batch: Vec<Request>);
    /// Carries one request out on the calling thread and completes it before returning.
    fn execute(&self, request: Request);
    /// See [`crate::Queue::discard`]; the default does nothing.
    fn discard(&self, _offset: u64, _len: u64) -> Result<(), crate::IoError> {
        Ok(())
    }
    /// Whether what was discarded is known to read as zeroes.
    fn discard_zeroes(&self) -> bool {
        false
    }
    /// See [`crate::Queue::write_zeroes`]; `Ok(false)` where the device has no cheap way.
    fn write_zeroes(&self, _offset: u64, _len: u64) -> Result<bool, crate::IoError> {
        Ok(false)
    }
}

/// How to open a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only; a shared lock.
    ReadOnly,
    /// Reads and writes; an exclusive lock, so that a second opener is refused, and a claim on a
    /// block device, so that the system refuses to mount it.
    ReadWrite,
    /// The same for a block device on which the caller has a claim already, as by a mount of type
    /// `fuseblk`.
    ReadWriteClaimed,
}

/// A parsed device name: a plain path, `mem:SIZE`, or `sim:KIND,key=value,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceUrl {
    /// An image file or a block device.
    Path(PathBuf),
    /// Memory of this many bytes.
    Memory(u64),
    /// A modelled device.
    Sim(SimUrl),
}

/// What precedes the colon of each kind of URL.
const SCHEMES: &[&str] = &["mem", "sim"];

impl DeviceUrl {
    /// Parses a path or URL. What has a `/` before its first `:`, or exists, is a path.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown scheme, a bad size or a bad parameter.
    pub fn parse(text: &str) -> io::Result<DeviceUrl> {
        let path = || Ok(DeviceUrl::Path(PathBuf::from(text)));
        if text.is_empty() {
            return Err(invalid("the name of a device is empty".into()));
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return path();
        };
        if scheme.contains('/') || Path::new(text).exists() {
            return path();
        }
        match scheme {
            "mem" => match parse_size(rest)? {
                0 => Err(invalid(format!("{text}: a device of no bytes"))),
                size if size > MAX_BYTES => Err(invalid(format!("{text}: too large"))),
                size => Ok(DeviceUrl::Memory(size)),
            },
            "sim" => Ok(DeviceUrl::Sim(SimUrl::parse(rest)?)),
            _ => Err(invalid(format!(
                "{text}: no device scheme is called \"{scheme}\" (known: {}; for a file of that name write ./{text})",
                SCHEMES
                    .iter()
                    .map(|s| format!("{s}:"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }
}

impl DeviceUrl {
    /// Whether it names memory, which is blank at each opening and gone at each closing.
    pub fn is_volatile(&self) -> bool {
        match self {
            DeviceUrl::Path(_) => false,
            DeviceUrl::Memory(_) => true,
            DeviceUrl::Sim(url) => url.file().is_none(),
        }
    }
}

impl fmt::Display for DeviceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceUrl::Path(path) => path.display().fmt(f),
            DeviceUrl::Memory(bytes) => write!(f, "mem:{bytes}"),
            DeviceUrl::Sim(url) => url.fmt(f),
        }
    }
}

impl FromStr for DeviceUrl {
    type Err = io::Error;
    fn from_str(text: &str) -> io::Result<DeviceUrl> {
        DeviceUrl::parse(text)
    }
}

/// More than any file or device on Linux can have.
const MAX_BYTES: u64 = i64::MAX as u64;

/// Parses a number of bytes: `4096`, `64K`, `1GiB`, `1.5 TiB`. Units are powers of 1024, with or
/// without `iB`, in either case.
///
/// # Errors
/// `InvalidInput` where it is no such number or does not fit 64 bits.
pub fn parse_size(text: &str) -> io::Result<u64> {
    let bad = || {
        invalid(format!(
            "\"{text}\" is no size (try 512MiB, 10G or a number of bytes)"
        ))
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        "p" | "pib" => 50,
        _ => return Err(bad()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let mut bytes = whole.checked_mul(1 << shift).ok_or_else(bad)?;
    if number.contains('.') {
        let part: f64 = format!("0.{fraction}0").parse().map_err(|_| bad())?;
        if shift == 0 {
            return Err(bad());
        }
        bytes = bytes
            .checked_add((part * (1u64 << shift) as f64) as u64)
            .ok_or_else(bad)?;
    }
    Ok(bytes)
}

/// What to do where an image is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Fail with `AlreadyExists`.
    New,
    /// Replace its contents.
    Overwrite,
}

/// Makes a sparse image file of `size` bytes.
///
/// # Errors
/// `AlreadyExists` for [`Create::New`] where `path` is there; otherwise the file system's.
pub fn create_image(path: &Path, size: u64, create: Create) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    match create {
        Create::New => options.create_new(true),
        Create::Overwrite => options.create(true).truncate(false),
    };
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let file = options.open(path).map_err(named)?;
    if !file.metadata().map_err(named)?.is_file() {
        return Err(invalid(format!("{} is not a regular file", path.display())));
    }
    // A mounted image must not be emptied under its user.
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| named(e.into()))?;
    let sized = file.set_len(0).and_then(|()| file.set_len(size));
    // Closing would do, were it not that a child which another thread is just forking may hold the
    // file open until it executes its program.
    let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock);
    sized.map_err(named)
}

/// Opens a device and puts a queue in front of it.
///
/// # Errors
/// The system's, with the device's name; `ResourceBusy` where another process has it open.
pub fn open(url: &DeviceUrl, mode: OpenMode) -> io::Result<Arc<Queue>> {
    Ok(Queue::new(open_device(url, mode)?))
}

/// Opens a device without a queue, to be wrapped.
///
/// # Errors
/// As for [`open`].
pub fn open_device(url: &DeviceUrl, mode: OpenMode) -> io::Result<Box<dyn Device>> {
    Ok(match url {
        DeviceUrl::Memory(bytes) => {
            let device = MemoryDevice::new(*bytes);
            match mode {
                OpenMode::ReadOnly => Box::new(device.into_read_only()),
                OpenMode::ReadWrite | OpenMode::ReadWriteClaimed => Box::new(device),
            }
        }
        DeviceUrl::Sim(url) => Box::new(SimDevice::open(url, mode)?),
        DeviceUrl::Path(path) => Box::new(UringDevice::open(path, mode)?),
    })
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
