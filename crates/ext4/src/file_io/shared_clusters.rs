//! Pages that share a cluster with blocks that are about to be unmapped (`bigalloc`).

use crate::{Fs, Inode, Result};
use std::ops::Range;
use std::sync::Arc;
use units::{FileBlock, FileCluster, PageIndex, page};

impl Fs {
    /// Writes the file if pages wait beside `pages` in the same clusters, before the blocks of
    /// `pages` are unmapped: a page in a mapped cluster has no promise, and the cluster may become
    /// free. The caller holds the inode's lock exclusively.
    pub(super) fn land_shared_clusters(
        &self,
        inode: &Arc<Inode>,
        pages: Range<PageIndex>,
    ) -> Result<()> {
        let size = self.geo.cluster();
        if size.is_block() {
            return Ok(());
        }
        let mapping = &inode.mapping;
        let waits = |blocks: Range<FileBlock>| mapping.has_unlanded_in(page::of_blocks(blocks));
        let blocks = page::blocks(pages);
        let is_beside = |edge: FileCluster| {
            let all = size.file_blocks(edge);
            waits(all.start..blocks.start.max(all.start)) || waits(blocks.end.min(all.end)..all.end)
        };
        match size.shared_edges(blocks.clone()).any(is_beside) {
            true => self.write_back(inode),
            false => Ok(()),
        }
    }
}
