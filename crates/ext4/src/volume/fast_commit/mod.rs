//! Fast commits of an unclean volume.
//!
//! ```text
//!   journal ─▶ jbd2::fast_commits: the log's blocks, the area ─▶ fast_commit::Reader: changes
//!                                                                           │
//!   volume with the log's blocks ◀── ChangedDevice ◀── Fs without a log ◀── replay
//!                                          │
//!         a read-only mount reads it     a writable mount: jbd2::recover_with(changed blocks)
//! ```
//!
//! The replay runs on a volume of its own, whose changes stay in memory. So a fast commit that
//! cannot be replayed has changed nothing, and a writable mount makes all changes durable in one
//! transaction. A volume is written without fast commits, which the feature allows.

mod changed;
mod charged;
mod replay;

use super::assemble::{Parts, geometry};
use super::bootstrap;
use crate::state::MountOptions;
use crate::{Error, Fs, Result};
use block::Queue;
use cache::Budget;
use changed::ChangedDevice;
use charged::Charged;
use ext4_format::fast_commit::{FastCommits, Next, Reader};
use ext4_format::features::RoCompatFeatures;
use ext4_format::superblock::{Access, Superblock};
use jbd2::{Journal, JournalError, JournalOptions, JournalPlace, RecoveryReport};
use std::fmt::Display;
use std::sync::Arc;

/// The part of the memory budget that the tags of fast commits may take.
const BUDGET_PART: u64 = 8;
const LEAST: u64 = 4 << 20;

/// The volume after its log and its fast commits.
pub(super) struct Replayed {
    device: ChangedDevice,
    /// The blocks in the log, and the number of changes.
    pub report: RecoveryReport,
}

impl Replayed {
    /// Returns a queue that reads the volume, for a read-only mount.
    pub fn queue(&self) -> Arc<Queue> {
        self.device.queue()
    }

    /// Writes the log and the changes home, and empties the log. The list of the log's blocks is
    /// dropped first, because recovery makes one of its own.
    pub fn make_durable(
        self,
        queue: &Queue,
        place: &JournalPlace,
        block_size: u32,
        budget: &Arc<Budget>,
    ) -> Result<RecoveryReport> {
        let changed = self.device.changed();
        let fast_changes = self.report.fast_changes;
        let mut charged = Charged::new(budget);
        charged.set(changed.len() as u64 * u64::from(block_size));
        drop(self);
        let report = jbd2::recover_with(queue, place, block_size, budget, &changed)?;
        Ok(RecoveryReport {
            fast_changes,
            ..report
        })
    }
}

/// Replays the fast commits that continue the log, in memory. Returns `None` if there are none.
///
/// # Errors
/// `Unsupported` for a volume that cannot be written; `Corrupt…` for changes that contradict the
/// volume; those of the journal.
pub(super) fn replay(
    queue: &Arc<Queue>,
    place: &JournalPlace,
    options: &JournalOptions,
    budget: &Arc<Budget>,
    mount: &MountOptions,
) -> Result<Option<Replayed>> {
    let Some(found) = jbd2::fast_commits(queue, place, options.block_size, budget)? else {
        return Ok(None);
    };
    let mut charged = Charged::new(budget);
    let commits = read(queue, &found, options.block_size, budget, &mut charged)?;
    if commits.is_empty() {
        return Ok(None);
    }
    let overlay = found.overlay().clone();
    let device = ChangedDevice::new(queue.clone(), overlay, options.block_size, budget.clone());
    let done = replay_on((&device, place), &commits, options, budget, mount);
    if let (Err(_), Some(most)) = (&done, device.exceeded()) {
        return Err(JournalError::LogNeedsMemory { most }.into());
    }
    let fast_changes = done?;
    tracing::info!(
        "{}: {fast_changes} changes of fast commits replayed",
        queue.name()
    );
    Ok(Some(Replayed {
        device,
        report: RecoveryReport {
            fast_changes,
            ..found.report()
        },
    }))
}

/// Reads the fast commits that count. `charged` has their bytes.
fn read(
    queue: &Queue,
    found: &jbd2::FastCommits,
    block_size: u32,
    budget: &Budget,
    charged: &mut Charged,
) -> Result<FastCommits> {
    let most = (budget.limit() / BUDGET_PART).max(LEAST);
    let mut reader = Reader::new(found.tid().0, block_size);
    for nth in 0..found.blocks() {
        if reader.bytes() as u64 > most {
            return Err(JournalError::LogNeedsMemory { most }.into());
        }
        let next = reader.push(&found.read(queue, nth)?)?;
        charged.set(reader.bytes() as u64);
        if next == Next::End {
            break;
        }
    }
    Ok(reader.finish())
}

fn replay_on(
    (device, place): (&ChangedDevice, &JournalPlace),
    commits: &FastCommits,
    options: &JournalOptions,
    budget: &Arc<Budget>,
    mount: &MountOptions,
) -> Result<u64> {
    let queue = device.queue();
    // The log may have a newer one than the device.
    let superblock = bootstrap::read_superblock(&queue)?;
    check_features(&queue, &superblock)?;
    let (geo, page_size) = geometry(&queue, &superblock)?;
    let journal = Journal::without_log(queue.clone(), budget.clone(), options.clone());
    let fs = Fs::assemble(Parts {
        queue,
        superblock,
        geo,
        page_size,
        access: Access::ReadWrite,
        read_only_reason: None,
        protection: None,
        budget: budget.clone(),
        options: mount.clone(),
        journal,
        journal_place: Some(place.clone()),
        recovery: RecoveryReport::default(),
    })?;
    let mut pinned = replay::Pinned::new();
    let done = replay::replay(&fs, commits, &mut pinned).map_err(|error| match error {
        Error::Encrypted { .. } | Error::IgnoresCase { .. } => unsupported(&fs.queue, &error),
        error => error,
    });
    // All that counts is in the device's changed blocks.
    fs.crash();
    done
}

fn check_features(queue: &Queue, superblock: &Superblock) -> Result<()> {
    let refused = match superblock.check_features(Access::ReadWrite) {
        Err(error) => error.to_string(),
        Ok(()) if superblock.ro_compat().contains(RoCompatFeatures::BIGALLOC) => {
            "that is not supported with bigalloc yet".to_owned()
        }
        Ok(()) => return Ok(()),
    };
    Err(unsupported(queue, &refused))
}

/// The error for fast commits that cannot be replayed here.
fn unsupported(queue: &Queue, reason: &dyn Display) -> Error {
    Error::Unsupported(format!(
        "{} has fast commits that must be replayed, but {reason}; mount it with Linux once, or run \
         e2fsck",
        queue.name()
    ))
}
