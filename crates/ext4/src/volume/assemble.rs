//! A volume in memory, made of its parts, and the parts that the super block describes.

use crate::alloc::{BlockRun, Groups, LiveGeometry};
use crate::damage::{ErrorLog, OnError};
use crate::mmp::Protection;
use crate::state::{
    ChangedInodes, FreedRuns, MountOptions, OrphanReport, OrphanState, SmallFileStream,
    TruncatedFiles, UnlandedFiles, Unlinked, UnmappedParts, WaitingSizes,
};
use crate::{Error, Fs, Result};
use block::Queue;
use cache::{Budget, Dentries, InodeTable};
use ext4_format::features::{CompatFeatures, IncompatFeatures};
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{Access, Superblock};
use jbd2::{Journal, JournalClient, JournalPlace, RecoveryReport};
use std::sync::{Arc, Weak};
use sync::Rank;
use sync::atomic::{AtomicBool, AtomicU32};
use units::{FsBlock, PageSize};
use writeback::{BackingDev, FsyncQueue, Ticket};

/// The parts of a mounted volume.
pub(super) struct Parts {
    pub queue: Arc<Queue>,
    pub superblock: Superblock,
    pub geo: Geometry,
    pub page_size: PageSize,
    pub access: Access,
    pub read_only_reason: Option<String>,
    pub protection: Option<Protection>,
    pub budget: Arc<Budget>,
    pub options: MountOptions,
    pub journal: Arc<Journal>,
    /// Where the log is.
    pub journal_place: Option<JournalPlace>,
    pub recovery: RecoveryReport,
}

impl Fs {
    /// Makes the volume in memory: reads the group descriptors and connects the parts.
    pub(super) fn assemble(parts: Parts) -> Result<Arc<Fs>> {
        let Parts {
            queue,
            superblock,
            geo,
            page_size,
            access,
            budget,
            options,
            journal,
            journal_place,
            ..
        } = parts;
        let geo = Arc::new(LiveGeometry::new(geo));
        let own = own_blocks(&superblock, journal_place.as_ref());
        let mut groups = Groups::load(journal.clone(), &budget, &geo, &own)?;
        groups.reserve_for_root(&superblock);
        let errors = ErrorLog::new(
            queue.clone(),
            journal.clone(),
            options.clock.clone(),
            options.errors.unwrap_or_else(|| OnError::of(&superblock)),
            access,
            &superblock,
        );
        groups.set_error_log(errors.clone());
        let mut seed = [0; 4];
        // Generations only have to differ from those of earlier mounts. The time serves where
        // random bytes are not available.
        if rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).is_err() {
            seed = options.clock.realtime().1.to_le_bytes();
        }
        let fs = Arc::new_cyclic(|me: &Weak<Fs>| Fs {
            me: me.clone(),
            bdi: BackingDev::new(
                me.clone(),
                queue.clone(),
                &budget,
                options.clock.clone(),
                options.tunables.clone(),
                options.flushers,
                page_size,
            ),
            fsyncs: FsyncQueue::new(me.clone()),
            syncs: Ticket::default(),
            truncated_files: TruncatedFiles::default(),
            unmapped_parts: UnmappedParts::default(),
            waiting_sizes: WaitingSizes::default(),
            freed_runs: FreedRuns::default(),
            inodes: InodeTable::new(&budget),
            dentries: Dentries::new(&budget),
            changed_inodes: ChangedInodes::default(),
            unlanded_files: UnlandedFiles::default(),
            journal,
            groups,
            small_files: SmallFileStream::new(geo.block_size, geo.cluster()),
            geo,
            page_size,
            queue,
            budget,
            options,
            superblock: Rank::Superblock.mutex(superblock),
            superblock_dirty: AtomicBool::new(false),
            read_only: AtomicBool::new(access == Access::ReadOnly),
            read_only_reason: Rank::ReadOnlyReason.mutex(parts.read_only_reason),
            protection: parts.protection,
            resizing: AtomicBool::new(false),
            unmounted: Rank::Unmounted.mutex(None),
            journal_blocks: journal_place.map_or(0, |place| place.blocks()),
            recovery: parts.recovery,
            orphans: Rank::OrphanReport.mutex(OrphanReport::default()),
            rename_lock: Rank::Rename.mutex(()),
            unlinked: Unlinked::default(),
            deleted_inodes: Default::default(),
            generation: AtomicU32::new(u32::from_le_bytes(seed)),
            recorded: AtomicBool::new(false),
            errors,
            orphan_state: OrphanState::default(),
        });
        let me: Weak<Fs> = fs.me.clone();
        fs.journal.set_client(me as Weak<dyn JournalClient>);
        if let Some(protection) = &fs.protection {
            protection.set_journal(&fs.journal);
        }
        Ok(fs)
    }
}

/// The blocks of the log on the volume, and the one of the multiple mount protection. The engine
/// writes to them whatever the bitmaps say, so no file may have them.
fn own_blocks(sb: &Superblock, journal: Option<&JournalPlace>) -> Vec<BlockRun> {
    let extents = match journal {
        Some(JournalPlace::OnVolume(extents)) => extents.as_slice(),
        Some(JournalPlace::OnDevice(_)) | None => &[],
    };
    let log = extents.iter().map(|extent| BlockRun {
        start: extent.physical,
        len: extent.len,
    });
    let has_mmp = sb.incompat().contains(IncompatFeatures::MMP);
    let mmp = has_mmp.then(|| BlockRun {
        start: FsBlock(sb.mmp_block.get()),
        len: 1,
    });
    log.chain(mmp).collect()
}

pub(super) fn has_journal(sb: &Superblock) -> bool {
    sb.compat().contains(CompatFeatures::HAS_JOURNAL)
}

pub(super) fn geometry(queue: &Queue, sb: &Superblock) -> Result<(Geometry, PageSize)> {
    let geo = Geometry::from_superblock(sb)?;
    let Some(page_size) = PageSize::of_bytes(geo.block_size) else {
        return Err(Error::Unsupported(format!(
            "{} has blocks of {} KiB; blocks of 1, 2 and 4 KiB are supported",
            queue.name(),
            geo.block_size >> 10
        )));
    };
    let sector = queue.device().sector_size();
    if sector > page_size.bytes() {
        return Err(Error::Unsupported(format!(
            "{} has sectors of {sector} bytes, and the volume on it smaller blocks of {}; copy the \
             volume to a device with smaller sectors, or to an image",
            queue.name(),
            geo.block_size
        )));
    }
    let bytes = geo.blocks_count.saturating_mul(u64::from(geo.block_size));
    if bytes > queue.capacity() {
        return Err(Error::Unsupported(format!(
            "{} has {} bytes but the volume on it {bytes}: the image was cut off",
            queue.name(),
            queue.capacity()
        )));
    }
    Ok((geo, page_size))
}
