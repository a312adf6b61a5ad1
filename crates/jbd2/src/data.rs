//! File data in the log (data journalling of small writes).
//!
//! A small synchronous write may put its data into the journal, as ordinary jbd2 blocks that every
//! recovery replays. One write of the log then makes data and metadata durable. The checkpoint
//! writes the data home. Until then the block is *held*: the newest copy is in the log.
//!
//! Rules for a held block:
//! - A reader takes the copy from here, not from the device ([`Journal::data_in_log`]).
//! - A writer writes it through the log again, never in place. The checkpoint, or the replay after
//!   a crash, would overwrite newer bytes with the older copy.
//! - The caller that frees it calls [`Handle::forget_data`], which revokes it like a metadata
//!   block.
//!
//! ```text
//!              log_data              commit                 checkpoint
//!   not held ───────────▶ held, running ───────▶ held, committed ───────────▶ not held
//!       ▲                    │  ▲                   │ │
//!       │                    │  └──── log_data ─────┘ │
//!       └──── forget_data ───┴────────────────────────┘
//! ```
//!
//! A block stays held until the checkpoint releases its newest copy. `checkpoint.rs` shows the
//! states of a block of the log. The buffers are those of metadata blocks, in a map of their own.

use crate::{Handle, Journal, JournalError};
use block::Buf;
use std::ops::Range;
use units::FsBlock;

impl Journal {
    /// Returns the first held block of `blocks` and its content. Call this before a read from the
    /// device: a block that is not held stays so until it is logged.
    #[inline]
    pub fn held_data(&self, blocks: Range<FsBlock>) -> Option<(FsBlock, Buf)> {
        self.held.first(blocks)
    }

    /// Returns the first block of `blocks` whose newest content is in the log, and that content: a
    /// held block ([`Journal::held_data`]) or, on a read-only volume, a block of the unrecovered
    /// log.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    #[inline]
    pub fn data_in_log(
        &self,
        blocks: Range<FsBlock>,
    ) -> Result<Option<(FsBlock, Buf)>, JournalError> {
        let overlay = self.cache.overlay();
        if let Some(block) = overlay.first(blocks.clone()) {
            let content = overlay.read(&self.queue, block)?;
            return Ok(content.map(|content| (block, content)));
        }
        Ok(self.held_data(blocks))
    }
}

impl Handle<'_> {
    /// Replaces the content of a data block as part of the transaction. Uses a credit like
    /// [`Handle::modify`].
    ///
    /// No write in place may be in flight, and `content` must not be the buffer that the block has
    /// already.
    pub fn log_data(&self, block: FsBlock, content: Buf) {
        let journal = self.journal();
        let buffer = journal.held.hold(block, &content, &journal.budget);
        if buffer.replace(self.tid(), content) {
            self.joined(&buffer);
        }
        // Without a log it is written before the inode that gets the block.
        if !journal.has_log() {
            buffer.mark_new();
        }
    }

    /// Revokes the held blocks of a range of data blocks that were freed.
    pub fn forget_data(&self, blocks: Range<FsBlock>) {
        for buffer in self.journal().held.take(blocks) {
            self.revoked(&buffer);
        }
    }
}
