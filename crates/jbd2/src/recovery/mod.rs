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
//! step. The flush is that of the volume's device, also if the log is on a device of its own.
//!
//! Fast commits may continue a log (`fast_commit.rs`). The client replays them, because they are
//! changes of files and not of blocks, and [`recover_with`] makes the result durable.
//!
//! The log may be hostile. The scan reads each log block at most once and each revoke block twice;
//! replay reads a copy once. A block number must lie on the volume and outside of the journal. The
//! memory of lists that grow with the log is charged to the budget and bounded (`grant.rs`).

mod copies;
mod fast_commit;
mod grant;
mod overlay;
mod scan;

pub use fast_commit::{FastCommits, fast_commits, recover_with};
pub use overlay::Overlay;

use crate::format::superblock::{JournalSuperblock, SUPERBLOCK_BYTES};
use crate::format::{MAGIC, put_u32};
use crate::log::LogMap;
use crate::{JournalError, JournalPlace, LogBlock, Tid};
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
    /// Changes of fast commits. The client replays them and sets this.
    pub fast_changes: u64,
}

/// Replays the log onto the volume and empties it. A clean journal stays as it is.
///
/// Fast commits that continue the log are dropped: see [`fast_commits`].
///
/// # Errors
/// Nothing was written in these cases:
/// - [`JournalError::Corrupt`] if the journal's super block or a transaction before the last one is
///   damaged.
/// - [`JournalError::Unsupported`] for unknown features.
/// - [`JournalError::LogNeedsMemory`] if `budget` is too small to list the log's blocks.
///
/// After [`JournalError::Io`], recovery can be tried again.
pub fn recover(
    queue: &Queue,
    place: &JournalPlace,
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<RecoveryReport, JournalError> {
    let Some((mut dirty, mut plan)) = examine(queue, place, block_size, budget)? else {
        return Ok(RecoveryReport::default());
    };
    plan.write_home(queue, &dirty.log, block_size, budget)?;
    // A torn transaction may have the number `plan.end`. The number after that is new.
    dirty.sb.set_empty(plan.end.next());
    dirty.write_superblock(queue)?;
    Ok(plan.report)
}

/// Returns the blocks that [`recover`] would write, as an overlay that reads them from the log, and
/// writes nothing.
///
/// # Errors
/// As [`recover`].
pub fn recover_to_memory(
    queue: &Queue,
    place: &JournalPlace,
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<(Overlay, RecoveryReport), JournalError> {
    let Some((dirty, plan)) = examine(queue, place, block_size, budget)? else {
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

impl Dirty {
    fn write_superblock(&mut self, queue: &Queue) -> Result<(), JournalError> {
        let mut first = BufMut::copy_of(&self.first_block);
        first[..SUPERBLOCK_BYTES].copy_from_slice(self.sb.encode());
        self.log
            .write_fua(queue, LogBlock::SUPERBLOCK, first.freeze())
    }
}

/// Returns the journal's super block.
///
/// # Errors
/// [`JournalError::Corrupt`], [`JournalError::Unsupported`] or [`JournalError::Io`].
pub fn read_superblock(
    queue: &Queue,
    place: &JournalPlace,
    block_size: u32,
) -> Result<JournalSuperblock, JournalError> {
    open_log(queue, place, block_size).map(|(_, _, sb)| sb)
}

/// Returns the journal's blocks, block 0, and the super block in it.
fn open_log(
    queue: &Queue,
    place: &JournalPlace,
    block_size: u32,
) -> Result<(LogMap, Buf, JournalSuperblock), JournalError> {
    let log = LogMap::new(place, block_size, queue)?;
    let (first_block, sb) = log.superblock(queue)?;
    Ok((log, first_block, sb))
}

/// Steps 1 and 2. Returns `None` for a clean journal.
fn examine(
    queue: &Queue,
    place: &JournalPlace,
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<Option<(Dirty, Plan)>, JournalError> {
    let (log, first_block, sb) = open_log(queue, place, block_size)?;
    let Some(start) = sb.start() else {
        return Ok(None);
    };
    let scan = scan::scan(queue, &log, &sb, start, Grant::new(budget))?;
    let plan = Plan::new(scan)?;
    let dirty = Dirty {
        log,
        sb,
        first_block,
    };
    Ok(Some((dirty, plan)))
}

/// The copies to replay.
struct Plan {
    /// Home and place of each copy, sorted by home.
    copies: Vec<(FsBlock, Place)>,
    /// The number after the last complete transaction.
    end: Tid,
    /// The block after the last complete transaction.
    end_at: LogBlock,
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
            end_at: scan.end_at,
            report: RecoveryReport {
                transactions: scan.transactions,
                replayed: copies.len() as u64,
                revoked,
                fast_changes: 0,
            },
            copies,
            grant,
        })
    }

    /// Writes the copies to their homes and makes them durable.
    fn write_home(
        &mut self,
        queue: &Queue,
        log: &LogMap,
        block_size: u32,
        budget: &Budget,
    ) -> Result<(), JournalError> {
        let blocks = (budget.limit() / BATCH_PART / u64::from(block_size)) as usize;
        let batch_blocks = blocks.clamp(MIN_BATCH_BLOCKS, BATCH_BLOCKS);
        self.replay(queue, log, batch_blocks, |batch| {
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
        Ok(queue.flush(Reason::Recovery)?)
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
