//! The place of the newest copy of each block in the log: 16 bytes per block, no content.
//!
//! ```text
//!   descriptor ──▶ Pending ──(commit block)──▶ Copies: home ─▶ place ──▶ Plan (log order)  or  Overlay (home order)
//!   revoke block ─▶ place of the block, read again at the commit block
//! ```
//!
//! A revoke record covers the copies of its transaction and of earlier ones. At the commit block
//! the map has all of these. So the records are applied to the map then, and need no table of their
//! own.

use super::grant::Grant;
use crate::format::descriptor::CopyContent;
use crate::{JournalError, LogBlock};
use std::collections::BTreeMap;
use units::FsBlock;

/// Bytes of an entry of the map in the worst case, a tree with half-full nodes.
const MAP_ENTRY: u64 = 32;
/// Bytes of an entry of a list.
const LIST_ENTRY: u64 = 16;

/// A copy's place in the log, and whether the copy is escaped. A journal has at most
/// [`crate::log::MAX_BLOCKS`] blocks, so the upper bits are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u32);

impl Place {
    const ESCAPED: u32 = 1 << 31;
    const REVOKED: u32 = 1 << 30;

    pub fn new(at: LogBlock, content: CopyContent) -> Place {
        debug_assert!(at.0 < Place::REVOKED);
        match content {
            CopyContent::Verbatim => Place(at.0),
            CopyContent::Escaped => Place(at.0 | Place::ESCAPED),
        }
    }
    /// Returns the block of the journal.
    pub fn at(self) -> LogBlock {
        LogBlock(self.0 & (Place::REVOKED - 1))
    }
    pub fn escaped(self) -> bool {
        self.0 & Place::ESCAPED != 0
    }
    fn revoked(self) -> bool {
        self.0 & Place::REVOKED != 0
    }
}

const _: () = assert!(crate::log::MAX_BLOCKS < Place::REVOKED);

/// The transaction that is being read.
#[derive(Default)]
pub(super) struct Pending {
    copies: Vec<(FsBlock, Place)>,
    /// Places of its revoke blocks.
    revokes: Vec<LogBlock>,
}

/// The newest copies of complete transactions, and the transaction that is being read.
pub(super) struct Copies {
    map: BTreeMap<FsBlock, Place>,
    revoked: u64,
    pending: Pending,
    grant: Grant,
}

impl Copies {
    pub fn new(grant: Grant) -> Copies {
        Copies {
            map: BTreeMap::new(),
            revoked: 0,
            pending: Pending::default(),
            grant,
        }
    }

    /// Adds a copy of block `home` at `place` to the transaction.
    pub fn note_copy(&mut self, home: FsBlock, place: Place) -> Result<(), JournalError> {
        self.grant.grow(LIST_ENTRY)?;
        self.pending.copies.push((home, place));
        Ok(())
    }

    /// Adds a revoke block at `at` to the transaction.
    pub fn note_revoke_block(&mut self, at: LogBlock) -> Result<(), JournalError> {
        self.grant.grow(LIST_ENTRY)?;
        self.pending.revokes.push(at);
        Ok(())
    }

    /// Completes the transaction: its copies become the newest ones. Returns the places of its
    /// revoke blocks.
    pub fn complete(&mut self) -> Result<Vec<LogBlock>, JournalError> {
        let pending = std::mem::take(&mut self.pending);
        let listed = (pending.copies.len() + pending.revokes.len()) as u64;
        for (home, place) in pending.copies {
            match self.map.insert(home, place) {
                None => self.grant.grow(MAP_ENTRY)?,
                Some(old) if old.revoked() => self.revoked -= 1,
                Some(_) => {}
            }
        }
        self.grant.shrink(listed * LIST_ENTRY);
        Ok(pending.revokes)
    }

    /// Revokes the newest copy of block `home`, for the transaction that was just completed.
    pub fn revoke(&mut self, home: FsBlock) {
        if let Some(place) = self.map.get_mut(&home)
            && !place.revoked()
        {
            place.0 |= Place::REVOKED;
            self.revoked += 1;
        }
    }

    /// Returns the number of blocks whose newest copy is revoked.
    pub fn revoked(&self) -> u64 {
        self.revoked
    }

    /// Returns the copies that are not revoked, sorted by home, and the memory of the list.
    pub fn into_list(mut self) -> Result<(Vec<(FsBlock, Place)>, Grant), JournalError> {
        self.pending = Pending::default();
        let entries = self.map.len() as u64;
        let count = (entries - self.revoked) as usize;
        self.grant.grow(count as u64 * LIST_ENTRY)?;
        let mut list = Vec::with_capacity(count);
        list.extend(self.map.into_iter().filter(|(_, place)| !place.revoked()));
        self.grant.shrink(entries * MAP_ENTRY);
        Ok((list, self.grant))
    }
}

#[cfg(test)]
mod tests {
    use super::CopyContent::{Escaped, Verbatim};
    use super::*;
    use cache::Budget;

    #[test]
    fn the_newest_copy_is_listed_unless_it_is_revoked() {
        let budget = Budget::new(64 << 20);
        let mut copies = Copies::new(Grant::new(&budget));
        copies
            .note_copy(FsBlock(7), Place::new(LogBlock(1), Verbatim))
            .unwrap();
        copies
            .note_copy(FsBlock(8), Place::new(LogBlock(2), Escaped))
            .unwrap();
        copies.complete().unwrap();
        copies
            .note_copy(FsBlock(7), Place::new(LogBlock(3), Verbatim))
            .unwrap();
        copies.note_revoke_block(LogBlock(9)).unwrap();
        assert_eq!(copies.complete().unwrap(), [LogBlock(9)]);
        copies.revoke(FsBlock(7));
        copies.revoke(FsBlock(7));
        copies.revoke(FsBlock(1000));
        assert_eq!(copies.revoked(), 1);
        // Logged again later.
        copies
            .note_copy(FsBlock(7), Place::new(LogBlock(12), Escaped))
            .unwrap();
        copies.complete().unwrap();
        copies.revoke(FsBlock(8));
        assert_eq!(copies.revoked(), 1);
        // This transaction is never completed.
        copies
            .note_copy(FsBlock(9), Place::new(LogBlock(20), Escaped))
            .unwrap();
        let (list, grant) = copies.into_list().unwrap();
        assert_eq!(list, [(FsBlock(7), Place::new(LogBlock(12), Escaped))]);
        assert!(list[0].1.escaped() && list[0].1.at() == LogBlock(12));
        drop(grant);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_list_beyond_the_budget_is_refused() {
        let budget = Budget::new(1 << 20);
        let mut copies = Copies::new(Grant::new(&budget));
        let refused = (0..1 << 20).find_map(|i| {
            let noted = copies.note_copy(FsBlock(i), Place::new(LogBlock(1), Verbatim));
            noted.and_then(|()| copies.complete()).err()
        });
        assert!(matches!(refused, Some(JournalError::LogNeedsMemory { .. })));
        assert!(budget.used() <= 5 << 20, "{}", budget.used());
    }
}
