//! Inodes that a mount deletes or truncates: the orphan list of the super block and the orphan
//! file.

use crate::Error;
use crate::finding::{Kind, Place, Report, describe};
use crate::mapping::{self, Sink};
use crate::state::Checker;
use ext4_format::extent::ExtentState;
use ext4_format::features::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
use ext4_format::orphan_file;
use std::collections::HashSet;
use units::{FileBlock, FsBlock, Ino, Span};

/// Most orphans that are kept.
const ORPHANS_MAX: usize = 1 << 20;
/// Most blocks of an orphan file.
const FILE_BLOCKS_MAX: usize = 1 << 12;

#[derive(Default)]
struct Blocks {
    nodes: HashSet<FsBlock>,
    blocks: Vec<FsBlock>,
    end: FileBlock,
}

impl Sink for Blocks {
    fn node(&mut self, block: FsBlock) -> bool {
        self.nodes.len() < FILE_BLOCKS_MAX && self.nodes.insert(block)
    }
    fn data(&mut self, file_block: FileBlock, start: FsBlock, len: u32, _state: ExtentState) {
        let room = FILE_BLOCKS_MAX.saturating_sub(self.blocks.len());
        let run = start..start + u64::from(len);
        self.blocks.extend(run.numbers().take(room));
        self.end = self.end.max(file_block.saturating_add(len));
    }
    fn wrong(&mut self, _block: Option<FsBlock>, _message: String) {}
}

impl Checker<'_> {
    /// Collects the orphans, and checks the list and the file.
    pub fn find_orphans(&mut self) -> Result<(), Error> {
        self.walk_list()?;
        self.read_file()?;
        if !self.orphans.is_empty() {
            let count = self.orphans.len();
            let needs_recovery = self.v.sb.incompat().contains(IncompatFeatures::RECOVER);
            let message = format!("{count} inodes wait to be deleted or cut by the next mount");
            if needs_recovery {
                self.report.note(Kind::Orphans, Place::default(), message);
            } else {
                // A clean volume has no orphans.
                self.problem(Kind::Orphans, Place::default(), message);
            }
        }
        Ok(())
    }

    fn walk_list(&mut self) -> Result<(), Error> {
        let mut next = Ino(self.v.sb.last_orphan.get());
        let mut before = None;
        while next != Ino(0) {
            let place = before.map_or_else(Place::default, Place::inode);
            let geo = &self.v.geo;
            if next < geo.first_ino || next.0 > geo.inodes_count {
                self.problem(
                    Kind::Orphans,
                    place,
                    format!("the orphan list leads to inode {next}, which cannot be on it"),
                );
                break;
            }
            if self.orphans.len() >= ORPHANS_MAX || !self.orphans.insert(next) {
                self.problem(
                    Kind::Orphans,
                    place,
                    format!("the orphan list comes to inode {next} twice"),
                );
                break;
            }
            let Some((_, Ok(fields))) = self.read_inode(next)? else {
                break;
            };
            before = Some(next);
            // Deletion times link the list.
            next = Ino(fields.dtime);
        }
        Ok(())
    }

    fn read_file(&mut self) -> Result<(), Error> {
        let sb = &self.v.sb;
        let ino = Ino(sb.orphan_file_inum.get());
        let has_file = sb.compat().contains(CompatFeatures::ORPHAN_FILE);
        let is_marked = sb.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT);
        if !has_file {
            return Ok(());
        }
        let place = Place::inode(ino);
        let Some((_, Ok(fields))) = self.read_inode(ino)? else {
            self.problem(
                Kind::Orphans,
                place,
                "the orphan file's inode cannot be read",
            );
            return Ok(());
        };
        let mut found = Blocks::default();
        if fields.mode.is_regular() {
            mapping::walk(&self.v, ino, &fields, &mut found)?;
        }
        let blocks = fields.size / u64::from(self.v.geo.block_size);
        if blocks == 0 || u64::from(found.end) != blocks || found.blocks.len() as u64 != blocks {
            self.problem(
                Kind::Orphans,
                place,
                "the orphan file is no file, has holes, or an impossible size",
            );
            return Ok(());
        }
        let seed = self.v.geo.inode_csum_seed(ino, fields.generation);
        for block in found.blocks {
            let bytes = self.v.read_block(block)?;
            let place = place.clone().at_block(block);
            if let Err(error) = orphan_file::verify(seed, &bytes, block) {
                self.problem(Kind::Orphans, place, describe(&error));
                continue;
            }
            for (slot, orphan) in orphan_file::slots(&bytes) {
                let geo = &self.v.geo;
                let report: &mut Report = &mut self.report;
                if orphan < geo.first_ino || orphan.0 > geo.inodes_count {
                    report.problem(
                        Kind::Orphans,
                        place.clone(),
                        format!("slot {slot} of the orphan file names inode {orphan}"),
                    );
                } else if !is_marked {
                    report.problem(
                        Kind::Orphans,
                        place.clone(),
                        format!("slot {slot} names inode {orphan}, but the super block does not say orphan_present"),
                    );
                } else if self.orphans.len() < ORPHANS_MAX {
                    self.orphans.insert(orphan);
                }
            }
        }
        Ok(())
    }
}
