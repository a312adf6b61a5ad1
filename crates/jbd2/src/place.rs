//! The place of a journal: blocks of the volume, or a device of its own.
//!
//! ```text
//!   on the volume      log block n  ─▶ the journal's extents; block 0 has the super block
//!   on a device        log block n  ─▶ block n of the device
//!                      block 0      ─▶ the block with the journal's super block, which follows the
//!                                      block with the super block of the device
//! ```
//!
//! The log of a device begins behind both super blocks, so block 0 has no other use.
//!
//! A device has a write cache of its own. A flush of one device orders nothing on the other one:
//! - data and blocks at home are flushed on the volume's device, before a commit block or a new
//!   tail that depends on them is written to the log;
//! - blocks of the log are flushed on the log's device.

use crate::LogBlock;
use crate::format::superblock::JournalSuperblock;
use crate::{JournalDamage, JournalError};
use block::Queue;
use std::sync::Arc;
use units::{FileBlock, FsBlock};

/// A run of the journal's blocks on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalExtent {
    /// First block within the journal.
    pub logical: FileBlock,
    /// First block on the volume.
    pub physical: FsBlock,
    /// Length in blocks.
    pub len: u32,
}

/// A device that has nothing but a journal.
#[derive(Clone)]
pub struct JournalDevice {
    /// The device.
    pub queue: Arc<Queue>,
    /// The block with the journal's super block.
    pub superblock: u32,
    /// The length of the device in blocks.
    pub blocks: u32,
    /// The UUID of the volume, which must be the journal's only user.
    pub user: [u8; 16],
}

/// Where a journal is.
#[derive(Clone)]
pub enum JournalPlace {
    /// A file of the volume.
    OnVolume(Vec<JournalExtent>),
    /// A device of its own.
    OnDevice(JournalDevice),
}

impl From<Vec<JournalExtent>> for JournalPlace {
    fn from(extents: Vec<JournalExtent>) -> JournalPlace {
        JournalPlace::OnVolume(extents)
    }
}

impl JournalPlace {
    /// Returns the number of the journal's blocks.
    pub fn blocks(&self) -> u32 {
        match self {
            JournalPlace::OnVolume(extents) => extents.iter().map(|e| e.len).sum(),
            JournalPlace::OnDevice(device) => device.blocks,
        }
    }
}

impl JournalDevice {
    /// Returns the extents of the log on the device.
    pub(crate) fn extents(&self) -> [JournalExtent; 2] {
        let superblock = JournalExtent {
            logical: FileBlock::FIRST,
            physical: FsBlock(self.superblock.into()),
            len: 1,
        };
        let log = JournalExtent {
            logical: FileBlock(1),
            physical: FsBlock(1),
            len: self.blocks.saturating_sub(1),
        };
        [superblock, log]
    }

    /// Checks that the journal's super block leaves the super blocks of the device alone, and that
    /// the volume is its only user.
    pub(crate) fn check(&self, sb: &JournalSuperblock) -> Result<(), JournalError> {
        if sb.first() <= LogBlock(self.superblock) {
            return Err(JournalDamage::LogInSuperblock.at(LogBlock::SUPERBLOCK));
        }
        let unsupported = |why: String| {
            let name = self.queue.name();
            Err(JournalError::Unsupported(format!("{name} {why}")))
        };
        match sb.users() {
            0 => unsupported("is a journal that no volume uses; run tune2fs -J device=…".into()),
            1 if sb.user(0) == Some(self.user) => Ok(()),
            1 => unsupported("is the journal of another volume".into()),
            users => unsupported(format!(
                "is shared by {users} volumes; only a journal of one volume is supported"
            )),
        }
    }
}
