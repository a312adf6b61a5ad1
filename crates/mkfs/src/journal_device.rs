//! Journals on a device of their own.
//!
//! ```text
//!   [`format`]:           super block (journal_dev) | super block of jbd2, no user | empty log
//!   [`Unused::set_user`]: the super block of jbd2 names the volume, before the volume is complete
//! ```
//!
//! A crash between the two leaves a journal of a volume that does not exist. It is made anew.

use crate::shape::{JOURNAL_TOO_SMALL, MIN_JOURNAL_BLOCKS, check_block_size};
use crate::superblock;
use crate::zeroed::{clear, zero_runs};
use crate::{Error, MkfsOptions, MkfsReport, Result};
use block::{BufMut, Class, Durability, Queue, Reason};
use ext4_format::device::DeviceNumber;
use ext4_format::journal_device::{JournalDevice, Uuid};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use jbd2::format::superblock::{JournalSuperblock, format_new_device};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use units::FsBlock;

/// Makes the device a journal that no volume uses.
///
/// # Errors
/// `Invalid` if it is too small or too large; a device error.
pub(crate) fn format(queue: &Queue, options: &MkfsOptions) -> Result<MkfsReport> {
    let block_size = check_block_size(options)?;
    if options.journal_bytes.is_some() {
        return Err(Error::Invalid("a journal device has a size of its own"));
    }
    let blocks = queue.capacity() / u64::from(block_size);
    if blocks < MIN_JOURNAL_BLOCKS {
        return Err(JOURNAL_TOO_SMALL);
    }
    let blocks = u32::try_from(blocks)
        .map_err(|_| Error::Invalid("a journal has at most 2^32 - 1 blocks"))?;
    let mut sb = superblock::journal_device(blocks, options, superblock::now());
    let uuid = sb.uuid;
    let parsed = JournalDevice {
        uuid: Uuid(uuid),
        block_size,
        blocks: blocks.into(),
    };
    let zeroed = clear(queue, options)?;
    // Blocks of an old log could be mistaken for those of the new one.
    zero_runs(queue, block_size, &zeroed, &[(0, blocks.into())])?;
    let at = parsed.log_superblock();
    write_log_superblock(queue, at, &format_new_device(blocks, block_size, uuid, at))?;
    sb.update_checksum();
    superblock::write_primary(queue, &sb)?;
    Ok(MkfsReport {
        blocks: blocks.into(),
        inodes: 0,
        groups: 0,
        journal_blocks: blocks,
        uuid,
    })
}

/// A journal device that no volume uses.
pub(crate) struct Unused<'q> {
    queue: &'q Queue,
    found: JournalDevice,
}

impl<'q> Unused<'q> {
    /// Reads a journal device.
    ///
    /// # Errors
    /// `Journal` with the reason; a device error.
    pub fn read(queue: &'q Queue, block_size: u32) -> Result<Unused<'q>> {
        let bytes = read(queue, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
        let found = JournalDevice::parse(&bytes).map_err(|e| refused(queue, e))?;
        if found.block_size != block_size {
            let (theirs, ours) = (found.block_size, block_size);
            let why = format!("its blocks have {theirs} bytes, and those of the volume {ours}");
            return Err(refused(queue, why));
        }
        if found.blocks > u64::from(u32::MAX) {
            return Err(refused(queue, "it has more blocks than a journal can have"));
        }
        let unused = Unused { queue, found };
        let users = unused.log_superblock()?.users();
        if users > 0 {
            let why = "it is the journal of a volume already; -O journal_dev makes it anew";
            return Err(refused(queue, why));
        }
        Ok(unused)
    }

    fn log_superblock(&self) -> Result<JournalSuperblock> {
        let size = self.found.block_size;
        let at = FsBlock(self.found.log_superblock().into()).offset(size);
        let bytes = read(self.queue, at, size as usize)?;
        JournalSuperblock::parse(&bytes, size, self.blocks()).map_err(|e| refused(self.queue, e))
    }

    /// Makes the volume with this UUID the journal's user, durably.
    ///
    /// # Errors
    /// As [`Unused::read`]: the device may have changed since.
    pub fn set_user(&self, volume: [u8; 16]) -> Result<()> {
        let now = Unused::read(self.queue, self.found.block_size)?;
        let mut sb = now.log_superblock()?;
        sb.set_user(volume);
        let mut block = sb.encode().to_vec();
        block.resize(self.found.block_size as usize, 0);
        write_log_superblock(self.queue, self.found.log_superblock(), &block)
    }

    /// Returns the length in blocks.
    pub fn blocks(&self) -> u32 {
        self.found.blocks as u32
    }

    /// Returns the journal's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.found.uuid.0
    }

    /// Returns the number of a block device, and 0:0 for an image file, which has none.
    pub fn number(&self) -> DeviceNumber {
        let found = std::fs::metadata(self.queue.name());
        let device = found.ok().filter(|data| data.file_type().is_block_device());
        let number = device.map_or(0, |data| data.rdev());
        DeviceNumber {
            major: rustix::fs::major(number),
            minor: rustix::fs::minor(number),
        }
    }
}

fn refused(queue: &Queue, why: impl ToString) -> Error {
    Error::Journal {
        name: queue.name().to_owned(),
        why: why.to_string(),
    }
}

/// Reads bytes that lie in one page. There are none behind the end of the device.
fn read(queue: &Queue, at: u64, len: usize) -> Result<Vec<u8>> {
    let page = block::PAGE_SIZE;
    let start = at - at % page as u64;
    let size = queue.capacity().saturating_sub(start).min(page as u64) as usize;
    if size == 0 {
        return Ok(Vec::new());
    }
    let bufs = queue.read(start, size, page, Class::Metadata, Reason::MetadataRead)?;
    let within = (at - start) as usize;
    let bytes = bufs.first().and_then(|buf| buf.get(within..within + len));
    Ok(bytes.unwrap_or_default().to_vec())
}

fn write_log_superblock(queue: &Queue, block: u32, bytes: &[u8]) -> Result<()> {
    queue.write(
        FsBlock(block.into()).offset(bytes.len() as u32),
        &[BufMut::copy_of(bytes).freeze()],
        Class::Journal,
        Reason::Format,
        Durability::Cached,
    )?;
    queue.flush(Reason::Format)?;
    Ok(())
}
