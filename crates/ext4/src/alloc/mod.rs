//! Blocks and inodes: which are free, and which to take next.
//!
//! Two truths per group: what the *bitmap* says in the running transaction (changed under a
//! handle), and what is *unavailable* in memory: the bitmap's blocks, blocks picked for data that
//! has not landed, and blocks freed by a transaction that has not committed.
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
//! | `space` | the counters of the volume, and promises of space |
//! | `free_map` | a group's unavailable blocks as a searchable bit map |
//! | `system` | the file system's own blocks |
//! | `group` | a group's state, and how its bitmaps are read, checked and made |
//! | `blocks` | pick, record, free |
//! | `inodes` | inode numbers |
//! | `trim` | free runs for discard |
//! | `spread` | which group a new directory goes to |
//! | `write_back` | descriptors and checksums, once per commit |
//!
//! There is no lock for the volume: each group has one for its blocks and one for its inodes, and
//! groups are chosen by atomic copies of their counts. A group's state is made at its first use and
//! dropped when too many are in memory and nothing of it is outstanding, so that a volume of any
//! size is used in bounded memory.

mod blocks;
mod free_map;
mod group;
mod inodes;
mod space;
mod spread;
mod system;
#[cfg(test)]
mod tests;
mod trim;
mod write_back;

use crate::damage::ErrorLog;
use crate::{Error, Result};
use cache::{Budget, Kind};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc};
use ext4_format::types::{FsBlock, GroupNo, Ino};
use group::Group;
use jbd2::Journal;
pub(crate) use space::Claim;
use space::Space;
use std::sync::{Arc, OnceLock};
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::{Mutex, Rank};
use system::SystemBlocks;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// First block.
    pub start: FsBlock,
    /// Blocks.
    pub len: u32,
}

/// Counts for statfs and the super block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Free blocks according to the bitmaps.
    pub free_blocks: u64,
    /// Blocks reserved by delayed allocation.
    pub reserved_blocks: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Directories.
    pub dirs: u64,
}

/// Groups whose bitmaps are kept in memory, at most (but for those with blocks outstanding).
const LOADED_MAX: u32 = 4096;
/// As few as this however small the memory budget is.
const LOADED_MIN: u32 = 16;
/// Bytes of the bitmaps of a group in memory.
const LOADED_BYTES: u64 = 12 << 10;
/// These bitmaps take this part of the memory budget at most.
const LOADED_PART: u64 = 8;
/// Bytes that the groups may take however small the memory budget is: those of a volume of 2 TiB.
const GROUPS_LEAST: u64 = 8 << 20;

/// The groups of a volume.
pub(crate) struct Groups {
    journal: Arc<Journal>,
    geo: Geometry,
    groups: Box<[Group]>,
    system: SystemBlocks,
    space: Space,
    free_inodes: AtomicU64,
    dirs: AtomicU64,
    /// Groups whose descriptor has changed since it was encoded; each has its `listed` flag set.
    changed: Mutex<Vec<u32>>,
    /// For each block of the descriptor table, whether a group of it is in `changed`.
    gdt_changed: Box<[AtomicBool]>,
    /// How many of these are set, and inode table blocks nobody has written yet.
    pending: AtomicU32,
    /// First blocks of the inode tables and their groups, sorted.
    tables: Box<[(u64, u32)]>,
    /// Memory of `groups`, `system` and `tables`.
    _charge: Charge,
    /// Groups whose block bitmap is in memory, how many there may be, and where the next one is to
    /// be dropped.
    loaded: AtomicU32,
    loaded_max: u32,
    evict_hand: AtomicU32,
    /// Where the next top-level directory goes.
    next_top_dir: AtomicU32,
    /// Where damaged bitmaps are recorded.
    errors: OnceLock<Arc<ErrorLog>>,
}

