//! Blocks and clusters.
//!
//! A cluster is the unit of allocation: one bit of a block bitmap. It has one block, or with the
//! feature `bigalloc` a power of two of them. [`ClusterSize`] is the only code that converts blocks
//! and clusters to each other.
//!
//! Extents map blocks. The blocks of one cluster of a file lie in one cluster of the volume, each
//! at the same place in both, so a block of a file has its place as soon as another one of its
//! cluster has.

use crate::{FileBlock, FileCluster, FsBlock, Span};
use std::ops::Range;

/// The number of blocks in a cluster of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSize {
    /// The number as a power of two.
    bits: u32,
}

impl ClusterSize {
    /// Returns the size of clusters of `1 << bits` blocks. At most 2^31 are possible.
    #[inline]
    #[must_use]
    pub const fn of_bits(bits: u32) -> ClusterSize {
        match bits < u32::BITS {
            true => ClusterSize { bits },
            false => ClusterSize { bits: 31 },
        }
    }

    /// Returns whether a cluster is a block: the volume does not have `bigalloc`.
    #[inline]
    #[must_use]
    pub const fn is_block(self) -> bool {
        self.bits == 0
    }

    /// Returns the number of blocks in a cluster.
    #[inline]
    #[must_use]
    pub const fn blocks(self) -> u32 {
        1 << self.bits
    }

    #[inline]
    const fn mask(self) -> u32 {
        self.blocks() - 1
    }

    /// Returns the number of blocks in `clusters` clusters.
    #[inline]
    #[must_use]
    pub const fn blocks_in(self, clusters: u64) -> u64 {
        clusters << self.bits
    }

    /// Returns the number of clusters that begin in the first `blocks` blocks: those that so many
    /// blocks take.
    #[inline]
    #[must_use]
    pub const fn clusters_for(self, blocks: u64) -> u64 {
        (blocks + self.mask() as u64) >> self.bits
    }

    /// Returns the number of the cluster of block `block`, where block 0 begins a cluster.
    #[inline]
    #[must_use]
    pub const fn number_of(self, block: u32) -> u32 {
        block >> self.bits
    }

    /// Returns the first block of the cluster of a block.
    #[inline]
    #[must_use]
    pub const fn start_of(self, block: FsBlock) -> FsBlock {
        FsBlock(block.0 & !(self.mask() as u64))
    }

    /// Returns the block itself if it begins a cluster, or else the first block of the next one.
    #[inline]
    #[must_use]
    pub const fn next_start(self, block: FsBlock) -> FsBlock {
        FsBlock(block.0.saturating_add(self.mask() as u64) & !(self.mask() as u64))
    }

    /// Returns the place of a file block in its cluster, in blocks.
    #[inline]
    #[must_use]
    pub const fn within(self, block: FileBlock) -> u32 {
        block.0 & self.mask()
    }

    /// Returns whether a file block and its volume block have the same place in their clusters.
    #[inline]
    #[must_use]
    pub const fn is_aligned(self, block: FileBlock, place: FsBlock) -> bool {
        (block.0 ^ place.0 as u32) & self.mask() == 0
    }

    /// Returns the cluster of a file block.
    #[inline]
    #[must_use]
    pub const fn of_file(self, block: FileBlock) -> FileCluster {
        FileCluster(block.0 >> self.bits)
    }

    /// Returns the file blocks of a cluster of a file.
    #[inline]
    #[must_use]
    pub fn file_blocks(self, cluster: FileCluster) -> Range<FileBlock> {
        let start = FileBlock(cluster.0 << self.bits);
        start..start.saturating_add(self.blocks())
    }

    /// Returns the clusters of a file that file blocks of `range` are in.
    #[inline]
    #[must_use]
    pub fn touching(self, range: Range<FileBlock>) -> Range<FileCluster> {
        match range.last() {
            Some(last) => self.of_file(range.start)..self.of_file(last).saturating_add(1),
            None => FileCluster(0)..FileCluster(0),
        }
    }

    /// Returns the first and the last cluster of a range of file blocks, those of them that have
    /// file blocks outside of the range, too.
    #[inline]
    pub fn shared_edges(self, blocks: Range<FileBlock>) -> impl Iterator<Item = FileCluster> {
        let clusters = self.touching(blocks.clone());
        let last = clusters.last();
        let first = Some(clusters.start).filter(|first| Some(*first) < last);
        let is_shared = move |cluster: &FileCluster| {
            let all = self.file_blocks(*cluster);
            all.start < blocks.start || all.end > blocks.end
        };
        first.into_iter().chain(last).filter(is_shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_bigalloc_a_cluster_is_a_block() {
        let size = ClusterSize::of_bits(0);
        assert!(size.is_block() && size.blocks() == 1);
        assert_eq!((size.blocks_in(7), size.clusters_for(7)), (7, 7));
        assert_eq!(size.start_of(FsBlock(9)), FsBlock(9));
        assert_eq!(size.next_start(FsBlock(9)), FsBlock(9));
        let range = FileBlock(3)..FileBlock(5);
        assert_eq!(size.touching(range), FileCluster(3)..FileCluster(5));
        assert!(size.is_aligned(FileBlock(3), FsBlock(8)));
    }

    #[test]
    fn blocks_of_a_cluster_have_the_same_place_in_both() {
        let size = ClusterSize::of_bits(4);
        assert_eq!((size.clusters_for(16), size.clusters_for(17)), (1, 2));
        assert_eq!(size.start_of(FsBlock(37)), FsBlock(32));
        assert_eq!(size.next_start(FsBlock(33)), FsBlock(48));
        assert_eq!(size.within(FileBlock(37)), 5);
        assert!(size.is_aligned(FileBlock(37), FsBlock(1 << 40 | 5)));
        assert!(!size.is_aligned(FileBlock(37), FsBlock(6)));
        let range = FileBlock(15)..FileBlock(17);
        assert_eq!(size.touching(range), FileCluster(0)..FileCluster(2));
        assert!(size.touching(FileBlock(4)..FileBlock(4)).is_empty());
        let edges = |range| {
            size.shared_edges(range)
                .map(|edge| edge.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(edges(FileBlock(15)..FileBlock(33)), [0, 2]);
        assert_eq!(edges(FileBlock(16)..FileBlock(33)), [2]);
        assert_eq!(edges(FileBlock(3)..FileBlock(5)), [0]);
        assert!(edges(FileBlock(16)..FileBlock(48)).is_empty());
        assert!(edges(FileBlock(3)..FileBlock(3)).is_empty());
    }

    #[test]
    fn the_last_cluster_ends_with_the_largest_file() {
        let size = ClusterSize::of_bits(4);
        let last = size.of_file(FileBlock(u32::MAX - 1));
        let blocks = size.file_blocks(last);
        assert_eq!(blocks, FileBlock(u32::MAX - 15)..FileBlock::END);
    }
}
