//! The volume: its super block, its geometry, and its blocks as after a replay of the journal.

use crate::finding::{Kind, Place, Report, describe};
use crate::{Error, Options};
use block::{Class, IoError, PAGE_SIZE, Queue, Reason};
use cache::Budget;
use ext4_format::error::FormatError;
use ext4_format::features::{
    CompatFeatures, IncompatFeatures, READABLE_INCOMPAT, RoCompatFeatures,
};
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use jbd2::{JournalError, Overlay};
use std::sync::Arc;
use units::FsBlock;

/// Most bytes of one read.
pub(crate) const READ_MAX: usize = 1 << 20;

pub(crate) struct Volume {
    pub queue: Arc<Queue>,
    pub sb: Superblock,
    pub geo: Geometry,
    /// The device of a journal that is on a device of its own, if it was given.
    pub journal: Option<Arc<Queue>>,
    /// The blocks that a replay of the journal would write.
    pub overlay: Overlay,
    /// The memory limit of the list of the log's blocks.
    pub budget: Arc<Budget>,
}

impl Volume {
    /// Finds the super block or a backup, and refuses a volume that cannot be checked.
    pub fn open(
        queue: &Arc<Queue>,
        options: &Options,
        report: &mut Report,
    ) -> Result<Volume, Error> {
        let sb = find_superblock(queue, report)?;
        let geo = Geometry::from_superblock(&sb).map_err(|e| Error::NotAVolume(e.to_string()))?;
        refuse_unknown(&sb, report)?;
        if geo.block_size > PAGE_SIZE as u32 {
            return Err(Error::Unsupported(format!(
                "blocks of {} bytes; up to {PAGE_SIZE}",
                geo.block_size
            )));
        }
        let bytes = geo.blocks_count.saturating_mul(u64::from(geo.block_size));
        if bytes > queue.capacity() {
            report.problem(
                Kind::SuperBlock,
                Place::block(FsBlock(0)),
                format!(
                    "the volume has {bytes} bytes by its super block but the device {}: it was cut off",
                    queue.capacity()
                ),
            );
        }
        // Two bits for each block, and up to 16 bytes for each inode that is in use.
        let need = geo.blocks_count / 4 + u64::from(geo.groups) * 256;
        if need > options.memory {
            return Err(Error::Unsupported(format!(
                "its bitmaps need {} MiB of memory and {} MiB are allowed",
                need >> 20,
                options.memory >> 20
            )));
        }
        if sb.state().contains(State::ERROR) {
            let count = sb.error_count.get();
            report.note(
                Kind::SuperBlock,
                Place::default(),
                format!("the volume is marked as having errors ({count} recorded)"),
            );
        }
        Ok(Volume {
            queue: queue.clone(),
            sb,
            geo,
            journal: options.journal.clone(),
            overlay: Overlay::new(),
            budget: Budget::new(options.memory),
        })
    }

    /// Reads bytes of the device at any alignment. Bytes beyond its end are zeroes.
    pub fn read_device(&self, offset: u64, len: usize) -> Result<Vec<u8>, IoError> {
        read_device(&self.queue, offset, len)
    }

