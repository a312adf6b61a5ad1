//! A scan in steps, each of which ends after a bounded number of inodes. Nothing is kept between
//! two steps, so a client that asks for them over a connection can end at any time.

use super::{Scan, Scanned};
use crate::Fs;
use std::cell::Cell;
use std::ops::ControlFlow;
use units::{GroupNo, Ino};

/// Bytes of tables that a step looks at in all at most, where few inodes are in use.
const MOST: u32 = 4 << 20;
/// Groups that a step looks at at most.
const MOST_GROUPS: u32 = 256;
/// Groups whose bitmaps are read together.
const BITMAPS: u32 = 16;

impl Fs {
    /// Carries out a part of [`Fs::scan_inodes`] on the calling thread: visits the inodes from
    /// `first` on, in the order of their numbers, and ends after at most `most` calls of `visit`,
    /// or earlier. Returns the number at which the next step begins; `None` after the last inode.
    /// `most` is at least the number of inodes in a block, so each step proceeds.
    pub fn scan_inodes_from(&self, first: Ino, most: u32, visit: &dyn Fn(Scanned)) -> Option<Ino> {
        let (number, index) = self.geo.inode_group(first.max(Ino(1))).ok()?;
        let per_block = self.geo.inodes_per_block();
        let visited = Cell::new(0);
        let each = |found| {
            visited.set(visited.get() + 1);
            visit(found);
            ControlFlow::Continue(())
        };
        let scan = Scan::new(self, &each);
        let mut block = index / per_block;
        let mut looked_at = 0;
        let end = self.geo.groups.min(number.0.saturating_add(MOST_GROUPS));
        for group in (number.0..end).map(GroupNo) {
            if group.0.is_multiple_of(BITMAPS) || group == number {
                let next = group.0 / BITMAPS * BITMAPS + BITMAPS;
                let groups: Vec<GroupNo> =
                    (group.0..next.min(self.geo.groups)).map(GroupNo).collect();
                self.budget.make_room();
                self.groups.prefetch_inode_bitmaps(&groups);
            }
            match self.groups.inodes_in_use(group) {
                Ok(Some(inodes)) => {
                    let blocks = inodes.count.div_ceil(per_block);
                    while block < blocks {
                        let room = most.saturating_sub(visited.get()) / per_block;
                        let left = (MOST / self.geo.block_size).saturating_sub(looked_at);
                        let part = block..blocks.min(block.saturating_add(room.min(left)));
                        if part.is_empty() {
                            return self.geo.ino_at(group, block * per_block);
                        }
                        looked_at += part.len() as u32;
                        block = part.end;
                        let _ = scan.part(&inodes, part);
                    }
                }
                Ok(None) => {}
                Err(_) if visited.get() >= most => {
                    return self.geo.ino_at(group, block * per_block);
                }
                Err(error) => {
                    let (first, count) = self.groups.inode_numbers(group);
                    let _ = scan.unreadable(first, count, error);
                }
            }
            block = 0;
        }
        (end < self.geo.groups)
            .then(|| self.geo.ino_at(GroupNo(end), 0))
            .flatten()
    }
}
