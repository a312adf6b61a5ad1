//! Fast commits: changes of files that continue the log, in an area of their own at the end of the
//! journal.
//!
//! They belong to the transaction after the last complete one. Only the file system knows what they
//! mean. It replays them in memory, on a volume that has the log's blocks ([`Overlay`]), and passes
//! the changed blocks to [`recover_with`], which writes them as that transaction:
//!
//! ```text
//!  log: T-2  T-1 │ fast commits of T        the log is home; its tail moves to the end
//!                ▼
//!  log:     (empty) │ fast commits of T     a crash here replays the fast commits again
//!                ▼
//!  log:     T │ (fast commits of T)         the log has T itself, so they are over
//!                ▼
//!  log: (empty)
//! ```
//!
//! So a crash at any moment leaves either the fast commits or all of what they changed.

use super::{Dirty, Grant, Overlay, Plan, RecoveryReport, examine, recover};
use crate::format::{Checksums, checksum::Crc32Be, commit, fast_commit, incompat};
use crate::log::LogMap;
use crate::{JournalError, JournalPlace, LogBlock, Tid, log_copies};
use block::{Buf, BufMut, Durability, Queue, Reason};
use cache::Budget;
use std::sync::Arc;
use units::FsBlock;

/// The fast commits that continue a log, and the blocks of that log.
pub struct FastCommits {
    log: LogMap,
    /// The first block of the area, and its length.
    first: LogBlock,
    blocks: u32,
    tid: Tid,
    overlay: Overlay,
    report: RecoveryReport,
}

impl FastCommits {
    /// Returns the transaction that they belong to.
    pub fn tid(&self) -> Tid {
        self.tid
    }
    /// Returns the number of blocks of the area, in use or not.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }
    /// Reads a block of the area.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    ///
    /// # Panics
    /// If the area has no such block.
    pub fn read(&self, queue: &Queue, nth: u32) -> Result<Buf, JournalError> {
        assert!(nth < self.blocks(), "a block beyond the area");
        Ok(self.log.read(queue, self.first + nth, 1)?.remove(0))
    }
    /// Returns the blocks that a replay of the log would write.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }
    /// Returns what a replay of the log would do.
    pub fn report(&self) -> RecoveryReport {
        self.report
    }
}

/// Finds fast commits that continue the log. Returns `None` if there are none. A journal without
/// the feature costs the read of its super block.
///
/// # Errors
/// As [`recover`].
pub fn fast_commits(
    queue: &Queue,
    place: &JournalPlace,
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<Option<FastCommits>, JournalError> {
    let (log, _, sb) = super::open_log(queue, place, block_size)?;
    // The area begins one block after the end of the log.
    let first = sb.log_end() + 1;
    let end = LogBlock(sb.max_len());
    let Some(start) = sb.start() else {
        return Ok(None);
    };
    if !sb.has_incompat(incompat::FAST_COMMIT) || first >= end {
        return Ok(None);
    }
    let Some(tid) = fast_commit::head_sequence(&log.read(queue, first, 1)?[0]) else {
        return Ok(None);
    };
    let scan = super::scan::scan(queue, &log, &sb, start, Grant::new(budget))?;
    if scan.end != tid {
        return Ok(None);
    }
    let Plan {
        copies,
        grant,
        report,
        ..
    } = Plan::new(scan)?;
    Ok(Some(FastCommits {
        overlay: Overlay::of_log(log.clone(), copies, grant),
        log,
        blocks: end - first,
        first,
        tid,
        report,
    }))
}

/// Replays the log, then writes `changes`, the blocks that the fast commits change, and empties the
/// log. The changes are durable as a whole or not at all, and in the second case the fast commits
/// still are.
///
/// # Errors
/// As [`recover`]; [`JournalError::Unsupported`] if the log has too few blocks for the changes.
pub fn recover_with(
    queue: &Queue,
    place: &JournalPlace,
    block_size: u32,
    budget: &Arc<Budget>,
    changes: &[(FsBlock, Buf)],
) -> Result<RecoveryReport, JournalError> {
    let examined = examine(queue, place, block_size, budget)?;
    let Some((mut dirty, mut plan)) = examined.filter(|_| !changes.is_empty()) else {
        return recover(queue, place, block_size, budget);
    };
    let transaction = encode(&dirty, plan.end, changes)?;
    plan.write_home(queue, &dirty.log, block_size, budget)?;
    // A torn transaction may begin here. Without its first block the log ends here for sure. In a
    // full log the oldest transaction begins here. It is not torn, and until the tail has moved the
    // fast commits need it.
    let (log, at) = (&dirty.log, plan.end_at);
    if plan.report.transactions == 0 || dirty.sb.start() != Some(at) {
        log.write_fua(queue, at, BufMut::zeroed(block_size as usize).freeze())?;
    }
    dirty.sb.set_tail(at, plan.end);
    dirty.write_superblock(queue)?;
    append(queue, &dirty, at, transaction)?;
    let mut report = plan.report;
    drop(plan);
    report.replayed += recover(queue, place, block_size, budget)?.replayed;
    Ok(report)
}

/// A transaction as log blocks.
struct Encoded {
    copies: Vec<Buf>,
    commit: Buf,
}

fn encode(dirty: &Dirty, tid: Tid, changes: &[(FsBlock, Buf)]) -> Result<Encoded, JournalError> {
    let layout = dirty.sb.layout();
    let capacity = dirty.sb.log_end() - dirty.sb.first();
    let needed = log_copies::log_blocks(&layout, changes.len()) + 1;
    if needed > capacity as usize {
        return Err(JournalError::Unsupported(format!(
            "its fast commits change {} blocks, more than the log of {capacity} blocks can hold; \
             run e2fsck, which replays them",
            changes.len()
        )));
    }
    let blocks = changes.iter().map(|(home, data)| (*home, data));
    let copies = log_copies::encode(&layout, tid, &dirty.sb.uuid(), blocks);
    let mut sum = Crc32Be::new();
    if layout.checksums == Checksums::V1 {
        copies.iter().for_each(|copy| sum.update(copy));
    }
    let mut block = BufMut::zeroed(layout.block_size);
    let now = sync::time::system_now();
    commit::write(&layout, tid, now, sum.sum(), &mut block);
    Ok(Encoded {
        copies,
        commit: block.freeze(),
    })
}

/// Writes a transaction from log block `at` on, and its commit block when the rest is durable.
fn append(
    queue: &Queue,
    dirty: &Dirty,
    at: LogBlock,
    transaction: Encoded,
) -> Result<(), JournalError> {
    let (first, end) = (dirty.sb.first(), dirty.sb.log_end());
    let Encoded { copies, commit } = transaction;
    let count = copies.len() as u32;
    let left = end - at;
    let commit_at = match count < left {
        true => at + count,
        false => first + (count - left),
    };
    let log = &dirty.log;
    log.write(queue, at, (first, end), copies, Durability::Cached)?;
    // A block of an earlier lap must not be taken for the commit block.
    let zeroes = BufMut::zeroed(commit.len()).freeze();
    log.write(
        queue,
        commit_at,
        (first, end),
        vec![zeroes],
        Durability::Cached,
    )?;
    log.flush(queue, Reason::Recovery)?;
    log.write_fua(queue, commit_at, commit)
}
