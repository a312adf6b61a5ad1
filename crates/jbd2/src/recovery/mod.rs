//! Replay of the log after a crash.
//!
//! Algorithm, in the three steps of the kernel's `jbd2`:
//!
//! 1. **Scan** (`scan.rs`): read the log from where the super block says, transaction by
//!    transaction, for as long as blocks carry the magic and the expected number, and verify every
//!    checksum there is. Only a transaction whose commit block was found counts. The result is, for
//!    each block, where its newest copy lies in the log (`copies.rs`).
//! 2. **Revoke**: a copy is left out if a revoke record of the same or a later transaction covers
//!    its block. That is done as each transaction turns out to be complete.
//! 3. **Replay**: the remaining copies are read in the log's order and written home in batches,
//!    sorted and merged. Flush; then a super block that says the log is empty, with a number past
//!    everything that the log may hold.
//!
//! Replay can be interrupted anywhere and started again: the log is untouched until the last step.
//!
//! A log may be hostile: the scan visits every log block at most once and every revoke block twice,
//! and replay reads a copy once. A block number must lie on the volume and outside of the journal.
//! Lists that grow with the log are counted in the memory budget and bounded by it (`grant.rs`).

mod copies;
mod grant;
mod scan;

use crate::format::superblock::{JournalSuperblock, SUPERBLOCK_BYTES};
use crate::format::{MAGIC, fast_commit, incompat, put_u32};
use crate::log::LogMap;
use crate::{JournalError, JournalExtent, Overlay};
use block::{Bio, Buf, BufMut, Class, Completion, Queue, Reason};
use cache::Budget;
use scan::{LogReader, Scan};
use smallvec::smallvec;
use std::sync::Arc;

pub(crate) use copies::Place;
pub(crate) use grant::Grant;

/// Blocks that are read from the log and written home at once, at most and at least.
const BATCH_BLOCKS: usize = 2048;
const MIN_BATCH_BLOCKS: usize = 64;
/// A batch takes this part of the memory budget at most.
const BATCH_PART: u64 = 16;

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Transactions found in the log.
    pub transactions: u32,
    /// Blocks written home.
    pub replayed: u64,
    /// Blocks left out because a revoke record covers them.
    pub revoked: u64,
}

/// Replays the log onto the volume and leaves an empty one. Does nothing for a clean journal.
///
/// # Errors
/// [`JournalError::Corrupt`] where the journal's super block is damaged, or a transaction that is
/// not the last one is; [`JournalError::Unsupported`] for features that are not known and for fast
/// commits in use; [`JournalError::LogNeedsMemory`] where `budget` is too small to list the log's
/// blocks; nothing has been written then. [`JournalError::Io`] where the device failed; recovery
/// can be tried again.
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
                    block * size,
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
    // The number after the last transaction may be that of a torn one; the one after that is new.
    dirty.sb.set_tail(0, plan.end.next().0);
    let mut first = BufMut::copy_of(&dirty.first_block);
    first[..SUPERBLOCK_BYTES].copy_from_slice(dirty.sb.encode());
    dirty.log.write_fua(queue, 0, first.freeze())?;
    Ok(plan.report)
}

/// The same without writing: what a replay would write, to be read from the log when it is needed.
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

/// Steps 1 and 2; `None` for a clean journal.
fn examine(
    queue: &Queue,
    extents: &[JournalExtent],
    block_size: u32,
    budget: &Arc<Budget>,
) -> Result<Option<(Dirty, Plan)>, JournalError> {
    let log = LogMap::new(extents, block_size, queue)?;
    let first_block = log.read(queue, 0, 1)?.remove(0);
    let sb = JournalSuperblock::parse(&first_block, block_size, log.blocks())?;
    if sb.start() == 0 {
        return Ok(None);
    }
    let scan = scan::scan(queue, &log, &sb, Grant::new(budget))?;
    refuse_fast_commits(queue, &log, &sb, &scan)?;
    let plan = Plan::new(scan)?;
    let dirty = Dirty {
        log,
        sb,
        first_block,
    };
    Ok(Some((dirty, plan)))
}

/// Fast commits that continue the log cannot be replayed here, and without them acknowledged
/// changes would be lost.
fn refuse_fast_commits(
    queue: &Queue,
    log: &LogMap,
    sb: &JournalSuperblock,
    scan: &Scan,
) -> Result<(), JournalError> {
    // The area begins one block behind the end of the log.
    let area = sb.log_end() + 1;
    if !sb.has_incompat(incompat::FAST_COMMIT) || area >= sb.max_len() {
        return Ok(());
    }
    let block = log.read(queue, area, 1)?.remove(0);
    if fast_commit::head_sequence(&block) == Some(scan.end.0) {
        return Err(JournalError::Unsupported(
            "fast_commit (with fast commits to be replayed; mount it with Linux or run e2fsck)"
                .into(),
        ));
    }
    Ok(())
}

/// What is to be replayed.
struct Plan {
    /// Home and place of each copy, by home.
    copies: Vec<(u64, Place)>,
    /// The number after the last complete transaction.
    end: crate::Tid,
    report: RecoveryReport,
    /// Of `copies`.
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

    /// Hands the blocks to `write` in the log's order, `batch_blocks` at a time.
    fn replay(
        &mut self,
        queue: &Queue,
        log: &LogMap,
        batch_blocks: usize,
        mut write: impl FnMut(Vec<(u64, Buf)>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.copies.sort_unstable_by_key(|(_, place)| place.at());
        let mut reader = LogReader::new(queue, log, log.blocks());
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
