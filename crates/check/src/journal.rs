//! The journal: its inode or its device, and its super block. A log that needs recovery is replayed
//! in memory, so the other passes see the volume as the next mount would.

use crate::Error;
use crate::finding::{Kind, Place};
use crate::mapping::{self, Sink};
use crate::state::Checker;
use crate::volume::read_device;
use ext4_format::extent::ExtentState;
use ext4_format::features::{CompatFeatures, IncompatFeatures};
use ext4_format::journal_device::{ExternalJournal, JournalDevice};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use jbd2::format::superblock::JournalSuperblock;
use jbd2::{JournalError, JournalExtent, JournalPlace};
use std::collections::HashSet;
use units::{FileBlock, FsBlock, Ino};

/// Most extents of a journal.
const MAX_EXTENTS: usize = 1 << 16;
/// Blocks of the smallest journal.
const MIN_BLOCKS: u64 = 1024;

/// The journal, and its place for findings.
struct Log {
    place: Place,
    journal: JournalPlace,
}

/// A journal, and its super block.
type Found = (Log, JournalSuperblock);

/// Why the journal cannot be examined.
enum Unusable {
    Damaged(Place, String),
    Unchecked(String),
}

#[derive(Default)]
struct Extents {
    runs: Vec<JournalExtent>,
    nodes: HashSet<FsBlock>,
    damaged: bool,
}

impl Sink for Extents {
    fn node(&mut self, block: FsBlock) -> bool {
        self.nodes.len() < MAX_EXTENTS && self.nodes.insert(block)
    }
    fn data(&mut self, file_block: FileBlock, start: FsBlock, len: u32, state: ExtentState) {
        let next = self
            .runs
            .last()
            .map_or(FileBlock::FIRST, |run| run.logical.saturating_add(run.len));
        if state == ExtentState::Unwritten || file_block != next || self.runs.len() == MAX_EXTENTS {
            self.damaged = true;
            return;
        }
        match self.runs.last_mut() {
            Some(run) if run.physical + u64::from(run.len) == start => {
                run.len = run.len.saturating_add(len);
            }
            _ => self.runs.push(JournalExtent {
                logical: file_block,
                physical: start,
                len,
            }),
        }
    }
    fn wrong(&mut self, _block: Option<FsBlock>, _message: String) {
        self.damaged = true;
    }
}

