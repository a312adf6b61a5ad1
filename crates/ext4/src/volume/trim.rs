//! Discarding free space (FITRIM).

use crate::{Error, Fs, Result};
use units::GroupNo;

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
        let sizes = (min_blocks as u32, (BATCH_BYTES / block_size) as u32);
        let mut trimmed = 0;
        for group in (0..self.geo.groups).map(GroupNo) {
            let first = self.geo.group_first_block(group).0;
            let last = first + u64::from(self.geo.blocks_in_group(group));
            let (from, to) = (start.max(first), end.min(last));
            if from >= to {
                continue;
            }
            let (mut at, to) = ((from - first) as u32, (to - first) as u32);
            while let Some((taken, next)) = self.groups.next_trim_run(group, at..to, sizes)? {
                let bytes = u64::from(taken.run.len) * block_size;
                self.queue.discard(taken.run.start.0 * block_size, bytes)?;
                trimmed += bytes;
                at = next;
            }
        }
        Ok(trimmed)
    }
}
