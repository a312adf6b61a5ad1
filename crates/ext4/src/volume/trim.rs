//! Discarding free space: all of it (FITRIM), or what transactions have freed (`-o discard`).

use crate::{Error, Fs, Result};
use std::ops::Range;
use units::{FsBlock, GroupNo};

/// Bytes discarded at a time. Less than this is kept from allocation meanwhile.
const BATCH_BYTES: u64 = 64 << 20;

impl Fs {
    /// Discards free blocks between the bytes `start` and `start + len`, in runs of at least
    /// `min_len` bytes. Returns how many bytes were discarded. Blocks that were freed by a
    /// transaction that has not committed are left out.
    ///
    /// # Errors
    /// `Invalid` for a range beyond the volume, one of less than a block, and a `min_len` of more
    /// than a group. `EOPNOTSUPP` where the device cannot discard.
    pub fn trim(&self, start: u64, len: u64, min_len: u64) -> Result<u64> {
        self.check_writable()?;
        let block_size = u64::from(self.geo.block_size);
        let first_data = self.geo.first_data_block;
        let min_blocks = min_len.div_ceil(block_size).max(1);
        let start = start / block_size;
        if min_blocks > u64::from(self.geo.blocks_per_group)
            || start >= self.geo.blocks_count
            || len < block_size
        {
            return Err(Error::Invalid("the range to trim"));
        }
        let end = start
            .saturating_add(len / block_size)
            .min(self.geo.blocks_count);
        let start = start.max(first_data);
        let min = self.geo.cluster().clusters_for(min_blocks);
        self.discard_available(start..end, min as u32)
    }

    /// Discards what was freed by transactions that have committed. The flusher calls it now and
    /// then, and the unmount. A device that cannot discard is asked each time: it costs little.
    pub(crate) fn discard_freed(&self) {
        if !self.options.discard || self.is_read_only() {
            return;
        }
        for run in self.freed_runs.take() {
            let blocks = run.start.0..run.start.0 + u64::from(run.len);
            if let Err(error) = self.discard_available(blocks, 1) {
                tracing::debug!("freed blocks were not discarded: {error}");
                return;
            }
        }
    }

    /// Discards the available clusters within `blocks`, in runs of at least `min`. Returns how many
    /// bytes were discarded.
    fn discard_available(&self, blocks: Range<u64>, min: u32) -> Result<u64> {
        let block_size = u64::from(self.geo.block_size);
        let cluster = self.geo.cluster();
        let cluster_bytes = cluster.blocks_in(block_size);
        let sizes = (min, (BATCH_BYTES / cluster_bytes).max(1) as u32);
        let mut discarded = 0;
        let (group_of_first, _) = self.geo.locate_block(FsBlock(blocks.start))?;
        let (group_of_last, _) = self.geo.locate_block(FsBlock(blocks.end - 1))?;
        for group in (group_of_first.0..=group_of_last.0).map(GroupNo) {
            let first = self.geo.group_first_block(group).0;
            let behind = first + u64::from(self.geo.blocks_in_group(group));
            let (from, to) = (blocks.start.max(first), blocks.end.min(behind));
            if from >= to {
                continue;
            }
            let mut at = cluster.clusters_for(from - first) as u32;
            let to = match to == behind {
                true => self.geo.clusters_in_group(group),
                false => cluster.number_of((to - first) as u32),
            };
            while let Some((taken, next)) = self.groups.next_trim_run(group, at..to, sizes)? {
                let bytes = u64::from(taken.run.len) * block_size;
                self.queue.discard(taken.run.start.0 * block_size, bytes)?;
                discarded += bytes;
                at = next;
            }
        }
        Ok(discarded)
    }
}
