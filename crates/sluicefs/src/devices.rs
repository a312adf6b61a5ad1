//! The devices that a volume can be on. A new kind of device is one line in [`SCHEMES`].

use block::{OpenMode, Schemes};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// The names of devices, besides plain paths.
pub const SCHEMES: Schemes =
    Schemes::new(&[block::MEMORY_SCHEME, sim::SCHEME]).with_partitions(find_partition);

/// Reads the partition table of an image file or block device. `None` if it has none.
///
/// # Errors
/// The system's, with the path; `InvalidData` for a table that is damaged.
pub fn partition_table(path: impl AsRef<Path>) -> io::Result<Option<partition::Table>> {
    let path = path.as_ref();
    let read = || {
        let mut disk = File::open(path)?;
        let capacity = disk.seek(SeekFrom::End(0))?;
        partition::read(&disk, capacity).map_err(|e| match e {
            partition::Error::Io(e) => e,
            damage => io::Error::new(io::ErrorKind::InvalidData, damage),
        })
    };
    read().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// The kind of data at the beginning of a device; `None` if it begins with zeroes, or cannot be
/// read.
pub fn contents(url: &str) -> Option<&'static str> {
    let url = SCHEMES.parse(url).ok()?;
    let queue = block::open(&url, OpenMode::ReadOnly).ok()?;
    crate::probe::existing_data(&queue).ok()?
}

fn find_partition(path: &Path, number: u32) -> io::Result<Range<u64>> {
    let refuse = |what: String| {
        let what = format!("{}#{number}: {what}", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    };
    let Some(table) = partition_table(path)? else {
        return refuse("there is no partition table".into());
    };
    if let Some(found) = table.get(number) {
        return Ok(found.range.clone());
    }
    let numbers: Vec<_> = table
        .partitions
        .iter()
        .map(|p| p.number.to_string())
        .collect();
    refuse(format!(
        "there is no such partition; the {} has {}",
        table.format,
        numbers.join(", ")
    ))
}
