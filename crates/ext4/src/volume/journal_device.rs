//! A journal on a device of its own: which one a volume has, and whether a device is that one.

use super::bootstrap;
use crate::{Error, Result};
use block::Queue;
use ext4_format::journal_device::{ExternalJournal, JournalDevice, JournalDeviceError};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use jbd2::JournalPlace;
use std::sync::Arc;

/// Returns the journal of the volume on `queue` if that is on a device of its own.
///
/// # Errors
/// Those of a super block that cannot be read.
pub fn external_journal(queue: &Queue) -> Result<Option<ExternalJournal>> {
    Ok(bootstrap::read_superblock(queue)?.external_journal())
}

/// Checks that `device` has the journal `wanted` of the volume with super block `sb`. The journal's
/// own super block is checked when the log is opened.
pub(super) fn place(
    wanted: &ExternalJournal,
    sb: &Superblock,
    device: &Arc<Queue>,
) -> Result<JournalPlace> {
    let wrong = |error: JournalDeviceError| Error::WrongJournalDevice {
        device: device.name().to_owned(),
        error,
    };
    let end = SUPERBLOCK_OFFSET as usize + SUPERBLOCK_SIZE;
    if device.capacity() < end as u64 {
        return Err(wrong(JournalDeviceError::NotAJournal));
    }
    let found = JournalDevice::parse(&bootstrap::superblock_bytes(device)?).map_err(wrong)?;
    Ok(JournalPlace::OnDevice(jbd2::JournalDevice {
        queue: device.clone(),
        superblock: found.log_superblock(),
        blocks: wanted.check(&found).map_err(wrong)?,
        user: sb.uuid,
    }))
}
