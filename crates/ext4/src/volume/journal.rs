//! Opening the journal of a volume, with its recovery.

use super::assemble::{has_external_journal, has_journal};
use super::{bootstrap, fast_commit};
use crate::state::MountOptions;
use crate::{Error, Result};
use block::Queue;
use cache::Budget;
use ext4_format::features::IncompatFeatures;
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{Access, Superblock};
use jbd2::{Journal, JournalExtent, JournalOptions, LogFormat, Overlay, RecoveryReport};
use std::sync::Arc;
use units::Ino;

/// An open journal, and the report of its recovery.
pub(super) struct Opened {
    /// The volume's device. A read-only volume with fast commits has another one than before.
    pub queue: Arc<Queue>,
    pub journal: Arc<Journal>,
    /// Where the log is; empty for a volume without one.
    pub extents: Vec<JournalExtent>,
    pub recovery: RecoveryReport,
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
    let needs_recovery = sb.incompat().contains(IncompatFeatures::RECOVER);
    if needs_recovery && has_external_journal(sb) {
        return Err(Error::Unsupported(
            "the volume was not unmounted, and its journal is on a device of its own; mount it \
             with the kernel once"
                .into(),
        ));
    }
    let has_log = has_journal(sb) && !has_external_journal(sb);
    let extents = if has_log {
        bootstrap::journal_extents(queue, geo, Ino(sb.journal_inum.get()))?
    } else {
        Vec::new()
    };
    let mut recovery = RecoveryReport::default();
    let mut queue = queue.clone();
    let replayed = match needs_recovery && has_log {
        true => fast_commit::replay(&queue, &extents, &options, budget, mount)?,
        false => None,
    };
    let journal = if access == Access::ReadOnly {
        let mut overlay = Overlay::default();
        if let Some(replayed) = replayed {
            queue = replayed.queue();
            recovery = replayed.report;
        } else if needs_recovery && !extents.is_empty() {
            (overlay, recovery) =
                jbd2::recover_to_memory(&queue, &extents, geo.block_size, budget)?;
        }
        Journal::read_only(queue.clone(), overlay, budget.clone(), options)
    } else if !has_log {
        Journal::without_log(queue.clone(), budget.clone(), options)
    } else {
        if needs_recovery {
            recovery = match replayed {
                Some(replayed) => {
                    replayed.make_durable(&queue, &extents, geo.block_size, budget)?
                }
                None => jbd2::recover(&queue, &extents, geo.block_size, budget)?,
            };
            tracing::info!("{}: journal replayed: {recovery:?}", queue.name());
        }
        Journal::open(queue.clone(), extents.clone(), budget.clone(), options)?
    };
    Ok(Opened {
        queue,
        journal,
        extents,
        recovery,
    })
}
