//! Growth of a mounted volume.
//!
//! Algorithm:
//! 1. The device is asked for its size again, and an image file is extended.
//! 2. The last group is filled up to its full size, or to the new end.
//! 3. Groups are added in steps of at most 64. A step writes the bitmaps, and the inode tables that
//!    must be zero, beyond the end of the volume, and flushes. Then one handle adds descriptors,
//!    counts, and what the resize inode maps ([`resize_inode`]).
//! 4. A descriptor table that is full takes the next block that the resize inode keeps for it. When
//!    none is left, the volume gets the feature `meta_bg`: later blocks of the table are in the
//!    groups that they describe ([`step`]).
//! 5. The step for a new group with a copy of the super block changes every block of the reserve.
//!    If that is more than one transaction of a small journal has, the volume gives up a part of
//!    the reserve first.
//! 6. A step ends when its blocks are home. The kernel and e2fsck read super block and descriptors
//!    before they replay the log. With the old super block they would know no inode of a new group,
//!    and with the new one they need the new descriptors. So each checkpoint, also one for another
//!    thread, writes the super block last ([`jbd2::Journal::write_last`]).
//! 7. The copies of super block and descriptors are written ([`backups`]).
//!
//! Each handle leaves a complete volume of a larger size, so a crash leaves the old size, the new
//! size, or that of a step between. Operations run meanwhile, and use the space of a step at once.
//!
//! A last group with fewer than 50 blocks for files is left out, and so is a part of a cluster at
//! the end (`bigalloc`), as resize2fs does.

mod backups;
mod resize_inode;
mod step;

use crate::{Error, Fs, Result};
use ext4_format::error::FormatError;
use ext4_format::features::{CompatFeatures, IncompatFeatures};
use ext4_format::geometry::Geometry;
use ext4_format::superblock::Superblock;
use resize_inode::ResizeInode;
use sync::atomic::{AtomicBool, Ordering};
use units::{FsBlock, GroupNo};

/// Blocks of data that the last group has at least.
const LAST_GROUP_MIN: u64 = 50;
/// Without a size, the end is a multiple of this many bytes, as resize2fs has it.
const PAGE: u64 = 4096;

/// How far a resize is, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeProgress {
    /// Blocks of the volume now.
    pub blocks: u64,
    /// Blocks at the end.
    pub target: u64,
}

/// Excludes a second resize.
struct Resizing<'a>(&'a AtomicBool);

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A running resize.
struct Growth<'a> {
    fs: &'a Fs,
    /// Blocks of the volume, and those that are reserved for root.
    before: (u64, u64),
    target: u64,
    progress: &'a mut dyn FnMut(ResizeProgress),
}

