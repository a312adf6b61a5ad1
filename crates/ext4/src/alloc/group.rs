//! A group in memory, and the loading of its bitmaps.
//!
//! ```text
//!                 BlockState::load: read and checked, or computed (BLOCK_UNINIT)
//!   unloaded ─────────────────────────────────────────────────────────────▶ loaded ──┐
//!      │  ▲                                                                    │     │ pick, unpick, record, free, released
//!      │  └────────────── evict: nothing outstanding, not stale ───────────────┘  ◀──┘
//!      └── a check fails ──▶ damaged: its free blocks are never allocated
//! ```
//!
//! Invariants, under the group's `blocks` lock while loaded:
//! - a bit that is set in the bitmap is set in the map;
//! - `outstanding` is the number of bits that are set in the map but not in the bitmap: blocks that
//!   were picked and not recorded yet, or freed by a transaction that has not committed;
//! - `available` is the number of clear bits of the map.

use super::free_map::FreeMap;
use super::system::SystemBlocks;
use crate::{Error, Result};
use ext4_format::bitmap;
use ext4_format::error::{BitmapDamage, BitmapKind};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{GroupDesc, GroupFlags};
use jbd2::{Buffer, Handle, Journal, Tid};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::{Mutex, Rank};
use units::GroupNo;

/// A block group.
///
/// The atomics are copies of counts. A search reads them without a lock to choose a group. They are
/// written under the lock of the state that they copy.
#[repr(align(64))]
pub(super) struct Group {
    /// Clusters that can be picked. For a group that is not loaded: the descriptor's free count.
    pub available: AtomicU32,
    /// An upper bound of the longest free run, in clusters.
    pub largest: AtomicU32,
    pub free_inodes: AtomicU32,
    pub dirs: AtomicU32,
    /// The part of the inode table that was read ahead last (see [`super::table_ahead`]).
    pub window: AtomicU64,
    /// The directory whose first block was missed last, and how many directories near it were read
    /// ahead (see [`Groups::directories_to_read`](super::Groups::directories_to_read)).
    pub dir_misses: AtomicU64,
    /// Whether the group is in `Groups::changed`.
    pub listed: AtomicBool,
    /// The descriptor as read at mount. Its block numbers are valid; its counts and checksums are
    /// out of date.
    pub desc: GroupDesc,
    /// Rank: below a buffer's lock; never two groups' at once.
    pub blocks: Mutex<BlockState>,
    /// As `blocks`; taken after it where both are needed.
    pub inodes: Mutex<InodeState>,
}

/// The block bitmap. It has a bit for each cluster, and all counts are of clusters.
pub(super) struct BlockState {
    /// Clear bits in the bitmap.
    pub free: u32,
    /// Whether the bitmap was never written (BLOCK_UNINIT).
    pub uninit: bool,
    pub csum: u32,
    /// Whether the bitmap has changed since `csum` was computed.
    pub stale: bool,
    pub damaged: bool,
    /// Bits that are set in `map` and clear in the bitmap.
    pub outstanding: u32,
    pub map: Option<FreeMap>,
    /// The bitmap block; `None` if it was never written or is not loaded.
    pub bitmap: Option<Arc<Buffer>>,
}

/// The inode bitmap and the inode table.
pub(super) struct InodeState {
    pub free: u32,
    pub dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub unused: u32,
    /// Whether the bitmap was never written (INODE_UNINIT).
    pub uninit: bool,
    pub csum: u32,
    pub stale: bool,
    pub damaged: bool,
    pub bitmap: Option<Arc<Buffer>>,
    /// No inode before this one is free, except those that the transaction in `freed_in` freed.
    pub hint: u32,
    /// The transaction that freed inodes last, and the lowest inode that it freed. These inodes are
    /// not used again in that transaction.
    pub freed_in: Option<(Tid, u32)>,
    /// Without a journal: all inodes that this transaction freed.
    pub freed: FxHashSet<u32>,
    /// The number of table blocks in use. Later blocks never held an inode; their content is
    /// garbage.
    pub created: u32,
    /// Table blocks before `created` that have not been written.
    pub unwritten: Vec<u32>,
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
            window: AtomicU64::new(0),
            dir_misses: AtomicU64::new(0),
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
                freed: FxHashSet::default(),
                created: (geo.inodes_per_group - unused).div_ceil(geo.inodes_per_block()),
                unwritten: Vec::new(),
            }),
            desc,
        }
    }
}

