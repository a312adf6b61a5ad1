//! Durability of one file.

use super::handle::File;
use crate::completion::SyncCompletion;
use ext4::{SyncKind, SyncTarget};
use std::io;

impl File {
    /// Makes contents and metadata durable.
    ///
    /// # Errors
    /// Errors of this sync and of earlier writeback of the file. The data stays dirty, and each
    /// sync fails until the data is on the device.
    pub fn sync_all(&self) -> io::Result<()> {
        self.ctx("sync", self.shared.fs.fsync(&self.inode, SyncKind::Fsync))
    }

    /// Makes the contents durable, and the metadata that is needed to read them.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> io::Result<()> {
        self.ctx(
            "sync",
            self.shared.fs.fsync(&self.inode, SyncKind::Fdatasync),
        )
    }

    /// As [`File::sync_all`], without waiting. Syncs that are queued at the same time share large
    /// writes and one commit, from one thread or from several. The call waits only if thousands of
    /// syncs are queued.
    ///
    /// The sync may or may not include data that is written after the call.
    pub fn sync_all_async(&self) -> SyncCompletion {
        self.sync_later(SyncKind::Fsync)
    }

    /// As [`File::sync_data`], without waiting; see [`File::sync_all_async`].
    pub fn sync_data_async(&self) -> SyncCompletion {
        self.sync_later(SyncKind::Fdatasync)
    }

    fn sync_later(&self, kind: SyncKind) -> SyncCompletion {
        let (sender, completion) = SyncCompletion::new(self.from.clone(), self.name.clone());
        let target = SyncTarget {
            inode: self.inode.clone(),
            kind,
        };
        self.shared.fs.fsync_later(target, move |outcome| {
            // The receiver may have been dropped.
            let _ = sender.send(outcome);
        });
        completion
    }
}
