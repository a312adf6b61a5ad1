//! The map from the journal's blocks to the volume or to the journal's device, and I/O on them.
//!
//! The functions take the queue of the volume. A log on a device of its own uses that device
//! instead.

use crate::format::superblock::JournalSuperblock;
use crate::{JournalDamage, JournalDevice, JournalError, JournalExtent, JournalPlace, LogBlock};
use block::{Bio, Buf, Class, Completion, Durability, Queue, Reason};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use units::FsBlock;

/// Most bytes in one bio of the log. The queue splits it further if the device requires that.
const MAX_RUN: u32 = 1 << 20;
/// Blocks of the largest journal on a volume that is accepted, which is the largest that `mke2fs`
/// and `tune2fs` make. A sparse file can claim any size, and recovery may have to read the whole
/// log.
const MAX_BLOCKS_ON_VOLUME: u32 = 10_240_000;
/// The same on a device of its own, of which `mke2fs` uses the whole.
pub(crate) const MAX_BLOCKS: u32 = 1 << 26;

/// Maps the journal's blocks, from 0 without a gap, to the volume or to the journal's device.
#[derive(Clone)]
pub(crate) struct LogMap {
    /// Sorted by `logical`.
    extents: Vec<JournalExtent>,
    /// The same extents as sorted ranges of the volume's blocks: first block and end. Empty for a
    /// journal on a device of its own.
    homes: Vec<Range<FsBlock>>,
    device: Option<JournalDevice>,
    block_size: u32,
    blocks: u32,
}

impl LogMap {
    /// Checks that the extents cover the journal without gaps and lie on the device.
    pub fn new(
        place: &JournalPlace,
        block_size: u32,
        volume: &Queue,
    ) -> Result<LogMap, JournalError> {
        let bad = |block, damage: JournalDamage| Err(damage.at(block));
        if !matches!(block_size, 1024 | 2048 | 4096) {
            return Err(JournalError::Unsupported(format!(
                "blocks of {block_size} bytes"
            )));
        }
        let (mut extents, device, most) = match place {
            JournalPlace::OnVolume(extents) => (extents.clone(), None, MAX_BLOCKS_ON_VOLUME),
            JournalPlace::OnDevice(device) => {
                (device.extents().to_vec(), Some(device.clone()), MAX_BLOCKS)
            }
        };
        let queue = device.as_ref().map_or(volume, |device| &*device.queue);
        let volume_end = FsBlock(queue.capacity() / u64::from(block_size));
        extents.sort_by_key(|extent| extent.logical);
        extents.retain(|extent| extent.len > 0);
        let mut next = LogBlock(0);
        for extent in &extents {
            if LogBlock::from(extent.logical) != next {
                return bad(
                    next,
                    JournalDamage::ExtentOrder {
                        found: extent.logical,
                    },
                );
            }
            let (start, len) = (extent.physical, extent.len);
            match start.checked_add(u64::from(len)) {
                Some(end) if end <= volume_end => {}
                _ => return bad(next, JournalDamage::ExtentBeyondVolume { start, len }),
            }
            next = match next.checked_add(extent.len) {
                Some(next) => next,
                None => return bad(next, JournalDamage::ExtentsTooLong),
            };
        }
        let blocks = next - LogBlock(0);
        if blocks == 0 {
            return bad(LogBlock::SUPERBLOCK, JournalDamage::NoBlocks);
        }
        if blocks > most {
            return Err(JournalError::Unsupported(format!(
                "a journal of {blocks} blocks; at most {most} are supported"
            )));
        }
        if device.is_some() {
            return Ok(LogMap {
                extents,
                homes: Vec::new(),
                device,
                block_size,
                blocks,
            });
        }
        let run = |e: &JournalExtent| e.physical..e.physical + u64::from(e.len);
        let mut homes: Vec<Range<FsBlock>> = extents.iter().map(run).collect();
        homes.sort_unstable_by_key(|run| (run.start, run.end));
        if let Some(pair) = homes.windows(2).find(|pair| pair[0].end > pair[1].start) {
            let shared = pair[1].start;
            return bad(
                LogBlock::SUPERBLOCK,
                JournalDamage::ExtentsShareBlocks { shared },
            );
        }
        Ok(LogMap {
            extents,
            homes,
            device: None,
            block_size,
            blocks,
        })
    }