/// Bytes of metadata that stay in memory for as long as the volume is mounted.
struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// Counts what the groups of a volume take.
    fn of_groups(budget: &Arc<Budget>, geo: &Geometry) -> Result<Charge> {
        // Each has up to three runs of system blocks (twice while they are sorted) and an entry in
        // the list of tables.
        let each =
            (size_of::<Group>() + 6 * size_of::<(u64, u64)>() + size_of::<(u64, u32)>()) as u64;
        let bytes = u64::from(geo.groups).saturating_mul(each);
        let most = (budget.limit() / 4 * 3).max(GROUPS_LEAST);
        if bytes > most {
            return Err(Error::Unsupported(format!(
                "a volume of {} groups, which take {} MiB of memory; the budget has {} MiB for them",
                geo.groups,
                bytes >> 20,
                most >> 20
            )));
        }
        budget.make_room();
        budget.charge(Kind::Metadata, bytes);
        Ok(Charge {
            budget: budget.clone(),
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.uncharge(Kind::Metadata, self.bytes);
    }
}

impl Groups {
    /// Reads the group descriptors (bitmaps are read when first needed). What is kept of them is
    /// charged to `budget`.
    ///
    /// # Errors
    /// The device's; `Corrupt` for a descriptor with a wrong checksum or whose numbers make no
    /// sense; `Unsupported` for more groups than the budget has room for.
    pub fn load(
        journal: Arc<Journal>,
        budget: &Arc<Budget>,
        geo: &Geometry,
        superblock: &ext4_format::superblock::Superblock,
    ) -> Result<Groups> {
        let first_ino = superblock.first_ino.get();
        debug_assert_eq!(first_ino, geo.first_ino.0);
        let charge = Charge::of_groups(budget, geo)?;
        let gdt_first = geo.first_data_block + 1;
        let gdt: Vec<u64> = (gdt_first..gdt_first + u64::from(geo.gdt_blocks)).collect();
        // In pieces, so that the table of a huge volume is not all in flight at once.
        let mut groups = Vec::with_capacity(geo.groups as usize);
        let per_block = geo.block_size / u32::from(geo.desc_size);
        for blocks in gdt.chunks(256) {
            journal.prefetch(blocks);
            for block in blocks {
                let data = journal.get(*block)?.data();
                let first = (block - gdt_first) as u32 * per_block;
                for group in (first..geo.groups.min(first + per_block)).map(GroupNo) {
                    let at = geo.group_desc_location(group).1 as usize;
                    let raw = data.get(at..).unwrap_or_default();
                    group_desc::verify_checksum(geo, group, raw)?;
                    let desc = GroupDesc::decode(raw, geo.desc_size)?;
                    desc.validate(geo, group)?;
                    groups.push(Group::new(geo, desc));
                }
            }
        }
        let sum = |count: fn(&GroupDesc) -> u32| -> u64 {
            groups.iter().map(|g| u64::from(count(&g.desc))).sum()
        };
        let free_blocks = sum(|desc| desc.free_blocks_count);
        let mut tables: Vec<_> = (0..)
            .zip(&groups)
            .map(|(nth, g)| (g.desc.inode_table.0, nth))
            .collect();
        tables.sort_unstable();
        Ok(Groups {
            system: SystemBlocks::new(geo, groups.iter().map(|g| &g.desc)),
            space: Space::new(free_blocks, geo.blocks_count),
            free_inodes: AtomicU64::new(sum(|desc| desc.free_inodes_count)),
            dirs: AtomicU64::new(sum(|desc| desc.used_dirs_count)),
            groups: groups.into(),
            changed: Rank::ChangedGroups.mutex(Vec::new()),
            gdt_changed: (0..geo.gdt_blocks)
                .map(|_| AtomicBool::new(false))
                .collect(),
            pending: AtomicU32::new(0),
            tables: tables.into(),
            _charge: charge,
            loaded: AtomicU32::new(0),
            loaded_max: (budget.limit() / LOADED_PART / LOADED_BYTES)
                .clamp(u64::from(LOADED_MIN), u64::from(LOADED_MAX)) as u32,
            evict_hand: AtomicU32::new(0),
            next_top_dir: AtomicU32::new(0),
            errors: OnceLock::new(),
            geo: geo.clone(),
            journal,
        })
    }

    /// Says where damage is recorded. Only the first call counts.
    pub fn report_to(&self, errors: Arc<ErrorLog>) {
        let _ = self.errors.set(errors);
    }

    /// Records damage.
    #[track_caller]
    fn blame(&self, func: &'static str, error: &Error) {
        if let Some(errors) = self.errors.get() {
            errors.note(func, 0, error);
        }
    }

    /// Promises blocks for later [`Groups::pick`] calls. Takes no lock.
    ///
    /// # Errors
    /// `NoSpace`. Blocks that were freed count only once their transaction has committed: see
    /// [`crate::Fs::with_space`].
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        self.space.reserve(blocks, Claim::Ordinary)
    }

    /// Gives a promise back.
    pub fn unreserve(&self, blocks: u64) {
        self.space.unreserve(blocks);
    }

    /// Promises blocks for [`Groups::take_promised_block`], more than will be used.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn reserve_nodes(&self, nodes: u64, claim: Claim) -> Result<()> {
        self.space.reserve_nodes(nodes, claim)
    }

    /// Gives a promise of [`Groups::reserve_nodes`] back.
    pub fn unreserve_nodes(&self, nodes: u64) {
        self.space.unreserve_nodes(nodes);
    }

    /// Whether `blocks` cannot be promised now, or no inode is free.
    pub fn is_short_of(&self, blocks: u64) -> bool {
        let promised = self.reserve(blocks);
        if promised.is_ok() {
            self.unreserve(blocks);
        }
        promised.is_err() || self.free_inodes.load(Ordering::Relaxed) == 0
    }

    /// Whether files that have been written give a part of their promises back.
    pub fn is_overpromised(&self) -> bool {
        self.space.is_overpromised()
    }

    /// Whether a commit makes blocks available: what the running transaction freed.
    pub fn waits_for_commit(&self) -> bool {
        self.space.waits_for_commit()
    }

    /// The counts now.
    pub fn counts(&self) -> Counts {
        Counts {
            free_blocks: self.space.free(),
            reserved_blocks: self.space.reserved(),
            free_inodes: self.free_inodes.load(Ordering::Relaxed),
            dirs: self.dirs.load(Ordering::Relaxed),
        }
    }

    /// A good place for the first block of an inode: its group.
    pub fn goal_for(&self, ino: Ino) -> FsBlock {
        let group = self
            .geo
            .inode_group(ino)
            .map_or(GroupNo(0), |(group, _)| group);
        self.geo.group_first_block(group)
    }

    /// Groups in a cluster: what is kept together. A flex group, or eight groups without `flex_bg`.
    fn cluster_size(&self) -> u32 {
        (1 << self.geo.flex_bg_log.min(20)).max(8)
    }

    /// The groups of the cluster that `group` is in.
    fn cluster_of(&self, group: u32) -> std::ops::Range<u32> {
        let size = self.cluster_size();
        let first = group / size * size;
        first..first.saturating_add(size).min(self.geo.groups)
    }

    fn group(&self, group: GroupNo) -> Result<&Group> {
        // Callers located the group by the geometry; this is for what they got from elsewhere.
        self.groups
            .get(group.0 as usize)
            .ok_or(Error::Invalid("no such group"))
    }
}
