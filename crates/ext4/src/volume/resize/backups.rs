//! The copies of super block and descriptors after a resize.
//!
//! They are written after the commit of the growth, one block to a handle. A crash leaves older
//! copies, which describe a smaller volume; e2fsck renews them.

use crate::{Fs, Result};
use ext4_format::features::{IncompatFeatures, RoCompatFeatures};
use ext4_format::superblock::{SUPERBLOCK_SIZE, State, Superblock};
use units::{FsBlock, GroupNo};

impl Fs {
    /// Writes all copies of the super block, and those of descriptors that a growth from
    /// `old_groups` groups has changed.
    pub(super) fn write_backups(&self, old_groups: u32) -> Result<()> {
        let geo = &self.geo;
        let changed = geo.gdt_index(GroupNo(old_groups.saturating_sub(1)));
        let contiguous = geo.contiguous_gdt_blocks.min(geo.gdt_blocks);
        for group in (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g)) {
            let start = geo.group_first_block(group);
            let superblock = self.backup_superblock(group);
            self.write_backup(start, superblock.as_bytes())?;
            // A new group has no copy yet.
            let first = if group.0 < old_groups { changed } else { 0 };
            if geo.gdt_index(group) >= contiguous {
                continue;
            }
            for index in first..contiguous {
                let table = self.journal.get(geo.gdt_block(index))?.data();
                self.write_backup(start + 1 + u64::from(index), &table)?;
            }
        }
        let per_block = geo.descs_per_block();
        for index in contiguous.max(changed)..geo.gdt_blocks {
            let table = self.journal.get(geo.gdt_block(index))?.data();
            let first = index * per_block;
            for group in [first + 1, first + per_block - 1].map(GroupNo) {
                if group.0 < geo.groups {
                    let start = geo.group_first_block(group);
                    self.write_backup(start + u64::from(geo.has_super(group)), &table)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the super block as of a volume that is not mounted: e2fsck takes a copy when it
    /// cannot use the primary one.
    fn backup_superblock(&self, group: GroupNo) -> Superblock {
        let counts = self.groups.counts();
        let mut sb = self.superblock.lock().clone();
        sb.set_free_blocks_count(counts.free_blocks);
        sb.set_free_inodes_count(counts.free_inodes as u32);
        sb.set_incompat(sb.incompat() - IncompatFeatures::RECOVER);
        sb.set_ro_compat(sb.ro_compat() - RoCompatFeatures::ORPHAN_PRESENT);
        sb.set_state(sb.state() | State::VALID);
        sb.block_group_nr = (group.0 as u16).into();
        sb.update_checksum();
        sb
    }

    fn write_backup(&self, block: FsBlock, bytes: &[u8]) -> Result<()> {
        debug_assert!(bytes.len() >= SUPERBLOCK_SIZE);
        let handle = self.journal.start(1)?;
        let buffer = handle.create(block);
        handle.modify(&buffer, None, |place| {
            if let Some(place) = place.get_mut(..bytes.len()) {
                place.copy_from_slice(bytes);
            }
        });
        Ok(())
    }
}
