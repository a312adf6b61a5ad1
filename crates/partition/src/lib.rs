//! Partition tables of disks and disk images: GPT and MBR, read only.
//!
//! A table comes from an untrusted image, so everything is checked before use: checksums, places
//! and sizes within the disk, and a bound for each count and each chain. The formats are described
//! in the UEFI specification, chapter 5 (GPT), and in "Master boot record" of any PC manual.
//!
//! | file | what it holds |
//! |---|---|
//! | `gpt` | headers, their backup, entries |
//! | `mbr` | four entries, and the chain of logical partitions |
//! | `kinds` | names of partition types |

#![forbid(unsafe_code)]

mod gpt;
mod kinds;
mod mbr;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of the sector that an MBR counts in.
const SECTOR: u64 = 512;

/// A disk whose table is read.
pub trait Disk {
    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    /// The device's; `UnexpectedEof` behind its end.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Disk for File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, offset)
    }
}

impl Disk for [u8] {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| self.get(start..start.checked_add(buf.len())?));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// GUID partition table, of UEFI.
    Gpt,
    /// Master boot record, of the PC.
    Mbr,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Gpt => "GPT",
            Format::Mbr => "MBR",
        })
    }
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The number that Linux gives it (`sda2`). Logical partitions of an MBR begin with 5.
    pub number: u32,
    /// Its bytes on the disk. Not empty.
    pub range: Range<u64>,
    /// The name of its type, or the type's number or GUID.
    pub kind: String,
    /// The label of a GPT's entry, without control characters. Often empty.
    pub label: String,
}

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// GPT or MBR.
    pub format: Format,
    /// In the order of their numbers.
    pub partitions: Vec<Partition>,
}

impl Table {
    /// The partition with this number.
    pub fn get(&self, number: u32) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.number == number)
    }
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error("the partition table cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Both copies of a GPT are damaged. The reason is that of the first copy.
    #[error("the GPT is damaged: {0}; sgdisk --verify and gdisk can repair it")]
    Gpt(&'static str),
    /// A partition does not lie within the disk.
    #[error(
        "partition {number} does not lie within the disk: the image is truncated, or its table is damaged"
    )]
    Outside {
        /// The partition's number.
        number: u32,
    },
    /// A chain of logical partitions has a loop, or more than 250 entries.
    #[error("the chain of logical partitions has no end")]
    Chain,
}

/// Reads the partition table of a disk of `capacity` bytes. `None` if it has none: a file system
/// that fills the disk may have a boot sector with the signature of an MBR, but no entries.
///
/// # Errors
/// As [`Error`] lists.
pub fn read(disk: &(impl Disk + ?Sized), capacity: u64) -> Result<Option<Table>, Error> {
    if capacity < SECTOR {
        return Ok(None);
    }
    let mut sector = [0; SECTOR as usize];
    disk.read_exact_at(&mut sector, 0)?;
    let partitions = match mbr::entries(&sector) {
        None => return Ok(None),
        Some(entries) if entries.iter().any(mbr::Entry::is_protective) => {
            let partitions = gpt::read(disk, capacity)?;
            return Ok(Some(Table {
                format: Format::Gpt,
                partitions,
            }));
        }
        Some(entries) => mbr::read(disk, &entries, capacity)?,
    };
    Ok((!partitions.is_empty()).then_some(Table {
        format: Format::Mbr,
        partitions,
    }))
}

/// The bytes of `count` units of `unit` bytes from unit `first`, if they lie within the disk.
fn within(first: u64, count: u64, unit: u64, capacity: u64) -> Option<Range<u64>> {
    let start = first.checked_mul(unit)?;
    let end = start.checked_add(count.checked_mul(unit)?)?;
    (start < end && end <= capacity).then_some(start..end)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |b| u64::from_le_bytes(*b))
}
