//! Delayed allocation at writeback: from dirty pages to I/O, and from completed I/O to metadata.
//!
//! A slice of an inode's dirty pages goes through these steps. Only the last one touches the
//! journal. So metadata never refers to blocks whose data is not written, and a crash before the
//! last step leaves free blocks with unreferenced bytes.
//!
//! ```text
//!  dirty ──(write_slice: tag, look up or pick blocks, bio into the plug)──> under writeback
//!    ^                                                                          │ device
//!    │ failed: pages dirty again, picked blocks given back, error recorded       v
//!    └──────────────────────────────────────────────────────────────────── landed (end_io)
//!                                                                               │ finish_batch, one handle for many inodes:
//!                                                                               v bitmap bits, extents, size on disk
//!                                                                             clean
//! ```
//!
//! A small synchronous write may go through the log (`Route`): its data joins the transaction
//! that records it, nothing is written in place, and the pages are clean at once. The blocks are
//! then *held* (`jbd2`'s `data.rs`): until the checkpoint has written them home they are written
//! through the log only, and read from there.
//!
//! | file | what it holds |
//! |---|---|
//! | `submit.rs` | from dirty pages to bios: which blocks, by which route |
//! | `record.rs` | from completed I/O to metadata |
//!
//! A [`Batch`] has the I/O of many inodes. Any thread may finish it ([`Fs::finish`]); later callers
//! find it finished. An inode's `writeback_lock` is held while blocks are picked and never during a
//! wait. A thread that holds bios in a plug only tries the lock.

mod record;
mod submit;
#[cfg(test)]
mod tests;

use crate::state::Batch;
use crate::{Error, Fs, Inode};
use block::Plug;
use std::sync::Arc;
use units::PageIndex;
use writeback::{OnLocked, Progress, Reason, Slice};

/// The result of `Fs::submit_pages`.
struct Submitted {
    pages: usize,
    /// The page behind the last one submitted, where a sweep over the file continues.
    next: PageIndex,
}

/// Whether there are dirty pages to write back. Pages behind the end do not count: the write that
/// is storing them marks the inode dirty afterwards.
pub(crate) fn is_dirty(inode: &Inode) -> bool {
    let mapping = &inode.mapping;
    mapping.dirty_pages() > 0
        && (mapping.writeback_pages() > 0
            || mapping
                .next_dirty(PageIndex::FIRST)
                .is_some_and(|at| at < inode.end_page()))
}

impl Fs {
    /// Submits a slice of the dirty pages of `inode` as a part of `batch`: picks blocks and adds
    /// bios to the plug. While the plug holds bios, it only tries the inode's `writeback_lock`.
    pub(crate) fn write_slice(
        &self,
        inode: &Arc<Inode>,
        slice: Slice,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) -> Progress<Error> {
        let io = inode.data.make_io();
        let lock = match slice.on_locked {
            OnLocked::Skip => io.writeback_lock.try_lock(),
            OnLocked::Wait => Some(io.writeback_lock.lock()),
        };
        let unwritten = Progress {
            pages: 0,
            more: true,
            blocked: true,
            locked: lock.is_none(),
            next: slice.from,
            failed: None,
        };
        let Some(lock) = lock else {
            return unwritten;
        };
        let submitted = match slice.reason {
            Reason::Sync => self.submit_pages(inode, &io, &lock, slice, plug, batch),
            _ => self.submit_slice(inode, &io, lock, slice, plug, batch),
        };
        let Submitted { pages, next } = match submitted {
            Ok(submitted) => submitted,
            Err(error) => {
                tracing::warn!("inode {}: writeback: {error}", inode.ino);
                return Progress {
                    // Blocks are promised, so even a lack of space is damage.
                    failed: Some(error),
                    ..unwritten
                };
            }
        };
        let more = is_dirty(inode);
        Progress {
            pages,
            more,
            blocked: pages == 0 && more,
            next,
            ..unwritten
        }
    }
}
