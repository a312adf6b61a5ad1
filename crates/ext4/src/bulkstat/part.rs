//! A part of one inode table. The page of [`super`] has the algorithm.

use super::{Scan, Scanned};
use crate::Inode;
use crate::alloc::GroupInodes;
use crate::state::Attr;
use block::Buf;
use std::ops::{ControlFlow, Range};
use units::{FsBlock, Ino};

/// Bytes of a part: the largest request of a device.
const PART: u32 = 1 << 20;

/// An inode that is looked for in its table block.
struct Candidate {
    ino: Ino,
    /// Its byte in the block.
    offset: usize,
}

/// A table block that must be read for some of its inodes.
struct Wanted {
    block: FsBlock,
    /// They are in `Part::candidates`.
    candidates: Range<usize>,
}

/// The rest of a part after the steps in memory.
#[derive(Default)]
struct Part {
    candidates: Vec<Candidate>,
    wanted: Vec<Wanted>,
}

impl<V: Fn(Scanned) -> ControlFlow<()> + ?Sized> Scan<'_, V> {
    pub(super) fn table(&self, inodes: &GroupInodes) -> ControlFlow<()> {
        let blocks = inodes.count.div_ceil(self.fs.geo.inodes_per_block());
        let part = PART / self.fs.geo.block_size;
        for first in (0..blocks).step_by(part as usize) {
            self.part(inodes, first..blocks.min(first + part))?;
        }
        ControlFlow::Continue(())
    }

    pub(super) fn part(&self, inodes: &GroupInodes, blocks: Range<u32>) -> ControlFlow<()> {
        let part = self.look_in_memory(inodes, blocks)?;
        if part.wanted.is_empty() {
            return ControlFlow::Continue(());
        }
        let blocks: Vec<FsBlock> = part.wanted.iter().map(|wanted| wanted.block).collect();
        let contents = self.fs.journal.read_uncached(&blocks);
        for (wanted, content) in part.wanted.iter().zip(contents) {
            let candidates = &part.candidates[wanted.candidates.clone()];
            match content {
                Ok(content) => self.visit_block(candidates, &content)?,
                Err(error) => {
                    for candidate in candidates {
                        self.unreadable(candidate.ino, 1, error.clone().into())?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Steps 2 to 4: visits the inodes that are in memory and returns the others.
    fn look_in_memory(&self, inodes: &GroupInodes, blocks: Range<u32>) -> ControlFlow<(), Part> {
        let geo = &self.fs.geo;
        let per_block = geo.inodes_per_block();
        let mut part = Part::default();
        for index in blocks {
            let block = inodes.table + u64::from(index);
            let begin = part.candidates.len();
            let first = index * per_block;
            for at in inodes.indices(first..first + per_block) {
                let Some(ino) = geo
                    .ino_at(inodes.group(), at)
                    .filter(|i| self.is_wanted(*i))
                else {
                    continue;
                };
                if let Some(inode) = self.fs.inodes.peek(ino) {
                    self.visit_live(&inode)?;
                    continue;
                }
                let offset = (at - first) as usize * usize::from(geo.inode_size);
                part.candidates.push(Candidate { ino, offset });
            }
            self.visit_changed(block, &mut part.candidates, begin)?;
            let has_content = || self.fs.groups.itable_block_has_content(block);
            if part.candidates.len() > begin && has_content() {
                let candidates = begin..part.candidates.len();
                part.wanted.push(Wanted { block, candidates });
            } else {
                part.candidates.truncate(begin);
            }
        }
        ControlFlow::Continue(part)
    }

    /// Step 3: visits the candidates from `begin` on that are registered as changed, and removes
    /// them.
    fn visit_changed(
        &self,
        block: FsBlock,
        candidates: &mut Vec<Candidate>,
        begin: usize,
    ) -> ControlFlow<()> {
        if candidates.len() == begin {
            return ControlFlow::Continue(());
        }
        let changed = self.fs.changed_inodes.of_block(block);
        if changed.is_empty() {
            return ControlFlow::Continue(());
        }
        let newest = |ino| changed.iter().rev().find(|inode| inode.ino == ino);
        let mut at = begin;
        while let Some(candidate) = candidates.get(at) {
            match newest(candidate.ino) {
                Some(inode) => {
                    candidates.remove(at);
                    self.visit_live(inode)?;
                }
                None => at += 1,
            }
        }
        ControlFlow::Continue(())
    }

    /// Step 5: visits candidates of a block with this content.
    fn visit_block(&self, candidates: &[Candidate], content: &Buf) -> ControlFlow<()> {
        let size = usize::from(self.fs.geo.inode_size);
        for &Candidate { ino, offset } in candidates {
            match self.fs.decode_attr(ino, content.get(offset..offset + size)) {
                Ok(Some(attr)) => self.visit_attr(attr)?,
                Ok(None) => {}
                Err(error) => {
                    let error = self.fs.blame("scan_inodes", ino, error);
                    self.unreadable(ino, 1, error)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Visits an inode in memory, unless it holds the value of an attribute.
    fn visit_live(&self, inode: &Inode) -> ControlFlow<()> {
        match self.fs.holds_value(|| inode.flags()) {
            true => ControlFlow::Continue(()),
            false => self.visit_attr(inode.attr()),
        }
    }

    fn visit_attr(&self, attr: Attr) -> ControlFlow<()> {
        match attr.nlink {
            0 => ControlFlow::Continue(()),
            _ => self.visit(Scanned::Inode(attr)),
        }
    }
}
