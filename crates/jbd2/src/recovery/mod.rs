//! Replay of the log after a crash.
//!
//! Algorithm, in the three steps of the kernel's `jbd2`:
//!
//! 1. **Scan** (`scan.rs`): read the log from the start in the super block, transaction by
//!    transaction, while blocks have the magic and the expected number. Verify all checksums. A
//!    transaction without a commit block is ignored. The result is the place of the newest copy of
//!    each block (`copies.rs`).
//! 2. **Revoke**: skip a copy if a revoke record of the same or a later transaction covers its
//!    block. This happens at each commit block of the scan.
//! 3. **Replay**: read the remaining copies in the log's order and write them home in sorted
//!    batches. Flush. Then write a super block with an empty log and a transaction number that the
//!    log does not contain.
//!
//! Replay can be interrupted at any point and started again: the log is unchanged until the last
//! step.
//!
//! The log may be hostile. The scan reads each log block at most once and each revoke block twice;
//! replay reads a copy once. A block number must lie on the volume and outside of the journal. The
//! memory of lists that grow with the log is charged to the budget and bounded (`grant.rs`).

mod copies;
mod grant;
mod overlay;
mod scan;

pub use overlay::Overlay;

use crate::format::superblock::{JournalSuperblock, SUPERBLOCK_BYTES};
use crate::format::{MAGIC, fast_commit, incompat, put_u32};
use crate::log::LogMap;
use crate::{JournalError, JournalExtent, LogBlock, Tid};
use block::{Bio, Buf, BufMut, Class, Completion, Queue, Reason};
use cache::Budget;
use scan::{LogReader, Scan};
use smallvec::smallvec;
use std::sync::Arc;
use units::FsBlock;

pub(crate) use copies::Place;
pub(crate) use grant::Grant;

/// Most and fewest blocks of a batch of replay.
const BATCH_BLOCKS: usize = 2048;
const MIN_BATCH_BLOCKS: usize = 64;
/// A batch takes at most this part of the memory budget.
const BATCH_PART: u64 = 16;

/// The result of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Complete transactions in the log.
    pub transactions: u32,
    /// Blocks written home. For [`recover_to_memory`], the blocks of the overlay.
    pub replayed: u64,
    /// Blocks skipped because of a revoke record.
    pub revoked: u64,
}

