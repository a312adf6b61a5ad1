//! One step of a resize: the last group, some new groups, fewer blocks for the descriptor table, or
//! the change to `meta_bg`.

use super::resize_inode::ResizeInode;
use super::{Growth, ResizeProgress, become_meta_bg, refused};
use crate::Result;
use crate::alloc::NewGroups;
use block::{BufMut, Class, Durability, Reason};
use ext4_format::geometry::Geometry;
use ext4_format::superblock::Superblock;
use units::{FsBlock, GroupNo};

/// Groups of a step where there are no flex groups.
const STEP_MIN: u32 = 16;
/// Groups of a step: one transaction has their descriptors.
const STEP_MAX: u32 = 64;

/// The counts of the super block after a step.
#[derive(Clone, Copy)]
struct Counts {
    blocks: u64,
    inodes: u32,
    root_reserve: u64,
    /// Clusters of metadata that are added.
    overhead: u64,
    table_reserve: u16,
}

impl Counts {
    fn store(self, sb: &mut Superblock) {
        sb.set_blocks_count(self.blocks);
        sb.inodes_count = self.inodes.into();
        sb.set_reserved_blocks_count(self.root_reserve);
        // 0 means that the kernel computes it.
        if let overhead @ 1.. = sb.overhead_clusters.get() {
            let overhead = u64::from(overhead) + self.overhead;
            sb.overhead_clusters = u32::try_from(overhead).unwrap_or(0).into();
        }
        sb.reserved_gdt_blocks = self.table_reserve.into();
    }
}

