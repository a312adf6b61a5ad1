//! Files that were emptied to be written anew.
//!
//! Many programs replace a file in place: open with O_TRUNC, write, close, and no fsync. The
//! truncation is committed within seconds and the data written back within half a minute, so a
//! crash in between would leave an empty file. As the kernel's ext4 does (`auto_da_alloc`), the new
//! contents are on their way when such a file is closed ([`Fs::release`]). Not every close is heard
//! of (FUSE asks for too much for it), so what is still dirty when the journal is about to commit
//! by itself lands first, and becomes durable with the truncation.
//!
//! A file is remembered from the truncation until its new contents have landed. A close only begins
//! to write them.
//!
//! Not covered: a commit for an fsync, or of a full transaction, between the truncation and the
//! close. The contents then follow with the next commit of the journal itself.

use super::queued::SyncRequest;
use crate::writepages::Route;
use crate::{Fs, Inode, InodeRef};
use ext4_format::types::Ino;
use sync::Mutex;
use sync::atomic::Ordering;

/// Commits for which an emptied file that nobody has written to is remembered.
const PATIENCE: u8 = 2;

/// Files that were emptied lately, each with the commits that it is remembered for.
#[derive(Default)]
pub(crate) struct Replaced(Mutex<Vec<(Ino, u8)>>);

impl Fs {
    /// The file was emptied.
    pub(crate) fn note_emptied(&self, inode: &Inode) {
        if !inode.emptied.swap(true, Ordering::Relaxed) {
            self.replaced.0.lock().push((inode.ino, PATIENCE));
        }
    }

    /// A file that may have been written to is closed. If it was emptied before, its contents begin
    /// to be written; nothing is waited for, unless thousands of files are on their way already.
    pub fn release(&self, inode: &InodeRef) {
        if inode.emptied.load(Ordering::Relaxed) && inode.mapping.dirty_pages() > 0 {
            let pages = inode.mapping.dirty_pages();
            // Where nobody takes it the volume is being unmounted, which writes everything.
            let _ = self.fsyncs.submit(SyncRequest::Land(inode.clone()), pages);
        }
    }

    /// Before a commit that nobody waits for: the data of emptied files lands, so that it becomes
    /// durable with the truncation. A page counts until it is recorded, whoever has begun to write
    /// it.
    pub(crate) fn land_replaced(&self) {
        let noted = std::mem::take(&mut *self.replaced.0.lock());
        let (mut landing, mut unwritten) = (Vec::new(), Vec::new());
        for (ino, patience) in noted {
            let Some(inode) = self.inodes.get(ino.0) else {
                continue;
            };
            if !inode.has_unlanded() && inode.size() == 0 && patience > 0 {
                unwritten.push((ino, patience - 1));
                continue;
            }
            // Before its pages are looked at: if the file is emptied again it is noted again.
            inode.emptied.store(false, Ordering::Release);
            if inode.has_unlanded() {
                landing.push(inode);
            }
        }
        self.replaced.0.lock().extend(unwritten);
        // Errors stay with the files, for whoever fsyncs them.
        let landing: Vec<_> = landing.iter().map(|inode| &**inode).collect();
        self.write_and_wait(&landing, Route::Home);
    }
}
