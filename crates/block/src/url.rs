//! Device URLs: a plain path, a part of the file at a path, or `SCHEME:…` for each scheme in a
//! program's table.
//!
//! ```text
//!   disk.img                            an image file (raw; qcow2 for reading) or a block device
//!   disk.img#2                          its second partition
//!   disk.img#offset=1MiB,size=2GiB      a range of its bytes; without size, to its end
//!   mem:1GiB                            memory
//! ```
//!
//! This crate has the scheme `mem:`. Another crate adds a scheme by implementing [`Backend`] and
//! exporting a [`Scheme`]. The program lists the schemes that it knows in one [`Schemes`] table,
//! which also says how partitions are found.

use crate::device::{Device, OpenMode};
use crate::devices::{self, MemoryDevice, Section};
use crate::{Queue, parse_size};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A device that a URL names. `Display` prints the URL.
pub trait Backend: fmt::Debug + fmt::Display + Send + Sync {
    /// Opens the device.
    ///
    /// # Errors
    /// As for [`open`].
    fn open(&self, mode: OpenMode) -> io::Result<Box<dyn Device>>;
    /// Whether the device is blank at each opening and its contents are lost at each closing.
    fn is_volatile(&self) -> bool;
    /// Whether the device works in a process that can no longer open files or raise its priority.
    fn works_in_sandbox(&self) -> bool;
    /// Creates the file that holds the device's bytes, if the URL names one and gives its size, and
    /// the file does not exist.
    ///
    /// # Errors
    /// The file system's.
    fn create(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A kind of URL.
pub struct Scheme {
    /// The part of the URL before the colon.
    pub name: &'static str,
    /// Parses the part after the colon.
    pub parse: fn(&str) -> io::Result<Arc<dyn Backend>>,
}

/// The device names that a program knows, besides plain paths.
pub struct Schemes {
    schemes: &'static [Scheme],
    find_partition: FindPartition,
}

/// Finds the bytes of a partition by its number on the disk at a path.
pub type FindPartition = fn(&Path, u32) -> io::Result<Range<u64>>;

/// `mem:SIZE`: memory of this many bytes.
pub const MEMORY_SCHEME: Scheme = Scheme {
    name: "mem",
    parse: |rest| Ok(Arc::new(Memory::parse(rest)?)),
};

/// The schemes of this crate.
const BUILT_IN: Schemes = Schemes::new(&[MEMORY_SCHEME]);

/// A parsed device name.
#[derive(Clone, Debug)]
pub enum DeviceUrl {
    /// An image file or a block device.
    Path(PathBuf),
    /// A part of an image file or block device.
    Part(DevicePart),
    /// A device of some scheme.
    Backend(Arc<dyn Backend>),
}

/// A part of an image file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePart {
    /// The file or device.
    pub path: PathBuf,
    /// The bytes of the part.
    pub range: PartRange,
    /// The name that the user has given.
    name: String,
}

/// The bytes of a [`DevicePart`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRange {
    /// The first byte.
    pub offset: u64,
    /// Bytes; `None`: to the end of the device.
    pub size: Option<u64>,
}

impl PartRange {
    /// Parses `offset=SIZE` or `offset=SIZE,size=SIZE`.
    fn parse(text: &str) -> Option<PartRange> {
        let (offset, size) = match text.split_once(',') {
            Some((offset, size)) => (offset, Some(size.strip_prefix("size=")?)),
            None => (text, None),
        };
        Some(PartRange {
            offset: parse_size(offset.strip_prefix("offset=")?).ok()?,
            size: size.map(parse_size).transpose().ok()?,
        })
    }
}

impl Schemes {
    /// Schemes of URLs, without numbers of partitions.
    pub const fn new(schemes: &'static [Scheme]) -> Schemes {
        Schemes {
            schemes,
            find_partition: |path, number| {
                Err(invalid(format!(
                    "{}#{number}: this program does not read partition tables",
                    path.display()
                )))
            },
        }
    }

    /// The same with numbers of partitions.
    #[must_use]
    pub const fn with_partitions(self, find_partition: FindPartition) -> Schemes {
        Schemes {
            find_partition,
            ..self
        }
    }

