//! The scan of the log: it finds the complete transactions, their copies and their revoke records.
//!
//! [`DECISIONS`] says how each kind of block is handled. A transaction is written only after the
//! transaction before it is durable. So if a damaged transaction is followed by the commit block of
//! a later one, it had been committed, and the log is corrupt. Otherwise it is the last
//! transaction, torn by a crash, and is ignored.
//!
//! ```text
//!  expect T ──▶ descriptor or revoke block ──▶ note copies, revoke blocks ──▶ (next block)
//!           ──▶ commit block ──▶ apply to `Copies` ──▶ expect T+1
//!           ──▶ other block ──▶ end
//!           ──▶ damage ──▶ later commit block? ──▶ yes: Corrupt    no: end
//! ```

use super::Place;
use super::copies::Copies;
use super::grant::Grant;
use crate::format::checksum::Crc32Be;
use crate::format::superblock::JournalSuperblock;
use crate::format::{Checksums, Header, Layout, block_type, commit, descriptor, revoke};
use crate::log::LogMap;
use crate::{JournalDamage, JournalError, LogBlock, Tid};
use block::{Buf, Queue};
use units::FsBlock;

/// Most and fewest blocks of one read of the log.
const MAX_READ_BLOCKS: u32 = 256;
const MIN_READ_BLOCKS: u32 = 16;

/// The result of a scan.
pub(super) struct Scan {
    /// The newest copies, and whether they are revoked.
    pub copies: Copies,
    /// Number of complete transactions.
    pub transactions: u32,
    /// The number after the last complete transaction.
    pub end: Tid,
    /// The block after the last complete transaction.
    pub end_at: LogBlock,
}

/// The kinds of block that the scan can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    NoMagic,
    OtherSequence,
    UnknownType,
    Descriptor,
    DamagedDescriptor,
    Revoke,
    DamagedRevoke,
    Commit,
    DamagedCommit,
    /// An intact commit block of a transaction with damaged blocks.
    CommitOfDamaged,
}

/// How the scan continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The log ends before this transaction.
    End,
    /// The log is corrupt if a later transaction is complete. Otherwise it ends before this
    /// transaction.
    EndUnlessLater(JournalDamage),
    /// Note the tags and skip the copies after them.
    TakeTags,
    /// Note the revoke records.
    TakeRevokes,
    /// The transaction is complete.
    Complete,
}

/// Every kind with its consequence.
const DECISIONS: [(Found, Next); 10] = [
    (Found::NoMagic, Next::End),
    (Found::OtherSequence, Next::End),
    (Found::UnknownType, Next::End),
    (Found::Descriptor, Next::TakeTags),
    (
        Found::DamagedDescriptor,
        Next::EndUnlessLater(JournalDamage::DescriptorChecksum),
    ),
    (Found::Revoke, Next::TakeRevokes),
    (
        Found::DamagedRevoke,
        Next::EndUnlessLater(JournalDamage::RevokeChecksum),
    ),
    (Found::Commit, Next::Complete),
    (
        Found::DamagedCommit,
        Next::EndUnlessLater(JournalDamage::CommitChecksum),
    ),
    (
        Found::CommitOfDamaged,
        Next::EndUnlessLater(JournalDamage::CopyChecksum),
    ),
];

fn decide(found: Found) -> Next {
    DECISIONS
        .iter()
        .find(|(case, _)| *case == found)
        .map_or(Next::End, |&(_, next)| next)
}