impl Fs {
    /// Grows the volume to `size` bytes, or to the size of its device. An image file that is
    /// smaller is extended first. Calls `progress` after each step. Returns the number of blocks.
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported` for a smaller size, one that the device or the format does not
    /// have, and while another resize runs; `Corrupt` for damage that a step meets. Steps that were
    /// done remain.
    pub fn resize(
        &self,
        size: Option<u64>,
        progress: &mut dyn FnMut(ResizeProgress),
    ) -> Result<u64> {
        self.check_writable()?;
        if self.resizing.swap(true, Ordering::AcqRel) {
            return Err(refused("the volume is being resized already"));
        }
        let _resizing = Resizing(&self.resizing);
        let target = self.blocks_for(size)?;
        let (blocks, reserved) = {
            let sb = self.superblock.lock();
            (sb.blocks_count(), sb.reserved_blocks_count())
        };
        if target <= blocks {
            return Ok(blocks);
        }
        let old_groups = self.geo.groups;
        let growth = Growth {
            fs: self,
            before: (blocks, reserved),
            target,
            progress,
        };
        let grown = growth.grow();
        // Also if the last step has failed.
        self.commit_all()?;
        // Steps that were done are valid, also if a later one has failed.
        self.write_backups(old_groups)?;
        self.commit_all()?;
        grown.map(|()| self.geo.blocks_count)
    }

    /// Returns the number of blocks that a volume of `size` bytes has here. Extends the image.
    fn blocks_for(&self, size: Option<u64>) -> Result<u64> {
        let block_size = u64::from(self.geo.block_size);
        let now = self.geo.blocks_count;
        let wanted = size.map(|size| size / block_size);
        if let Some(wanted) = wanted.filter(|wanted| *wanted < now) {
            return Err(refused(format!(
                "the volume has {} bytes, and {} were asked for; a volume is made smaller by \
                 resize2fs, while it is not mounted",
                now * block_size,
                wanted * block_size
            )));
        }
        if let Some(wanted) = wanted {
            self.check_limits(wanted)?;
        }
        let at_least = wanted.unwrap_or(0).saturating_mul(block_size);
        let capacity = self.queue.grow_device(at_least).map_err(|error| {
            let name = self.queue.name();
            refused(format!("{name} cannot be extended: {error}"))
        })?;
        if capacity < at_least {
            return Err(refused(format!(
                "{} has {capacity} bytes, fewer than {at_least}; make the device larger first",
                self.queue.name()
            )));
        }
        let blocks = wanted.unwrap_or((capacity - capacity % PAGE) / block_size);
        let blocks = self.geo.cluster().start_of(FsBlock(blocks)).0;
        let blocks = self.without_small_group(blocks)?;
        self.check_limits(blocks)?;
        Ok(blocks)
    }

    /// Leaves out a last group that is too small.
    fn without_small_group(&self, blocks: u64) -> Result<u64> {
        let geo = self.shape_at(blocks)?;
        let last = GroupNo(geo.groups - 1);
        let in_last = u64::from(geo.blocks_in_group(last));
        let own = u64::from(geo.super_blocks_in_group(last))
            + 2
            + u64::from(geo.itable_blocks_per_group());
        let is_small = last.0 >= self.geo.groups && in_last < own + LAST_GROUP_MIN;
        Ok(if is_small { blocks - in_last } else { blocks })
    }

    /// Returns the geometry with this many blocks.
    fn shape_at(&self, blocks: u64) -> Result<Geometry> {
        let mut sb = self.superblock.lock().clone();
        sb.set_blocks_count(blocks);
        let groups = sb.groups_count();
        let table = self.table_for(groups);
        let room = u64::from(self.geo.gdt_blocks + self.reserve_for(groups));
        let has_meta_bg = self.geo.incompat.contains(IncompatFeatures::META_BG);
        if !has_meta_bg && table > room {
            become_meta_bg(&mut sb, room as u32);
        } else if !has_meta_bg {
            sb.reserved_gdt_blocks = ((room - table) as u16).into();
        }
        Ok(Geometry::from_superblock(&sb)?)
    }

    /// Refuses what the format cannot express.
    fn check_limits(&self, blocks: u64) -> Result<()> {
        let has_64bit = self.geo.incompat.contains(IncompatFeatures::SIXTY_FOUR_BIT);
        if !has_64bit && blocks > u64::from(u32::MAX) {
            return Err(refused(
                "a volume without the feature 64bit has at most 2^32 - 1 blocks; `resize2fs -b` \
                 adds the feature while the volume is not mounted",
            ));
        }
        let in_groups = blocks.saturating_sub(self.geo.first_data_block);
        let groups = in_groups.div_ceil(u64::from(self.geo.blocks_per_group));
        let inodes = groups.saturating_mul(u64::from(self.geo.inodes_per_group));
        if inodes > u64::from(u32::MAX) || blocks >= 1 << 48 {
            return Err(refused(format!(
                "a volume of {blocks} blocks would have more than 2^32 - 1 inodes or 2^48 blocks"
            )));
        }
        let both = self.has_resize_inode() && self.geo.incompat.contains(IncompatFeatures::META_BG);
        match both {
            true => Err(refused(
                "the volume has both features resize_inode and meta_bg; run e2fsck",
            )),
            false => Ok(()),
        }
    }

    fn has_resize_inode(&self) -> bool {
        self.geo.compat.contains(CompatFeatures::RESIZE_INODE)
    }

    /// Returns the blocks that are kept for the growth of the descriptor table.
    fn table_reserve(&self) -> u32 {
        match self.has_resize_inode() {
            true => self.geo.reserved_gdt_blocks,
            false => 0,
        }
    }

    /// Returns the part of the reserve with which the volume can grow to `groups` groups: all, or
    /// what one transaction can change.
    fn reserve_for(&self, groups: u64) -> u32 {
        let reserve = self.table_reserve();
        let most = self.journal.max_credits();
        let most = most.saturating_sub(ResizeInode::CREDITS);
        let mut new = (self.geo.groups..).take_while(|group| u64::from(*group) < groups);
        let changes = self.table_for(groups) > u64::from(self.geo.gdt_blocks)
            || new.any(|group| self.geo.has_super(GroupNo(group)));
        match changes {
            true => reserve.min(most),
            false => reserve,
        }
    }

    /// Returns the number of blocks of a descriptor table for `groups` groups.
    fn table_for(&self, groups: u64) -> u64 {
        groups.div_ceil(self.geo.descs_per_block().into())
    }

    /// Returns the number of groups for which the table and its reserve have room; `None` under
    /// `meta_bg`.
    fn limit_of_table(&self) -> Option<u64> {
        if self.geo.incompat.contains(IncompatFeatures::META_BG) {
            return None;
        }
        let blocks = u64::from(self.geo.gdt_blocks) + u64::from(self.table_reserve());
        Some(blocks * u64::from(self.geo.descs_per_block()))
    }
}

/// Makes later blocks of a descriptor table of `table` blocks ones of meta groups.
fn become_meta_bg(sb: &mut Superblock, table: u32) {
    sb.set_compat(sb.compat() - CompatFeatures::RESIZE_INODE);
    sb.set_incompat(sb.incompat() | IncompatFeatures::META_BG);
    sb.first_meta_bg = table.into();
    sb.reserved_gdt_blocks = 0.into();
}

fn refused(why: impl Into<String>) -> Error {
    Error::Unsupported(why.into())
}

/// The damage of a field of the resize inode.
fn damaged(field: &'static str, value: u64) -> Error {
    Error::Corrupt(FormatError::OutOfRange {
        structure: "resize inode",
        field,
        value,
    })
}