    /// Parses a path or URL. `text` is a path if a file of that name exists. Otherwise it is a part
    /// of the file before its last `#`, if that file exists; and otherwise a path if it has a `/`
    /// before its first `:`. The table of partitions is read here.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown scheme, a bad size, a bad parameter, or a partition that does
    /// not exist.
    pub fn parse(&self, text: &str) -> io::Result<DeviceUrl> {
        if text.is_empty() {
            return Err(invalid("the name of a device is empty".into()));
        }
        if let Some(part) = self.parse_part(text)? {
            return Ok(DeviceUrl::Part(part));
        }
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) if !name.contains('/') && !Path::new(text).exists() => (name, rest),
            _ => return Ok(DeviceUrl::Path(PathBuf::from(text))),
        };
        match self.schemes.iter().find(|scheme| scheme.name == name) {
            Some(scheme) => (scheme.parse)(rest).map(DeviceUrl::Backend),
            None => {
                let known: Vec<_> = self
                    .schemes
                    .iter()
                    .map(|s| format!("{}:", s.name))
                    .collect();
                Err(invalid(format!(
                    "{text}: no device scheme is called \"{name}\" (known: {}; for a file of that name write ./{text})",
                    known.join(", ")
                )))
            }
        }
    }

    fn parse_part(&self, text: &str) -> io::Result<Option<DevicePart>> {
        let Some((path, fragment)) = text.rsplit_once('#') else {
            return Ok(None);
        };
        let path = Path::new(path);
        if Path::new(text).exists() || !path.exists() {
            return Ok(None);
        }
        let range = match fragment.parse() {
            Ok(number) => {
                let found = (self.find_partition)(path, number)?;
                Some(PartRange {
                    offset: found.start,
                    size: Some(found.end - found.start),
                })
            }
            Err(_) => PartRange::parse(fragment),
        };
        let range = range.ok_or_else(|| {
            invalid(format!(
                "{text}: behind # is the number of a partition, or offset=BYTES, or offset=BYTES,size=BYTES"
            ))
        })?;
        Ok(Some(DevicePart {
            path: path.to_owned(),
            range,
            name: text.to_owned(),
        }))
    }

    /// Parses a name that need not be UTF-8; one that is not is a path.
    ///
    /// # Errors
    /// As for [`Schemes::parse`].
    pub fn parse_os(&self, name: &OsStr) -> io::Result<DeviceUrl> {
        match name.to_str() {
            Some(text) => self.parse(text),
            None => Ok(DeviceUrl::Path(PathBuf::from(name))),
        }
    }
}

impl DeviceUrl {
    /// Parses a path or a `mem:` URL. Programs that know more schemes use [`Schemes::parse`].
    ///
    /// # Errors
    /// As for [`Schemes::parse`].
    pub fn parse(text: &str) -> io::Result<DeviceUrl> {
        BUILT_IN.parse(text)
    }

    /// Memory of `bytes`.
    pub fn memory(bytes: u64) -> DeviceUrl {
        DeviceUrl::Backend(Arc::new(Memory(bytes)))
    }

    /// Whether the device is blank at each opening and its contents are lost at each closing.
    pub fn is_volatile(&self) -> bool {
        match self {
            DeviceUrl::Path(_) | DeviceUrl::Part(_) => false,
            DeviceUrl::Backend(backend) => backend.is_volatile(),
        }
    }

    /// The image file or block device that the URL names, whole or in part.
    pub fn path(&self) -> Option<&Path> {
        match self {
            DeviceUrl::Path(path) => Some(path),
            DeviceUrl::Part(part) => Some(&part.path),
            DeviceUrl::Backend(_) => None,
        }
    }
}

impl fmt::Display for DeviceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceUrl::Path(path) => path.display().fmt(f),
            DeviceUrl::Part(part) => part.name.fmt(f),
            DeviceUrl::Backend(backend) => backend.fmt(f),
        }
    }
}

/// Opens a device and puts a queue in front of it.
///
/// # Errors
/// The system's, with the device's name; `ResourceBusy` if another process has it open.
pub fn open(url: &DeviceUrl, mode: OpenMode) -> io::Result<Arc<Queue>> {
    let device: Box<dyn Device> = match url {
        DeviceUrl::Path(path) => devices::open(path, mode)?,
        DeviceUrl::Part(part) => Box::new(part.open(mode)?),
        DeviceUrl::Backend(backend) => backend.open(mode)?,
    };
    Ok(Queue::new(device))
}

impl DevicePart {
    fn open(&self, mode: OpenMode) -> io::Result<Section> {
        let whole = devices::open(&self.path, mode)?;
        let PartRange { offset, size } = self.range;
        let end = size.map_or(whole.capacity(), |size| offset.saturating_add(size));
        Section::new(whole, self.name.clone(), offset..end)
    }
}

/// The size of a `mem:` device in bytes.
#[derive(Debug)]
struct Memory(u64);

impl Memory {
    /// The largest file or device on Linux.
    const MAX_BYTES: u64 = i64::MAX as u64;

    fn parse(rest: &str) -> io::Result<Memory> {
        match parse_size(rest)? {
            0 => Err(invalid(format!("mem:{rest}: a device of no bytes"))),
            size if size > Memory::MAX_BYTES => Err(invalid(format!("mem:{rest}: too large"))),
            size => Ok(Memory(size)),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mem:{}", self.0)
    }
}

impl Backend for Memory {
    fn open(&self, mode: OpenMode) -> io::Result<Box<dyn Device>> {
        let device = MemoryDevice::new(self.0);
        Ok(match mode {
            OpenMode::ReadOnly => Box::new(device.into_read_only()),
            OpenMode::ReadWrite | OpenMode::ReadWriteClaimed => Box::new(device),
        })
    }
    fn is_volatile(&self) -> bool {
        true
    }
    fn works_in_sandbox(&self) -> bool {
        true
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
