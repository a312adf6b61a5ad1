//! What a mount does with the orphans that it finds.
//!
//! For each inode on the list and then each in the file: without links it is deleted, with links
//! its truncation is completed. Every step is a transaction of its own that also takes the inode
//! off the list or out of its slot, so that a crash on the way leaves the rest to the next mount.

use crate::state::{OrphanFile, OrphanPlace};
use crate::{Error, Fs, InodeRef, OrphanReport, Result};
use ext4_format::error::FormatError;
use ext4_format::features::CompatFeatures;
use ext4_format::types::Ino;
use std::collections::HashSet;
use sync::atomic::Ordering;

/// Deletes or truncates what a crash left. Called once per mount, before anybody else uses the
/// volume, when it may be written to.
///
/// # Errors
/// `Corrupt` or `CorruptInode` for a list with a loop, a number that no orphan can have, an inode
/// that is free or a damaged orphan file; what came before that is done.
pub(crate) fn recover(fs: &Fs) -> Result<OrphanReport> {
    let mut recovery = Recovery {
        fs,
        seen: HashSet::new(),
        report: OrphanReport::default(),
    };
    if fs.geo.compat.contains(CompatFeatures::ORPHAN_FILE) {
        let ino = Ino(fs.superblock.lock().orphan_file_inum.get());
        let inode = fs
            .load_inode(ino, false)
            .map_err(|error| error.stale_is_damage(ino.0, "is the orphan file but deleted"))?;
        let file = OrphanFile::load(fs, &inode)?;
        // A second call would find the first one's file.
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
    /// Inodes that have been met.
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
                return Err(Error::CorruptInode {
                    ino: ino.0,
                    what: "is on the list of orphans twice",
                });
            }
            let next = inode.fields(|f| f.dtime);
            self.fs.orphan_state.list.lock().adopt_head(&inode, next);
            self.adopt(&inode, OrphanPlace::List)?;
        }
    }

    fn walk_file(&mut self) -> Result<()> {
        let Some(file) = self.fs.orphan_state.file.get() else {
            return Ok(());
        };
        // A block at a time: the file of a hostile volume may name millions.
        for block in 0..file.blocks() {
            for (place, ino) in file.orphans(self.fs, block)? {
                let inode = self.load("an inode number of the orphan file", ino)?;
                if !self.seen.insert(ino.0) {
                    return Err(Error::CorruptInode {
                        ino: ino.0,
                        what: "is an orphan twice",
                    });
                }
                self.adopt(&inode, place)?;
            }
        }
        Ok(())
    }

    /// An inode that may be an orphan: an ordinary one, and in use.
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
            return Err(Error::CorruptInode {
                ino: ino.0,
                what: "is an orphan but free",
            });
        }
        self.fs.load_inode(ino, true)
    }

    /// Does what the orphan waits for, which ends by taking it out of its place.
    fn adopt(&mut self, inode: &InodeRef, place: OrphanPlace) -> Result<()> {
        inode.set_orphan_place(Some(place));
        let (links, size, is_regular) =
            inode.fields(|f| (f.links_count, f.size, f.mode.is_regular()));
        self.fs.orphan_state.count.fetch_add(1, Ordering::Relaxed);
        if links == 0 {
            self.fs.delete_inode(inode)?;
            self.report.deleted += 1;
            return Ok(());
        }
        if is_regular {
            self.fs.truncate_blocks(inode, size)?;
            self.report.truncated += 1;
            return Ok(());
        }
        // Nothing but regular files is ever truncated; it was linked again before the crash.
        let handle = self.fs.journal.start(super::ORPHAN_CREDITS)?;
        super::del(self.fs, &handle, inode)
    }
}
