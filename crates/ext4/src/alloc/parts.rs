//! The groups of a volume, in parts.
//!
//! The first part has the groups that the volume had at mount. Each step of a resize appends one
//! part. A group is found in the first part by an index, and in later ones by a binary search. No
//! reader takes a lock, and a reference to a group stays valid until the unmount.
//!
//! A part that was appended lies behind all earlier ones on the volume, with the bitmaps and the
//! inode tables of its groups. So a block's part says where to look for it.

use super::appended::Appended;
use super::group::Group;
use super::system::SystemBlocks;
use super::{BlockRun, MetadataCharge};
use cache::Budget;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use std::sync::Arc;
use units::{FsBlock, GroupNo};

/// Groups with adjacent numbers.
pub(super) struct Part {
    first: GroupNo,
    /// The first block of its first group.
    start: FsBlock,
    groups: Box<[Group]>,
    pub system: SystemBlocks,
    /// The first block of each inode table with its group, sorted.
    pub tables: Box<[(FsBlock, GroupNo)]>,
    /// The memory of all these.
    _charge: MetadataCharge,
}

impl Part {
    /// Returns the part of the groups from `first` on with these descriptors. `own` has blocks of
    /// the file system besides those of the descriptors.
    ///
    /// # Errors
    /// `Unsupported` if the budget has no room for the groups.
    pub fn new(
        budget: &Arc<Budget>,
        geo: &Geometry,
        (first, descs): (GroupNo, Vec<GroupDesc>),
        own: &[BlockRun],
    ) -> crate::Result<Part> {
        let charge = MetadataCharge::of_groups(budget, geo, descs.len() as u32)?;
        let numbers = (first.0..).map(GroupNo);
        let mut tables: Vec<_> = descs.iter().map(|d| d.inode_table).zip(numbers).collect();
        tables.sort_unstable();
        Ok(Part {
            first,
            start: geo.group_first_block(first),
            system: SystemBlocks::new(geo, (first, &descs), own),
            tables: tables.into(),
            groups: descs.into_iter().map(|d| Group::new(geo, d)).collect(),
            _charge: charge,
        })
    }

    fn get(&self, group: GroupNo) -> Option<&Group> {
        self.groups.get(group.0.checked_sub(self.first.0)? as usize)
    }
}

/// All parts.
pub(super) struct Parts {
    at_mount: Part,
    later: Appended<Part>,
}

impl Parts {
    pub fn new(at_mount: Part) -> Parts {
        Parts {
            at_mount,
            later: Appended::default(),
        }
    }

    pub fn get(&self, group: GroupNo) -> Option<&Group> {
        match self.at_mount.groups.get(group.0 as usize) {
            Some(found) => Some(found),
            None => self.of_group(group).get(group),
        }
    }

    /// Returns the part with the group, or with those before it.
    pub fn of_group(&self, group: GroupNo) -> &Part {
        if (group.0 as usize) < self.at_mount.groups.len() {
            return &self.at_mount;
        }
        let part = self.later.last_where(|part| part.first <= group);
        part.unwrap_or(&self.at_mount)
    }

    /// Returns the part whose tables and bitmaps may lie at the block.
    pub fn of_block(&self, block: FsBlock) -> &Part {
        let part = self.later.last_where(|part| part.start <= block);
        part.unwrap_or(&self.at_mount)
    }

    pub fn all(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.at_mount).chain(self.later.iter())
    }

    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.all().flat_map(|part| part.groups.iter())
    }

    /// Returns whether a block of `run` is the file system's own.
    pub fn is_system(&self, run: BlockRun) -> bool {
        if self.later.len() == 0 {
            return self.at_mount.system.overlaps(run);
        }
        // A run lies in one part, or in the last groups of one and the first ones of the next.
        let last = FsBlock(
            run.start
                .0
                .saturating_add(u64::from(run.len))
                .saturating_sub(1),
        );
        let (first, last) = (self.of_block(run.start), self.of_block(last));
        first.system.overlaps(run) || last.system.overlaps(run)
    }

    /// Takes blocks out of the file system's own. This happens once at most.
    pub fn give_up(&self, blocks: &[BlockRun]) {
        self.all().for_each(|part| part.system.give_up(blocks));
    }

    /// Appends a part. The caller excludes other appends.
    pub fn append(&self, part: Part) {
        self.later.append(part);
    }
}
