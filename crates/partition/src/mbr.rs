//! Master boot record: four entries in the first sector. One of them may be an extended partition,
//! which holds a chain of boot records. Each has a logical partition and the place of the next one.
//!
//! ```text
//!  sector 0       E1 E2 [extended: from sector X] -
//!  sector X       logical 5: from X + a;        next record: X + n
//!  sector X + n   logical 6: from X + n + b;    next record: X + m   … 0: the end
//! ```

use crate::{Disk, Error, Partition, SECTOR, kinds, u32_at, within};

/// Most logical partitions; Linux has no numbers for more on a disk.
pub(crate) const MAX_LOGICAL: u32 = 250;
/// Offset of the entries in a boot record.
const ENTRIES: usize = 446;
const ENTRY_BYTES: usize = 16;
/// Offset of the signature 55 AA.
const SIGNATURE: usize = 510;
/// The type of the one entry of a disk with a GPT.
const PROTECTIVE: u8 = 0xee;
/// Types of an extended partition: of DOS, of Windows (LBA), of Linux.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;

/// An entry of a boot record.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    status: u8,
    kind: u8,
    first: u32,
    sectors: u32,
}

impl Entry {
    fn parse(bytes: &[u8]) -> Entry {
        Entry {
            status: bytes[0],
            kind: bytes[4],
            first: u32_at(bytes, 8),
            sectors: u32_at(bytes, 12),
        }
    }

    pub(crate) fn is_protective(&self) -> bool {
        self.kind == PROTECTIVE
    }

    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    fn partition(&self, number: u32, base: u64, capacity: u64) -> Result<Partition, Error> {
        let first = base + u64::from(self.first);
        let range = within(first, self.sectors.into(), SECTOR, capacity);
        Ok(Partition {
            number,
            range: range.ok_or(Error::Outside { number })?,
            kind: kinds::of_mbr(self.kind),
            label: String::new(),
        })
    }
}

/// The entries of a boot record. `None` if it is none: the signature is missing, or an entry is
/// neither active (80) nor inactive (0), as in the boot sector of a FAT file system.
pub(crate) fn entries(sector: &[u8]) -> Option<[Entry; 4]> {
    if sector.get(SIGNATURE..SIGNATURE + 2)? != [0x55, 0xaa] {
        return None;
    }
    let entry = |i: usize| Entry::parse(&sector[ENTRIES + i * ENTRY_BYTES..][..ENTRY_BYTES]);
    let entries = [0, 1, 2, 3].map(entry);
    let known = entries.iter().all(|e| matches!(e.status, 0 | 0x80));
    known.then_some(entries)
}

/// The primary and the logical partitions. Extended ones hold others and are none themselves.
pub(crate) fn read(
    disk: &(impl Disk + ?Sized),
    entries: &[Entry; 4],
    capacity: u64,
) -> Result<Vec<Partition>, Error> {
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        if entry.is_used() && !entry.is_extended() {
            partitions.push(entry.partition(number, 0, capacity)?);
        }
    }
    let extended = entries.iter().find(|e| e.is_used() && e.is_extended());
    if let Some(extended) = extended {
        read_logical(disk, extended, capacity, &mut partitions)?;
    }
    Ok(partitions)
}

fn read_logical(
    disk: &(impl Disk + ?Sized),
    extended: &Entry,
    capacity: u64,
    partitions: &mut Vec<Partition>,
) -> Result<(), Error> {
    let base = u64::from(extended.first);
    let (mut at, mut number) = (base, FIRST_LOGICAL);
    let mut sector = [0; SECTOR as usize];
    for _ in 0..MAX_LOGICAL {
        if within(at, 1, SECTOR, capacity).is_none() {
            return Err(Error::Outside { number });
        }
        disk.read_exact_at(&mut sector, at * SECTOR)?;
        // The record behind the last partition may never have been written.
        let Some(entries) = entries(&sector) else {
            return Ok(());
        };
        let logical = entries.iter().find(|e| e.is_used() && !e.is_extended());
        if let Some(logical) = logical {
            partitions.push(logical.partition(number, at, capacity)?);
            number += 1;
        }
        match entries.iter().find(|e| e.is_used() && e.is_extended()) {
            Some(next) => at = base + u64::from(next.first),
            None => return Ok(()),
        }
    }
    Err(Error::Chain)
}
