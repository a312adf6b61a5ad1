//! The blocks of an unrecovered log, for read-only volumes: the log has newer content than the
//! device.
//!
//! The overlay maps a block to the place of its newest copy in the log. It takes 16 bytes per block
//! of the memory budget. Contents are read from the log on demand, and the caches above keep them.

use super::{Grant, Place};
use crate::JournalError;
use crate::format::{MAGIC, put_u32};
use crate::log::LogMap;
use block::{Buf, Queue};
use std::ops::Range;
use std::sync::Arc;
use units::FsBlock;

/// Blocks whose newest content is in the log. Clones share the list.
#[derive(Clone, Default)]
pub struct Overlay(Option<Arc<Inner>>);

struct Inner {
    log: LogMap,
    /// Sorted by home.
    copies: Vec<(FsBlock, Place)>,
    _grant: Grant,
}

impl Overlay {
    /// Returns an overlay without blocks.
    pub fn new() -> Overlay {
        Overlay::default()
    }
    pub(crate) fn of_log(log: LogMap, copies: Vec<(FsBlock, Place)>, grant: Grant) -> Overlay {
        debug_assert!(copies.is_sorted_by_key(|(home, _)| *home));
        Overlay(Some(Arc::new(Inner {
            log,
            copies,
            _grant: grant,
        })))
    }

    fn copies(&self) -> &[(FsBlock, Place)] {
        self.0.as_ref().map_or(&[], |inner| &inner.copies)
    }
    /// Returns the homes of its blocks in ascending order.
    pub fn blocks(&self) -> impl Iterator<Item = FsBlock> + '_ {
        self.copies().iter().map(|(home, _)| *home)
    }
    /// Returns whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.copies().is_empty()
    }
    /// Returns whether the newest content of a block is in the log.
    pub fn contains(&self, block: FsBlock) -> bool {
        self.find(block).is_some()
    }
    fn find(&self, block: FsBlock) -> Option<Place> {
        let copies = self.copies();
        let at = copies.binary_search_by_key(&block, |(home, _)| *home);
        Some(copies[at.ok()?].1)
    }
    /// Returns the first block of a range whose newest content is in the log.
    pub fn first(&self, range: Range<FsBlock>) -> Option<FsBlock> {
        let copies = self.copies();
        let at = copies.partition_point(|(home, _)| *home < range.start);
        let home = copies.get(at)?.0;
        (home < range.end).then_some(home)
    }

    /// Reads the newest content of a block from the log. Returns `None` if the device has it.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn read(&self, queue: &Queue, block: FsBlock) -> Result<Option<Buf>, JournalError> {
        let (Some(inner), Some(place)) = (&self.0, self.find(block)) else {
            return Ok(None);
        };
        let mut buf = inner.log.read(queue, place.at(), 1)?.remove(0);
        if place.escaped() {
            put_u32(buf.make_mut(), 0, MAGIC);
        }
        Ok(Some(buf))
    }
}
