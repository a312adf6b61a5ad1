//! One qcow2 image file: from bytes of the disk to bytes of the file.
//!
//! ```text
//!  byte of the disk ─▶ L1 entry ─▶ L2 table: a part of it is read ─▶ entry ─▶ place
//! ```
//!
//! The image may be hostile. Tables have bounds, entries are checked, and a cluster decompresses to
//! the size of a cluster at most. Snapshots are not read.

use super::cache::Cache;
use super::cluster::{self, Place, SUBCLUSTERS};
use super::decompress::decompress;
use super::error::Qcow2Error;
use super::header::{HEADER_BYTES, Header, L2Format};
use std::io;
use std::sync::Arc;

/// Bytes of L2 tables that are read and kept together.
const L2_PART: u64 = 4096;
/// Bytes of L2 tables in memory: those of 64 GiB, with clusters of 64 KiB.
const L2_CACHE: usize = 8 << 20;
/// Bytes of decompressed clusters in memory.
const CLUSTER_CACHE: usize = 4 << 20;

/// The bytes of a file.
pub trait Bytes: Send + Sync {
    /// Reads at byte `offset`. Returns fewer bytes than `buf` has only at the end.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The number of bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;
    /// Whether there are no bytes.
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl Bytes for Vec<u8> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(Vec::len(self));
        let len = buf.len().min(Vec::len(self) - start);
        buf[..len].copy_from_slice(&self[start..start + len]);
        Ok(len)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(Vec::len(self) as u64)
    }
}

/// A part of a read, and where its bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The buffer has them.
    Here,
    /// They are those of the backing file.
    Backing,
}

/// An open image.
pub struct Qcow2Image {
    file: Box<dyn Bytes>,
    header: Header,
    l1: Vec<u64>,
    tables: Cache,
    clusters: Cache,
}

impl Qcow2Image {
    /// Reads the header and the L1 table.
    ///
    /// # Errors
    /// The system's; `InvalidData` with a [`Qcow2Error`].
    pub fn open(file: Box<dyn Bytes>) -> io::Result<Qcow2Image> {
        let mut start = vec![0; HEADER_BYTES];
        let len = file.read_at(&mut start, 0)?;
        let header = Header::parse(&start[..len])?;
        let (offset, entries) = header.l1;
        let what = "the L1 table";
        let end = offset.saturating_add(u64::from(entries) * 8);
        if end > file.len()? {
            return Err(Qcow2Error::CutOff { what }.into());
        }
        let mut bytes = vec![0; entries as usize * 8];
        if file.read_at(&mut bytes, offset)? < bytes.len() {
            return Err(Qcow2Error::CutOff { what }.into());
        }
        let l1 = bytes.chunks_exact(8).map(number).collect();
        Ok(Qcow2Image {
            file,
            header,
            l1,
            tables: Cache::new(L2_CACHE),
            clusters: Cache::new(CLUSTER_CACHE),
        })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads bytes of the disk from `at` on, as far as they have one place, at least one byte.
    /// Returns their number and whether they were filled. The range lies on the disk and is not
    /// empty.
    ///
    /// # Errors
    /// The system's; `InvalidData` with a [`Qcow2Error`].
    pub fn read_some(&self, buf: &mut [u8], at: u64) -> io::Result<(usize, Filled)> {
        let bits = self.header.cluster_bits;
        let within = at % (1 << bits);
        let unit = match self.header.l2 {
            L2Format::Standard => 1 << bits,
            L2Format::Extended => (1 << bits) / u64::from(SUBCLUSTERS),
        };
        let len = (unit - within % unit).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        match self.place(at)? {
            Place::Backing => return Ok((len, Filled::Backing)),
            Place::Zero => buf.fill(0),
            Place::File(offset) => self.read_file(buf, offset)?,
            Place::Compressed(offset, bytes) => {
                let cluster = self.decompressed(offset, bytes, at)?;
                let start = within as usize;
                let part = cluster.get(start..start + len);
                buf.copy_from_slice(part.ok_or(Qcow2Error::Decompression { at })?);
            }
        }
        Ok((len, Filled::Here))
    }

    /// Reads bytes of a cluster. The last cluster of a file may be short; its rest is zeroes.
    fn read_file(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let len = self.file.read_at(buf, offset)?;
        let cluster = offset >> self.header.cluster_bits << self.header.cluster_bits;
        if len < buf.len() && cluster >= self.file.len()? {
            return Err(Qcow2Error::CutOff { what: "a cluster" }.into());
        }
        buf[len..].fill(0);
        Ok(())
    }

    fn decompressed(&self, offset: u64, len: u64, at: u64) -> io::Result<Arc<[u8]>> {
        self.clusters.get(offset, || {
            let mut bytes = vec![0; len as usize];
            // The length is in whole sectors, and the file may end before.
            let read = self.file.read_at(&mut bytes, offset)?;
            if read == 0 {
                let what = "a compressed cluster";
                return Err(Qcow2Error::CutOff { what }.into());
            }
            let size = 1 << self.header.cluster_bits;
            let plain = decompress(&bytes[..read], size);
            Ok(plain.ok_or(Qcow2Error::Decompression { at })?)
        })
    }

    /// Returns the place of a byte of the disk.
    fn place(&self, at: u64) -> io::Result<Place> {
        let (bits, format) = (self.header.cluster_bits, self.header.l2);
        let cluster = at >> bits;
        let table_bits = bits - format.entry_bits();
        // The entries that were read cover the disk.
        let l1 = usize::try_from(cluster >> table_bits).ok();
        let l1 = l1
            .and_then(|index| self.l1.get(index))
            .copied()
            .unwrap_or(0);
        let damage = |table, entry| Qcow2Error::Entry { table, entry, at };
        let Some(table) = cluster::l2_table(l1) else {
            return Ok(Place::Backing);
        };
        if !table.is_multiple_of(1 << bits) {
            return Err(damage("L1", l1).into());
        }
        let entry_at = (cluster % (1 << table_bits)) << format.entry_bits();
        // A table may be smaller than a part.
        let part = L2_PART.min(1 << bits);
        let first = table + entry_at / part * part;
        let bytes = self.tables.get(first, || {
            let mut bytes = vec![0; part as usize];
            match self.file.read_at(&mut bytes, first)? {
                len if len < bytes.len() => {
                    let what = "an L2 table";
                    Err(io::Error::from(Qcow2Error::CutOff { what }))
                }
                _ => Ok(bytes),
            }
        })?;
        let from = (entry_at % part) as usize;
        let entry = number(&bytes[from..from + 8]);
        let states = match format {
            L2Format::Standard => 0,
            L2Format::Extended => number(&bytes[from + 8..from + 16]),
        };
        let place = cluster::place((entry, states), &self.header, at % (1 << bits));
        Ok(place.ok_or_else(|| damage("L2", entry))?)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
