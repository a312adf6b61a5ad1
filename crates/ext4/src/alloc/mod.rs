//! The allocator of blocks and inodes.
//!
//! A bit of a bitmap is a *cluster* of blocks: with `bigalloc` a power of two of them, otherwise
//! one block. Callers give and get runs of blocks ([`BlockRun`]), which [`units::ClusterSize`]
//! converts: [`Groups::pick`] returns whole clusters, [`Groups::free`] frees each cluster of which
//! the run has a block. The caller decides whether a cluster has other blocks of the file
//! ([`crate::extents`]). Reservations and free bits count clusters.
//!
//! A group keeps two sets. The *bitmap* holds the blocks in use as the running transaction sees
//! them; it changes under a handle. The *unavailable* blocks are known in memory only. They are the
//! blocks in use, the blocks picked for data whose write has not completed, and the blocks freed by
//! a transaction that has not committed.
//!
//! ```text
//!              pick                     record                   free                  released
//!   available ──────▶ picked (memory) ──────────▶ in use (bitmap) ────▶ freed (memory) ─────────▶ available
//!       ▲                │ unpick                                        until its transaction commits
//!       └────────────────┘
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `space` | the counters of the volume, and reservations of space |
//! | `root_reserve` | the blocks that only root may take |
//! | `free_map` | a group's unavailable blocks as a searchable bit map |
//! | `system` | the file system's own blocks |
//! | `parts` | the groups at mount, and those that resizes add |
//! | `live_geometry` | the geometry as resizes change it |
//! | `appended` | a vector that grows while it is read |
//! | `growth` | larger last groups and new groups |
//! | `group` | a group's state; its bitmaps are read, checked and initialised here |
//! | `blocks` | pick, record, free |
//! | `runs` | from blocks to bits and back |
//! | `inodes` | inode numbers |
//! | `claim` | inode numbers and blocks that fast commits name |
//! | `in_use` | the inode numbers in use, for a scan of all inodes |
//! | `table_ahead` | reading inode tables ahead |
//! | `dirs_ahead` | the inode tables near a directory, for reading other directories ahead |
//! | `trim` | free runs for discard |
//! | `spread` | the choice of a group for a new directory |
//! | `write_back` | descriptors and checksums, once per commit |
//!
//! There is no lock for the volume. Each group has one lock for its blocks and one for its inodes.
//! A search chooses a group by atomic copies of its counts. Bitmaps are loaded at the first use of
//! a group. They are evicted when too many are in memory and the group has no outstanding block, so
//! memory use has a bound for a volume of any size.

mod appended;
mod blocks;
mod claim;
mod dirs_ahead;
mod free_map;
mod group;
mod growth;
mod in_use;
mod inodes;
mod live_geometry;
mod parts;
mod root_reserve;
mod runs;
mod space;
mod spread;
mod system;
mod table_ahead;
#[cfg(test)]
mod tests;
mod trim;
mod write_back;

use crate::damage::ErrorLog;
use crate::{Error, Result};
use cache::{Budget, Kind};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc};
use group::Group;
pub(crate) use growth::NewGroups;
pub(crate) use in_use::GroupInodes;
use jbd2::Journal;
pub(crate) use live_geometry::LiveGeometry;
use parts::{Part, Parts};
pub use root_reserve::Acting;
use root_reserve::Privileged;
pub(crate) use space::Claim;
use space::Space;
use std::sync::{Arc, OnceLock};
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::{Mutex, Rank};
use units::{FsBlock, GroupNo, Ino};

/// A run of contiguous blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    pub start: FsBlock,
    pub len: u32,
}

/// Counts for statfs and the super block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Free blocks according to the bitmaps.
    pub free_blocks: u64,
    /// Blocks reserved by delayed allocation. All counts of blocks are multiples of a cluster's.
    pub reserved_blocks: u64,
    /// Blocks that only changes may use which must work on a full volume.
    pub margin_blocks: u64,
    pub free_inodes: u64,
    pub dirs: u64,
}

/// The most groups whose bitmaps are in memory. Groups with outstanding blocks may exceed it.
const LOADED_MAX: u32 = 4096;
/// The lower bound of that limit when the memory budget is small.
const LOADED_MIN: u32 = 16;
/// The memory that the bitmaps of one group take, in bytes.
const LOADED_BYTES: u64 = 12 << 10;
/// The bitmaps take at most the memory budget divided by this.
const LOADED_DIVISOR: u64 = 8;
/// Bytes that the groups may take under any memory budget: enough for a volume of 2 TiB.
const GROUPS_BYTES_MIN: u64 = 8 << 20;

