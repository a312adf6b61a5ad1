//! Making a subtree durable.
//!
//! ext4 does not record the directories of a file. So an inode in memory remembers the directory
//! through which it was last reached (`ParentHint`). For a file with one name it is *the*
//! directory: every change of names updates the hint under the directory's lock. From a directory
//! ".." leads up.
//!
//! Algorithm:
//! 1. For each file with unrecorded pages (not for each file in the cache or on the device): is its
//!    directory below the root of the subtree? The answer for a directory is kept for the call.
//! 2. A file that has several names, or was loaded by number and not by name (FUSE), may lie
//!    anywhere. If such files have few dirty pages they are written, too. Otherwise the directories
//!    of the subtree are read and their entries compared with these files' numbers.
//!    Steps 1 and 2 hold `rename_lock`, so no directory changes its parent. A file whose names
//!    change meanwhile is written. So is a file whose directory's place cannot be read.
//! 3. The files below the root are written and waited for, and one commit makes them durable with
//!    all names and attributes.
//!
//! Cost: step 1, some 100 ns for each dirty file of the volume, and one look at each of their
//! directories and those above; step 2, rarely, the directory blocks of the subtree; step 3, the
//! dirty pages of the subtree.

use crate::state::Route;
use crate::{Error, Fs, Inode, InodeRef, Result, SyncKind, directory};
use ext4_format::features::IncompatFeatures;
use ext4_format::inode::FileType;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use units::Ino;

/// Files of unknown place are written, and not looked for, if their dirty pages have at most this
/// many bytes. The files of an explored schedule are small.
const FEW_BYTES: u64 = if cfg!(explore) { 0 } else { 4 << 20 };

/// A directory that changes during so many reads may have any of the files that are looked for.
const MOST_READS: u32 = 4;

/// Where a file lies.
enum Place {
    InSubtree,
    Elsewhere,
    Unknown,
}

/// A subtree, and which directories are known to lie in it. That stays true while the caller holds
/// `rename_lock`.
struct Subtree {
    contains: HashMap<Ino, bool>,
    /// These directories, so that no new one gets the number of one that is removed.
    pins: Vec<InodeRef>,
    /// The directory that was asked for last: the next file is often in it, too.
    last: Option<(Ino, bool)>,
}

impl Subtree {
    fn below(root: Ino) -> Subtree {
        Subtree {
            contains: HashMap::from([(root, true), (Ino::ROOT, false)]),
            pins: Vec::new(),
            last: None,
        }
    }
}

impl Fs {
    /// Makes `root` and everything below it durable; `root` may be a file. Other files' dirty data
    /// is not written, except that of files of unknown place with few dirty pages.
    pub fn sync_tree(&self, root: &InodeRef) -> Result<()> {
        if root.kind() != FileType::Directory {
            return self.fsync(root, SyncKind::Fsync);
        }
        if root.ino == Ino::ROOT {
            return self.sync();
        }
        self.check_journal()?;
        if self.is_read_only() {
            // Few changes can be left: those beside an unmount.
            return self.sync();
        }
        let below = {
            let _tree = self.rename_lock.lock();
            self.unlanded_below(root)?
        };
        // Those that only this call used.
        self.delete_unlinked();
        let mut inodes: Vec<&Arc<Inode>> = below.iter().map(|inode| &**inode).collect();
        // Files with neighbouring numbers were created together: they get neighbouring blocks, and
        // share blocks of the inode table.
        inodes.sort_unstable_by_key(|inode| inode.ino);
        let begin: Vec<_> = inodes.iter().map(|inode| inode.size_to_sync()).collect();
        let results = self.bdi.write_and_wait(self, &inodes, Route::Home);
        let written: Result<()> = results.into_iter().collect();
        for (inode, begin) in inodes.iter().zip(begin) {
            inode.follow_to(self, begin)?;
        }
        // Names and attributes are not dirty data: commit the running transaction.
        self.commit_all()?;
        written
    }