/// Reads log blocks in sequence, many at once.
pub(super) struct LogReader<'a> {
    queue: &'a Queue,
    log: &'a LogMap,
    /// End of the blocks that may be read.
    end: LogBlock,
    /// The first block of `piece`.
    start: LogBlock,
    piece: Vec<Buf>,
    next_len: u32,
}
impl<'a> LogReader<'a> {
    pub fn new(queue: &'a Queue, log: &'a LogMap, end: LogBlock) -> LogReader<'a> {
        LogReader {
            queue,
            log,
            end,
            start: LogBlock(0),
            piece: Vec::new(),
            next_len: MIN_READ_BLOCKS,
        }
    }
    /// Returns log block `at`, which lies before the end.
    pub fn block(&mut self, at: LogBlock) -> Result<&Buf, JournalError> {
        let held = at
            .checked_sub(self.start)
            .is_some_and(|skip| (skip as usize) < self.piece.len());
        if !held {
            let len = self.next_len.min(self.end - at);
            self.next_len = (self.next_len * 2).min(MAX_READ_BLOCKS);
            self.piece = self.log.read(self.queue, at, len)?;
            self.start = at;
        }
        Ok(&self.piece[(at - self.start) as usize])
    }
}

/// The transaction that is being read. [`Copies`] has its copies and revoke blocks.
struct Pending {
    /// CRC-32 of descriptors and copies (csum v1).
    sum_v1: Crc32Be,
    /// The checksum of a copy is wrong.
    damaged: bool,
    /// A tag that no implementation writes. It is an error if the transaction is complete.
    invalid: Option<(LogBlock, JournalDamage)>,
}
impl Pending {
    fn new() -> Pending {
        Pending {
            sum_v1: Crc32Be::new(),
            damaged: false,
            invalid: None,
        }
    }
}

struct Scanner<'a> {
    reader: LogReader<'a>,
    /// Reads revoke blocks of complete transactions a second time.
    revoke_reader: LogReader<'a>,
    layout: Layout,
    /// First block and end of the log.
    bounds: (LogBlock, LogBlock),
    /// The next block to read.
    at: LogBlock,
    /// Blocks not read yet. The log is circular, so this bounds the scan.
    left: u32,
    /// End of the blocks that may be a home.
    volume_end: FsBlock,
    log: &'a LogMap,
    expected: Tid,
    pending: Pending,
    /// Commit time of the last complete transaction: seconds, nanoseconds.
    last_time: (u64, u32),
    result: Scan,
}

/// Scans the log that `sb` describes, from block `start` on.
pub(super) fn scan(
    queue: &Queue,
    log: &LogMap,
    sb: &JournalSuperblock,
    start: LogBlock,
    grant: Grant,
) -> Result<Scan, JournalError> {
    let layout = sb.layout();
    let bounds = (sb.first(), sb.log_end());
    let expected = sb.sequence();
    let scanner = Scanner {
        reader: LogReader::new(queue, log, bounds.1),
        revoke_reader: LogReader::new(queue, log, bounds.1),
        layout,
        bounds,
        at: start,
        left: bounds.1 - bounds.0,
        volume_end: FsBlock(queue.capacity() / layout.block_size as u64),
        log,
        expected,
        pending: Pending::new(),
        last_time: (0, 0),
        result: Scan {
            copies: Copies::new(grant),
            transactions: 0,
            end: expected,
            end_at: start,
        },
    };
    scanner.run()
}

