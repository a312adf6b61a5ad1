//! The orphan file: blocks of slots for inode numbers. Threads start their search at different
//! blocks.
//!
//! A bit map per block, with its own lock, holds the taken slots in memory. A slot is taken in
//! memory first and then on disk. It is freed on disk first and then in memory, so that no slot is
//! taken again before its old number is cleared.

use crate::state::{OrphanFile, OrphanPlace, SlotBlock, orphans_present};
use crate::{Fs, Inode, InodeDamage, Result, extents};
use ext4_format::checksum::Seed;
use ext4_format::features::RoCompatFeatures;
use ext4_format::orphan_file;
use jbd2::{Buffer, Handle, Seal};
use std::sync::Arc;
use sync::Rank;
use sync::atomic::{AtomicBool, Ordering};
use units::{FileBlock, FsBlock, Ino};

/// The most blocks of an orphan file. The default of mke2fs is at most 512. An [`OrphanPlace`] has
/// 16 bits for a block, and as many for a slot: a block of 64 KiB has 16,384.
const MAX_BLOCKS: u64 = 1 << 12;

/// Updates the checksum of a block before it is logged.
fn seal_block(seed: u32, block: FsBlock, bytes: &mut [u8]) {
    // The update fails only for blocks too small to have slots.
    let _ = orphan_file::update_checksum(Some(Seed(seed)), bytes, block);
}

impl OrphanFile {
    /// Reads the orphan file `inode` and its taken slots.
    pub fn load(fs: &Fs, inode: &Inode) -> Result<OrphanFile> {
        let damaged = |damage: InodeDamage| damage.of(inode.ino);
        let (size, is_regular) = inode.fields(|f| (f.size, f.mode.is_regular()));
        let count = size / u64::from(fs.geo.block_size.max(1));
        if !is_regular {
            return Err(damaged(InodeDamage::OrphanFileType));
        }
        if count == 0 || count > MAX_BLOCKS {
            return Err(damaged(InodeDamage::OrphanFileSize { size }));
        }
        let mut places = Vec::new();
        for file_block in (0..count as u32).map(FileBlock) {
            match extents::lookup(fs, inode, file_block)? {
                extents::Map::Mapped {
                    start,
                    state: extents::ExtentState::Written,
                    ..
                } => places.push(start),
                _ => return Err(damaged(InodeDamage::OrphanFileHole { file_block })),
            }
        }
        fs.journal.prefetch(&places);
        let has_csum = fs.geo.has_metadata_csum();
        let mut file = OrphanFile {
            seed: has_csum.then(|| Seed(inode.csum_seed(fs))),
            blocks: Box::default(),
            is_flagged: AtomicBool::new(orphans_present(&fs.superblock.lock())),
        };
        let words = orphan_file::slots_per_block(fs.geo.block_size as usize).div_ceil(64);
        let mut blocks = Vec::new();
        for place in places {
            let mut taken = vec![0u64; words].into_boxed_slice();
            let buffer = fs.journal.get(place)?;
            file.verify(&buffer)?;
            for (slot, _) in orphan_file::slots(&buffer.data()) {
                taken[slot / 64] |= 1 << (slot % 64);
            }
            blocks.push(SlotBlock {
                place,
                taken: Rank::OrphanSlots.mutex(taken),
            });
        }
        file.blocks = blocks.into();
        Ok(file)
    }

    fn verify(&self, buffer: &Buffer) -> Result<()> {
        let place = buffer.block();
        buffer.verify_once(|bytes| orphan_file::verify(self.seed, bytes, place))?;
        Ok(())
    }

    /// Returns the number of blocks of the file.
    pub fn blocks(&self) -> u16 {
        self.blocks.len() as u16
    }

    /// Returns the taken slots of a block and the inode number in each.
    pub fn orphans(&self, fs: &Fs, block: u16) -> Result<Vec<(u16, Ino)>> {
        let buffer = fs.journal.get(self.blocks[usize::from(block)].place)?;
        self.verify(&buffer)?;
        let data = buffer.data();
        let slots = orphan_file::slots(&data);
        Ok(slots.map(|(slot, ino)| (slot as u16, ino)).collect())
    }

    /// Stores an inode number in a free slot; `None` if no slot is free.
    pub fn add(&self, fs: &Fs, handle: &Handle<'_>, ino: Ino) -> Result<Option<OrphanPlace>> {
        let slots = orphan_file::slots_per_block(fs.geo.block_size as usize);
        let first = sync::thread::ordinal() % self.blocks.len();
        let order = (first..self.blocks.len()).chain(0..first);
        for block in order {
            let Some(slot) = self.blocks[block].take(slots) else {
                continue;
            };
            if let Err(error) = self.set(handle, block, slot, Some(ino)) {
                self.blocks[block].free(slot);
                return Err(error);
            }
            self.set_orphan_present(fs, handle);
            let (block, slot) = (block as u16, slot as u16);
            return Ok(Some(OrphanPlace::File { block, slot }));
        }
        Ok(None)
    }

    /// Frees a slot.
    pub fn del(&self, handle: &Handle<'_>, block: u16, slot: u16) -> Result<()> {
        let (block, slot) = (usize::from(block), usize::from(slot));
        self.set(handle, block, slot, None)?;
        self.blocks[block].free(slot);
        Ok(())
    }

    fn set(&self, handle: &Handle<'_>, block: usize, slot: usize, ino: Option<Ino>) -> Result<()> {
        let buffer: Arc<Buffer> = handle.get(self.blocks[block].place)?;
        self.verify(&buffer)?;
        let seal = self.seed.map(|seed| Seal {
            seal: seal_block,
            seed: seed.0,
        });
        handle.modify(&buffer, seal, |bytes| {
            orphan_file::set_slot(bytes, slot, ino)
        })?;
        Ok(())
    }

    /// Sets ORPHAN_PRESENT in the super block, in the transaction of the first orphan.
    fn set_orphan_present(&self, fs: &Fs, handle: &Handle<'_>) {
        if self.is_flagged.load(Ordering::Relaxed) || self.is_flagged.swap(true, Ordering::Relaxed)
        {
            return;
        }
        {
            let mut superblock = fs.superblock.lock();
            let features = superblock.ro_compat() | RoCompatFeatures::ORPHAN_PRESENT;
            superblock.set_ro_compat(features);
        }
        fs.mark_superblock_dirty(handle);
    }
}

impl SlotBlock {
    /// Takes the first free slot; the block has `slots` slots.
    fn take(&self, slots: usize) -> Option<usize> {
        let mut taken = self.taken.lock();
        let (at, word) = taken
            .iter_mut()
            .enumerate()
            .find(|(_, word)| **word != u64::MAX)?;
        let slot = at * 64 + word.trailing_ones() as usize;
        if slot >= slots {
            return None;
        }
        *word |= 1 << (slot % 64);
        Some(slot)
    }

    fn free(&self, slot: usize) {
        let mut taken = self.taken.lock();
        taken[slot / 64] &= !(1 << (slot % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_only_once() {
        let block = SlotBlock {
            place: FsBlock(1),
            taken: Rank::OrphanSlots.mutex(vec![0; 2].into()),
        };
        let all: Vec<_> = std::iter::from_fn(|| block.take(100)).collect();
        assert!(all.into_iter().eq(0..100));
        block.free(70);
        block.free(3);
        assert_eq!([3, 70].map(Some), [block.take(100), block.take(100)]);
        assert_eq!(block.take(100), None);
    }
}