    /// The files with unrecorded pages below `root`, and perhaps some of unknown place. The caller
    /// holds `rename_lock`.
    fn unlanded_below(&self, root: &InodeRef) -> Result<Vec<InodeRef>> {
        let mut subtree = Subtree::below(root.ino);
        let (mut below, mut unknown) = (Vec::new(), Vec::new());
        for inode in self.unlanded_files.parts().flatten() {
            let names = inode.name_changes();
            let place = self.place_of(&inode, &mut subtree);
            match place {
                Place::Elsewhere if inode.name_changes() == names => {}
                Place::Elsewhere | Place::InSubtree => below.extend(self.inodes.pin(&inode)),
                Place::Unknown => unknown.extend(self.inodes.pin(&inode).map(|i| (i, names))),
            }
        }
        let dirty = |(inode, _): &(InodeRef, u32)| inode.mapping.dirty_bytes();
        let bytes: u64 = unknown.iter().map(dirty).sum();
        // Without file types in the entries each entry's inode would have to be read.
        let typed = self.geo.incompat.contains(IncompatFeatures::FILETYPE);
        if bytes > FEW_BYTES && typed {
            let wanted = unknown.iter().map(|(inode, _)| inode.ino).collect();
            let found = self.find_below(root, wanted)?;
            unknown.retain(|(inode, names)| {
                found.contains(&inode.ino) || inode.name_changes() != *names
            });
        }
        below.extend(unknown.into_iter().map(|(inode, _)| inode));
        Ok(below)
    }

    fn place_of(&self, inode: &Inode, subtree: &mut Subtree) -> Place {
        let links = inode.links();
        match (links, inode.parent.get()) {
            (0, _) => Place::Elsewhere,
            (1, Some(dir)) => match self.contains(subtree, dir) {
                true => Place::InSubtree,
                false => Place::Elsewhere,
            },
            _ => Place::Unknown,
        }
    }

    /// Whether a directory lies in the subtree.
    fn contains(&self, subtree: &mut Subtree, dir: Ino) -> bool {
        if let Some((last, contained)) = subtree.last
            && last == dir
        {
            return contained;
        }
        let contained = self.find_ancestor(dir, subtree);
        subtree.last = Some((dir, contained));
        contained
    }

    /// Walks up from `dir` to a directory for which the answer is known, and records the answer for
    /// all directories on the way. It is that they lie in the subtree if the walk fails.
    fn find_ancestor(&self, dir: Ino, subtree: &mut Subtree) -> bool {
        let mut path = Vec::new();
        let mut at = dir;
        let contained = loop {
            if let Some(&contained) = subtree.contains.get(&at) {
                break contained;
            }
            // Ends the walk where a damaged volume links directories in a circle.
            subtree.contains.insert(at, true);
            path.push(at);
            match self.parent_of(at, &mut subtree.pins) {
                Ok(parent) => at = parent,
                Err(_) => break true,
            }
        };
        let path = path.into_iter().map(|dir| (dir, contained));
        subtree.contains.extend(path);
        contained
    }

    fn parent_of(&self, dir: Ino, pins: &mut Vec<InodeRef>) -> Result<Ino> {
        let inode = self.inode(dir)?;
        pins.push(inode.clone());
        if let Some(parent) = inode.parent.get() {
            return Ok(parent);
        }
        let _shared = inode.lock.read();
        directory::parent(self, &inode)
    }

    /// Returns those of `wanted` that have an entry below `root`, and perhaps others. The caller
    /// holds `rename_lock`.
    fn find_below(&self, root: &InodeRef, mut wanted: HashSet<Ino>) -> Result<HashSet<Ino>> {
        let mut found = HashSet::new();
        let mut seen = HashSet::from([root.ino]);
        let mut dirs = vec![root.clone()];
        while let Some(dir) = dirs.pop() {
            let mut subdirs = Vec::new();
            for reads in 1.. {
                let version = dir.names_version();
                subdirs.extend(self.find_in(&dir, &mut wanted, &mut found)?);
                // A change can move an entry from a part that was not read to one that was.
                if wanted.is_empty() || dir.names_version() == version {
                    break;
                }
                if reads == MOST_READS {
                    found.extend(wanted.drain());
                }
            }
            if wanted.is_empty() {
                break;
            }
            for ino in subdirs {
                if seen.insert(ino) {
                    match self.inode(ino) {
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

    /// Moves those of `wanted` that have an entry in `dir` to `found`. Returns the subdirectories.
    fn find_in(
        &self,
        dir: &InodeRef,
        wanted: &mut HashSet<Ino>,
        found: &mut HashSet<Ino>,
    ) -> Result<Vec<Ino>> {
        let mut subdirs = Vec::new();
        let read = directory::read(self, dir, 0, &mut |entry| {
            let ino = entry.ino;
            match entry.kind {
                FileType::Directory if !matches!(entry.name, b"." | b"..") => subdirs.push(ino),
                FileType::Directory => {}
                _ if wanted.remove(&ino) => _ = found.insert(ino),
                _ => {}
            }
            !wanted.is_empty()
        });
        match read {
            // It was removed; its number may be that of a new file.
            Ok(()) | Err(Error::NotFound | Error::NotDirectory) => Ok(subdirs),
            Err(error) => Err(error),
        }
    }
}
