//! The start and the end of a journal.

use crate::format::superblock::JournalSuperblock;
use crate::log::LogMap;
use crate::state::Access;
use crate::state::handle::assert_none_held;
use crate::{
    Journal, JournalDamage, JournalError, JournalOptions, JournalPlace, LogBlock, Overlay,
    background,
};
use block::Queue;
use cache::Budget;
use std::sync::{Arc, PoisonError};
use sync::atomic::Ordering;

/// The log that a volume without one seems to have, in blocks: that of a large volume.
const LOG_BLOCKS: u32 = 1 << 17;

impl Journal {
    /// Opens a recovered journal, whose super block is journal block 0, and starts its background
    /// thread. The first commit marks the log as in use.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`] if the log is not empty or the super block is damaged,
    /// [`JournalError::Unsupported`], or [`JournalError::Io`].
    pub fn open(
        queue: Arc<Queue>,
        place: &JournalPlace,
        budget: Arc<Budget>,
        options: JournalOptions,
    ) -> Result<Arc<Journal>, JournalError> {
        let log = LogMap::new(place, options.block_size, &queue)?;
        let (_, mut sb) = log.superblock(&queue)?;
        if sb.start().is_some() {
            return Err(JournalDamage::NotRecovered.at(LogBlock::SUPERBLOCK));
        }
        let volume_blocks = queue.capacity() / u64::from(options.block_size);
        sb.upgrade(options.format, volume_blocks, &options.uuid);
        let journal = Journal::new(
            queue,
            log,
            sb,
            budget,
            options,
            Overlay::new(),
            Access::ReadWrite,
        );
        background::spawn(&journal);
        Ok(journal)
    }
    /// Opens a journal for a read-only volume. Blocks are read through `overlay`, the blocks that a
    /// replay of the log would write. Handles cannot start.
    pub fn read_only(
        queue: Arc<Queue>,
        overlay: Overlay,
        budget: Arc<Budget>,
        options: JournalOptions,
    ) -> Arc<Journal> {
        let log = LogMap::empty(options.block_size);
        let sb = JournalSuperblock::fresh(1024, options.block_size, options.uuid, 0);
        Journal::new(queue, log, sb, budget, options, overlay, Access::ReadOnly)
    }
    /// Opens a volume without a log, for reading and writing: a commit writes its blocks home.
    ///
    /// A crash during a commit leaves some of its blocks old and some new. The client marks the
    /// volume as in use, so that it is checked afterwards.
    pub fn without_log(
        queue: Arc<Queue>,
        budget: Arc<Budget>,
        options: JournalOptions,
    ) -> Arc<Journal> {
        let log = LogMap::empty(options.block_size);
        // The size of a log bounds the size of a transaction.
        let sb = JournalSuperblock::fresh(LOG_BLOCKS, options.block_size, options.uuid, 0);
        let overlay = Overlay::new();
        let journal = Journal::new(queue, log, sb, budget, options, overlay, Access::ReadWrite);
        background::spawn(&journal);
        journal
    }
    /// Flushes, marks the journal clean and stops the background thread. No handle can start
    /// afterwards.
    pub fn close(&self) -> Result<(), JournalError> {
        assert_none_held("the journal is closed");
        {
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            if self.closed.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
        }
        let result = self.flush();
        self.background.stop();
        result
    }
}
