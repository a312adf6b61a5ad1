//! Journals on a device of their own (`mke2fs -O journal_dev`), as a volume names them and as the
//! device describes itself.
//!
//! | byte of the device | contents |
//! |---|---|
//! | 1024 | an ext4 super block with the feature `journal_dev` and the journal's UUID |
//! | the start of the next block | the super block of jbd2 |
//! | the blocks after that | the log |
//!
//! A volume names its journal by the UUID (`s_journal_uuid`). The number of the device
//! (`s_journal_dev`) is a hint: it may have another number now, or be an image file.

use crate::device::DeviceNumber;
use crate::features::{CompatFeatures, IncompatFeatures};
use crate::superblock::{SUPERBLOCK_OFFSET, Superblock};
use std::fmt;
use thiserror::Error;

/// A UUID, which is displayed as usual.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, byte) in self.0.iter().enumerate() {
            let dash = if matches!(nth, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The journal that a volume has on a device of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalJournal {
    /// The journal's UUID.
    pub uuid: Uuid,
    /// The number that the device had when the volume was made; 0:0 if it is not known.
    pub device: DeviceNumber,
    /// Bytes in a block of the volume, and of the journal.
    pub block_size: u32,
}

/// Why a device is not the journal of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JournalDeviceError {
    /// There is no super block with the feature `journal_dev`, or it is damaged.
    #[error("it is no journal device (mke2fs -O journal_dev makes one)")]
    NotAJournal,
    /// It is another journal.
    #[error("its UUID is {found}, and the volume's journal has UUID {wanted}")]
    OtherJournal {
        /// The UUID that the volume names.
        wanted: Uuid,
        /// That of the device.
        found: Uuid,
    },
    /// The blocks have another size than those of the volume.
    #[error("its blocks have {found} bytes, and those of the volume {wanted}")]
    BlockSize {
        /// Bytes in a block of the volume.
        wanted: u32,
        /// Bytes in a block of the device.
        found: u32,
    },
    /// It has more blocks than a journal can number.
    #[error("it has {0} blocks, more than a journal can have")]
    Length(u64),
}

impl Superblock {
    /// Returns the volume's journal if that is on a device of its own.
    #[must_use]
    pub fn external_journal(&self) -> Option<ExternalJournal> {
        let is_external =
            self.compat().contains(CompatFeatures::HAS_JOURNAL) && self.journal_inum.get() == 0;
        is_external.then(|| ExternalJournal {
            uuid: Uuid(self.journal_uuid),
            device: DeviceNumber::from_bits(self.journal_dev.get()),
            block_size: self.block_size(),
        })
    }
}

/// A device with a journal, by its super block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalDevice {
    /// The journal's UUID.
    pub uuid: Uuid,
    /// Bytes in a block.
    pub block_size: u32,
    /// Length in blocks.
    pub blocks: u64,
}

impl JournalDevice {
    /// Reads the super block of a device, the bytes from [`SUPERBLOCK_OFFSET`] on.
    ///
    /// # Errors
    /// `NotAJournal`.
    pub fn parse(bytes: &[u8]) -> Result<JournalDevice, JournalDeviceError> {
        let sb = Superblock::parse_unverified(bytes)
            .ok()
            .filter(|sb| sb.verify_checksum().is_ok())
            .filter(|sb| sb.incompat().contains(IncompatFeatures::JOURNAL_DEV))
            .filter(|sb| sb.log_block_size.get() <= 6)
            .ok_or(JournalDeviceError::NotAJournal)?;
        Ok(JournalDevice {
            uuid: Uuid(sb.uuid),
            block_size: sb.block_size(),
            blocks: sb.blocks_count(),
        })
    }

    /// Returns the number of the block with the super block of jbd2.
    #[must_use]
    pub fn log_superblock(&self) -> u32 {
        let before = u32::try_from(SUPERBLOCK_OFFSET).unwrap_or(0) / self.block_size.max(1);
        before.saturating_add(1)
    }
}

impl ExternalJournal {
    /// Checks that a device is this journal. Returns its length in blocks.
    ///
    /// # Errors
    /// The difference.
    pub fn check(&self, found: &JournalDevice) -> Result<u32, JournalDeviceError> {
        if found.uuid != self.uuid {
            return Err(JournalDeviceError::OtherJournal {
                wanted: self.uuid,
                found: found.uuid,
            });
        }
        if found.block_size != self.block_size {
            return Err(JournalDeviceError::BlockSize {
                wanted: self.block_size,
                found: found.block_size,
            });
        }
        u32::try_from(found.blocks).map_err(|_| JournalDeviceError::Length(found.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::{MAGIC, SUPERBLOCK_SIZE};
    use zerocopy::FromZeros;

    fn device(block_size_log: u32) -> Superblock {
        let mut sb = Superblock::new_zeroed();
        sb.magic = MAGIC.into();
        sb.rev_level = 1.into();
        sb.log_block_size = block_size_log.into();
        sb.blocks_count_lo = 16384.into();
        sb.uuid = [7; 16];
        sb.set_incompat(IncompatFeatures::JOURNAL_DEV);
        sb
    }

    fn wanted() -> ExternalJournal {
        ExternalJournal {
            uuid: Uuid([7; 16]),
            device: DeviceNumber { major: 7, minor: 0 },
            block_size: 4096,
        }
    }

    #[test]
    fn the_log_begins_in_the_block_after_the_super_block() {
        for (log, at) in [(0, 2), (1, 1), (2, 1)] {
            let parsed = JournalDevice::parse(device(log).as_bytes()).unwrap();
            assert_eq!((parsed.log_superblock(), parsed.blocks), (at, 16384));
        }
    }

    #[test]
    fn other_devices_are_refused() {
        let parse = |sb: &Superblock| JournalDevice::parse(sb.as_bytes());
        let good = parse(&device(2)).unwrap();
        assert_eq!(wanted().check(&good), Ok(16384));
        let mut volume = device(2);
        volume.set_incompat(IncompatFeatures::EXTENTS);
        assert_eq!(parse(&volume), Err(JournalDeviceError::NotAJournal));
        let mut large = device(2);
        large.log_block_size = 60.into();
        assert_eq!(parse(&large), Err(JournalDeviceError::NotAJournal));
        let nothing = JournalDevice::parse(&[0; SUPERBLOCK_SIZE]);
        assert_eq!(nothing, Err(JournalDeviceError::NotAJournal));
        let small = wanted().check(&parse(&device(0)).unwrap()).unwrap_err();
        assert!(matches!(small, JournalDeviceError::BlockSize { .. }));
        let other = JournalDevice {
            uuid: Uuid([8; 16]),
            ..good
        };
        let said = wanted().check(&other).unwrap_err().to_string();
        assert!(
            said.contains("07070707-0707-0707-0707-070707070707"),
            "{said}"
        );
        let long = JournalDevice {
            blocks: 1 << 32,
            ..good
        };
        assert_eq!(
            wanted().check(&long),
            Err(JournalDeviceError::Length(1 << 32))
        );
    }
}
