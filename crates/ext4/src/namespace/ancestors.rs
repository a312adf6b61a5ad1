//! The walk from a directory to the root.

use crate::{Fs, InodeDamage, InodeRef, Result, directory};
use units::Ino;

impl Fs {
    /// Returns whether `dir` is `ancestor` or a descendant of it. The caller holds `rename_lock`,
    /// so ".." of no directory changes.
    pub(super) fn is_within(&self, dir: &InodeRef, ancestor: Ino) -> Result<bool> {
        let mut at = dir.clone();
        // Brent's algorithm detects a cycle of ".." on a damaged volume: the walk reaches the
        // marked directory again.
        let (mut marked, mut steps, mut limit) = (at.ino, 0u64, 1u64);
        loop {
            if at.ino == ancestor {
                return Ok(true);
            }
            if at.ino == Ino::ROOT {
                return Ok(false);
            }
            at = self.named_inode(directory::parent(self, &at)?)?;
            if at.ino == marked {
                return Err(InodeDamage::ParentCycle { through: marked }.of(dir.ino));
            }
            steps += 1;
            if steps == limit {
                (marked, steps, limit) = (at.ino, 0, limit * 2);
            }
        }
    }
}