impl BlockState {
    /// Loads the map, and the bitmap if it was ever written.
    ///
    /// # Errors
    /// An I/O error; `Corrupt`, with the group, if the bitmap is inconsistent.
    pub fn load(
        &mut self,
        journal: &Journal,
        geo: &Geometry,
        system: &SystemBlocks,
        group: GroupNo,
        desc: &GroupDesc,
    ) -> Result<()> {
        if self.damaged {
            return Err(BitmapDamage::KnownDamaged
                .of(BitmapKind::Block, group)
                .into());
        }
        let bits = geo.clusters_in_group(group);
        let system_bits = || system.bits_of(geo, group);
        let map = if self.uninit {
            let mut map = FreeMap::from_bitmap(&[], bits);
            system_bits().for_each(|(start, len)| map.set(start, len));
            map
        } else {
            let buffer = journal.get(desc.block_bitmap)?;
            let mut current = desc.clone();
            current.block_bitmap_csum = self.csum;
            buffer.verify_once(|bytes| {
                current.verify_block_bitmap(geo, group, bytes)?;
                let is_free = |&(start, len): &(u32, u32)| !bitmap::all_set(bytes, start, len);
                if let Some((start, len)) = system_bits().find(is_free) {
                    let bit = bitmap::find_next_zero(bytes, start, start + len).unwrap_or(start);
                    let bit = geo.cluster().blocks_in(bit.into());
                    let block = geo.group_first_block(group) + bit;
                    let damage = BitmapDamage::SystemBlockFree { block };
                    return Err(damage.of(BitmapKind::Block, group));
                }
                Ok(())
            })?;
            let map = FreeMap::from_bitmap(&buffer.data(), bits);
            self.bitmap = Some(buffer);
            map
        };
        let found = map.count_zeros(0, bits);
        if found != self.free {
            self.bitmap = None;
            let counted = self.free;
            let damage = BitmapDamage::FreeCount { found, counted };
            return Err(damage.of(BitmapKind::Block, group).into());
        }
        self.map = Some(map);
        Ok(())
    }

    /// Returns the bitmap's buffer. A bitmap that was never written is initialised (one credit).
    /// The group must be loaded.
    pub fn initialise<'a>(
        &'a mut self,
        handle: &Handle<'_>,
        geo: &Geometry,
        system: &SystemBlocks,
        group: GroupNo,
        desc: &GroupDesc,
    ) -> Result<&'a Arc<Buffer>> {
        if self.uninit {
            let bits = geo.clusters_in_group(group);
            let buffer = handle.initialize(desc.block_bitmap);
            handle.modify(&buffer, None, |bytes| {
                for (start, len) in system.bits_of(geo, group) {
                    bitmap::set_range(bytes, start, len);
                }
                bitmap::set_range(bytes, bits, u32::MAX);
            });
            self.uninit = false;
            self.stale = true;
            self.bitmap = Some(buffer);
        }
        self.bitmap.as_ref().ok_or(Error::Internal(
            "a block bitmap is used before it is loaded",
        ))
    }

    /// Drops the map and the bitmap if they can be read again. Returns whether they were dropped.
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
    /// Returns the bitmap's buffer; `None` if the bitmap was never written.
    ///
    /// # Errors
    /// An I/O error; `Corrupt`, with the group, if the bitmap is inconsistent.
    pub fn load(
        &mut self,
        journal: &Journal,
        geo: &Geometry,
        group: GroupNo,
        desc: &GroupDesc,
    ) -> Result<Option<&Arc<Buffer>>> {
        if self.damaged {
            return Err(BitmapDamage::KnownDamaged
                .of(BitmapKind::Inode, group)
                .into());
        }
        if self.bitmap.is_none() && !self.uninit {
            let buffer = journal.get(desc.inode_bitmap)?;
            let mut current = desc.clone();
            current.inode_bitmap_csum = self.csum;
            let counted = self.free;
            buffer.verify_once(|bytes| {
                current.verify_inode_bitmap(geo, group, bytes)?;
                if !bitmap::all_set(bytes, 0, reserved_inodes(geo, group)) {
                    return Err(BitmapDamage::ReservedInodeFree.of(BitmapKind::Inode, group));
                }
                let found = bitmap::count_zeros(bytes, 0, geo.inodes_per_group);
                if found != counted {
                    let damage = BitmapDamage::FreeCount { found, counted };
                    return Err(damage.of(BitmapKind::Inode, group));
                }
                Ok(())
            })?;
            self.bitmap = Some(buffer);
        }
        Ok(self.bitmap.as_ref())
    }

    /// Drops the bitmap if it can be read again.
    pub fn evict(&mut self) {
        if !self.stale {
            self.bitmap = None;
        }
    }
}

/// Returns the number of reserved inodes at the start of a group.
pub(super) fn reserved_inodes(geo: &Geometry, group: GroupNo) -> u32 {
    if group.0 == 0 { geo.first_ino.0 - 1 } else { 0 }
}

/// Updates the lock-free copy of a count.
pub(super) fn publish(copy: &AtomicU32, value: u32) {
    copy.store(value, Ordering::Relaxed);
}
