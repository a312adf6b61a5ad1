//! Making a subtree durable.
//!
//! ext4 does not record the directories of a file, so an inode in memory remembers the one through
//! which it was last reached, which for a file with one name is *the* one: whoever changes names
//! holds the directory's lock and sees to it ([`ParentHint`]). From there ".." leads up.
//!
//! Algorithm:
//! 1. For each file with unlanded pages (not for each file in the cache or on the device): is its
//!    directory below the root of the subtree? The verdict on a directory is kept for the length of
//!    the call.
//! 2. Files that have several names, or were loaded by number and not by name (FUSE), may lie
//!    anywhere. Where they have little to write they are written, too. Otherwise the directories of
//!    the subtree are read and their entries compared with these files' numbers.
//! 3. The data of what lies below is written and waited for, and one commit makes it durable with
//!    all names and attributes.
//!
//! Cost: step 1 some 100 ns for each dirty file of the volume and a look at each directory that has
//! one and those above it; step 2, rarely, the directory blocks of the subtree; step 3 what is
//! dirty in the subtree.

use crate::inode::Inode;
use crate::writepages::Route;
use crate::{Error, Fs, InodeRef, Result, directory};
use block::PAGE_SIZE;
use ext4_format::features::IncompatFeatures;
use ext4_format::inode::FileType;
use ext4_format::types::Ino;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use sync::atomic::{AtomicU32, Ordering};

/// Pages of files of unknown place that are rather written than looked for (4 MiB).
const FEW_PAGES: u64 = (4 << 20) / PAGE_SIZE as u64;

/// The directory through which an inode was last reached; set under the directory's lock. For a
/// directory, and for a file with one name, it is right or unknown.
#[derive(Default)]
pub(crate) struct ParentHint(AtomicU32);

impl ParentHint {
    /// The inode has a name in `dir`.
    #[inline]
    pub fn set(&self, dir: Ino) {
        // Look-ups of the same name from many threads should not pass the cache line around.
        if self.0.load(Ordering::Relaxed) != dir.0 {
            self.0.store(dir.0, Ordering::Release);
        }
    }
    /// A name has gone; the others may be anywhere.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Release);
    }
    fn get(&self) -> Option<Ino> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            ino => Some(Ino(ino)),
        }
    }
}

/// Where a file lies, seen from a subtree.
enum Whereabouts {
    Below,
    Elsewhere,
    Unknown,
}

/// Whether directories lie below the root of the subtree.
struct Verdicts {
    all: HashMap<Ino, bool>,
    /// That on the directory of the last file, which is often the next one's, too.
    last: Option<(Ino, bool)>,
}

impl Verdicts {
    fn about(root: Ino) -> Verdicts {
        Verdicts {
            all: HashMap::from([(root, true), (Ino::ROOT, false)]),
            last: None,
        }
    }
}

impl Fs {
    /// Makes everything durable that lies below `root`, and its name; a file alone where `root` is
    /// one. Nothing else's dirty data is written or waited for, except of files whose place is not
    /// known and which have little of it.
    pub fn sync_tree(&self, root: &InodeRef) -> Result<()> {
        if root.kind() != FileType::Directory {
            return self.fsync(root, false);
        }
        if root.ino == Ino::ROOT {
            return self.sync();
        }
        self.check_journal()?;
        if self.is_read_only() {
            return Ok(());
        }
        let below = self.unlanded_below(root)?;
        let mut inodes: Vec<&Arc<Inode>> = below.iter().map(|inode| &**inode).collect();
        // Files that were made one after another get blocks so, and share the blocks of the inode
        // table.
        inodes.sort_unstable_by_key(|inode| inode.ino);
        let begin: Vec<_> = inodes.iter().map(|inode| inode.size_to_sync()).collect();
        let landed: Result<()> = self
            .write_and_wait(&inodes, Route::Home)
            .into_iter()
            .collect();
        for (inode, begin) in inodes.iter().zip(begin) {
            inode.follow_to(self, begin)?;
        }
        // Names and attributes are in no data: commit whatever is running.
        self.commit_all()?;
        landed
    }