/// The groups of a volume.
pub(crate) struct Groups {
    journal: Arc<Journal>,
    budget: Arc<Budget>,
    geo: Arc<LiveGeometry>,
    parts: Parts,
    space: Space,
    privileged: Privileged,
    free_inodes: AtomicU64,
    /// An allocation met only inodes that the running transaction has freed.
    inodes_held: AtomicBool,
    dirs: AtomicU64,
    /// Groups whose descriptor has changed since it was encoded.
    changed: Mutex<ChangedGroups>,
    /// The blocks of the descriptor table with a changed group, plus the inode table blocks in use
    /// that have not been written.
    pending: AtomicU32,
    /// Groups whose block bitmap is in memory.
    loaded: AtomicU32,
    loaded_max: u32,
    /// The group at which the next search for a group to evict starts.
    evict_hand: AtomicU32,
    /// The region at which the search for the next top-level directory starts.
    next_top_dir: AtomicU32,
    /// The log of damaged bitmaps.
    errors: OnceLock<Arc<ErrorLog>>,
}

/// Changed groups, each with its `listed` flag set.
#[derive(Default)]
struct ChangedGroups {
    numbers: Vec<GroupNo>,
    /// For each block of the descriptor table, whether it has a group in `numbers`.
    tables: Vec<bool>,
}

/// Bytes of metadata that stay in memory while the volume is mounted.
struct MetadataCharge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl MetadataCharge {
    /// Charges the memory of `groups` groups, if that of all groups of the volume is not too much.
    fn of_groups(budget: &Arc<Budget>, geo: &Geometry, groups: u32) -> Result<MetadataCharge> {
        // A group has up to three runs of system blocks (twice while they are sorted) and an entry
        // in the list of tables.
        let group_bytes = (size_of::<Group>()
            + 6 * size_of::<(u64, u64)>()
            + size_of::<(FsBlock, GroupNo)>()) as u64;
        let all = u64::from(geo.groups).saturating_mul(group_bytes);
        let most = (budget.limit() / 4 * 3).max(GROUPS_BYTES_MIN);
        if all > most {
            return Err(Error::Unsupported(format!(
                "a volume of {} groups needs {} MiB of memory for them, but the budget allows {} \
                 MiB; mount it with a larger memory budget",
                geo.groups,
                all >> 20,
                most >> 20
            )));
        }
        let bytes = u64::from(groups).saturating_mul(group_bytes);
        budget.make_room();
        budget.charge(Kind::Metadata, bytes);
        Ok(MetadataCharge {
            budget: budget.clone(),
            bytes,
        })
    }
}

impl Drop for MetadataCharge {
    fn drop(&mut self) {
        self.budget.uncharge(Kind::Metadata, self.bytes);
    }
}

impl Groups {
    /// Reads the group descriptors and charges their memory to `budget`. Bitmaps are read at their
    /// first use. `own` has the blocks of the volume's own files, which no file may use.
    ///
    /// # Errors
    /// An I/O error; `Corrupt` for a descriptor with a wrong checksum or with invalid numbers;
    /// `Unsupported` if the budget has no room for the groups.
    pub fn load(
        journal: Arc<Journal>,
        budget: &Arc<Budget>,
        live: &Arc<LiveGeometry>,
        own: &[BlockRun],
    ) -> Result<Groups> {
        let geo: &Geometry = live;
        // The descriptors are not read if their groups do not fit.
        drop(MetadataCharge::of_groups(budget, geo, geo.groups)?);
        let gdt: Vec<u32> = (0..geo.gdt_blocks).collect();
        // The chunks bound the I/O in flight for the table of a huge volume.
        let mut descs = Vec::with_capacity(geo.groups as usize);
        let per_block = geo.block_size / u32::from(geo.desc_size);
        for chunk in gdt.chunks(256) {
            let blocks: Vec<FsBlock> = chunk.iter().map(|index| geo.gdt_block(*index)).collect();
            journal.prefetch(&blocks);
            for (index, block) in chunk.iter().zip(blocks) {
                let data = journal.get(block)?.data();
                let first = index * per_block;
                for group in (first..geo.groups.min(first + per_block)).map(GroupNo) {
                    let at = geo.group_desc_location(group).1 as usize;
                    let raw = data.get(at..).unwrap_or_default();
                    group_desc::verify_checksum(geo, group, raw)?;
                    let desc = GroupDesc::decode(raw, geo.desc_size)?;
                    desc.validate(geo, group)?;
                    descs.push(desc);
                }
            }
        }
        let sum = |count: fn(&GroupDesc) -> u32| -> u64 {
            descs.iter().map(|desc| u64::from(count(desc))).sum()
        };
        // Descriptors count clusters.
        let free = sum(|desc| desc.free_blocks_count);
        let all = geo.cluster().clusters_for(geo.blocks_count);
        Ok(Groups {
            space: Space::new(free, all, geo.incompat),
            privileged: Privileged::default(),
            free_inodes: AtomicU64::new(sum(|desc| desc.free_inodes_count)),
            dirs: AtomicU64::new(sum(|desc| desc.used_dirs_count)),
            parts: Parts::new(Part::new(budget, geo, (GroupNo(0), descs), own)?),
            changed: Rank::ChangedGroups.mutex(ChangedGroups::default()),
            pending: AtomicU32::new(0),
            inodes_held: AtomicBool::new(false),
            loaded: AtomicU32::new(0),
            loaded_max: (budget.limit() / LOADED_DIVISOR / LOADED_BYTES)
                .clamp(u64::from(LOADED_MIN), u64::from(LOADED_MAX)) as u32,
            evict_hand: AtomicU32::new(0),
            next_top_dir: AtomicU32::new(0),
            errors: OnceLock::new(),
            budget: budget.clone(),
            geo: live.clone(),
            journal,
        })
    }

