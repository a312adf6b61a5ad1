//! The directory of a file, as far as it is known.

use sync::atomic::{AtomicU32, Ordering};
use units::Ino;

/// The directory through which an inode was last reached, set under the directory's lock. Correct
/// or unknown for a directory and for a file with one name.
#[derive(Default)]
pub(crate) struct ParentHint(AtomicU32);

impl ParentHint {
    /// The inode has a name in `dir`.
    #[inline]
    pub fn set(&self, dir: Ino) {
        // Concurrent look-ups of the same name only read the cache line.
        if self.0.load(Ordering::Relaxed) != dir.0 {
            self.0.store(dir.0, Ordering::Release);
        }
    }
    /// A name was removed: the remaining ones may be anywhere.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Release);
    }
    pub fn get(&self) -> Option<Ino> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            ino => Some(Ino(ino)),
        }
    }
}
