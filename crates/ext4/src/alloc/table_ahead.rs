//! Reading inode tables ahead.
//!
//! A group remembers its last *window*: the blocks of its table that were read ahead last. A *miss*
//! is the load of an inode whose table block is not cached.
//!
//! Algorithm:
//! 1. A miss reads the window of [`FIRST`] bytes around it. A window begins at a multiple of its
//!    size.
//! 2. A miss near the last window reads a window of four times its size, up to the limit of the
//!    journal ([`Journal::read_ahead_limit`](jbd2::Journal::read_ahead_limit)), at most 1 MiB.
//!    Another miss starts with [`FIRST`] bytes again: single look-ups read little.
//! 3. The load of an inode in the second half of a grown window starts the read of the next one.
//!    So a walk in the order of the table finds its blocks cached.
//! 4. The inodes of a directory are announced together ([`Groups::read_tables_ahead`]). All blocks
//!    of a group count as one miss, and as near: most of the group is needed when its directories
//!    are read one after another. Blocks are read in the order of the device.
//!
//! Reads of grown windows have the reason readahead, also where a thread waits for one of their
//! blocks. A window ends at the end of the used part of the table (`bg_itable_unused`), and at the
//! last inode in use if the bitmap is in memory. Both are hints: a window only decides when a block
//! is read. Linux reads a fixed window of 32 blocks (`inode_readahead_blks`).

use super::Groups;
use super::group::{Group, InodeState};
use crate::Result;
use ext4_format::bitmap;
use std::ops::Range;
use sync::atomic::Ordering;
use units::{FsBlock, GroupNo, Ino};

/// Bytes of the first window.
const FIRST: u32 = 32 << 10;
/// Bytes of the first window of announced inodes.
const FIRST_ANNOUNCED: u32 = 128 << 10;
/// The factor by which windows grow.
const GROWTH: u32 = 4;
/// A miss is near if it is this many bytes from the last window at most, or as many as that has.
const NEAR: u32 = 64 << 10;
/// The bits of a block's place in a table. A table has at most 8 blocks for each byte of a block.
const BITS: u32 = 24;

/// The sizes of windows, in blocks. Those of windows are powers of two.
#[derive(Clone, Copy)]
struct Sizes {
    first: u32,
    first_announced: u32,
    near: u32,
    most: u32,
}

impl Sizes {
    /// The sizes with blocks of `block_size`, where windows have at most `most` blocks.
    fn new(block_size: u32, most: u32) -> Sizes {
        let blocks = |bytes: u32| (bytes / block_size).min(most);
        Sizes {
            first: blocks(FIRST),
            first_announced: blocks(FIRST_ANNOUNCED),
            near: NEAR / block_size,
            most,
        }
    }
}

/// The last window of a group, in blocks of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    start: u32,
    /// 0 for no window. A window of a size that ends at a multiple of it is not cut at the end of
    /// the table here.
    size: u32,
}

impl Window {
    fn unpack(packed: u64) -> Window {
        Window {
            start: (packed >> BITS) as u32,
            size: (packed & ((1 << BITS) - 1)) as u32,
        }
    }
    fn pack(self) -> u64 {
        u64::from(self.start) << BITS | u64::from(self.size)
    }
    fn end(self) -> u32 {
        self.start.saturating_add(self.size)
    }
    fn around(block: u32, size: u32) -> Window {
        let start = block / size * size;
        Window { start, size }
    }
    /// Returns the size of the window after this one.
    fn grown(self, first: u32, most: u32) -> u32 {
        (self.size * GROWTH).max(first).min(most)
    }
    fn is_near(self, block: u32, sizes: Sizes) -> bool {
        let near = self.size.max(sizes.near);
        let range = self.start.saturating_sub(near)..self.end().saturating_add(near);
        self.size > 0 && range.contains(&block)
    }
    /// Returns the window after a miss of `block`.
    fn after_miss(self, block: u32, sizes: Sizes) -> Window {
        match self.is_near(block, sizes) {
            true => Window::around(block, self.grown(sizes.first, sizes.most)),
            false => Window::around(block, sizes.first),
        }
    }
    /// Returns the next window if a load of `block`, which is cached, starts its read.
    fn after_hit(self, block: u32, sizes: Sizes) -> Option<Window> {
        let second_half = self.start + self.size / 2..self.end();
        let is_grown = self.size > sizes.first;
        (is_grown && second_half.contains(&block)).then(|| Window {
            start: self.end(),
            size: self.grown(sizes.first, sizes.most),
        })
    }
}