/// Replays the log onto the volume and empties it. A clean journal stays as it is.
///
/// # Errors
/// Nothing was written in these cases:
/// - [`JournalError::Corrupt`] if the journal's super block or a transaction before the last one is
///   damaged.
/// - [`JournalError::Unsupported`] for unknown features and for fast commits that need a replay.
/// - [`JournalError::LogNeedsMemory`] if `budget` is too small to list the log's blocks.
///
/// After [`JournalError::Io`], recovery can be tried again.
pub fn recover(
    queue: &Queue,
    extents: &[JournalExtent],
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<RecoveryReport, JournalError> {
    let Some((mut dirty, mut plan)) = examine(queue, extents, block_size, budget)? else {
        return Ok(RecoveryReport::default());
    };
    let size = u64::from(block_size);
    let blocks = (budget.limit() / BATCH_PART / size) as usize;
    let batch_blocks = blocks.clamp(MIN_BATCH_BLOCKS, BATCH_BLOCKS);
    plan.replay(queue, &dirty.log, batch_blocks, |batch| {
        let done = Completion::new();
        done.expect(batch.len());
        let mut bios: Vec<Bio> = batch
            .into_iter()
            .map(|(block, buf)| {
                Bio::write(
                    block.offset(block_size),
                    smallvec![buf],
                    Class::Metadata,
                    Reason::Recovery,
                    done.clone(),
                    0,
                )
            })
            .collect();
        queue.submit_and_wait(&mut bios, &done)?;
        Ok(())
    })?;
    queue.flush(Reason::Recovery)?;
    // A torn transaction may have the number `plan.end`. The number after that is new.
    dirty.sb.set_empty(plan.end.next());
    let mut first = BufMut::copy_of(&dirty.first_block);
    first[..SUPERBLOCK_BYTES].copy_from_slice(dirty.sb.encode());
    dirty
        .log
        .write_fua(queue, LogBlock::SUPERBLOCK, first.freeze())?;
    Ok(plan.report)
}

/// Returns the blocks that [`recover`] would write, as an overlay that reads them from the log, and
/// writes nothing.
///
/// # Errors
/// As [`recover`].
pub fn recover_to_memory(
    queue: &Queue,
    extents: &[JournalExtent],
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<(Overlay, RecoveryReport), JournalError> {
    let Some((dirty, plan)) = examine(queue, extents, block_size, budget)? else {
        return Ok((Overlay::new(), RecoveryReport::default()));
    };
    let overlay = Overlay::of_log(dirty.log, plan.copies, plan.grant);
    Ok((overlay, plan.report))
}

/// A journal whose log is not empty.
struct Dirty {
    log: LogMap,
    sb: JournalSuperblock,
    /// Journal block 0 as it was.
    first_block: Buf,
}

/// Steps 1 and 2. Returns `None` for a clean journal.
fn examine(
    queue: &Queue,
    extents: &[JournalExtent],
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<Option<(Dirty, Plan)>, JournalError> {
    let log = LogMap::new(extents, block_size, queue)?;
    let first_block = log.read(queue, LogBlock::SUPERBLOCK, 1)?.remove(0);
    let sb = JournalSuperblock::parse(&first_block, block_size, log.blocks())?;
    let Some(start) = sb.start() else {
        return Ok(None);
    };
    let scan = scan::scan(queue, &log, &sb, start, Grant::new(budget))?;
    refuse_fast_commits(queue, &log, &sb, &scan)?;
    let plan = Plan::new(scan)?;
    let dirty = Dirty {
        log,
        sb,
        first_block,
    };
    Ok(Some((dirty, plan)))
}

/// Refuses a log that fast commits continue. This crate cannot replay them, and without them
/// acknowledged changes would be lost.
fn refuse_fast_commits(
    queue: &Queue,
    log: &LogMap,
    sb: &JournalSuperblock,
    scan: &Scan,
) -> Result<(), JournalError> {
    // The area begins one block after the end of the log.
    let area = sb.log_end() + 1;
    if !sb.has_incompat(incompat::FAST_COMMIT) || area >= LogBlock(sb.max_len()) {
        return Ok(());
    }
    let block = log.read(queue, area, 1)?.remove(0);
    if fast_commit::head_sequence(&block) == Some(scan.end) {
        return Err(JournalError::Unsupported(
            "fast commits that must be replayed; mount the volume with Linux once, or run e2fsck"
                .into(),
        ));
    }
    Ok(())
}

/// The copies to replay.
struct Plan {
    /// Home and place of each copy, sorted by home.
    copies: Vec<(FsBlock, Place)>,
    /// The number after the last complete transaction.
    end: Tid,
    report: RecoveryReport,
    /// The memory of `copies`.
    grant: Grant,
}

impl Plan {
    fn new(scan: Scan) -> Result<Plan, JournalError> {
        let revoked = scan.copies.revoked();
        let (copies, grant) = scan.copies.into_list()?;
        Ok(Plan {
            end: scan.end,
            report: RecoveryReport {
                transactions: scan.transactions,
                replayed: copies.len() as u64,
                revoked,
            },
            copies,
            grant,
        })
    }

    /// Passes the blocks to `write` in the log's order, `batch_blocks` at a time.
    fn replay(
        &mut self,
        queue: &Queue,
        log: &LogMap,
        batch_blocks: usize,
        mut write: impl FnMut(Vec<(FsBlock, Buf)>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.copies.sort_unstable_by_key(|(_, place)| place.at());
        let mut reader = LogReader::new(queue, log, LogBlock(log.blocks()));
        for part in self.copies.chunks(batch_blocks) {
            let mut batch = Vec::with_capacity(part.len());
            for &(home, place) in part {
                let mut buf = reader.block(place.at())?.clone();
                if place.escaped() {
                    put_u32(buf.make_mut(), 0, MAGIC);
                }
                batch.push((home, buf));
            }
            write(batch)?;
        }
        Ok(())
    }
}
