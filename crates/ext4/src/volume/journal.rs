//! Opening the journal of a volume, with its recovery.

use super::assemble::has_journal;
use super::{bootstrap, fast_commit, journal_device};
use crate::state::MountOptions;
use crate::{Error, Result};
use block::Queue;
use cache::Budget;
use ext4_format::features::IncompatFeatures;
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{Access, Superblock};
use jbd2::{Journal, JournalOptions, JournalPlace, LogFormat, Overlay, RecoveryReport};
use std::sync::Arc;
use units::Ino;

/// An open journal, and the report of its recovery.
pub(super) struct Opened {
    /// The volume's device. A read-only volume with fast commits has another one than before.
    pub queue: Arc<Queue>,
    pub journal: Arc<Journal>,
    /// Where the log is; `None` if there is none, or none is needed.
    pub place: Option<JournalPlace>,
    pub recovery: RecoveryReport,
}

/// Refuses a journal device that the volume has no use for, and a volume whose journal is needed
/// and was not given.
pub(super) fn check_device(sb: &Superblock, access: Access, mount: &MountOptions) -> Result<()> {
    let needs_journal = access == Access::ReadWrite || is_replayed(sb, mount);
    match (sb.external_journal(), &mount.journal) {
        (None, Some(_)) => Err(Error::Invalid(
            "a journal device was given, and the volume has no journal on a device of its own",
        )),
        (Some(wanted), None) if needs_journal => Err(Error::NoJournalDevice(wanted)),
        _ => Ok(()),
    }
}

/// Whether the mount replays the journal.
fn is_replayed(sb: &Superblock, mount: &MountOptions) -> bool {
    sb.incompat().contains(IncompatFeatures::RECOVER) && !mount.no_recovery
}

/// Returns the place of the journal; `None` if there is none, or none is needed.
fn find(
    queue: &Queue,
    geo: &Geometry,
    sb: &Superblock,
    mount: &MountOptions,
) -> Result<Option<JournalPlace>> {
    if !has_journal(sb) {
        return Ok(None);
    }
    let Some(wanted) = sb.external_journal() else {
        let extents = bootstrap::journal_extents(queue, geo, Ino(sb.journal_inum.get()))?;
        return Ok(Some(extents.into()));
    };
    let place = |device| journal_device::place(&wanted, sb, device);
    mount.journal.as_ref().map(place).transpose()
}

/// Recovers and opens the journal. A read-only volume is recovered in memory.
pub(super) fn open(
    queue: &Arc<Queue>,
    geo: &Geometry,
    sb: &Superblock,
    access: Access,
    budget: &Arc<Budget>,
    mount: &MountOptions,
) -> Result<Opened> {
    let options = JournalOptions {
        commit_interval: mount.commit_interval,
        block_size: geo.block_size,
        format: match geo.has_metadata_csum() {
            true => LogFormat::ChecksumV3,
            false => LogFormat::Kept,
        },
        async_commit: mount.async_commit,
        uuid: sb.uuid,
    };
    let needs_recovery = is_replayed(sb, mount);
    let place = find(queue, geo, sb, mount)?;
    let mut recovery = RecoveryReport::default();
    let mut queue = queue.clone();
    let replayed = match &place {
        Some(place) if needs_recovery => {
            fast_commit::replay(&queue, place, &options, budget, mount)?
        }
        _ => None,
    };
    let journal = match (access, &place) {
        (Access::ReadOnly, place) => {
            let mut overlay = Overlay::default();
            if let Some(replayed) = replayed {
                queue = replayed.queue();
                recovery = replayed.report;
            } else if let Some(place) = place
                && needs_recovery
            {
                (overlay, recovery) =
                    jbd2::recover_to_memory(&queue, place, geo.block_size, budget)?;
            }
            Journal::read_only(queue.clone(), overlay, budget.clone(), options)
        }
        (Access::ReadWrite, None) => Journal::without_log(queue.clone(), budget.clone(), options),
        (Access::ReadWrite, Some(place)) => {
            if needs_recovery {
                recovery = match replayed {
                    Some(replayed) => {
                        replayed.make_durable(&queue, place, geo.block_size, budget)?
                    }
                    None => jbd2::recover(&queue, place, geo.block_size, budget)?,
                };
                tracing::info!("{}: journal replayed: {recovery:?}", queue.name());
            }
            Journal::open(queue.clone(), place, budget.clone(), options)?
        }
    };
    Ok(Opened {
        queue,
        journal,
        place,
        recovery,
    })
}