impl Groups {
    /// Reads ahead for the load of one inode, whose block the caller reads next.
    pub fn read_table_ahead(&self, ino: Ino) -> Result<()> {
        let (number, index) = self.geo.inode_group(ino)?;
        let group = self.group(number)?;
        let block = index / self.geo.inodes_per_block();
        let packed = group.window.load(Ordering::Relaxed);
        let window = Window::unpack(packed);
        let sizes = self.window_sizes();
        let is_cached = self
            .journal
            .is_cached(group.desc.inode_table + u64::from(block));
        let next = match is_cached {
            true => match window.after_hit(block, sizes) {
                Some(next) => next,
                None => return Ok(()),
            },
            false => window.after_miss(block, sizes),
        };
        let set = |from, to: Window| {
            let done = group.window.compare_exchange(
                from,
                to.pack(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            done.is_ok()
        };
        // Another thread that changes the window reads ahead.
        if set(packed, next) {
            let blocks = self.table_blocks(group, next.start..next.end());
            match next.size == sizes.first {
                true => self.journal.prefetch_around(&blocks),
                // The latency of large reads says nothing about that of reads of one block.
                false => self.journal.prefetch(&blocks),
            }
        }
        Ok(())
    }

    fn window_sizes(&self) -> Sizes {
        Sizes::new(self.geo.block_size, self.journal.read_ahead_limit())
    }

    /// Starts to read the table blocks of inodes that are loaded soon.
    pub fn read_tables_ahead(&self, inos: impl Iterator<Item = Ino>) {
        let place = |ino| {
            let (group, index) = self.geo.inode_group(ino).ok()?;
            Some((group, index / self.geo.inodes_per_block()))
        };
        let mut places: Vec<(GroupNo, u32)> = inos.filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        let sizes = self.window_sizes();
        let mut blocks = Vec::new();
        for of_group in places.chunk_by(|a, b| a.0 == b.0) {
            let Ok(group) = self.group(of_group[0].0) else {
                continue;
            };
            let cached = |block| {
                let table = group.desc.inode_table;
                self.journal.is_cached(table + u64::from(block))
            };
            let window = Window::unpack(group.window.load(Ordering::Relaxed));
            let size = window.grown(sizes.first_announced, sizes.most);
            let mut end = 0;
            for &(_, block) in of_group {
                if block < end || cached(block) {
                    continue;
                }
                let next = Window::around(block, size);
                blocks.extend(self.table_blocks(group, next.start.max(end)..next.end()));
                end = next.end();
                group.window.store(next.pack(), Ordering::Relaxed);
            }
        }
        self.journal.prefetch(&blocks);
    }

    /// Returns the blocks of a part of a group's table, without those at its end that are not in
    /// use.
    fn table_blocks(&self, group: &Group, part: Range<u32>) -> Vec<FsBlock> {
        let end = self.used_end(&group.inodes.lock(), part.clone());
        let table = group.desc.inode_table;
        (part.start..end).map(|at| table + u64::from(at)).collect()
    }

    /// Returns the end of the blocks in use within a part of a table.
    fn used_end(&self, state: &InodeState, part: Range<u32>) -> u32 {
        let per_block = self.geo.inodes_per_block();
        let used = self.geo.inodes_per_group.saturating_sub(state.unused);
        let end = part.end.min(used.div_ceil(per_block)).min(state.created);
        let Some(bitmap) = state.bitmap.as_ref().map(|buffer| buffer.data()) else {
            return end;
        };
        let in_use = |block: &u32| {
            let first = block * per_block;
            let last = (first + per_block).min(self.geo.inodes_per_group);
            bitmap::find_next_set(&bitmap, first, last).is_some()
        };
        let last = (part.start..end).rev().find(in_use);
        last.map_or(part.start, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: u32, size: u32) -> Window {
        Window { start, size }
    }

    fn sizes(most: u32) -> Sizes {
        Sizes::new(4096, most)
    }

    #[test]
    fn windows_of_small_blocks_have_as_many_bytes() {
        let none = Window::unpack(0);
        let sizes = Sizes::new(1024, 1024);
        let first = none.after_miss(70, sizes);
        assert_eq!(first, window(64, 32));
        assert_eq!(first.after_miss(100, sizes), window(0, 128));
        // A small budget of memory.
        assert_eq!(none.after_miss(70, Sizes::new(1024, 8)), window(64, 8));
    }

    #[test]
    fn windows_grow_while_misses_are_near_each_other() {
        let none = Window::unpack(0);
        let first = none.after_miss(21, sizes(256));
        assert_eq!(first, window(16, 8));
        assert_eq!(first.after_miss(30, sizes(256)), window(0, 32));
        assert_eq!(first.after_miss(500, sizes(256)), window(496, 8));
        assert_eq!(window(0, 128).after_miss(255, sizes(256)), window(0, 256));
        assert_eq!(window(0, 256).after_miss(300, sizes(256)), window(256, 256));
        assert_eq!(window(0, 32).after_miss(40, sizes(32)), window(32, 32));
        // The distance at which a miss is near grows with the window.
        assert_eq!(window(0, 256).after_miss(511, sizes(256)), window(256, 256));
        assert_eq!(window(0, 256).after_miss(512, sizes(256)), window(512, 8));
    }

    #[test]
    fn the_second_half_of_a_grown_window_starts_the_next() {
        assert_eq!(window(32, 32).after_hit(47, sizes(256)), None);
        assert_eq!(
            window(32, 32).after_hit(48, sizes(256)),
            Some(window(64, 128))
        );
        assert_eq!(window(32, 32).after_hit(64, sizes(256)), None);
        assert_eq!(window(16, 8).after_hit(23, sizes(256)), None);
        assert_eq!(Window::unpack(0).after_hit(0, sizes(256)), None);
    }

    #[test]
    fn a_window_is_the_same_after_packing() {
        for same in [window(0, 0), window((1 << BITS) - 1, 256)] {
            assert_eq!(Window::unpack(same.pack()), same);
        }
    }
}
