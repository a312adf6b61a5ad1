//! The attributes of all inodes in use, read in the order of the device (XFS calls this
//! `bulkstat`).
//!
//! Threads take groups in the order of their inode tables. A table is read in parts of a megabyte,
//! several at once, past the buffer cache. The result of each inode goes to a callback. Memory has
//! a bound: one part for each thread.
//!
//! # The newest version of an inode
//!
//! A change of an inode moves down these places. Each step copies it before it leaves the place
//! above:
//!
//! ```text
//!   Inode in the table of the cache ──▶ ChangedInodes ──▶ buffer of the table block ──▶ device
//!     (memory)                registered  (memory)   commit   (journal)        checkpoint
//! ```
//!
//! An inode is evicted only when it is not registered. An inode that is being deleted leaves the
//! table while it is registered, or after a commit has serialised it without links.
//!
//! Algorithm for a part of a table. It looks at the places in the same order, so a change that
//! leaves a place before the look at it is found in a later one:
//! 1. Copy the bitmap. The numbers in it are the candidates.
//! 2. Look up each candidate in the table of the cache, without a pin. Its current attributes are
//!    the result.
//! 3. Look up the others in [`crate::state::ChangedInodes`]. Such an inode is being deleted, or was
//!    loaded after step 2.
//! 4. Leave out table blocks that were never written: a candidate there is being created.
//! 5. Read the newest content of the blocks ([`jbd2::Journal::read_uncached`]).
//!
//! A result of step 5 is at least as new as at step 2: before step 2 the change was in step 2's
//! place, or had left it for one that is looked at later. The content of a block is consistent: an
//! inode is serialised under the lock of its buffer. So each result is the state of an inode at a
//! moment during the scan.
//!
//! # Which inodes are visited
//!
//! Each inode that has a link during the whole scan is visited exactly once. One that is created or
//! deleted meanwhile may be visited or not. Inodes without links are left out: they are deleted, or
//! will be when their last user closes them. So are inodes that hold the value of an attribute, and
//! the file system's own but for the root directory.

mod part;
mod step;

use crate::state::Attr;
use crate::{Error, Fs};
use ext4_format::features::{CompatFeatures, RoCompatFeatures};
use std::ops::ControlFlow;
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use units::{GroupNo, Ino};

/// Groups that a thread takes at a time. Their bitmaps are read together: they are neighbours in a
/// flex group.
const GROUPS_AT_A_TIME: usize = 8;
/// Threads, each with a part of a table. Some read while others decode.
const THREADS: usize = 4;

/// A result of [`Fs::scan_inodes`].
#[derive(Clone, Debug)]
pub enum Scanned {
    /// An inode in use.
    Inode(Attr),
    /// Inodes whose attributes are not known, because they are damaged or could not be read. Of a
    /// damaged bitmap or an unreadable block these are all numbers of which it cannot be said
    /// whether they are in use.
    Unreadable {
        /// The first inode number.
        first: Ino,
        /// The number of inodes.
        count: u32,
        /// The reason.
        error: Error,
    },
}

/// A scan in progress.
struct Scan<'a, V: ?Sized> {
    fs: &'a Fs,
    /// The callback, which any thread of the scan calls.
    visit: &'a V,
    /// The callback has ended the scan.
    ended: AtomicBool,
    /// Files with a number like any other that belong to the file system: the orphan file, and
    /// those of quotas.
    system: Vec<Ino>,
}

impl Fs {
    /// Calls `visit` for each inode in use, with its newest attributes, in no order and from
    /// several threads. It reads the inode tables from end to end; inodes do not enter the cache.
    /// The module's page tells which inodes these are while others change the volume. Damaged
    /// inodes are reported, and the scan continues. `visit` may use the volume; it ends the scan by
    /// `Break`.
    pub fn scan_inodes(&self, visit: &(dyn Fn(Scanned) -> ControlFlow<()> + Sync)) {
        let scan = Scan::new(self, visit);
        let groups: Vec<GroupNo> = self.groups.in_table_order().collect();
        let next = AtomicUsize::new(0);
        // Small volumes have a group for each thread.
        let at_a_time = (groups.len() / THREADS).clamp(1, GROUPS_AT_A_TIME);
        let parts: Vec<&[GroupNo]> = groups.chunks(at_a_time).collect();
        let work = || {
            while let Some(groups) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                if scan.groups(groups).is_break() {
                    scan.ended.store(true, Ordering::Relaxed);
                }
                if scan.ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        };
        sync::thread::scope(|scope| {
            for _ in 1..THREADS.min(parts.len()) {
                scope.spawn(work);
            }
            work();
        });
    }

    fn system_files(&self) -> Vec<Ino> {
        let sb = self.superblock.lock();
        let mut files = Vec::new();
        if sb.compat().contains(CompatFeatures::ORPHAN_FILE) {
            files.push(Ino(sb.orphan_file_inum.get()));
        }
        if sb.ro_compat().contains(RoCompatFeatures::QUOTA) {
            let quotas = [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum];
            files.extend(quotas.map(|number| Ino(number.get())));
        }
        files
    }
}

impl<'a, V: Fn(Scanned) -> ControlFlow<()> + ?Sized> Scan<'a, V> {
    fn new(fs: &'a Fs, visit: &'a V) -> Scan<'a, V> {
        Scan {
            fs,
            visit,
            ended: AtomicBool::new(false),
            system: fs.system_files(),
        }
    }

    fn groups(&self, groups: &[GroupNo]) -> ControlFlow<()> {
        self.fs.budget.make_room();
        self.fs.groups.prefetch_inode_bitmaps(groups);
        for &group in groups {
            match self.fs.groups.inodes_in_use(group) {
                Ok(Some(inodes)) => self.table(&inodes)?,
                Ok(None) => {}
                Err(error) => {
                    let (first, count) = self.fs.groups.inode_numbers(group);
                    self.unreadable(first, count, error)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Calls the callback, unless it has ended the scan.
    fn visit(&self, found: Scanned) -> ControlFlow<()> {
        if self.ended.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        (self.visit)(found)
    }

    fn unreadable(&self, first: Ino, count: u32, error: Error) -> ControlFlow<()> {
        self.visit(Scanned::Unreadable {
            first,
            count,
            error,
        })
    }

    /// Whether an inode is visited if it has links.
    fn is_wanted(&self, ino: Ino) -> bool {
        (ino == Ino::ROOT || ino >= self.fs.geo.first_ino) && !self.system.contains(&ino)
    }
}
