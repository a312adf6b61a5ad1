//! Finding the journal of a volume whose journal is on a device of its own.
//!
//! The volume names the journal by its UUID, and by the number that the device had once. The
//! journal of a volume on a block device is searched for by both, as by mount(8) and e2fsck:
//!
//! 1. the block device with that number;
//! 2. the block device that udev lists under that UUID.
//!
//! A candidate is taken only if it is a journal device with that UUID. The journal of a volume in
//! an image file is never searched for: an image may come from another machine, where the number
//! and the UUID mean something else. Its user names the journal.

use crate::devices::SCHEMES;
use block::{OpenMode, Queue};
use ext4::{ExternalJournal, Uuid};
use ext4_format::device::DeviceNumber;
use ext4_format::journal_device::JournalDevice;
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a journal device.
pub(crate) fn open(url: &OsStr, mode: OpenMode) -> io::Result<Arc<Queue>> {
    let mode = match mode {
        // The claim of a mount covers the volume's device only.
        OpenMode::ReadWriteClaimed => OpenMode::ReadWrite,
        mode => mode,
    };
    let opened = SCHEMES
        .parse_os(url)
        .and_then(|url| block::open(&url, mode));
    opened.map_err(|e| io::Error::new(e.kind(), format!("journal device: {e}")))
}

/// Returns the journal of the volume on a device if that is on a device of its own. The volume is
/// not opened, and it may be in use.
///
/// # Errors
/// The device's; `InvalidData` and others for a device without a volume.
pub fn external_journal(url: impl AsRef<OsStr>) -> io::Result<Option<ExternalJournal>> {
    let url = SCHEMES.parse_os(url.as_ref())?;
    let queue = block::open(&url, OpenMode::ReadOnly)?;
    Ok(ext4::external_journal(&queue)?)
}

/// Searches for the journal of the volume on the block device `volume`. Returns `None` if the
/// journal is in the volume or is not there, or if `volume` is no block device. An image is not
/// opened.
pub fn journal_of(volume: impl AsRef<OsStr>) -> Option<OsString> {
    let volume = volume.as_ref();
    let url = SCHEMES.parse_os(volume).ok()?;
    if !is_block_device(url.path()?) {
        return None;
    }
    let wanted = external_journal(volume).ok()??;
    find_journal(volume, &wanted)
}

/// Searches for the device with the journal of the volume on the block device `volume`. Returns
/// `None` if it is not there, or if `volume` is no block device.
pub fn find_journal(volume: impl AsRef<OsStr>, wanted: &ExternalJournal) -> Option<OsString> {
    let url = SCHEMES.parse_os(volume.as_ref()).ok()?;
    if !is_block_device(url.path()?) {
        return None;
    }
    let candidates = by_number(wanted.device).into_iter();
    candidates
        .chain([Path::new("/dev/disk/by-uuid").join(wanted.uuid.to_string())])
        .find(|path| is_journal(path, wanted.uuid))
        .map(PathBuf::into_os_string)
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// The paths that a device with this number may have.
fn by_number(number: DeviceNumber) -> Vec<PathBuf> {
    let DeviceNumber { major, minor } = number;
    if (major, minor) == (0, 0) {
        return Vec::new();
    }
    let mut paths = vec![PathBuf::from(format!("/dev/block/{major}:{minor}"))];
    let event = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"));
    let names = event.unwrap_or_default();
    let names = names
        .lines()
        .filter_map(|line| line.strip_prefix("DEVNAME="));
    paths.extend(names.map(|name| Path::new("/dev").join(name)));
    paths
}

/// Whether a block device has the journal with this UUID.
fn is_journal(path: &Path, uuid: Uuid) -> bool {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    is_block_device(path)
        && File::open(path)
            .and_then(|device| device.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET))
            .is_ok()
        && JournalDevice::parse(&bytes).is_ok_and(|found| found.uuid == uuid)
}
