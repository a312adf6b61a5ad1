//! What the passes share, and their order.

use crate::chunked::{Bits, Table};
use crate::finding::{Kind, Place, Report};
use crate::groups::Group;
use crate::volume::Volume;
use crate::xattrs::AttributeBlock;
use crate::{Error, Progress};
use std::collections::{HashMap, HashSet};

/// Runs of blocks with several owners that are looked into; more are only counted.
const SHARED_MAX: usize = 4096;

/// What is kept of each inode in use: 8 bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    /// Directory entries that name it, "." and ".." included.
    pub counted: u32,
    /// `i_links_count`.
    pub links: u16,
    /// The type as a directory entry would have it; 0 with an invalid mode.
    pub kind: u8,
    pub flags: u8,
}

impl Row {
    pub const IN_USE: u8 = 1;
    /// Unlinked, and recorded as such: a mount deletes it.
    pub const ORPHAN: u8 = 2;
    /// The file system's own: no directory names it.
    pub const HIDDEN: u8 = 4;
    /// Named by an entry other than "." and "..".
    pub const NAMED: u8 = 8;

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A directory: 48 bytes, and 16 for each block.
#[derive(Clone, Copy)]
pub(crate) struct Directory {
    pub ino: u32,
    pub generation: u32,
    pub indexed: bool,
    /// Where its blocks are in [`Checker::directory_blocks`].
    pub first: usize,
    pub blocks: u32,
    /// The directory whose entry leads here; 0: none.
    pub parent: u32,
    /// What its ".." says; 0: it has none.
    pub dotdot: u32,
}

/// A run of blocks with more than one owner.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub start: u64,
    pub len: u64,
}

pub(crate) struct Checker<'a> {
    pub v: Volume,
    pub report: Report,
    pub progress: &'a mut dyn Progress,
    pub groups: Vec<Group>,
    pub claims: Claims,
    /// Of them, those of super blocks, descriptors, bitmaps and inode tables.
    pub metadata: Bits,
    pub inodes: Table<Row>,
    /// Unlinked inodes that the orphan list or file names.
    pub orphans: HashSet<u32>,
    pub directories: Vec<Directory>,
    /// File block and block of the volume, in the order of directories.
    pub directory_blocks: Vec<(u32, u64)>,
    pub attribute_blocks: HashMap<u64, AttributeBlock>,
}

impl<'a> Checker<'a> {
    pub fn new(v: Volume, report: Report, progress: &'a mut dyn Progress) -> Checker<'a> {
        Checker {
            claims: Claims {
                taken: Bits::new(v.geo.blocks_count),
                shared: Vec::new(),
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
        }
    }

    pub fn run(&mut self) -> Result<(), Error> {
        self.load_groups()?;
        self.see_through_journal()?;
        self.check_superblock();
        self.check_backups()?;
        self.check_groups();
        self.find_orphans()?;
        self.check_inodes()?;
        self.check_resize_inode()?;
        self.name_shared_blocks()?;
        self.check_directories()?;
        self.check_links();
        self.check_attribute_counts();
        self.check_bitmaps()?;
        Ok(())
    }

    pub fn into_report(self) -> Report {
        self.report
    }

    pub fn problem(&mut self, object: Kind, place: Place, message: impl Into<String>) {
        self.report.problem(object, place, message);
    }

    /// Takes blocks, which lie on the volume. `false` where one of them was taken.
    pub fn claim(&mut self, start: u64, len: u64) -> bool {
        self.claims.claim(start, len)
    }
}

/// Which blocks are in use.
pub(crate) struct Claims {
    pub taken: Bits,
    /// Runs that were claimed when they were taken already, at most [`SHARED_MAX`].
    pub shared: Vec<Run>,
}

impl Claims {
    /// Takes blocks. `false` where one of them was taken.
    pub fn claim(&mut self, start: u64, len: u64) -> bool {
        let shared = &mut self.shared;
        self.taken.set_run(start, len, &mut |block| {
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