impl Checker<'_> {
    /// Checks the journal, and replays it in memory if a mount would replay it.
    pub fn replay_journal_in_memory(&mut self) -> Result<(), Error> {
        let sb = &self.v.sb;
        if !sb.compat().contains(CompatFeatures::HAS_JOURNAL) {
            return Ok(());
        }
        let found = match sb.external_journal() {
            Some(wanted) => self.journal_on_device(&wanted)?,
            None => self.journal_on_volume()?,
        };
        match found {
            Ok((place, journal)) => self.check_log(&place, &journal),
            Err(Unusable::Damaged(place, message)) => {
                self.problem(Kind::Journal, place, message);
                self.note_unseen_log("it is damaged");
                Ok(())
            }
            Err(Unusable::Unchecked(what)) => {
                self.note_unseen_log(&what);
                self.report.unchecked.push(format!("the journal: {what}"));
                Ok(())
            }
        }
    }

    /// Adds the log to what is unchecked, if a mount would replay it.
    fn note_unseen_log(&mut self, why: &str) {
        if self.v.sb.incompat().contains(IncompatFeatures::RECOVER) {
            self.report.unchecked.push(format!(
                "what the journal holds: the check saw the volume as it is without it ({why})"
            ));
        }
    }

    /// Finds the journal's file.
    fn journal_on_volume(&mut self) -> Result<Result<Found, Unusable>, Error> {
        let ino = Ino::JOURNAL;
        let place = Place::inode(ino);
        let bad = |message: &str| Ok(Err(Unusable::Damaged(place.clone(), message.to_owned())));
        let Some((_, Ok(fields))) = self.read_inode(ino)? else {
            return bad("the journal's inode cannot be read");
        };
        if !fields.mode.is_regular() || fields.links_count == 0 {
            return bad("the journal's inode is no file in use");
        }
        let mut extents = Extents::default();
        mapping::walk(&self.v, ino, &fields, &mut extents)?;
        let size = self.v.geo.block_size;
        let blocks: u64 = extents.runs.iter().map(|run| u64::from(run.len)).sum();
        if extents.damaged || extents.runs.is_empty() || blocks > u64::from(u32::MAX) {
            return bad("the journal has holes, or is mapped to impossible places");
        }
        if blocks < MIN_BLOCKS {
            return bad("the journal has fewer than 1024 blocks");
        }
        if fields.size != blocks * u64::from(size) {
            return bad("the journal's size is not that of its blocks");
        }
        let place = place.at_block(extents.runs[0].physical);
        self.parse_journal(place, extents.runs.into())
    }

    /// Checks that the device that was given has the journal.
    fn journal_on_device(
        &mut self,
        wanted: &ExternalJournal,
    ) -> Result<Result<Found, Unusable>, Error> {
        let unchecked = |what: String| Ok(Err(Unusable::Unchecked(what)));
        let Some(queue) = self.v.journal.clone() else {
            return unchecked(format!(
                "it is on a device of its own, with UUID {}; name that device by --journal PATH",
                wanted.uuid
            ));
        };
        let bytes = read_device(&queue, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
        let checked = JournalDevice::parse(&bytes)
            .and_then(|found| Ok((wanted.check(&found)?, found.log_superblock())));
        let (blocks, superblock) = match checked {
            Ok(checked) => checked,
            Err(error) => return unchecked(format!("{}: {error}", queue.name())),
        };
        let device = jbd2::JournalDevice {
            queue,
            superblock,
            blocks,
            user: self.v.sb.uuid,
        };
        self.parse_journal(Place::default(), JournalPlace::OnDevice(device))
    }

    /// Reads the journal's super block.
    fn parse_journal(
        &mut self,
        place: Place,
        journal: JournalPlace,
    ) -> Result<Result<Found, Unusable>, Error> {
        let (queue, size) = (&self.v.queue, self.v.geo.block_size);
        match jbd2::read_superblock(queue, &journal, size) {
            Ok(sb) => Ok(Ok((Log { place, journal }, sb))),
            Err(JournalError::Io(error)) => Err(error.into()),
            Err(JournalError::Unsupported(what)) => Ok(Err(Unusable::Unchecked(what))),
            Err(error) => Ok(Err(Unusable::Damaged(place, error.to_string()))),
        }
    }

    /// Checks the state of the journal, and replays its log in memory if a mount would replay it.
    fn check_log(&mut self, log: &Log, sb: &JournalSuperblock) -> Result<(), Error> {
        let needs_recovery = self.v.sb.incompat().contains(IncompatFeatures::RECOVER);
        if sb.errno() != 0 {
            self.report.note(
                Kind::Journal,
                log.place.clone(),
                format!("the journal was stopped by error {}", sb.errno()),
            );
        }
        if sb.start().is_some() && !needs_recovery {
            self.problem(
                Kind::Journal,
                log.place.clone(),
                "the journal holds transactions but the super block does not say needs_recovery",
            );
        }
        if !needs_recovery {
            return Ok(());
        }
        self.note_fast_commits(&log.journal)?;
        let (queue, size) = (&self.v.queue, self.v.geo.block_size);
        match jbd2::recover_to_memory(queue, &log.journal, size, &self.v.budget) {
            Ok((overlay, recovery)) => {
                self.v.overlay = overlay;
                self.report.transactions = recovery.transactions;
                self.report.note(
                    Kind::Journal,
                    log.place.clone(),
                    format!(
                        "the volume needs recovery: {} transactions are seen as if replayed",
                        recovery.transactions
                    ),
                );
                self.v.reload()?;
                self.load_groups()?;
            }
            Err(JournalError::Io(error)) => return Err(error.into()),
            Err(JournalError::Unsupported(what)) => {
                self.report
                    .unchecked
                    .push(format!("what the journal holds: {what}"));
            }
            Err(error @ JournalError::LogNeedsMemory { .. }) => {
                self.report
                    .unchecked
                    .push(format!("what the journal holds: {error}"));
            }
            Err(error) => self.problem(Kind::Journal, log.place.clone(), error.to_string()),
        }
        Ok(())
    }

    /// Adds fast commits, which are not replayed here, to what is unchecked. A journal whose log
    /// cannot be read is reported by the replay of the log.
    fn note_fast_commits(&mut self, journal: &JournalPlace) -> Result<(), Error> {
        let (queue, budget) = (&self.v.queue, &self.v.budget);
        match jbd2::fast_commits(queue, journal, self.v.geo.block_size, budget) {
            Ok(Some(_)) => {
                let what = "fast commits behind the log: the check saw the volume of the last full \
                            commit; mount it once to replay them";
                self.report.unchecked.push(what.to_owned());
                Ok(())
            }
            Err(JournalError::Io(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
