//! Mount and unmount.
//!
//! ```text
//!  open device ─> super block, features ─> protection (mmp) claimed ─> journal found ─> log and fast commits replayed ─> super block read again
//!     ─> journal opened, needs_recovery set on disk ─> groups ─> orphans deleted ─> in use
//!  in use ─> sync, orphans deleted ─> log emptied, journal closed ─> super block: counts, needs_recovery cleared
//!     └─ if any step fails ─> needs_recovery stays
//! ```

use super::assemble::{Parts, geometry, has_journal};
use super::{bootstrap, journal, orphans};
use crate::damage::carry_over;
use crate::mmp::{Protection, Release};
use crate::state::MountOptions;
use crate::{Error, Fs, Result, orphan};
use block::{BufMut, Class, Durability, Queue, Reason};
use cache::Budget;
use ext4_format::features::{IncompatFeatures, RoCompatFeatures};
use ext4_format::superblock::{Access, State, Superblock};
use std::sync::Arc;
use sync::atomic::Ordering;
use units::Ino;

/// The condition in which a mount leaves the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// Everything is written, the log is empty, and no orphan is left.
    Clean,
    /// The next mount or e2fsck has work.
    NeedsRecovery,
}

impl Fs {
    /// Mounts the volume on the device behind `queue`: replays the journal and deletes orphans.
    pub fn mount(queue: Arc<Queue>, options: MountOptions) -> Result<Arc<Fs>> {
        let mut superblock = bootstrap::read_superblock(&queue)?;
        let (read_only, reason) = effective_access(&queue, &superblock, &options)?;
        let access = match read_only {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        };
        journal::check_device(&superblock, access, &options)?;
        let (mut geo, mut page_size) = geometry(&queue, &superblock)?;
        let protection = match read_only {
            true => None,
            false => Protection::claim(&queue, &superblock, &geo, &options.clock)?,
        };
        if protection.is_some() {
            // Another node may have changed it before the claim.
            superblock = bootstrap::read_superblock(&queue)?;
            (geo, page_size) = geometry(&queue, &superblock)?;
        }
        let budget = options
            .budget
            .clone()
            .unwrap_or_else(|| Budget::of_memory(options.memory));
        let opened = journal::open(&queue, &geo, &superblock, access, &budget, &options)?;
        if opened.recovery.replayed > 0 && !read_only {
            let before = superblock;
            superblock = bootstrap::read_superblock(&queue)?;
            carry_over(&before, &mut superblock);
            geo = geometry(&queue, &superblock)?.0;
        }
        let fs = Fs::assemble(Parts {
            queue: opened.queue,
            superblock,
            geo,
            page_size,
            access,
            read_only_reason: reason,
            protection,
            budget,
            options,
            journal: opened.journal,
            journal_place: opened.place,
            recovery: opened.recovery,
        })?;
        if !read_only && let Err(error) = fs.begin_use() {
            return Err(fs.give_up(error));
        }
        Ok(fs)
    }

    /// Marks the volume as in use, on disk and before anything else changes, and deletes orphans.
    fn begin_use(&self) -> Result<()> {
        // Writes of an earlier user that this mount reads become durable.
        self.queue.flush(Reason::Other)?;
        if let Some(journal) = self.journal.device() {
            journal.flush(Reason::Other)?;
        }
        // The journal of an earlier user stopped with an error: the super block records it for
        // e2fsck.
        let errno = self.journal.recorded_errno();
        {
            let mut sb = self.superblock.lock();
            if errno != 0 {
                tracing::warn!(
                    "{}: the journal was stopped by an error earlier; run e2fsck",
                    self.queue.name()
                );
                let state = sb.state() | State::ERROR;
                sb.set_state(state);
            }
            mark_in_use(&mut sb);
            let count = sb.mnt_count.get().saturating_add(1);
            sb.mnt_count.set(count);
            sb.set_mount_time(self.options.clock.realtime().0.max(0) as u64);
        }
        self.write_superblock()?;
        if errno != 0 {
            self.journal.clear_recorded_errno()?;
        }
        *self.orphans.lock() = orphans::recover(self)?;
        Ok(())
    }

    /// Ends a mount that has failed after it began to use the volume. As in a crash nothing more is
    /// written, needs_recovery stays, and orphans stay recorded, so that the next mount or e2fsck
    /// recovers. Damage is recorded.
    fn give_up(&self, error: Error) -> Error {
        let error = self.blame("mount", Ino(0), error);
        self.crash();
        error
    }

    /// Writes the super block in place, without the journal.
    fn write_superblock(&self) -> Result<()> {
        let block = self.superblock_block();
        let mut bytes = BufMut::copy_of(&self.journal.get(block)?.data());
        self.encode_superblock(&mut bytes);
        self.queue.write(
            block.offset(self.geo.block_size),
            &[bytes.freeze()],
            Class::Metadata,
            Reason::Other,
            Durability::Fua,
        )?;
        Ok(())
    }

