//! The devices that a volume can be on. A new kind of device is one line in [`SCHEMES`].

use block::devices::{Qcow2Device, is_qcow2};
use block::{Device, OpenMode, Schemes};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The names of devices, besides plain paths.
pub const SCHEMES: Schemes =
    Schemes::new(&[block::MEMORY_SCHEME, sim::SCHEME]).with_partitions(find_partition);

/// Reads the partition table of an image file or block device. `None` if it has none.
///
/// # Errors
/// The system's, with the path; `InvalidData` for a table or a qcow2 image that is damaged;
/// `Unsupported` for other formats of images.
pub fn partition_table(path: impl AsRef<Path>) -> io::Result<Option<partition::Table>> {
    let path = path.as_ref();
    let found = match is_qcow2(path)? {
        true => {
            let image = Image(Qcow2Device::open(path)?);
            let capacity = image.0.capacity();
            partition::read(&image, capacity)
        }
        false => read_raw(path),
    };
    found.map_err(|e| {
        let kind = match &e {
            partition::Error::Io(e) => e.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, format!("{}: {e}", path.display()))
    })
}

fn read_raw(path: &Path) -> Result<Option<partition::Table>, partition::Error> {
    let kind = std::fs::metadata(path)?.file_type();
    // To open a FIFO would wait for a writer.
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(None);
    }
    let mut disk = File::open(path)?;
    let capacity = disk.seek(SeekFrom::End(0))?;
    partition::read(&disk, capacity)
}

/// The disk in a qcow2 image.
struct Image(Qcow2Device);

impl partition::Disk for Image {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
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