    /// Reads adjacent blocks as a mount would see them. Bytes beyond the device's end are zeroes.
    pub fn read_blocks(&self, first: FsBlock, count: u32) -> Result<Vec<u8>, IoError> {
        let size = self.geo.block_size as usize;
        let mut bytes =
            self.read_device(first.offset(self.geo.block_size), count as usize * size)?;
        if !self.overlay.is_empty() {
            for (nth, place) in (0..).zip(bytes.chunks_exact_mut(size)) {
                match self.overlay.read(&self.queue, first + nth) {
                    Ok(Some(newer)) if newer.len() == size => place.copy_from_slice(&newer),
                    Err(JournalError::Io(error)) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(bytes)
    }

    pub fn read_block(&self, block: FsBlock) -> Result<Vec<u8>, IoError> {
        self.read_blocks(block, 1)
    }

    pub fn block_size(&self) -> usize {
        self.geo.block_size as usize
    }

    /// Returns whether these blocks are on the volume, after the boot block.
    pub fn contains(&self, start: FsBlock, len: u64) -> bool {
        start.0 >= self.geo.first_data_block
            && start.0 != 0
            && start
                .checked_add(len)
                .is_some_and(|end| end.0 <= self.geo.blocks_count)
    }

    /// Reads the super block again, after the replay of the journal.
    pub fn reload(&mut self) -> Result<(), Error> {
        let size = self.block_size();
        let block = FsBlock(SUPERBLOCK_OFFSET / size as u64);
        let at = (SUPERBLOCK_OFFSET % size as u64) as usize;
        let bytes = self.read_block(block)?;
        if let Some(Ok(sb)) = bytes.get(at..at + SUPERBLOCK_SIZE).map(Superblock::parse)
            && let Ok(geo) = Geometry::from_superblock(&sb)
            && (geo.blocks_count, geo.groups, geo.block_size)
                == (self.geo.blocks_count, self.geo.groups, self.geo.block_size)
        {
            (self.sb, self.geo) = (sb, geo);
        }
        Ok(())
    }
}

pub(crate) fn read_device(queue: &Queue, offset: u64, len: usize) -> Result<Vec<u8>, IoError> {
    let page = PAGE_SIZE as u64;
    let first = offset / page * page;
    // The last page of an image may be incomplete.
    let end = (offset + len as u64).div_ceil(page) * page;
    let end = end.min(queue.capacity() / 512 * 512);
    let mut bytes = Vec::with_capacity((end.saturating_sub(first)) as usize);
    let mut at = first;
    while at < end {
        let part = (end - at).min(READ_MAX as u64);
        for buf in queue.read(
            at,
            part as usize,
            PAGE_SIZE,
            Class::Metadata,
            Reason::MetadataRead,
        )? {
            bytes.extend_from_slice(&buf);
        }
        at += part;
    }
    let skip = (offset - first) as usize;
    bytes.drain(..skip.min(bytes.len()));
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Returns the super block, or the first sound backup.
fn find_superblock(queue: &Queue, report: &mut Report) -> Result<Superblock, Error> {
    let bytes = read_device(queue, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    let error = match Superblock::parse(&bytes) {
        Ok(sb) => return Ok(sb),
        Err(error) => error,
    };
    // Unknown features may give the fields another meaning. Name these, not the fields.
    if let Ok(sb) = Superblock::parse_unverified(&bytes)
        && sb.verify_checksum().is_ok()
    {
        refuse_unknown(&sb, report)?;
    }
    // If only the checksum is wrong, the fields are still newer than those of a backup.
    if let (Ok(mut sb), FormatError::Checksum { .. }) =
        (Superblock::parse_unverified(&bytes), &error)
    {
        sb.update_checksum();
        if Superblock::parse(sb.as_bytes()).is_ok() {
            report.problem(Kind::SuperBlock, Place::block(FsBlock(0)), describe(&error));
            return Ok(sb);
        }
    }
    let sizes = [4096u64, 1024, 2048];
    for size in sizes {
        let at = (size * 8 + u64::from(size == 1024)) * size;
        if at + SUPERBLOCK_SIZE as u64 > queue.capacity() {
            continue;
        }
        let bytes = read_device(queue, at, SUPERBLOCK_SIZE)?;
        if let Ok(mut sb) = Superblock::parse(&bytes)
            && u64::from(sb.block_size()) == size
            && sb.block_group_nr.get() == 1
        {
            report.problem(
                Kind::SuperBlock,
                Place::block(FsBlock(SUPERBLOCK_OFFSET / size)),
                format!("{error}; the backup in block {} is used instead", at / size),
            );
            sb.block_group_nr = 0.into();
            return Ok(sb);
        }
    }
    Err(Error::NotAVolume(format!(
        "{} holds no ext2, ext3 or ext4 file system whose super block or first backup is sound: {error}",
        queue.name()
    )))
}

/// Refuses features that are not supported, and notes those whose data is not checked.
fn refuse_unknown(sb: &Superblock, report: &mut Report) -> Result<(), Error> {
    let supported = READABLE_INCOMPAT;
    let mut names =
        IncompatFeatures::from_bits_retain(sb.incompat().bits() & !supported.bits()).names();
    let supported = RoCompatFeatures::SPARSE_SUPER
        | RoCompatFeatures::LARGE_FILE
        | RoCompatFeatures::HUGE_FILE
        | RoCompatFeatures::GDT_CSUM
        | RoCompatFeatures::DIR_NLINK
        | RoCompatFeatures::EXTRA_ISIZE
        | RoCompatFeatures::QUOTA
        | RoCompatFeatures::BIGALLOC
        | RoCompatFeatures::METADATA_CSUM
        | RoCompatFeatures::READONLY
        | RoCompatFeatures::PROJECT
        | RoCompatFeatures::VERITY
        | RoCompatFeatures::ORPHAN_PRESENT;
    names.extend(
        RoCompatFeatures::from_bits_retain(sb.ro_compat().bits() & !supported.bits()).names(),
    );
    let unknown = sb.compat().bits() & !CompatFeatures::all().bits();
    names.extend(CompatFeatures::from_bits_retain(unknown).names());
    if !names.is_empty() {
        return Err(Error::Unsupported(format!(
            "sluice check does not support these features of it: {}",
            names.join(" ")
        )));
    }
    for (feature, what) in [
        (
            RoCompatFeatures::QUOTA,
            "quota: the accounts of users and groups",
        ),
        (
            RoCompatFeatures::PROJECT,
            "project: the accounts of projects",
        ),
        (RoCompatFeatures::VERITY, "verity: the hash trees of files"),
    ] {
        if sb.ro_compat().contains(feature) {
            report.unchecked.push(what.to_owned());
        }
    }
    if sb.incompat().contains(IncompatFeatures::ENCRYPT) {
        let what = "encrypt: the names and contents of encrypted files";
        report.unchecked.push(what.to_owned());
    }
    Ok(())
}
