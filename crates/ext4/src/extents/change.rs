//! Insert, convert and remove: changes of a leaf's extents by [`Tree::splice`].

use super::ExtentState;
use super::tree::{Extents, NodesMut, Path, Tree};
use crate::{Error, InodeDamage, Result};
use ext4_format::extent::Extent;
use std::ops::Range;
use units::{FileBlock, FsBlock, Span};

/// Appends an extent to `pieces`. It is merged with the last one if they are contiguous.
fn append(pieces: &mut Extents, extent: Extent) {
    if extent.len == 0 {
        return;
    }
    if let Some(last) = pieces.last_mut()
        && is_contiguous(last, &extent)
    {
        // The last extent is filled up even if not all blocks fit, so a growing file has few long
        // extents.
        let merged = extent
            .len
            .min(last.state.max_len().saturating_sub(last.len));
        last.len += merged;
        let rest = extent.file_block + merged..extent.end();
        if let Some(rest) = intersect(&extent, rest) {
            pieces.push(rest);
        }
        return;
    }
    pieces.push(extent);
}

/// Returns whether `b` follows `a` directly, in the file and on the volume, in the same state.
fn is_contiguous(a: &Extent, b: &Extent) -> bool {
    a.end() == b.file_block && a.start + u64::from(a.len) == b.start && a.state == b.state
}

/// Returns the part of an extent within a range of file blocks.
fn intersect(extent: &Extent, range: Range<FileBlock>) -> Option<Extent> {
    let start = range.start.max(extent.file_block);
    let end = range.end.min(extent.end());
    (start < end).then(|| Extent {
        file_block: start,
        len: end - start,
        state: extent.state,
        start: extent.start + u64::from(start - extent.file_block),
    })
}

/// The result of [`Tree::remove_last`].
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// The removed extents. The caller frees their blocks.
    pub extents: Extents,
    /// The end of the range that is left to remove; the range's start if nothing is left.
    pub end: FileBlock,
}

impl<S: NodesMut> Tree<'_, S> {
    /// Adds an extent that maps a hole.
    pub fn insert(&mut self, extent: Extent) -> Result<()> {
        if extent.file_block.checked_add(extent.len).is_none() {
            return Err(Error::FileTooLarge);
        }
        if !extent.is_valid() || !self.store.on_volume(extent.start, extent.len) {
            return Err(Error::Internal(
                "an extent to insert is outside of the file or the volume",
            ));
        }
        let path = self.descend(extent.file_block)?;
        let next = path.next.map_or(path.end, |next| next.file_block);
        let prev_end = path.prev.map_or(FileBlock::FIRST, |prev| prev.end());
        if prev_end > extent.file_block || extent.end() > next {
            let damage = InodeDamage::MappedTwice {
                first: extent.file_block,
                last: extent.last(),
            };
            return Err(self.store.corrupt(damage, path.leaf_block()));
        }
        let at = path.at;
        self.replace(path, at, 0, &[extent])
    }

    /// Converts the first extent in `range` that is not in `state`, as far as it is in the range.
    /// Returns the file block to continue at, or the range's end.
    pub fn convert_first(
        &mut self,
        range: Range<FileBlock>,
        state: ExtentState,
    ) -> Result<FileBlock> {
        let mut from = range.start;
        while from < range.end {
            let path = self.descend(from)?;
            let found = path.prev.filter(|prev| prev.end() > from);
            let Some(extent) = found.or(path.next) else {
                from = path.end;
                continue;
            };
            let (start, end) = (from.max(extent.file_block), range.end.min(extent.end()));
            if start >= end || extent.state == state {
                from = extent.end();
                continue;
            }
            let at = if found.is_some() {
                path.at - 1
            } else {
                path.at
            };
            let end = end.min(start.saturating_add(state.max_len()));
            let mut pieces = Extents::new();
            pieces.extend(intersect(&extent, FileBlock::FIRST..start));
            let converted = intersect(&extent, start..end);
            pieces.extend(converted.map(|part| Extent { state, ..part }));
            pieces.extend(intersect(&extent, end..FileBlock::END));
            self.replace(path, at, 1, &pieces)?;
            return Ok(end);
        }
        Ok(range.end)
    }

    /// Removes the last extents in `range`: a part of one extent, or whole extents of one leaf.
    ///
    /// It calls `may_remove` with each extent before the removal and stops when that returns false.
    /// The first extent is removed in any case. An error of `may_remove` has changed nothing.
    pub fn remove_last(
        &mut self,
        range: &Range<FileBlock>,
        may_remove: &mut dyn FnMut(&Extent) -> Result<bool>,
    ) -> Result<Removed> {
        let mut removed = Removed {
            end: range.start,
            ..Removed::default()
        };
        let Some(last) = range.last() else {
            return Ok(removed);
        };
        let path = self.descend(last)?;
        let Some(extent) = path.prev else {
            return Ok(removed);
        };
        let Some(removed_part) = intersect(&extent, range.clone()) else {
            return Ok(removed);
        };
        removed.end = removed_part.file_block;
        removed.extents.push(removed_part);
        let may_go_on = may_remove(&removed_part)?;
        let goal = extent.start;
        if removed_part.len < extent.len {
            let mut pieces = Extents::new();
            pieces.extend(intersect(&extent, FileBlock::FIRST..removed.end));
            pieces.extend(intersect(&extent, removed_part.end()..FileBlock::END));
            let at = path.at - 1;
            self.splice(path, at, 1, &pieces, goal)?;
            return Ok(removed);
        }
        // Most files have one extent.
        let before = match may_go_on && path.at > 1 {
            true => self.leaf_entries(&path)?,
            false => Extents::new(),
        };
        let before = before.get(..path.at - 1).unwrap_or_default();
        for extent in before.iter().rev() {
            if extent.file_block < range.start || !may_remove(extent)? {
                break;
            }
            removed.end = extent.file_block;
            removed.extents.push(*extent);
        }
        let (at, count) = (path.at - removed.extents.len(), removed.extents.len());
        self.splice(path, at, count, &[], goal)?;
        Ok(removed)
    }

    /// Replaces `old` extents from index `at` on by `new`, and merges them with their neighbours in
    /// the leaf.
    fn replace(
        &mut self,
        path: Path<S::Node>,
        at: usize,
        old: usize,
        new: &[Extent],
    ) -> Result<()> {
        // If nothing is replaced, the path's `prev` and `next` are the neighbours. Otherwise they
        // can be among the replaced extents.
        let entries;
        let (before, after) = if old == 0 {
            (path.prev, path.next)
        } else {
            entries = self.leaf_entries(&path)?;
            let before = at.checked_sub(1).and_then(|at| entries.get(at));
            (before.copied(), entries.get(at + old).copied())
        };
        let (mut at, mut old) = (at, old);
        let mut pieces = Extents::new();
        if let (Some(before), Some(first)) = (before, new.first())
            && is_contiguous(&before, first)
            && before.len < before.state.max_len()
        {
            pieces.push(before);
            (at, old) = (at - 1, old + 1);
        }
        for extent in new {
            append(&mut pieces, *extent);
        }
        if let (Some(after), Some(last)) = (after, pieces.last())
            && is_contiguous(last, &after)
            && last.len + after.len <= after.state.max_len()
        {
            append(&mut pieces, after);
            old += 1;
        }
        let goal = new.first().map_or(FsBlock(0), |extent| extent.start);
        self.splice(path, at, old, &pieces, goal)
    }
}
