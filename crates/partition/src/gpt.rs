//! GUID partition table: a header in the second block with its checksum, an array of entries with
//! another one, and a copy of both at the end of the disk.
//!
//! The size of a block is not in the table. It is 512 bytes for nearly every disk and image, and
//! 4096 for disks with such sectors; the place of the header tells.

use crate::{Disk, Error, Partition, kinds, u32_at, u64_at, within};
use crc_fast::{CrcAlgorithm, checksum};
use std::ops::Range;

/// Sizes of a block, in the order in which they are tried.
const BLOCK_SIZES: [u64; 2] = [512, 4096];
const SIGNATURE: &[u8; 8] = b"EFI PART";
/// Bytes of the header that have a meaning.
const HEADER_BYTES: usize = 92;
/// Offset of the header's checksum in it.
const HEADER_CRC: Range<usize> = 16..20;
/// Bytes of an entry: the least, which is what all programs write, and the most.
const ENTRY_BYTES: Range<usize> = 128..4097;
/// Most entries that are read. Programs write 128.
const MAX_ENTRIES: usize = 1024;
/// UTF-16 units of a label.
const LABEL: Range<usize> = 56..128;

/// The fields of a header that are used.
struct Header {
    entries_at: u64,
    entries: usize,
    entry_bytes: usize,
    entries_crc: u32,
}

/// Reads the partitions from the first copy of the table, or else from the copy at the end.
pub(crate) fn read(disk: &(impl Disk + ?Sized), capacity: u64) -> Result<Vec<Partition>, Error> {
    let mut first_error = None;
    for block in BLOCK_SIZES {
        let last = (capacity / block).saturating_sub(1);
        for at in [1, last] {
            match read_copy(disk, at, block, capacity) {
                Err(Error::Gpt(reason)) => first_error = first_error.or(Some(reason)),
                result => return result,
            }
        }
    }
    Err(Error::Gpt(first_error.unwrap_or("no header")))
}

/// Reads the copy whose header is in block `at`.
fn read_copy(
    disk: &(impl Disk + ?Sized),
    at: u64,
    block: u64,
    capacity: u64,
) -> Result<Vec<Partition>, Error> {
    let place = within(at, 1, block, capacity).ok_or(Error::Gpt("the disk is too small"))?;
    let mut bytes = vec![0; block as usize];
    disk.read_exact_at(&mut bytes, place.start)?;
    let header = header(&mut bytes, at)?;
    let len = header.entries * header.entry_bytes;
    let place = within(header.entries_at, 1, block, capacity)
        .filter(|place| capacity - place.start >= len as u64)
        .ok_or(Error::Gpt("the entries are outside of the disk"))?;
    let mut array = vec![0; len];
    disk.read_exact_at(&mut array, place.start)?;
    if crc(&array) != header.entries_crc {
        return Err(Error::Gpt("the checksum of the entries is wrong"));
    }
    let entries = (1..).zip(array.chunks_exact(header.entry_bytes));
    let used = entries.filter(|(_, entry)| entry[..16] != [0; 16]);
    used.map(|(number, bytes)| entry(number, bytes, block, capacity))
        .collect()
}

/// Checks and decodes the header in block `at`. Clears its checksum in `bytes`.
fn header(bytes: &mut [u8], at: u64) -> Result<Header, Error> {
    if &bytes[..8] != SIGNATURE {
        return Err(Error::Gpt("no header"));
    }
    let len = u32_at(bytes, 12) as usize;
    if len < HEADER_BYTES || len > bytes.len() {
        return Err(Error::Gpt("the size of the header is wrong"));
    }
    let stored = u32_at(bytes, HEADER_CRC.start);
    bytes[HEADER_CRC].fill(0);
    if crc(&bytes[..len]) != stored {
        return Err(Error::Gpt("the checksum of the header is wrong"));
    }
    if u64_at(bytes, 24) != at {
        return Err(Error::Gpt("the header belongs to another block"));
    }
    let header = Header {
        entries_at: u64_at(bytes, 72),
        entries: u32_at(bytes, 80) as usize,
        entry_bytes: u32_at(bytes, 84) as usize,
        entries_crc: u32_at(bytes, 88),
    };
    if header.entries > MAX_ENTRIES || !ENTRY_BYTES.contains(&header.entry_bytes) {
        return Err(Error::Gpt("the number or size of the entries is wrong"));
    }
    Ok(header)
}

fn entry(number: u32, bytes: &[u8], block: u64, capacity: u64) -> Result<Partition, Error> {
    let (first, last) = (u64_at(bytes, 32), u64_at(bytes, 40));
    let count = last.checked_sub(first).and_then(|n| n.checked_add(1));
    let range = count.and_then(|count| within(first, count, block, capacity));
    Ok(Partition {
        number,
        range: range.ok_or(Error::Outside { number })?,
        kind: kinds::of_gpt(bytes.first_chunk().unwrap_or(&[0; 16])),
        label: label(&bytes[LABEL]),
    })
}

/// The text up to the first zero, without control characters: it is printed on a terminal.
fn label(bytes: &[u8]) -> String {
    let units = bytes.as_chunks::<2>().0.iter();
    let units = units
        .map(|unit| u16::from_le_bytes(*unit))
        .take_while(|unit| *unit != 0);
    char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .filter(|c| !c.is_control())
        .collect()
}

fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}