    /// Writes everything, empties the journal and marks the volume clean. Later calls return the
    /// same outcome.
    pub fn unmount(&self) -> Result<()> {
        let mut unmounted = self.lock_unmounted();
        let end = || {
            let ended = self.end();
            self.end_protection(Release::Clean);
            ended
        };
        unmounted.get_or_insert_with(end).clone()
    }

    fn end_protection(&self, how: Release) {
        if let Some(protection) = &self.protection {
            protection.release(how);
        }
    }

    fn end(&self) -> Result<()> {
        self.fsyncs.close();
        if self.is_read_only() {
            self.bdi.shutdown();
            if self.errors.is_unsaved() {
                self.errors.save();
            }
            let closed = self.journal.close();
            // Changes that a stopped journal had not committed are lost. This may be the first call
            // to report it.
            self.check_journal()?;
            return closed.map_err(Error::from);
        }
        let synced = self.sync_now();
        self.discard_freed();
        self.delete_unlinked();
        // A deletion by the flusher would give up on a read-only volume.
        self.unlinked.wait();
        // Changes are refused from here on. The second sync writes those that came during the first
        // one, so the flusher still runs.
        self.become_read_only("unmounted");
        self.wait_for_writers();
        let synced = synced.and(self.sync_now());
        self.bdi.shutdown();
        self.journal.close()?;
        let left = orphan::any(self);
        let condition = match synced.is_ok() && !left {
            true => Condition::Clean,
            false => Condition::NeedsRecovery,
        };
        self.write_last_superblock(condition)?;
        synced
    }

    /// Writes the last super block of a mount. Only here is needs_recovery cleared. Otherwise it
    /// stays for the next mount and for e2fsck.
    fn write_last_superblock(&self, condition: Condition) -> Result<()> {
        if condition == Condition::Clean {
            let mut sb = self.superblock.lock();
            mark_clean(&mut sb);
            let ro_compat = sb.ro_compat() - RoCompatFeatures::ORPHAN_PRESENT;
            sb.set_ro_compat(ro_compat);
        }
        self.write_superblock()?;
        Ok(self.queue.flush(Reason::Other)?)
    }

    /// Stops without writing anything more, as if the process had been killed. For a volume whose
    /// device has another owner now, and for tests of recovery.
    pub fn crash(&self) {
        *self.lock_unmounted() = Some(Err(Error::ReadOnly));
        // In this order: an fsync on a read-only volume looks for the journal's error.
        self.journal.crash();
        self.read_only.store(true, Ordering::Release);
        self.fsyncs.close();
        self.bdi.shutdown();
        let _ = self.journal.close();
        self.end_protection(Release::Crash);
    }
}

/// Whether the mount is read-only, and why if the options do not ask for it.
fn effective_access(
    queue: &Queue,
    sb: &Superblock,
    options: &MountOptions,
) -> Result<(bool, Option<String>)> {
    sb.check_features(Access::ReadOnly)?;
    if options.read_only {
        return Ok((true, None));
    }
    if options.no_recovery {
        return Err(Error::Invalid(
            "a volume without recovery of its journal can only be mounted read-only",
        ));
    }
    let reason = if queue.read_only() {
        Some("the device is opened for reading only".to_owned())
    } else if let Err(e) = sb.check_features(Access::ReadWrite) {
        Some(e.to_string())
    } else if !has_journal(sb) && !sb.state().contains(State::VALID) {
        Some("it has no journal and was not unmounted; run e2fsck, which repairs it".to_owned())
    } else if !sb
        .blocks_count()
        .is_multiple_of(1 << sb.cluster_bits().unwrap_or(0))
    {
        Some("its last cluster is cut off, which is not supported for writing yet".to_owned())
    } else if options
        .journal
        .as_ref()
        .is_some_and(|journal| journal.read_only())
    {
        Some("the device of its journal is opened for reading only".to_owned())
    } else {
        None
    };
    if let Some(reason) = &reason {
        tracing::warn!("{}: mounted read-only: {reason}", queue.name());
    }
    Ok((reason.is_some(), reason))
}

/// Marks a volume as in use: a mount after a crash replays the journal. Where there is none, e2fsck
/// has to look for what the crash has left.
fn mark_in_use(sb: &mut Superblock) {
    match has_journal(sb) {
        true => sb.set_incompat(sb.incompat() | IncompatFeatures::RECOVER),
        false => sb.set_state(sb.state() - State::VALID),
    }
}

/// Undoes [`mark_in_use`].
fn mark_clean(sb: &mut Superblock) {
    match has_journal(sb) {
        true => sb.set_incompat(sb.incompat() - IncompatFeatures::RECOVER),
        false => sb.set_state(sb.state() | State::VALID),
    }
}