impl Scanner<'_> {
    fn run(mut self) -> Result<Scan, JournalError> {
        while let Some((at, block)) = self.next_block()? {
            match decide(self.classify(&block)) {
                Next::End => break,
                Next::EndUnlessLater(damage) => {
                    if self.later_commit()? {
                        return Err(damage.at(at));
                    }
                    tracing::warn!(
                        log_block = at.0,
                        tid = %self.expected,
                        %damage,
                        "the last transaction of the log is torn and is ignored"
                    );
                    break;
                }
                Next::TakeTags => {
                    if !self.take_tags(at, &block)? {
                        break;
                    }
                }
                Next::TakeRevokes => self.result.copies.note_revoke_block(at)?,
                Next::Complete => self.complete(&block)?,
            }
        }
        self.result.end = self.expected;
        Ok(self.result)
    }

    /// Returns the next block and its place, or `None` after the whole log.
    fn next_block(&mut self) -> Result<Option<(LogBlock, Buf)>, JournalError> {
        if self.left == 0 {
            return Ok(None);
        }
        let at = self.at;
        let block = self.reader.block(at)?.clone();
        self.left -= 1;
        self.at = if at + 1 == self.bounds.1 {
            self.bounds.0
        } else {
            at + 1
        };
        Ok(Some((at, block)))
    }

    fn classify(&self, block: &[u8]) -> Found {
        let Some(header) = Header::parse(block) else {
            return Found::NoMagic;
        };
        if header.sequence != self.expected {
            return Found::OtherSequence;
        }
        let layout = &self.layout;
        match header.kind {
            block_type::DESCRIPTOR if layout.tail_valid(block) => Found::Descriptor,
            block_type::DESCRIPTOR => Found::DamagedDescriptor,
            block_type::REVOKE if layout.tail_valid(block) => Found::Revoke,
            block_type::REVOKE => Found::DamagedRevoke,
            block_type::COMMIT if !commit::block_valid(layout, block) => Found::DamagedCommit,
            block_type::COMMIT
                if self.pending.damaged
                    || !commit::transaction_valid(layout, self.pending.sum_v1.sum(), block) =>
            {
                Found::CommitOfDamaged
            }
            block_type::COMMIT => Found::Commit,
            _ => Found::UnknownType,
        }
    }

    /// Notes a descriptor's tags and skips their copies. Returns `false` if the log has too few
    /// blocks.
    fn take_tags(&mut self, at: LogBlock, block: &Buf) -> Result<bool, JournalError> {
        let v1 = self.layout.checksums == Checksums::V1;
        if v1 {
            self.pending.sum_v1.update(block);
        }
        for tag in descriptor::parse(&self.layout, block) {
            let Some((copy_at, copy)) = self.next_block()? else {
                return Ok(false);
            };
            if v1 {
                self.pending.sum_v1.update(&copy);
            }
            if !descriptor::block_valid(&self.layout, &tag, self.expected, &copy) {
                self.pending.damaged = true;
            }
            let home = tag.block;
            if home >= self.volume_end {
                self.pending.invalid = Some((at, JournalDamage::TagBeyondVolume { home }));
            } else if self.log.contains(home) {
                self.pending.invalid = Some((at, JournalDamage::TagInJournal { home }));
            }
            if !tag.deleted {
                let place = Place::new(copy_at, tag.content);
                self.result.copies.note_copy(home, place)?;
            }
        }
        Ok(true)
    }

    fn complete(&mut self, block: &[u8]) -> Result<(), JournalError> {
        let pending = std::mem::replace(&mut self.pending, Pending::new());
        if let Some((block, damage)) = pending.invalid {
            return Err(damage.at(block));
        }
        let copies = &mut self.result.copies;
        for at in copies.complete()? {
            let corrupt = |damage: JournalDamage| damage.at(at);
            let block = self.revoke_reader.block(at)?;
            for home in revoke::parse(&self.layout, block).map_err(corrupt)? {
                copies.revoke(home);
            }
        }
        self.last_time = commit::time(block);
        self.result.transactions += 1;
        self.result.end_at = self.at;
        self.expected = self.expected.next();
        Ok(())
    }

    /// Returns whether the rest of the log has the commit block of a later transaction.
    ///
    /// After a repair the numbers may start again at 1. The commit time tells an old commit block
    /// with a high number from a later transaction.
    fn later_commit(&mut self) -> Result<bool, JournalError> {
        let most = self.left;
        while let Some((_, block)) = self.next_block()? {
            let Some(header) = Header::parse(&block) else {
                continue;
            };
            let ahead = header.sequence.ahead_of(self.expected);
            if header.kind == block_type::COMMIT
                && (1..=most).contains(&ahead)
                && commit::block_valid(&self.layout, &block)
                && commit::time(&block) >= self.last_time
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_decided_once() {
        for (i, (case, _)) in DECISIONS.iter().enumerate() {
            assert!(DECISIONS[i + 1..].iter().all(|(other, _)| other != case));
        }
        assert_eq!(decide(Found::Commit), Next::Complete);
    }
}
