//! Pass 1b: the owners of blocks that are claimed twice.

use crate::Error;
use crate::chunked::Bits;
use crate::finding::{Kind, Place};
use crate::mapping::{self, Sink};
use crate::state::{Checker, Row, Run};
use ext4_format::extent::ExtentState;
use ext4_format::inode::{FileType, InodeFields};
use std::fmt::Write;
use units::{ClusterSize, FileBlock, FsBlock, Ino};

impl Checker<'_> {
    /// Pass 1b: finds all owners of blocks that are claimed twice.
    pub fn name_shared_blocks(&mut self) -> Result<(), Error> {
        let mut runs: Vec<Run> = std::mem::take(&mut self.claims.shared);
        if runs.is_empty() {
            return Ok(());
        }
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|later, run| {
            let overlaps = later.start <= run.start + run.len;
            if overlaps {
                run.len = run.len.max(later.start + later.len - run.start);
            }
            overlaps
        });
        let mut owners: Vec<Vec<Ino>> = vec![Vec::new(); runs.len()];
        self.progress
            .begin("shared blocks", self.groups.len() as u64);
        let mut nodes = Bits::new(self.v.geo.blocks_count);
        self.each_inode(|checker, ino, raw| {
            let Ok(fields) = InodeFields::decode(&checker.v.geo, raw) else {
                return Ok(());
            };
            if !checker.inodes.get(ino).has(Row::IN_USE) || ino == Ino::RESIZE {
                return Ok(());
            }
            let mut sink = Owning {
                runs: &runs,
                owners: &mut owners,
                nodes: &mut nodes,
                cluster: checker.v.geo.cluster(),
                ino,
            };
            if fields.file_acl.0 != 0 {
                sink.touch(fields.file_acl, 1);
            }
            let mapped = matches!(
                fields.mode.file_type(),
                Some(FileType::Regular | FileType::Directory | FileType::Symlink) | None
            );
            if mapped && !fields.is_fast_symlink() {
                mapping::walk(&checker.v, ino, &fields, &mut sink)?;
            }
            Ok(())
        })?;
        for (run, inodes) in runs.iter().zip(owners) {
            let mut message = match run.len {
                1 => format!("block {} has several owners:", run.start),
                _ => format!(
                    "blocks {} to {} have several owners:",
                    run.start,
                    run.start.0 + run.len - 1
                ),
            };
            let mut before = " ";
            for ino in &inodes {
                let _ = write!(message, "{before}inode {ino}");
                before = ", ";
            }
            if let Some(owner) = self.owner_of_metadata(run.start) {
                let _ = write!(message, "{before}{owner}");
            }
            let mut place = Place::block(run.start);
            place.inode = inodes.first().map(|ino| ino.0);
            self.problem(Kind::SharedBlock, place, message);
        }
        Ok(())
    }
}

/// Most owners of a run that a message names.
const OWNERS_MAX: usize = 16;

/// Collects the inodes with blocks in some runs.
struct Owning<'a> {
    runs: &'a [Run],
    owners: &'a mut [Vec<Ino>],
    nodes: &'a mut Bits,
    cluster: ClusterSize,
    ino: Ino,
}

impl Owning<'_> {
    /// The inode has blocks in the clusters of a run.
    fn touch(&mut self, start: FsBlock, len: u64) {
        let end = self.cluster.next_start(start.saturating_add(len));
        let start = self.cluster.start_of(start);
        let first = self
            .runs
            .partition_point(|run| run.start + run.len <= start);
        for (run, owners) in self.runs.iter().zip(self.owners.iter_mut()).skip(first) {
            if run.start >= end {
                break;
            }
            if owners.last() != Some(&self.ino) && owners.len() < OWNERS_MAX {
                owners.push(self.ino);
            }
        }
    }
}

impl Sink for Owning<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        self.touch(block, 1);
        !self.nodes.set(block.0)
    }
    fn data(&mut self, _file_block: FileBlock, start: FsBlock, len: u32, _state: ExtentState) {
        self.touch(start, len.into());
    }
    fn wrong(&mut self, _block: Option<FsBlock>, _message: String) {}
}
