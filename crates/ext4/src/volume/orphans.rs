//! Recovery of orphans at mount.
//!
//! The inodes on the list are recovered first, then those in the file. An inode without links is
//! deleted. The truncation of an inode with links is completed. Each inode has its own transaction,
//! which also removes it from the list or its slot. So after a crash the next mount continues with
//! the rest.

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

struct Recovery<'a> {
    fs: &'a Fs,
    /// Inodes recovered so far.
    seen: HashSet<u32>,
    report: OrphanReport,
}

impl Recovery<'_> {
    fn walk_list(&mut self) -> Result<()> {
        loop {
            let ino = Ino(self.fs.superblock.lock().last_orphan.get());
            if ino.0 == 0 {
                return Ok(());
            }
            let inode = self.load("s_last_orphan or i_dtime", ino)?;
            if !self.seen.insert(ino.0) {
                return Err(InodeDamage::OrphanListedTwice.of(ino));
            }
            let next = inode.fields(|f| f.dtime);
            self.fs.orphan_state.list.lock().set_head(&inode, next);
            self.recover_inode(&inode, OrphanPlace::List)?;
        }
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

    /// Deletes or truncates an orphan, which removes its record.
    fn recover_inode(&mut self, inode: &InodeRef, place: OrphanPlace) -> Result<()> {
        inode.set_orphan_place(Some(place));
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
