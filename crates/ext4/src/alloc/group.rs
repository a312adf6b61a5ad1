//! A group in memory, and how its bitmaps get there.
//!
//! ```text
//!                 load_blocks: read and checked, or computed (BLOCK_UNINIT)
//!   unloaded ─────────────────────────────────────────────────────────────▶ loaded ──┐
//!      │  ▲                                                                    │     │ pick, unpick, record, free, released
//!      │  └────────────── evict: nothing outstanding, not dirty ───────────────┘  ◀──┘
//!      └── a check fails ──▶ damaged: its free blocks are held back for good
//! ```
//!
//! Invariants, under the group's `blocks` lock while loaded:
//! - a bit that is set in the bitmap is set in the map;
//! - `outstanding` is the number of bits that are set in the map but not in the bitmap: blocks that
//!   were picked and not recorded yet, or freed by a transaction that has not committed;
//! - `available` is the number of clear bits of the map.

use super::free_map::FreeMap;
use super::system::SystemBlocks;
use crate::Result;
use ext4_format::bitmap;
use ext4_format::error::FormatError;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{GroupDesc, GroupFlags};
use ext4_format::types::GroupNo;
use jbd2::{Buffer, Handle, Journal, Tid};
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::{Mutex, Rank};

/// A block group. The atomics are read without a lock to choose a group, and written under the lock
/// of what they mirror.
#[repr(align(64))]
pub(super) struct Group {
    /// Blocks that can be picked; of a group that is not loaded, what its descriptor says.
    pub available: AtomicU32,
    /// No run is longer than this.
    pub largest: AtomicU32,
    /// Free inodes.
    pub free_inodes: AtomicU32,
    /// Directories.
    pub dirs: AtomicU32,
    /// It is in the list of groups whose descriptor has changed.
    pub listed: AtomicBool,
    /// Where the bitmaps and the inode table are; the counts and checksums in it are those of the
    /// mount.
    pub desc: GroupDesc,
    /// Rank: below a buffer's lock; never two groups' at once.
    pub blocks: Mutex<BlockState>,
    /// As `blocks`; taken after it where both are needed.
    pub inodes: Mutex<InodeState>,
}

/// The block bitmap.
pub(super) struct BlockState {
    /// Clear bits in the bitmap.
    pub free: u32,
    /// The bitmap was never written.
    pub uninit: bool,
    pub csum: u32,
    /// The bitmap has changed since `csum` was taken.
    pub stale: bool,
    pub damaged: bool,
    pub outstanding: u32,
    pub map: Option<FreeMap>,
    /// The bitmap block; `None` while it was never written, or is not loaded.
    pub bitmap: Option<Arc<Buffer>>,
}

/// The inode bitmap and the inode table.
pub(super) struct InodeState {
    pub free: u32,
    pub dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub unused: u32,
    /// The bitmap was never written.
    pub uninit: bool,
    pub csum: u32,
    pub stale: bool,
    pub damaged: bool,
    pub bitmap: Option<Arc<Buffer>>,
    /// No inode before this one is free, but for those that `freed_in` freed.
    pub hint: u32,
    /// The transaction that freed inodes last, and the first of these: they are not used again
    /// within it.
    pub freed_in: Option<(Tid, u32)>,
    /// Blocks of the table behind this one hold no inode that was ever used; what they hold is
    /// garbage.
    pub created: u32,
    /// Blocks before `created` that nobody has written yet.
    pub unwritten: Vec<u32>,
}

fn damaged(structure: &'static str, group: GroupNo, what: &'static str) -> FormatError {
    FormatError::Bitmap {
        structure,
        group: group.0,
        what,
    }
}

impl Group {
    pub fn new(geo: &Geometry, desc: GroupDesc) -> Group {
        let lazy = geo.has_group_csum();
        let inode_uninit = lazy && desc.flags.contains(GroupFlags::INODE_UNINIT);
        let unused = match (lazy, inode_uninit) {
            (false, _) => 0,
            (true, true) => geo.inodes_per_group,
            (true, false) => desc.itable_unused,
        };
        Group {
            available: AtomicU32::new(desc.free_blocks_count),
            largest: AtomicU32::new(u32::MAX),
            free_inodes: AtomicU32::new(desc.free_inodes_count),
            dirs: AtomicU32::new(desc.used_dirs_count),
            listed: AtomicBool::new(false),
            blocks: Rank::Group.mutex(BlockState {
                free: desc.free_blocks_count,
                uninit: lazy && desc.flags.contains(GroupFlags::BLOCK_UNINIT),
                csum: desc.block_bitmap_csum,
                stale: false,
                damaged: false,
                outstanding: 0,
                map: None,
                bitmap: None,
            }),
            inodes: Rank::Group.mutex(InodeState {
                free: desc.free_inodes_count,
                dirs: desc.used_dirs_count,
                unused,
                uninit: inode_uninit,
                csum: desc.inode_bitmap_csum,
                stale: false,
                damaged: false,
                bitmap: None,
                hint: 0,
                freed_in: None,
                created: (geo.inodes_per_group - unused).div_ceil(geo.inodes_per_block()),
                unwritten: Vec::new(),
            }),
            desc,
        }
    }
}