    /// Sets the log of damaged bitmaps. Later calls have no effect.
    pub fn set_error_log(&self, errors: Arc<ErrorLog>) {
        let _ = self.errors.set(errors);
    }

    /// Adds damage to the error log.
    #[track_caller]
    fn log_damage(&self, func: &'static str, error: &Error) {
        if let Some(errors) = self.errors.get() {
            errors.note(func, None, error);
        }
    }

    /// Reserves clusters for later [`Groups::pick`] calls. It takes no lock.
    ///
    /// # Errors
    /// `NoSpace`. Freed blocks count only after their transaction has committed: see
    /// [`crate::Fs::with_space`].
    pub fn reserve(&self, clusters: u64) -> Result<()> {
        self.space.reserve(clusters, Claim::Ordinary)
    }

    /// [`Groups::reserve`] with a choice of the class.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn reserve_for(&self, clusters: u64, claim: Claim) -> Result<()> {
        self.space.reserve(clusters, claim)
    }

    /// Releases a reservation.
    pub fn unreserve(&self, clusters: u64) {
        self.space.unreserve(clusters);
    }

    /// Reserves a cluster for each [`Groups::alloc_reserved_block`]. The count is the worst case,
    /// so more are reserved than will be used.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn reserve_nodes(&self, nodes: u64, claim: Claim) -> Result<()> {
        self.space.reserve_nodes(nodes, claim)
    }

    /// Releases a reservation of [`Groups::reserve_nodes`].
    pub fn unreserve_nodes(&self, nodes: u64) {
        self.space.unreserve_nodes(nodes);
    }

    /// Returns whether `clusters` cannot be reserved now, or no inode is free for use.
    pub fn is_short_of(&self, clusters: u64) -> bool {
        let reserved = self.reserve(clusters);
        if reserved.is_ok() {
            self.unreserve(clusters);
        }
        reserved.is_err()
            || self.free_inodes.load(Ordering::Relaxed) == 0
            || self.inodes_held.load(Ordering::Relaxed)
    }

    /// Returns whether writing files releases a part of their node reservations.
    pub fn has_reserved_nodes(&self) -> bool {
        self.space.has_reserved_nodes()
    }

    /// Returns whether a commit makes freed blocks or inodes available. The caller then commits.
    pub fn commit_frees_space(&self) -> bool {
        self.inodes_held.swap(false, Ordering::Relaxed) || self.space.commit_frees_blocks()
    }

    /// Returns how often freed blocks were made available by commits.
    pub fn releases(&self) -> u64 {
        self.space.releases()
    }

    /// Returns the current counts.
    pub fn counts(&self) -> Counts {
        let size = self.geo.cluster();
        Counts {
            free_blocks: size.blocks_in(self.space.free()),
            reserved_blocks: size.blocks_in(self.space.reserved()),
            margin_blocks: size.blocks_in(self.space.margin()),
            free_inodes: self.free_inodes.load(Ordering::Relaxed),
            dirs: self.dirs.load(Ordering::Relaxed),
        }
    }

    /// Returns the goal for the first block of an inode: the start of its group.
    pub fn goal_for(&self, ino: Ino) -> FsBlock {
        let group = self
            .geo
            .inode_group(ino)
            .map_or(GroupNo(0), |(group, _)| group);
        self.geo.group_first_block(group)
    }

    /// Returns the number of groups in a region, the unit of locality: a flex group, or at least
    /// eight groups.
    fn region_size(&self) -> u32 {
        (1 << self.geo.flex_bg_log.min(20)).max(8)
    }

    /// Returns the numbers of the groups in the region of `group`.
    fn region_of(&self, group: GroupNo) -> std::ops::Range<u32> {
        let size = self.region_size();
        let first = group.0 / size * size;
        first..first.saturating_add(size).min(self.geo.groups)
    }

    fn group(&self, group: GroupNo) -> Result<&Group> {
        // Callers take the number from the geometry, so this error is a bug.
        self.parts
            .get(group)
            .ok_or(Error::Internal("the volume has no such block group"))
    }
}