    /// The files with unlanded pages below `root`, perhaps with some more.
    fn unlanded_below(&self, root: &InodeRef) -> Result<Vec<InodeRef>> {
        let mut verdicts = Verdicts::about(root.ino);
        let (mut below, mut unknown) = (Vec::new(), Vec::new());
        for inode in self.dirty_files.parts().flatten() {
            let list = match self.whereabouts(&inode, &mut verdicts) {
                Whereabouts::Below => &mut below,
                Whereabouts::Unknown => &mut unknown,
                Whereabouts::Elsewhere => continue,
            };
            list.extend(self.inodes.pin(&inode));
        }
        let pages: u64 = unknown
            .iter()
            .map(|inode| inode.mapping.dirty_pages())
            .sum();
        // Without types in the entries every entry's inode would have to be read.
        let typed = self.geo.incompat.contains(IncompatFeatures::FILETYPE);
        if pages > FEW_PAGES && typed {
            let found = self.find_below(root, unknown.iter().map(|inode| inode.ino).collect())?;
            unknown.retain(|inode| found.contains(&inode.ino));
        }
        below.extend(unknown);
        Ok(below)
    }

    fn whereabouts(&self, inode: &Inode, verdicts: &mut Verdicts) -> Whereabouts {
        let links = inode.meta.lock().fields.links_count;
        match (links, inode.parent.get()) {
            (0, _) => Whereabouts::Elsewhere,
            (1, Some(dir)) => match self.is_below(dir, verdicts) {
                true => Whereabouts::Below,
                false => Whereabouts::Elsewhere,
            },
            _ => Whereabouts::Unknown,
        }
    }

    /// Whether a directory lies below those that are known to.
    fn is_below(&self, dir: Ino, verdicts: &mut Verdicts) -> bool {
        if let Some((last, verdict)) = verdicts.last
            && last == dir
        {
            return verdict;
        }
        let verdict = self.find_verdict(dir, &mut verdicts.all);
        verdicts.last = Some((dir, verdict));
        verdict
    }

    fn find_verdict(&self, dir: Ino, verdicts: &mut HashMap<Ino, bool>) -> bool {
        let mut path = Vec::new();
        let mut at = dir;
        let verdict = loop {
            match verdicts.get(&at) {
                Some(&verdict) => break verdict,
                None => {
                    // So that directories which a damaged volume links in circles end it.
                    verdicts.insert(at, false);
                    path.push(at);
                }
            }
            match self.parent_of(at) {
                Ok(parent) => at = parent,
                // It was removed meanwhile, or is damaged: nothing leads from the subtree to it.
                Err(_) => break false,
            }
        };
        verdicts.extend(path.into_iter().map(|dir| (dir, verdict)));
        verdict
    }

    fn parent_of(&self, dir: Ino) -> Result<Ino> {
        let inode = self.inode(dir.0)?;
        if let Some(parent) = inode.parent.get() {
            return Ok(parent);
        }
        let _shared = inode.lock.read();
        let parent = directory::find_parent(self, &inode)?.ino();
        parent.ok_or(Error::NotFound)
    }

    /// Which of `wanted` have an entry somewhere below `root`.
    fn find_below(&self, root: &InodeRef, mut wanted: HashSet<Ino>) -> Result<HashSet<Ino>> {
        let mut found = HashSet::new();
        let mut seen = HashSet::from([root.ino]);
        let mut dirs = vec![root.clone()];
        while let Some(dir) = dirs.pop() {
            let mut subdirs = Vec::new();
            let read = self.read_dir(&dir, 0, &mut |entry| {
                let ino = Ino(entry.ino);
                match entry.kind {
                    FileType::Directory if !matches!(entry.name, b"." | b"..") => subdirs.push(ino),
                    FileType::Directory => {}
                    _ if wanted.remove(&ino) => _ = found.insert(ino),
                    _ => {}
                }
                !wanted.is_empty()
            });
            match read {
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
            if wanted.is_empty() {
                break;
            }
            for ino in subdirs {
                if seen.insert(ino) {
                    match self.inode(ino.0) {
                        Ok(dir) => dirs.push(dir),
                        // Removed since its entry was read.
                        Err(Error::Stale | Error::NotFound) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(found)
    }
}