    /// Returns a map without blocks, for a read-only volume.
    pub fn empty(block_size: u32) -> LogMap {
        LogMap {
            extents: Vec::new(),
            homes: Vec::new(),
            device: None,
            block_size,
            blocks: 0,
        }
    }

    /// Returns the number of the journal's blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the queue of the log's device, if that is not the volume's.
    pub fn device(&self) -> Option<&Arc<Queue>> {
        self.device.as_ref().map(|device| &device.queue)
    }

    /// Returns the queue of the device that has the log.
    fn queue<'a>(&'a self, volume: &'a Queue) -> &'a Queue {
        self.device().map_or(volume, |queue| queue)
    }

    /// Reads and checks the journal's super block. Returns it with the block that contains it.
    pub fn superblock(&self, volume: &Queue) -> Result<(Buf, JournalSuperblock), JournalError> {
        let block = self.read(volume, LogBlock::SUPERBLOCK, 1)?.remove(0);
        let sb = JournalSuperblock::parse(&block, self.block_size, self.blocks)?;
        if let Some(device) = &self.device {
            device.check(&sb)?;
        }
        Ok((block, sb))
    }

    /// Makes all blocks of the log durable whose writes have completed.
    pub fn flush(&self, volume: &Queue, reason: Reason) -> Result<(), JournalError> {
        Ok(self.queue(volume).flush(reason)?)
    }

    /// Returns whether a block of the volume belongs to the journal.
    pub fn contains(&self, block: FsBlock) -> bool {
        let after = self.homes.partition_point(|run| run.start <= block);
        after > 0 && block < self.homes[after - 1].end
    }

    /// Returns the byte offset of block `at` on the device, and the length of the run of adjacent
    /// blocks that starts there.
    pub fn run(&self, at: LogBlock) -> (u64, u32) {
        let i = self
            .extents
            .partition_point(|extent| LogBlock::from(extent.logical) + (extent.len - 1) < at);
        let extent = self.extents[i];
        let skip = at - LogBlock::from(extent.logical);
        let offset = (extent.physical + u64::from(skip)).offset(self.block_size);
        (offset, extent.len - skip)
    }

    /// Reads `count` blocks from `start` on. The range must not wrap around.
    pub fn read(
        &self,
        volume: &Queue,
        start: LogBlock,
        count: u32,
    ) -> Result<Vec<Buf>, JournalError> {
        let queue = self.queue(volume);
        let mut bufs = Vec::with_capacity(count as usize);
        let mut at = start;
        let end = start + count;
        while at < end {
            let (offset, adjacent) = self.run(at);
            let n = adjacent.min(end - at);
            let bytes = n as usize * self.block_size as usize;
            bufs.extend(queue.read(
                offset,
                bytes,
                self.block_size as usize,
                Class::Journal,
                Reason::Recovery,
            )?);
            at += n;
        }
        Ok(bufs)
    }

    /// Writes `bufs` from log block `start` on, continues at `first` after the block before `end`,
    /// and waits for completion.
    pub fn write(
        &self,
        volume: &Queue,
        start: LogBlock,
        (first, end): (LogBlock, LogBlock),
        bufs: Vec<Buf>,
        durability: Durability,
    ) -> Result<(), JournalError> {
        let done = Completion::new();
        let mut bios = Vec::new();
        let mut at = start;
        let mut bufs = bufs.into_iter();
        while bufs.len() > 0 {
            if at == end {
                at = first;
            }
            let (offset, adjacent) = self.run(at);
            let n = adjacent.min(end - at).min(MAX_RUN / self.block_size);
            let part: SmallVec<[Buf; 1]> = bufs.by_ref().take(n as usize).collect();
            at += part.len() as u32;
            let bio = Bio::write(
                offset,
                part,
                Class::Journal,
                Reason::Journal,
                done.clone(),
                0,
            );
            bios.push(bio.with_durability(durability));
        }
        done.expect(bios.len());
        self.queue(volume).submit_and_wait(&mut bios, &done)?;
        Ok(())
    }

    /// Writes one block with FUA and waits for completion.
    pub fn write_fua(&self, volume: &Queue, at: LogBlock, buf: Buf) -> Result<(), JournalError> {
        let (offset, _) = self.run(at);
        self.queue(volume).write(
            offset,
            &[buf],
            Class::Journal,
            Reason::Journal,
            Durability::Fua,
        )?;
        Ok(())
    }
}