impl BlockState {
    /// Puts the map in memory, and the bitmap where it was ever written.
    ///
    /// # Errors
    /// The device's; `Corrupt`, with the group, where the bitmap cannot be true.
    pub fn load(
        &mut self,
        journal: &Journal,
        geo: &Geometry,
        system: &SystemBlocks,
        group: GroupNo,
        desc: &GroupDesc,
    ) -> Result<()> {
        const NAME: &str = "block bitmap";
        if self.damaged {
            return Err(damaged(NAME, group, "was found damaged before").into());
        }
        let bits = geo.blocks_in_group(group);
        let own = || system.within(geo.group_first_block(group).0, bits);
        let map = if self.uninit {
            let mut map = FreeMap::from_bitmap(&[], bits);
            own().for_each(|(start, len)| map.set(start, len));
            map
        } else {
            let buffer = journal.get(desc.block_bitmap.0)?;
            let mut now = desc.clone();
            now.block_bitmap_csum = self.csum;
            buffer.verify_once(|bytes| {
                now.verify_block_bitmap(geo, group, bytes)?;
                if own().any(|(start, len)| !bitmap::all_set(bytes, start, len)) {
                    let what = "a block of the file system itself is marked free";
                    return Err(damaged(NAME, group, what));
                }
                Ok(())
            })?;
            let map = FreeMap::from_bitmap(&buffer.data(), bits);
            self.bitmap = Some(buffer);
            map
        };
        if map.count_zeros(0, bits) != self.free {
            self.bitmap = None;
            let what = "has another number of free blocks than the group descriptor";
            return Err(damaged(NAME, group, what).into());
        }
        self.map = Some(map);
        Ok(())
    }

    /// The bitmap's buffer, made now if it was never written (uses a credit). Only while loaded.
    pub fn initialise<'a>(
        &'a mut self,
        handle: &Handle<'_>,
        geo: &Geometry,
        system: &SystemBlocks,
        group: GroupNo,
        desc: &GroupDesc,
    ) -> Result<&'a Arc<Buffer>> {
        if self.uninit {
            let bits = geo.blocks_in_group(group);
            let buffer = handle.create(desc.block_bitmap.0);
            handle.modify(&buffer, None, |bytes| {
                for (start, len) in system.within(geo.group_first_block(group).0, bits) {
                    bitmap::set_range(bytes, start, len);
                }
                bitmap::set_range(bytes, bits, u32::MAX);
            });
            self.uninit = false;
            self.stale = true;
            self.bitmap = Some(buffer);
        }
        self.bitmap
            .as_ref()
            .ok_or_else(|| damaged("block bitmap", group, "is not loaded").into())
    }

    /// Drops what can be made again. Whether it did.
    pub fn evict(&mut self) -> bool {
        let idle = self.map.is_some() && self.outstanding == 0 && !self.stale;
        if idle {
            self.map = None;
            self.bitmap = None;
        }
        idle
    }
}

impl InodeState {
    /// The bitmap's buffer; `None` where it was never written.
    ///
    /// # Errors
    /// The device's; `Corrupt`, with the group, where the bitmap cannot be true.
    pub fn load(
        &mut self,
        journal: &Journal,
        geo: &Geometry,
        group: GroupNo,
        desc: &GroupDesc,
    ) -> Result<Option<&Arc<Buffer>>> {
        const NAME: &str = "inode bitmap";
        if self.damaged {
            return Err(damaged(NAME, group, "was found damaged before").into());
        }
        if self.bitmap.is_none() && !self.uninit {
            let buffer = journal.get(desc.inode_bitmap.0)?;
            let mut now = desc.clone();
            now.inode_bitmap_csum = self.csum;
            let free = self.free;
            buffer.verify_once(|bytes| {
                now.verify_inode_bitmap(geo, group, bytes)?;
                let reserved = if group.0 == 0 { geo.first_ino.0 - 1 } else { 0 };
                if !bitmap::all_set(bytes, 0, reserved) {
                    return Err(damaged(NAME, group, "a reserved inode is marked free"));
                }
                if bitmap::count_zeros(bytes, 0, geo.inodes_per_group) != free {
                    let what = "has another number of free inodes than the group descriptor";
                    return Err(damaged(NAME, group, what));
                }
                Ok(())
            })?;
            self.bitmap = Some(buffer);
        }
        Ok(self.bitmap.as_ref())
    }

    /// Drops what can be read again.
    pub fn evict(&mut self) {
        if !self.stale {
            self.bitmap = None;
        }
    }
}

/// Stores a mirror of a count.
pub(super) fn mirror(atomic: &AtomicU32, value: u32) {
    atomic.store(value, Ordering::Relaxed);
}
