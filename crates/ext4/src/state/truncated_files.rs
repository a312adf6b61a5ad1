//! Files that were truncated to zero (`fsync::auto_da_alloc`).

use super::Inode;
use crate::Fs;
use sync::atomic::Ordering;
use sync::{Mutex, Rank};
use units::Ino;

/// Commits for which a truncated file without new contents is remembered.
pub(crate) const PATIENCE: u8 = 2;

/// Files that were truncated to zero, with the commits for which each is still remembered.
pub(crate) struct TruncatedFiles(pub(crate) Mutex<Vec<(Ino, u8)>>);

impl Default for TruncatedFiles {
    fn default() -> TruncatedFiles {
        TruncatedFiles(Rank::TruncatedFiles.mutex(Vec::new()))
    }
}

impl Fs {
    /// The file was truncated to zero.
    pub(crate) fn note_truncated(&self, inode: &Inode) {
        if !inode.data.truncated.swap(true, Ordering::Relaxed) {
            self.truncated_files.0.lock().push((inode.ino, PATIENCE));
        }
    }
}
