//! The inode tables near a directory, for reading other directories ahead.

use super::Groups;
use sync::atomic::Ordering;
use units::{FsBlock, Ino};

/// Directories that are read ahead after the second miss in a group.
const FIRST: u32 = 8;
/// Directories that are read ahead at a time at most.
const MOST: u32 = 128;
/// A miss is near the last one if its inode is this many numbers from it at most.
const NEAR: u32 = 4096;

/// A block of an inode table.
pub(crate) struct TableBlock {
    pub block: FsBlock,
    /// The first inode in it.
    pub first: Ino,
}

impl Groups {
    /// Notes that the first block of a directory is not cached. Returns how many directories near
    /// it to read ahead: none after the first miss in a group, and more after each miss near the
    /// one before.
    pub fn directories_to_read(&self, dir: Ino) -> u32 {
        let Ok((number, index)) = self.geo.inode_group(dir) else {
            return 0;
        };
        let Ok(group) = self.group(number) else {
            return 0;
        };
        let packed = group.dir_misses.load(Ordering::Relaxed);
        let (last, next) = ((packed >> 32) as u32, packed as u32);
        let count = match index.abs_diff(last) <= NEAR {
            true => next,
            false => 0,
        };
        let next = (count * 4).clamp(FIRST, MOST);
        let packed = u64::from(index) << 32 | u64::from(next);
        group.dir_misses.store(packed, Ordering::Relaxed);
        count
    }

    /// Returns the blocks of the inode table around that of an inode, which is the first: the
    /// following ones, then those before it, at most `most` on each side.
    pub fn table_blocks_near(&self, ino: Ino, most: u32) -> impl Iterator<Item = TableBlock> {
        let located = self.geo.inode_group(ino).ok();
        let located =
            located.and_then(|(number, index)| Some((number, index, self.group(number).ok()?)));
        located.into_iter().flat_map(move |(number, index, group)| {
            let per_block = self.geo.inodes_per_block();
            let at = index / per_block;
            let created = group.inodes.lock().created;
            let after = at..created.min(at.saturating_add(most));
            let before = (at.saturating_sub(most)..at).rev();
            after.chain(before).filter_map(move |at| {
                Some(TableBlock {
                    block: group.desc.inode_table + u64::from(at),
                    first: self.geo.ino_at(number, at * per_block)?,
                })
            })
        })
    }
}
