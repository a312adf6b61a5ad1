//! Files that were emptied to be written anew.
//!
//! Many programs replace a file in place: open with O_TRUNC, write, close, and no fsync. The truncation is committed
//! within seconds and the data written back within half a minute, so a crash in between would leave an empty file. As the
//! kernel's ext4 does (`auto_da_alloc`), the new contents are on their way when such a file is closed
//! ([`Fs::release`]). Not every close is heard of (FUSE asks for too much for it), so what is still dirty when the
//! journal is about to commit by itself lands first, and becomes durable with the truncation.
//!
//! What neither reaches: a commit for somebody's fsync between the truncation and the close. Then the contents follow
//! with the next commit of the journal itself.

use super::queued::SyncRequest;
use crate::writepages::Route;
use crate::{Fs, Inode, InodeRef};
use ext4_format::types::Ino;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;

/// Pages that land before a commit at most (16 MiB); what is beyond is begun.
const MOST_PAGES: u64 = 4096;
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

    /// Somebody who may have written to the file closes it. If it was emptied before, its contents begin to be written;
    /// nothing is waited for, unless thousands of files are on their way already.
    pub fn release(&self, inode: &InodeRef) {
        if inode.emptied.load(Ordering::Relaxed)
            && inode.mapping.dirty_pages() > 0
            && inode.emptied.swap(false, Ordering::Relaxed)
        {
            self.land_later(inode.clone());
        }
    }

    /// Before a commit that nobody waits for.
    pub(crate) fn land_replaced(&self) {
        let noted = std::mem::take(&mut *self.replaced.0.lock());
        let (mut landing, mut pages, mut unwritten) = (Vec::new(), 0, Vec::new());
        for (ino, patience) in noted {
            let Some(inode) = self.inodes.get(ino.0) else {
                continue;
            };
            if !inode.emptied.load(Ordering::Relaxed) {
                continue;
            }
            let dirty = inode.mapping.dirty_pages();
            if dirty == 0 && patience > 0 {
                unwritten.push((ino, patience - 1));
                continue;
            }
            inode.emptied.store(false, Ordering::Relaxed);
            if dirty == 0 {
                continue;
            }
            pages += dirty;
            match pages <= MOST_PAGES {
                true => landing.push(inode),
                false => self.land_later(inode),
            }
        }
        self.replaced.0.lock().extend(unwritten);
        // Errors stay with the files, for whoever fsyncs them.
        let landing: Vec<_> = landing.iter().map(|inode| &**inode).collect();
        self.write_and_wait(&landing, Route::Home);
    }

    fn land_later(&self, inode: InodeRef) {
        let pages = inode.mapping.dirty_pages();
        // Where nobody takes it the volume is being unmounted, which writes everything.
        let _ = self.fsyncs.submit(SyncRequest::Land(inode), pages);
    }
}
