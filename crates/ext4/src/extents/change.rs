//! Insert, convert and remove: what becomes of a leaf's extents, in terms of [`Tree::splice`].

use super::node::max_len;
use super::tree::{END, NodesMut, Path, Tree};
use crate::{Error, Result};
use ext4_format::extent::Extent;
use smallvec::SmallVec;
use std::ops::Range;

/// Extents that replace others: an extent cut in three, at most.
type Pieces = SmallVec<[Extent; 4]>;

/// Adds an extent behind those in `pieces`, as part of the last one where it continues that.
fn append(pieces: &mut Pieces, extent: Extent) {
    if extent.len == 0 {
        return;
    }
    if let Some(last) = pieces.last_mut()
        && continues(last, &extent)
    {
        // The last one is filled up even where not all fits: runs of a file that grows become few
        // long extents.
        let take = extent
            .len
            .min(max_len(last.unwritten).saturating_sub(last.len));
        last.len += take;
        if let Some(rest) = part(&extent, u64::from(extent.file_block + take)..extent.end()) {
            pieces.push(rest);
        }
        return;
    }
    pieces.push(extent);
}

/// Whether `b` lies right behind `a`, in the file and on the volume, and is of its kind.
fn continues(a: &Extent, b: &Extent) -> bool {
    a.end() == u64::from(b.file_block)
        && a.start + u64::from(a.len) == b.start
        && a.unwritten == b.unwritten
}

/// The part of an extent within a range of file blocks.
fn part(extent: &Extent, range: Range<u64>) -> Option<Extent> {
    let start = range.start.max(u64::from(extent.file_block));
    let end = range.end.min(extent.end());
    (start < end).then(|| Extent {
        file_block: start as u32,
        len: (end - start) as u32,
        unwritten: extent.unwritten,
        start: extent.start + (start - u64::from(extent.file_block)),
    })
}

/// What [`Tree::remove_last`] took away.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// The extents' blocks, to be freed.
    pub extents: SmallVec<[Extent; 16]>,
    /// Where what is left to be removed ends; the range's start when nothing is.
    pub end: u64,
}

impl<S: NodesMut> Tree<'_, S> {
    /// Maps a hole.
    pub fn insert(&mut self, extent: Extent) -> Result<()> {
        if !extent.is_valid() || !self.store.on_volume(extent.start, extent.len) {
            return Err(Error::Invalid(
                "an extent outside of the file or the volume",
            ));
        }
        // Block 2^32 - 1 cannot be addressed: Linux keeps that number for "the end".
        if extent.end() >= END {
            return Err(Error::FileTooLarge);
        }
        let path = self.descend(extent.file_block)?;
        let next = path
            .next
            .map_or(path.end, |next| u64::from(next.file_block));
        let prev_end = path.prev.map_or(0, |prev| prev.end());
        if prev_end > u64::from(extent.file_block) || extent.end() > next {
            return Err(self.store.corrupt("blocks are mapped twice"));
        }
        let at = path.at;
        self.replace(path, at, 0, &[extent])
    }

    /// Makes the first extent of the other kind in `range` (the part of it in the range) of the
    /// kind `unwritten`; returns where to go on, or the range's end.
    pub fn convert_first(&mut self, range: Range<u64>, unwritten: bool) -> Result<u64> {
        let mut from = range.start;
        while from < range.end {
            let path = self.descend(from as u32)?;
            let found = path.prev.filter(|prev| prev.end() > from);
            let Some(extent) = found.or(path.next) else {
                from = path.end;
                continue;
            };
            let (start, end) = (
                from.max(u64::from(extent.file_block)),
                range.end.min(extent.end()),
            );
            if start >= end || extent.unwritten == unwritten {
                from = extent.end();
                continue;
            }
            let at = if found.is_some() {
                path.at - 1
            } else {
                path.at
            };
            let end = end.min(start + u64::from(max_len(unwritten)));
            let mut pieces = Pieces::new();
            pieces.extend(part(&extent, 0..start));
            let changed = part(&extent, start..end);
            pieces.extend(changed.map(|part| Extent { unwritten, ..part }));
            pieces.extend(part(&extent, end..END));
            self.replace(path, at, 1, &pieces)?;
            return Ok(end);
        }
        Ok(range.end)
    }

    /// Removes the last extents in `range`: part of one, or as many of a leaf as `more` allows (it
    /// is asked before each but the first).
    pub fn remove_last(
        &mut self,
        range: &Range<u64>,
        more: &mut dyn FnMut(&Extent) -> bool,
    ) -> Result<Removed> {
        let mut removed = Removed {
            end: range.start,
            ..Removed::default()
        };
        let Some(last) = range.end.checked_sub(1).filter(|_| range.start < range.end) else {
            return Ok(removed);
        };
        let path = self.descend(last as u32)?;
        let Some(extent) = path.prev else {
            return Ok(removed);
        };
        let Some(cut) = part(&extent, range.clone()) else {
            return Ok(removed);
        };
        removed.end = u64::from(cut.file_block);
        removed.extents.push(cut);
        more(&cut);
        if cut.len < extent.len {
            let mut pieces = Pieces::new();
            pieces.extend(part(&extent, 0..removed.end));
            pieces.extend(part(&extent, cut.end()..END));
            let at = path.at - 1;
            self.splice(path, at, 1, &pieces, extent.start)?;
            return Ok(removed);
        }
        let before = self.leaf_entries(&path)?;
        let before = before.get(..path.at - 1).unwrap_or_default();
        for extent in before.iter().rev() {
            if u64::from(extent.file_block) < range.start || !more(extent) {
                break;
            }
            removed.end = u64::from(extent.file_block);
            removed.extents.push(*extent);
        }
        let (at, count) = (path.at - removed.extents.len(), removed.extents.len());
        self.splice(path, at, count, &[], extent.start)?;
        Ok(removed)
    }

    /// Replaces `old` extents from `at` on by `new`, merged with their neighbours in the leaf.
    fn replace(
        &mut self,
        path: Path<S::Node>,
        at: usize,
        old: usize,
        new: &[Extent],
    ) -> Result<()> {
        // `prev` and `next` of the path are beside or inside of what is replaced; take those
        // beside.
        let entries;
        let (before, after) = if old == 0 {
            (path.prev, path.next)
        } else {
            entries = self.leaf_entries(&path)?;
            let before = at.checked_sub(1).and_then(|at| entries.get(at));
            (before.copied(), entries.get(at + old).copied())
        };
        let (mut at, mut old) = (at, old);
        let mut pieces = Pieces::new();
        if let (Some(before), Some(first)) = (before, new.first())
            && continues(&before, first)
            && before.len < max_len(before.unwritten)
        {
            pieces.push(before);
            (at, old) = (at - 1, old + 1);
        }
        for extent in new {
            append(&mut pieces, *extent);
        }
        if let (Some(after), Some(last)) = (after, pieces.last())
            && continues(last, &after)
            && last.len + after.len <= max_len(after.unwritten)
        {
            append(&mut pieces, after);
            old += 1;
        }
        let goal = new.first().map_or(0, |extent| extent.start);
        self.splice(path, at, old, &pieces, goal)
    }
}
