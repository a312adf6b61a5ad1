//! The state that the passes share, and the order of the passes.

use crate::Progress;
use crate::chunked::{Bits, Table};
use crate::finding::{Kind, Place, Report};
use crate::value_table::Values;
use crate::volume::Volume;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{GroupDesc, GroupFlags};
use std::collections::{HashMap, HashSet};
use units::{ClusterSize, FileBlock, FsBlock, Ino};

/// A group, and which of its places are valid.
pub(crate) struct Group {
    pub desc: GroupDesc,
    pub block_bitmap_ok: bool,
    pub inode_bitmap_ok: bool,
    pub table_ok: bool,
    /// The checksum is right, so the "uninitialised" flags are reliable.
    pub sound: bool,
}

impl Group {
    /// Returns the number of inodes at the start of the group that may be in use.
    pub fn inodes_in_use(&self, geo: &Geometry) -> u32 {
        let per_group = geo.inodes_per_group;
        if !geo.has_group_csum() || !self.sound {
            return per_group;
        }
        if self.desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        per_group.saturating_sub(self.desc.itable_unused)
    }
}

/// An attribute block.
pub(crate) struct AttributeBlock {
    /// The reference count in its header.
    pub refcount: u32,
    /// Number of inodes that refer to it.
    pub seen: u32,
    /// The first inode that refers to it.
    pub ino: Ino,
    /// Clusters of its values that are in inodes.
    pub value_clusters: u64,
}

/// Most runs of blocks with several owners for which pass 1b looks for the owners.
const SHARED_MAX: usize = 4096;

/// An inode in use, in 8 bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    /// Directory entries that name the inode, "." and ".." included.
    pub counted: u32,
    /// `i_links_count`.
    pub links: u16,
    /// The file type's code in directory entries; 0 for an invalid mode.
    pub kind: u8,
    pub flags: u8,
}

impl Row {
    pub const IN_USE: u8 = 1;
    /// On the orphan list or in the orphan file: a mount deletes or truncates the inode.
    pub const ORPHAN: u8 = 2;
    /// An inode of the file system itself, which no directory names.
    pub const HIDDEN: u8 = 4;
    /// Named by an entry other than "." and "..".
    pub const NAMED: u8 = 8;

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The names of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Plain,
    /// Upper and lower case are the same: the hashes are those of folded names.
    Folded,
    /// Any bytes.
    Encrypted,
}

/// A directory: 48 bytes, and 16 for each block.
#[derive(Clone, Copy)]
pub(crate) struct Directory {
    pub ino: Ino,
    pub generation: u32,
    pub indexed: bool,
    /// Whether its entries are in the inode.
    pub inline: bool,
    pub names: Names,
    /// Index of its first block in [`Checker::directory_blocks`].
    pub first: usize,
    pub blocks: u32,
    /// The directory with an entry for this one; 0 if there is none.
    pub parent: Ino,
    /// The inode of its ".."; 0 if there is none.
    pub dotdot: Ino,
}

/// A run of blocks with more than one owner.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub start: FsBlock,
    pub len: u64,
}

pub(crate) struct Checker<'a> {
    pub v: Volume,
    pub report: Report,
    pub progress: &'a mut dyn Progress,
    pub groups: Vec<Group>,
    pub claims: Claims,
    /// The claimed blocks of super blocks, descriptors, bitmaps and inode tables.
    pub metadata: Bits,
    pub inodes: Table<Row>,
    /// Unlinked inodes on the orphan list or in the orphan file.
    pub orphans: HashSet<Ino>,
    pub directories: Vec<Directory>,
    /// File block and volume block, in the order of `directories`.
    pub directory_blocks: Vec<(FileBlock, FsBlock)>,
    pub attribute_blocks: HashMap<FsBlock, AttributeBlock>,
    pub values: Values,
}

impl<'a> Checker<'a> {
    pub fn new(v: Volume, report: Report, progress: &'a mut dyn Progress) -> Checker<'a> {
        Checker {
            claims: Claims {
                taken: Bits::new(v.geo.blocks_count),
                shared: Vec::new(),
                cluster: v.geo.cluster(),
                blocks: v.geo.blocks_count,
            },
            metadata: Bits::new(v.geo.blocks_count),
            inodes: Table::new(v.geo.inodes_count.saturating_add(1)),
            v,
            report,
            progress,
            groups: Vec::new(),
            orphans: HashSet::new(),
            directories: Vec::new(),
            directory_blocks: Vec::new(),
            attribute_blocks: HashMap::new(),
            values: Values::default(),
        }
    }

    pub fn into_report(self) -> Report {
        self.report
    }

    pub fn problem(&mut self, object: Kind, place: Place, message: impl Into<String>) {
        self.report.problem(object, place, message);
    }

    /// Claims blocks of the volume's metadata, which may share clusters with other metadata.
    /// Returns `false` if one of them was claimed before.
    pub fn claim(&mut self, start: FsBlock, len: u64) -> bool {
        self.claims.claim(start, len)
    }
}

/// The blocks in use.
pub(crate) struct Claims {
    pub taken: Bits,
    /// Runs that were claimed more than once, at most [`SHARED_MAX`].
    pub shared: Vec<Run>,
    cluster: ClusterSize,
    /// Blocks of the volume.
    blocks: u64,
}

impl Claims {
    /// Returns the first block of the clusters of a run on the volume, and the block behind their
    /// last.
    pub fn clusters_of(&self, start: FsBlock, len: u64) -> (FsBlock, FsBlock) {
        let end = self.cluster.next_start(start.saturating_add(len));
        (self.cluster.start_of(start), end.min(FsBlock(self.blocks)))
    }

    /// Claims all blocks of the clusters of a run. Returns `false` if one of them was claimed
    /// before.
    pub fn claim_clusters(&mut self, start: FsBlock, len: u64) -> bool {
        let (start, end) = self.clusters_of(start, len);
        self.claim(start, end - start)
    }

    /// Claims blocks. Returns `false` if one of them was claimed before.
    pub fn claim(&mut self, start: FsBlock, len: u64) -> bool {
        let shared = &mut self.shared;
        self.taken.set_run(start.0, len, &mut |block| {
            let block = FsBlock(block);
            let has_room = shared.len() < SHARED_MAX;
            match shared.last_mut() {
                Some(run) if run.start + run.len == block => run.len += 1,
                _ if has_room => shared.push(Run {
                    start: block,
                    len: 1,
                }),
                _ => {}
            }
        })
    }
}
