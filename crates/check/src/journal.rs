//! The journal: its inode and its super block. A log that needs recovery is replayed in memory, so
//! the other passes see the volume as the next mount would.

use crate::Error;
use crate::finding::{Kind, Place};
use crate::mapping::{self, Sink};
use crate::state::Checker;
use ext4_format::extent::ExtentState;
use ext4_format::features::{CompatFeatures, IncompatFeatures};
use jbd2::format::superblock::JournalSuperblock;
use jbd2::{JournalError, JournalExtent};
use std::collections::HashSet;
use units::{FileBlock, FsBlock, Ino};

/// Most extents of a journal.
const MAX_EXTENTS: usize = 1 << 16;
/// Blocks of the smallest journal.
const MIN_BLOCKS: u64 = 1024;

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
    /// Adds fast commits, which are not replayed here, to what is unchecked. A journal whose log
    /// cannot be read is reported by the replay of the log.
    fn note_fast_commits(&mut self, journal: &[JournalExtent]) -> Result<(), Error> {
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

    /// Checks the journal, and replays it in memory if a mount would replay it.
    pub fn replay_journal_in_memory(&mut self) -> Result<(), Error> {
        let sb = &self.v.sb;
        if !sb.compat().contains(CompatFeatures::HAS_JOURNAL) {
            return Ok(());
        }
        if sb.journal_inum.get() == 0 {
            self.report
                .unchecked
                .push("the journal, which is on a device of its own".to_owned());
            return Ok(());
        }
        let needs_recovery = sb.incompat().contains(IncompatFeatures::RECOVER);
        let ino = Ino::JOURNAL;
        let place = Place::inode(ino);
        let bad = |checker: &mut Self, message: &str| {
            checker.problem(Kind::Journal, place.clone(), message);
            if needs_recovery {
                checker.report.unchecked.push(
                    "what the journal holds: the check saw the volume as it is without it"
                        .to_owned(),
                );
            }
            Ok(())
        };
        let Some((_, Ok(fields))) = self.read_inode(ino)? else {
            return bad(self, "the journal's inode cannot be read");
        };
        if !fields.mode.is_regular() || fields.links_count == 0 {
            return bad(self, "the journal's inode is no file in use");
        }
        let mut extents = Extents::default();
        mapping::walk(&self.v, ino, &fields, &mut extents)?;
        let size = self.v.geo.block_size;
        let blocks: u64 = extents.runs.iter().map(|run| u64::from(run.len)).sum();
        if extents.damaged || extents.runs.is_empty() || blocks > u64::from(u32::MAX) {
            return bad(
                self,
                "the journal has holes, or is mapped to impossible places",
            );
        }
        if blocks < MIN_BLOCKS {
            return bad(self, "the journal has fewer than 1024 blocks");
        }
        if fields.size != blocks * u64::from(size) {
            return bad(self, "the journal's size is not that of its blocks");
        }
        let first = extents.runs[0].physical;
        let bytes = self.v.read_block(first)?;
        let parsed = JournalSuperblock::parse(&bytes, size, blocks as u32);
        let place = Place::inode(ino).at_block(first);
        let journal = match parsed {
            Ok(journal) => journal,
            Err(JournalError::Unsupported(what)) => {
                self.report.unchecked.push(format!("the journal: {what}"));
                return Ok(());
            }
            Err(error) => {
                self.problem(Kind::Journal, place, error.to_string());
                return Ok(());
            }
        };
        if journal.errno() != 0 {
            self.report.note(
                Kind::Journal,
                place.clone(),
                format!("the journal was stopped by error {}", journal.errno()),
            );
        }
        if journal.start().is_some() && !needs_recovery {
            self.problem(
                Kind::Journal,
                place.clone(),
                "the journal holds transactions but the super block does not say needs_recovery",
            );
        }
        if needs_recovery {
            self.note_fast_commits(&extents.runs)?;
            match jbd2::recover_to_memory(&self.v.queue, &extents.runs, size, &self.v.budget) {
                Ok((overlay, recovery)) => {
                    self.v.overlay = overlay;
                    self.report.transactions = recovery.transactions;
                    self.report.note(
                        Kind::Journal,
                        Place::inode(ino),
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
                Err(error) => self.problem(Kind::Journal, place, error.to_string()),
            }
        }
        Ok(())
    }
}
