//! The inode numbers in use, for a scan of all inodes.
//!
//! A scan visits each bitmap once, so a bitmap that it loads does not stay with its group. Its
//! block stays in the buffer cache until memory is needed.

use super::Groups;
use crate::{Error, Result};
use ext4_format::bitmap;
use std::ops::Range;
use units::{FsBlock, GroupNo, Ino};

/// The inodes of a group that are in use at one moment.
pub(crate) struct GroupInodes {
    group: GroupNo,
    /// The first block of the inode table.
    pub table: FsBlock,
    /// Inodes at the start of the table that may be in use.
    pub count: u32,
    bitmap: Box<[u8]>,
}

impl GroupInodes {
    /// Returns the indices in use within a range, in ascending order.
    pub fn indices(&self, range: Range<u32>) -> impl Iterator<Item = u32> {
        let end = range.end.min(self.count);
        let next = move |at| bitmap::find_next_set(&self.bitmap, at, end);
        std::iter::successors(next(range.start), move |at| next(at + 1))
    }

    /// Returns the group.
    pub fn group(&self) -> GroupNo {
        self.group
    }
}

impl Groups {
    /// Returns the groups in the order of their inode tables on the device.
    pub fn in_table_order(&self) -> impl Iterator<Item = GroupNo> {
        let tables = self.parts.all().flat_map(|part| part.tables.iter());
        tables.map(|(_, group)| *group)
    }

    /// Starts to read the inode bitmaps of these groups, where they are needed.
    pub fn prefetch_inode_bitmaps(&self, groups: &[GroupNo]) {
        let needed = |number: &GroupNo| {
            let group = self.group(*number).ok()?;
            let state = group.inodes.lock();
            (state.bitmap.is_none() && !state.uninit).then_some(group.desc.inode_bitmap)
        };
        let blocks: Vec<FsBlock> = groups.iter().filter_map(needed).collect();
        self.journal.prefetch(&blocks);
    }

    /// Returns the inodes of a group that are in use; `None` if none was ever in use.
    ///
    /// # Errors
    /// `Corrupt`, with the group, for a damaged bitmap; an I/O error.
    pub fn inodes_in_use(&self, number: GroupNo) -> Result<Option<GroupInodes>> {
        let group = self.group(number)?;
        let mut state = group.inodes.lock();
        let count = self.geo.inodes_per_group.saturating_sub(state.unused);
        if state.uninit || count == 0 {
            return Ok(None);
        }
        let was_loaded = state.bitmap.is_some();
        let bytes = match state.load(&self.journal, &self.geo, number, &group.desc) {
            Ok(buffer) => buffer.map(|buffer| buffer.data()),
            Err(error) => {
                if matches!(error, Error::Corrupt(_)) && !state.damaged {
                    self.log_damage("inodes_in_use", &error);
                    self.mark_inodes_damaged(group, &mut state);
                }
                return Err(error);
            }
        };
        if !was_loaded {
            state.evict();
        }
        drop(state);
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let len = count.div_ceil(8) as usize;
        let bitmap = bytes.get(..len).ok_or(Error::Internal("a short bitmap"))?;
        Ok(Some(GroupInodes {
            group: number,
            table: group.desc.inode_table,
            count,
            bitmap: bitmap.into(),
        }))
    }

    /// Returns the numbers of a group that may be in use: the first one and their count.
    pub fn inode_numbers(&self, number: GroupNo) -> (Ino, u32) {
        let first = self.geo.ino_at(number, 0).unwrap_or(Ino(0));
        let unused = self.group(number).map_or(0, |g| g.inodes.lock().unused);
        (first, self.geo.inodes_per_group.saturating_sub(unused))
    }
}
