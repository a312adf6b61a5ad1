//! Files that were truncated to zero and written again (the kernel's `auto_da_alloc`).
//!
//! Many programs replace a file in place: open with O_TRUNC, write, close, and no fsync. The
//! truncation is committed within seconds and the data is written back within half a minute, so a
//! crash in between would leave an empty file. As in the kernel's ext4, closing such a file starts
//! writing its new contents ([`Fs::release`]). Some closes are not reported (through FUSE reporting
//! them would cost too much). So the journal's periodic commit first writes such files that are
//! still dirty: their data becomes durable with the truncation.
//!
//! A file is remembered from the truncation until its new contents are recorded. A close only
//! starts writing them.
//!
//! Not covered: a commit for an fsync, or of a full transaction, between the truncation and the
//! close. The contents then follow with the next periodic commit.

use super::queued::SyncRequest;
use crate::state::Route;
use crate::{Fs, InodeRef};
use sync::atomic::Ordering;
use writeback::Load;

impl Fs {
    /// A file that may have been written to is closed. If it was truncated to zero before, this
    /// starts writing its contents. Waits only while thousands of files are queued.
    pub fn release(&self, inode: &InodeRef) {
        if inode.data.truncated.load(Ordering::Relaxed) && inode.mapping.dirty_pages() > 0 {
            let bytes = inode.mapping.dirty_bytes();
            // The queue refuses it only while the volume is unmounted, which writes everything.
            let request = SyncRequest::WriteBack(inode.clone());
            let _ = self.fsyncs.submit(request, Load::Bytes(bytes));
        }
    }

    /// Before a periodic commit: writes the data of truncated files, so that it becomes durable
    /// with the truncation. Waits for their pages that others are writing, too.
    pub(crate) fn write_truncated_files(&self) {
        let noted = std::mem::take(&mut *self.truncated_files.0.lock());
        let (mut to_write, mut unwritten) = (Vec::new(), Vec::new());
        for (ino, patience) in noted {
            let Some(inode) = self.inodes.get(ino) else {
                continue;
            };
            if !inode.has_unlanded() && inode.size() == 0 && patience > 0 {
                unwritten.push((ino, patience - 1));
                continue;
            }
            // Before its pages are looked at: if the file is truncated again it is noted again.
            inode.data.truncated.store(false, Ordering::Release);
            if inode.has_unlanded() {
                to_write.push(inode);
            }
        }
        self.truncated_files.0.lock().extend(unwritten);
        let to_write: Vec<_> = to_write.iter().map(|inode| &**inode).collect();
        // The files keep their errors for the next fsync.
        self.bdi.write_and_wait(self, &to_write, Route::Home);
    }
}