impl Growth<'_> {
    /// Grows the volume to the target, step by step.
    pub fn grow(mut self) -> Result<()> {
        self.step(Self::fill_last_group)?;
        if self.fs.geo.blocks_count < self.target {
            let reserve = self.fs.reserve_for(self.target_groups());
            if reserve < self.fs.table_reserve() {
                self.step(|growth| growth.give_up_reserve(reserve).map(|()| false))?;
            }
        }
        while self.fs.geo.blocks_count < self.target {
            let groups = self.fs.geo.groups;
            if self.fs.limit_of_table() == Some(u64::from(groups)) {
                self.step(|growth| growth.change_to_meta_bg().map(|()| false))?;
            }
            let end = self.end_of_step(groups);
            self.add_groups(groups, end)?;
        }
        Ok(())
    }

    /// Calls `change`, which changes descriptors and super block by a handle, and returns whether
    /// the volume has grown. Reports that, and writes them home, the super block last.
    fn step(&mut self, change: impl FnOnce(&Self) -> Result<bool>) -> Result<()> {
        let journal = &self.fs.journal;
        let _last = journal.write_last(self.fs.superblock_block());
        if change(self)? {
            (self.progress)(ResizeProgress {
                blocks: self.fs.geo.blocks_count,
                target: self.target,
            });
        }
        Ok(journal.flush()?)
    }

    /// Returns the super block's counts with `blocks` blocks. The reserve of root stays in
    /// proportion.
    fn counts_at(&self, blocks: u64) -> Result<Counts> {
        let mut sb = self.fs.superblock.lock().clone();
        sb.set_blocks_count(blocks);
        let inodes = sb.groups_count() * u64::from(self.fs.geo.inodes_per_group);
        let (before, reserve) = self.before;
        let reserve = u128::from(reserve) * u128::from(blocks) / u128::from(before.max(1));
        Ok(Counts {
            blocks,
            inodes: u32::try_from(inodes).map_err(|_| refused("too many inodes"))?,
            root_reserve: reserve as u64,
            overhead: 0,
            table_reserve: sb.reserved_gdt_blocks.get(),
        })
    }

    fn geometry(&self, counts: Counts) -> Result<Geometry> {
        let mut sb = self.fs.superblock.lock().clone();
        counts.store(&mut sb);
        Ok(Geometry::from_superblock(&sb)?)
    }

    /// Makes the last group a full one, or fills it up to the target. Returns whether it has grown.
    fn fill_last_group(&self) -> Result<bool> {
        let fs = self.fs;
        let end = fs.geo.group_first_block(GroupNo(fs.geo.groups)).0;
        let blocks = end.min(self.target);
        if blocks <= fs.geo.blocks_count {
            return Ok(false);
        }
        let counts = self.counts_at(blocks)?;
        let geo = self.geometry(counts)?;
        let handle = fs.journal.start(1)?;
        fs.groups.extend_last_group(&handle, geo)?;
        self.store(counts);
        fs.mark_superblock_dirty(&handle);
        Ok(true)
    }

    fn store(&self, counts: Counts) {
        let mut sb = self.fs.superblock.lock();
        counts.store(&mut sb);
        self.fs.groups.set_root_reserve(&sb);
    }

    /// Returns the end of the step that begins with group `first`: the end of its flex group, but
    /// not more groups than one step has or the descriptor table has room for.
    fn end_of_step(&self, first: u32) -> u32 {
        let fs = self.fs;
        let unit = 1u32 << fs.geo.flex_bg_log.min(16);
        let unit = unit.clamp(STEP_MIN, STEP_MAX);
        let most = fs.limit_of_table().unwrap_or(u64::MAX);
        let end = u64::from((first / unit).saturating_add(1)) * u64::from(unit);
        end.min(self.target_groups()).min(most) as u32
    }

    fn target_groups(&self) -> u64 {
        let geo = &self.fs.geo;
        (self.target - geo.first_data_block).div_ceil(u64::from(geo.blocks_per_group))
    }

    /// Adds the groups from `first` to `end`.
    fn add_groups(&mut self, first: u32, end: u32) -> Result<()> {
        let fs = self.fs;
        let blocks = fs.geo.group_first_block(GroupNo(end)).0.min(self.target);
        let mut counts = self.counts_at(blocks)?;
        let table = self.geometry(counts)?.gdt_blocks;
        let more = table - fs.geo.gdt_blocks;
        if fs.limit_of_table().is_some() {
            // `end_of_step` has looked whether the reserve has so many blocks.
            counts.table_reserve = counts.table_reserve.saturating_sub(more as u16);
        }
        let geo = self.geometry(counts)?;
        let new = fs.groups.place(geo.clone(), GroupNo(first))?;
        counts.overhead = new.overhead;
        self.write_new(&new)?;
        let resize_inode = match fs.has_resize_inode() {
            true => ResizeInode::read(fs, &geo, first)?,
            false => None,
        };
        let credits = more + resize_inode.as_ref().map_or(0, ResizeInode::credits);
        self.step(|growth| {
            let handle = fs.journal.start(credits)?;
            if let Some(resize_inode) = resize_inode {
                resize_inode.update(&handle, &geo, first)?;
            }
            for index in fs.geo.gdt_blocks..table {
                handle.create(geo.gdt_block(index));
            }
            growth.store(counts);
            fs.groups.add(&handle, new);
            fs.mark_superblock_dirty(&handle);
            Ok(true)
        })
    }

    /// Writes what new groups need to exist, durably. No block of it is part of the volume.
    fn write_new(&self, new: &NewGroups) -> Result<()> {
        let fs = self.fs;
        let block_size = u64::from(fs.geo.block_size);
        for table in &new.tables {
            let (offset, len) = (
                table.start.0 * block_size,
                u64::from(table.len) * block_size,
            );
            fs.queue.write_zeroes(offset, len, Reason::Other)?;
        }
        for (block, bytes) in &new.bitmaps {
            self.write_block(*block, bytes)?;
        }
        Ok(fs.queue.flush(Reason::Other)?)
    }

    fn write_block(&self, block: FsBlock, bytes: &[u8]) -> Result<()> {
        self.fs.queue.write(
            block.offset(self.fs.geo.block_size),
            &[BufMut::copy_of(bytes).freeze()],
            Class::Metadata,
            Reason::Other,
            Durability::Cached,
        )?;
        Ok(())
    }

    /// Keeps `reserve` blocks for the descriptor table, and frees the others and their copies.
    fn give_up_reserve(&self, reserve: u32) -> Result<()> {
        let fs = self.fs;
        let resize_inode = ResizeInode::read_empty(fs)?;
        resize_inode.check_pointers()?;
        let mut sb = fs.superblock.lock().clone();
        sb.reserved_gdt_blocks = (reserve as u16).into();
        let geo = Geometry::from_superblock(&sb)?;
        // The bitmaps of the primary table and of its copies.
        let handle = fs
            .journal
            .start(ResizeInode::CREDITS + 1 + resize_inode.copies())?;
        let clusters = fs.groups.give_up_reserve(&handle, geo.clone())?;
        resize_inode.shorten(&handle, &geo)?;
        let mut sb = fs.superblock.lock();
        sb.reserved_gdt_blocks = (reserve as u16).into();
        let overhead = u64::from(sb.overhead_clusters.get()).saturating_sub(clusters);
        sb.overhead_clusters = (overhead as u32).into();
        drop(sb);
        fs.mark_superblock_dirty(&handle);
        Ok(())
    }

    /// Gives the volume the feature `meta_bg`. The descriptor table is full, and the resize inode
    /// has no block left.
    fn change_to_meta_bg(&self) -> Result<()> {
        let fs = self.fs;
        let table = fs.geo.gdt_blocks;
        let resize_inode = match fs.has_resize_inode() {
            true => Some(ResizeInode::read_empty(fs)?),
            false => None,
        };
        let mut sb = fs.superblock.lock().clone();
        become_meta_bg(&mut sb, table);
        let geo = Geometry::from_superblock(&sb)?;
        // The inode, and the bitmap of its block.
        let handle = fs.journal.start(2)?;
        if let Some(resize_inode) = resize_inode {
            resize_inode.remove(&handle)?;
        }
        become_meta_bg(&mut fs.superblock.lock(), table);
        fs.groups.change_geometry(&handle, geo);
        fs.mark_superblock_dirty(&handle);
        Ok(())
    }
}
