//! Recovery of orphans at mount.
//!
//! The inodes on the list are recovered first, then those in the file. An inode without links is
//! deleted. The truncation of an inode with links is completed. Each inode has its own transaction,
//! which also removes it from the list or its slot. So after a crash the next mount continues with
//! the rest.
//!
//! An inode whose blocks or attributes are damaged stays recorded, for e2fsck, and its damage is
//! noted. The others are recovered. A damaged list or file ends the mount.

use crate::damage::is_damage;
use crate::state::{Links, OrphanFile, OrphanPlace};
use crate::{Error, Fs, InodeDamage, InodeRef, OrphanReport, Result, orphan};
use ext4_format::error::FormatError;
use ext4_format::features::CompatFeatures;
use std::collections::HashSet;
use sync::atomic::Ordering;
use units::{FileBlock, Ino};

/// Deletes or truncates the orphans that a crash left. A writable mount calls it once, before the
/// volume has other users.
///
/// # Errors
/// `Corrupt` or `CorruptInode` for a list with a cycle, a number that no orphan can have, an inode
/// that is free, or a damaged orphan file. The orphans before that are recovered.
pub(super) fn recover(fs: &Fs) -> Result<OrphanReport> {
    let mut recovery = Recovery {
        fs,
        seen: HashSet::new(),
        report: OrphanReport::default(),
    };
    if fs.geo.compat.contains(CompatFeatures::ORPHAN_FILE) {
        let ino = Ino(fs.superblock.lock().orphan_file_inum.get());
        let inode = fs
            .load_inode(ino, Links::Required)
            .map_err(|error| error.stale_is_damage(ino, InodeDamage::OrphanFileDeleted))?;
        let file = OrphanFile::load(fs, &inode)?;
        // Recovery runs once, so the file is not set yet.
        let _ = fs.orphan_state.file.set(file);
    }
    recovery.walk_list()?;
    recovery.walk_file()?;
    let report = recovery.report;
    if report != OrphanReport::default() {
        tracing::info!("{}: {report:?}", fs.queue.name());
    }
    Ok(report)
}

/// Whether an orphan was recovered, or stays recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recovered {
    Yes,
    No,
}

struct Recovery<'a> {
    fs: &'a Fs,
    /// Inodes recovered so far.
    seen: HashSet<u32>,
    report: OrphanReport,
}

impl Recovery<'_> {
    fn walk_list(&mut self) -> Result<()> {
        // The last inode that stays on the list.
        let mut kept = 0;
        while let Some(ino) = self.after(kept) {
            let inode = self.load("s_last_orphan or i_dtime", ino)?;
            if !self.seen.insert(ino.0) {
                return Err(InodeDamage::OrphanListedTwice.of(ino));
            }
            let next = inode.fields(|f| f.dtime);
            let list = &self.fs.orphan_state.list;
            list.lock().insert(kept, &inode, next);
            if self.recover_inode(&inode, OrphanPlace::List)? == Recovered::No {
                kept = ino.0;
            }
        }
        Ok(())
    }

    /// The inode after `kept` on the list; the first one if that is 0. `None` at the end.
    fn after(&self, kept: u32) -> Option<Ino> {
        let list = self.fs.orphan_state.list.lock();
        let next = match list.entries.get(&kept) {
            Some(kept) => kept.next,
            None => self.fs.superblock.lock().last_orphan.get(),
        };
        // Damage may have made the volume read-only.
        (next != 0 && !self.fs.is_read_only()).then_some(Ino(next))
    }

    fn walk_file(&mut self) -> Result<()> {
        let Some(file) = self.fs.orphan_state.file.get() else {
            return Ok(());
        };
        // One block at a time bounds the memory: a hostile file may hold millions of numbers.
        for block in 0..file.blocks() {
            for (slot, ino) in file.orphans(self.fs, block)? {
                let inode = self.load("an inode number of the orphan file", ino)?;
                if !self.seen.insert(ino.0) {
                    let damage = InodeDamage::OrphanRecordedTwice {
                        block: FileBlock(block.into()),
                        slot: slot.into(),
                    };
                    let place = file.blocks.get(usize::from(block)).map(|block| block.place);
                    return Err(damage.at(ino, place));
                }
                self.recover_inode(&inode, OrphanPlace::File { block, slot })?;
                if self.fs.is_read_only() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Loads an inode that may be an orphan: it is not reserved, and it is in use.
    fn load(&self, field: &'static str, ino: Ino) -> Result<InodeRef> {
        let geo = &self.fs.geo;
        let file = self.fs.superblock.lock().orphan_file_inum.get();
        if ino < geo.first_ino || ino.0 > geo.inodes_count || ino.0 == file {
            return Err(Error::Corrupt(FormatError::OutOfRange {
                structure: "orphans",
                field,
                value: u64::from(ino.0),
            }));
        }
        if !self.fs.groups.inode_in_use(ino)? {
            return Err(InodeDamage::OrphanFree.of(ino));
        }
        self.fs.load_inode(ino, Links::Optional)
    }

    /// Deletes or truncates an orphan, which removes its record. A damaged one keeps it.
    fn recover_inode(&mut self, inode: &InodeRef, place: OrphanPlace) -> Result<Recovered> {
        inode.set_orphan_place(Some(place));
        match self.delete_or_truncate(inode) {
            Ok(()) => Ok(Recovered::Yes),
            Err(error) if is_damage(&error) => {
                let error = self.fs.blame("recover_orphan", inode.ino, error);
                let device = self.fs.queue.name();
                tracing::error!("{device}: orphan inode {} stays: {error}", inode.ino);
                Ok(Recovered::No)
            }
            Err(error) => Err(error),
        }
    }

    fn delete_or_truncate(&mut self, inode: &InodeRef) -> Result<()> {
        let (links, size, is_regular) =
            inode.fields(|f| (f.links_count, f.size, f.mode.is_regular()));
        self.fs.orphan_state.count.fetch_add(1, Ordering::Relaxed);
        if links == 0 {
            self.fs.delete_inode(inode)?;
            // Values of its attributes, in inodes that it was the last to have. They are orphans
            // now, and this removes them from the list before the walk goes on.
            self.fs.delete_unlinked();
            self.report.deleted += 1;
            return Ok(());
        }
        if is_regular {
            self.fs.truncate_blocks(inode, size)?;
            self.report.truncated += 1;
            return Ok(());
        }
        // Only regular files are truncated. This inode was linked again before the crash.
        let handle = self.fs.journal.start(orphan::ORPHAN_CREDITS)?;
        orphan::del(self.fs, &handle, inode)
    }
}
