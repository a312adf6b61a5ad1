//! Pass 1: each inode's fields, and the blocks that it claims.

use crate::Error;
use crate::chunked::Bits;
use crate::finding::{Kind, Place, Report, told};
use crate::mapping::{self, Sink};
use crate::state::{Checker, Claims, Directory, Row, Run};
use crate::volume::READ_MAX;
use ext4_format::error::FormatError;
use ext4_format::features::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
use ext4_format::inode::{FileType, InodeFields, InodeFlags, verify_checksum};
use ext4_format::types::{FsBlock, GroupNo, Ino};
use std::fmt::Write;

/// Directory blocks that are kept in memory, at most (16 bytes each).
const DIRECTORY_BLOCKS_MAX: usize = 16 << 20;
/// Bytes of an inode that every revision has.
const GOOD_OLD: usize = 128;

/// Claims an inode's blocks and keeps what the checks of its size need.
struct Claiming<'a> {
    claims: &'a mut Claims,
    report: &'a mut Report,
    directory_blocks: Option<&'a mut Vec<(u32, u64)>>,
    ino: u32,
    /// Blocks of data and of the tree.
    blocks: u64,
    /// One past the last file block that is mapped.
    end: u64,
    /// The last file block that is written.
    last_written: Option<u64>,
    unwritten: bool,
    first_block: Option<u64>,
    overflow: bool,
}

impl Sink for Claiming<'_> {
    fn node(&mut self, block: u64) -> bool {
        self.blocks += 1;
        self.claims.claim(block, 1)
    }

    fn data(&mut self, file_block: u64, start: u64, len: u64, unwritten: bool) {
        self.blocks += len;
        self.claims.claim(start, len);
        self.end = self.end.max(file_block + len);
        if file_block == 0 {
            self.first_block = Some(start);
        }
        if unwritten {
            self.unwritten = true;
        } else {
            self.last_written = self.last_written.max(Some(file_block + len - 1));
        }
        if let Some(blocks) = &mut self.directory_blocks {
            if blocks.len() + len as usize > DIRECTORY_BLOCKS_MAX {
                self.overflow = true;
                return;
            }
            let file_blocks = (file_block..).map(|block| block as u32);
            blocks.extend(file_blocks.zip(start..start + len));
        }
    }

    fn wrong(&mut self, block: Option<u64>, message: String) {
        let place = Place::inode(self.ino);
        let place = match block {
            Some(block) => place.at_block(block),
            None => place,
        };
        self.report.problem(Kind::Mapping, place, message);
    }
}

/// An inode as it is stored, and its fields.
pub(crate) type Loaded = (Vec<u8>, Result<InodeFields, FormatError>);

impl Checker<'_> {
    /// One inode, or `None` where its table is not to be found.
    pub fn read_inode(&self, ino: Ino) -> Result<Option<Loaded>, Error> {
        let geo = &self.v.geo;
        let Ok((group, _)) = geo.inode_group(ino) else {
            return Ok(None);
        };
        let Some(group) = self.groups.get(group.0 as usize).filter(|g| g.table_ok) else {
            return Ok(None);
        };
        let Ok((block, offset)) = geo.inode_location(ino, group.desc.inode_table) else {
            return Ok(None);
        };
        let bytes = self.v.read_block(block.0)?;
        let at = offset as usize;
        let raw = bytes.get(at..at + usize::from(geo.inode_size));
        Ok(raw.map(|raw| (raw.to_vec(), InodeFields::decode(geo, raw))))
    }

    pub fn check_inodes(&mut self) -> Result<(), Error> {
        let groups = self.groups.len() as u64;
        self.progress.begin("inodes", groups);
        self.each_inode(|checker, ino, raw| checker.check_inode(ino, raw))?;
        for ino in 1..self.v.geo.first_ino.0 {
            // Reserved inodes count as used, whatever they hold.
            if let Some(row) = self.inodes.at(ino) {
                row.flags |= Row::IN_USE | if ino == Ino::ROOT.0 { 0 } else { Row::HIDDEN };
            }
        }
        let sb = &self.v.sb;
        for ino in [
            sb.orphan_file_inum.get(),
            sb.usr_quota_inum.get(),
            sb.grp_quota_inum.get(),
            sb.prj_quota_inum.get(),
        ] {
            if self.inodes.get(ino).has(Row::IN_USE)
                && let Some(row) = self.inodes.at(ino)
            {
                row.flags |= Row::HIDDEN;
            }
        }
        Ok(())
    }

    /// Calls `each` with every inode that may be in use and is not all zeroes.
    fn each_inode(
        &mut self,
        mut each: impl FnMut(&mut Self, Ino, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let geo = self.v.geo.clone();
        let size = usize::from(geo.inode_size);
        let per_read = (READ_MAX / geo.block_size as usize).max(1) as u32;
        for number in 0..self.groups.len() {
            self.progress.done(1);
            let group = &self.groups[number];
            if !group.table_ok {
                continue;
            }
            let first = group.desc.inode_table.0;
            let inodes = group.inodes_in_use(geo.inodes_per_group, geo.has_group_csum());
            let blocks = inodes.div_ceil(geo.inodes_per_block());
            let mut at = 0;
            while at < blocks {
                let count = per_read.min(blocks - at);
                let bytes = self.v.read_blocks(first + u64::from(at), count)?;
                let from = at * geo.inodes_per_block();
                for (index, raw) in (from..inodes).zip(bytes.chunks_exact(size)) {
                    if raw.iter().any(|byte| *byte != 0)
                        && let Some(ino) = geo.ino_at(GroupNo(number as u32), index)
                    {
                        each(self, ino, raw)?;
                    }
                }
                at += count;
            }
        }
        Ok(())
    }

    fn check_inode(&mut self, ino: Ino, raw: &[u8]) -> Result<(), Error> {
        let geo = self.v.geo.clone();
        let place = Place::inode(ino.0);
        let mut wrong = Vec::new();
        let mut raw = raw.to_vec();
        if let Err(error) = verify_checksum(&geo, ino, &raw) {
            wrong.push(told(&error));
        }
        let fields = match InodeFields::decode(&geo, &raw) {
            Ok(fields) => fields,
            Err(error) => {
                wrong.push(told(&error));
                // Only `i_extra_isize` makes an inode unreadable.
                if let Some(extra) = raw.get_mut(GOOD_OLD..GOOD_OLD + 2) {
                    extra.copy_from_slice(&geo.want_extra_isize.to_le_bytes());
                }
                match InodeFields::decode(&geo, &raw) {
                    Ok(fields) => fields,
                    Err(_) => {
                        self.say(Kind::Inode, &place, wrong);
                        return Ok(());
                    }
                }
            }
        };
        let is_orphan = self.orphans.contains(&ino.0);
        let is_reserved = ino < geo.first_ino;
        if fields.links_count == 0 && !is_orphan && !is_reserved {
            if fields.mode.0 != 0 && fields.dtime == 0 {
                wrong.push("it is deleted, but its deletion time is 0".to_owned());
            }
            self.say(Kind::Inode, &place, wrong);
            return Ok(());
        }
        let kind = fields.mode.file_type();
        let unused_reserved = is_reserved && fields.mode.0 == 0;
        if kind.is_none() && !unused_reserved {
            wrong.push(format!("its mode {:#o} has no file type", fields.mode.0));
        }
        if is_reserved {
            self.check_reserved(ino, &fields, &mut wrong);
        }
        if fields.dtime != 0 && !is_orphan && fields.links_count > 0 {
            wrong.push("it is in use, but has a deletion time".to_owned());
        }
        self.check_flags(&fields, kind, &mut wrong);
        // i_faddr, of fragments that no Linux ever had.
        if raw.get(0x70..0x74).is_some_and(|bytes| bytes != [0; 4]) {
            wrong.push("i_faddr is not 0".to_owned());
        }
        if let Some(row) = self.inodes.at(ino.0) {
            row.links = fields.links_count;
            row.kind = kind.map_or(0, FileType::dirent_code);
            row.flags |= Row::IN_USE | if is_orphan { Row::ORPHAN } else { 0 };
        }
        self.report.inodes += 1;
        self.say(Kind::Inode, &place, wrong);
        let mut blocks = self.check_attributes(ino, &fields, &raw)?;
        let is_special = !matches!(
            kind,
            Some(FileType::Regular | FileType::Directory | FileType::Symlink) | None
        );
        if is_special {
            if fields.size != 0 {
                self.problem(
                    Kind::Inode,
                    place.clone(),
                    format!("it is no file, but has the size {}", fields.size),
                );
            }
        } else if fields.is_fast_symlink() {
            self.check_fast_symlink(&place, &fields);
        } else if ino != Ino::RESIZE {
            blocks += self.check_mapping(ino, &fields, kind)?;
        } else {
            return Ok(());
        }
        let expected = blocks * u64::from(geo.block_size / 512);
        if fields.blocks != expected {
            self.problem(
                Kind::Inode,
                place,
                format!("i_blocks is {}, should be {expected}", fields.blocks),
            );
        }
        Ok(())
    }

    fn say(&mut self, object: Kind, place: &Place, messages: Vec<String>) {
        for message in messages {
            self.problem(object, place.clone(), message);
        }
    }

    fn check_reserved(&self, ino: Ino, fields: &InodeFields, wrong: &mut Vec<String>) {
        let sb = &self.v.sb;
        let is_file = fields.mode.is_regular();
        let quota = [&sb.usr_quota_inum, &sb.grp_quota_inum, &sb.prj_quota_inum];
        match ino {
            Ino::ROOT => {
                if !fields.mode.is_dir() {
                    wrong.push("the root is no directory".to_owned());
                }
            }
            Ino::JOURNAL if sb.journal_inum.get() == ino.0 => {}
            Ino::RESIZE if sb.compat().contains(CompatFeatures::RESIZE_INODE) => {}
            Ino::BOOT_LOADER if is_file => {}
            _ if quota.iter().any(|inum| inum.get() == ino.0) && is_file => {}
            _ if fields.mode.0 == 0 => {}
            _ => wrong.push(format!(
                "it is reserved, but has the mode {:#o}",
                fields.mode.0
            )),
        }
    }

    fn check_flags(&self, fields: &InodeFields, kind: Option<FileType>, wrong: &mut Vec<String>) {
        let geo = &self.v.geo;
        let is_dir = kind == Some(FileType::Directory);
        let has = |flag| fields.flags.contains(flag);
        let mut refuse = |bad: bool, what: &str| {
            if bad {
                wrong.push(what.to_owned());
            }
        };
        refuse(
            has(InodeFlags::EXTENTS) && !geo.incompat.contains(IncompatFeatures::EXTENTS),
            "it has extents on a volume without the feature extent",
        );
        refuse(
            has(InodeFlags::INDEX) && !geo.compat.contains(CompatFeatures::DIR_INDEX),
            "it has a hash tree on a volume without the feature dir_index",
        );
        refuse(
            has(InodeFlags::INDEX) && !is_dir && kind.is_some(),
            "it has the flag of a hash tree, but is no directory",
        );
        refuse(
            has(InodeFlags::INLINE_DATA) && !geo.incompat.contains(IncompatFeatures::INLINE_DATA),
            "it has inline data on a volume without the feature inline_data",
        );
        refuse(
            has(InodeFlags::ENCRYPT) && !geo.incompat.contains(IncompatFeatures::ENCRYPT),
            "it is encrypted on a volume without the feature encrypt",
        );
        refuse(
            has(InodeFlags::CASEFOLD) && !geo.incompat.contains(IncompatFeatures::CASEFOLD),
            "it ignores case on a volume without the feature casefold",
        );
        refuse(
            has(InodeFlags::VERITY) && !geo.ro_compat.contains(RoCompatFeatures::VERITY),
            "it has a hash of its contents on a volume without the feature verity",
        );
        refuse(
            has(InodeFlags::EA_INODE) && !geo.incompat.contains(IncompatFeatures::EA_INODE),
            "it holds an attribute's value on a volume without the feature ea_inode",
        );
        refuse(has(InodeFlags::IMAGIC), "it has the imagic flag");
    }

    fn check_fast_symlink(&mut self, place: &Place, fields: &InodeFields) {
        let length = fields.i_block.iter().position(|byte| *byte == 0);
        let length = length.unwrap_or(fields.i_block.len()) as u64;
        if fields.size == 0 || length != fields.size {
            self.problem(
                Kind::Inode,
                place.clone(),
                format!(
                    "the symbolic link's target has {length} bytes, its size says {}",
                    fields.size
                ),
            );
        }
    }

    /// The blocks that an inode maps; how many.
    fn check_mapping(
        &mut self,
        ino: Ino,
        fields: &InodeFields,
        kind: Option<FileType>,
    ) -> Result<u64, Error> {
        let place = Place::inode(ino.0);
        let size = u64::from(self.v.geo.block_size);
        let is_dir = kind == Some(FileType::Directory);
        let first = self.directory_blocks.len();
        let mut sink = Claiming {
            claims: &mut self.claims,
            report: &mut self.report,
            directory_blocks: is_dir.then_some(&mut self.directory_blocks),
            ino: ino.0,
            blocks: 0,
            end: 0,
            last_written: None,
            unwritten: false,
            first_block: None,
            overflow: false,
        };
        mapping::walk(&self.v, ino, fields, &mut sink)?;
        let Claiming {
            blocks,
            end,
            last_written,
            unwritten,
            first_block,
            overflow,
            ..
        } = sink;
        if overflow {
            let what = format!("blocks of directory inode {}: there are too many", ino.0);
            self.report.unchecked.push(what);
        }
        let bytes = fields.size;
        match kind {
            Some(FileType::Directory) => {
                if bytes != end * size {
                    self.problem(
                        Kind::Inode,
                        place.clone(),
                        format!("the directory's size is {bytes}, should be {}", end * size),
                    );
                }
                if unwritten {
                    self.problem(Kind::Mapping, place, "the directory has unwritten blocks");
                }
                let has_csum = self.v.geo.has_metadata_csum();
                self.directories.push(Directory {
                    ino: ino.0,
                    generation: if has_csum { fields.generation } else { 0 },
                    indexed: fields.flags.contains(InodeFlags::INDEX)
                        && self.v.geo.compat.contains(CompatFeatures::DIR_INDEX),
                    first,
                    blocks: (self.directory_blocks.len() - first) as u32,
                    parent: 0,
                    dotdot: 0,
                });
                self.report.directories += 1;
            }
            Some(FileType::Symlink) => {
                self.check_slow_symlink(&place, bytes, end, first_block)?;
            }
            Some(FileType::Regular) => {
                let least = last_written.map_or(0, |block| block * size);
                let verity = fields.flags.contains(InodeFlags::VERITY);
                let extents = fields.flags.contains(InodeFlags::EXTENTS);
                let most = match extents {
                    true => size << 32,
                    false => block_map_end(size) * size,
                };
                if bytes < least && !verity {
                    self.problem(
                        Kind::Inode,
                        place,
                        format!(
                            "its size is {bytes}, but file block {} is written",
                            least / size
                        ),
                    );
                } else if bytes > most {
                    self.problem(
                        Kind::Inode,
                        place,
                        format!("its size is {bytes}, of at most {most}"),
                    );
                }
            }
            _ => {}
        }
        Ok(blocks)
    }

    fn check_slow_symlink(
        &mut self,
        place: &Place,
        bytes: u64,
        end: u64,
        first_block: Option<u64>,
    ) -> Result<(), Error> {
        let message = match first_block {
            Some(block) if end == 1 => {
                let data = self.v.read_block(block)?;
                let length = data.iter().position(|byte| *byte == 0);
                let length = length.unwrap_or(data.len()) as u64;
                (length != bytes || length == 0).then(|| {
                    format!("the symbolic link's target has {length} bytes, its size says {bytes}")
                })
            }
            _ => Some(format!(
                "the symbolic link has {end} blocks for a target of {bytes} bytes"
            )),
        };
        if let Some(message) = message {
            self.problem(Kind::Inode, place.clone(), message);
        }
        Ok(())
    }

    /// Pass 1b: names all owners of the blocks that are claimed twice.
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
        let mut owners: Vec<Vec<u32>> = vec![Vec::new(); runs.len()];
        self.progress
            .begin("shared blocks", self.groups.len() as u64);
        let mut nodes = Bits::new(self.v.geo.blocks_count);
        self.each_inode(|checker, ino, raw| {
            let Ok(fields) = InodeFields::decode(&checker.v.geo, raw) else {
                return Ok(());
            };
            if !checker.inodes.get(ino.0).has(Row::IN_USE) || ino == Ino::RESIZE {
                return Ok(());
            }
            let mut sink = Owning {
                runs: &runs,
                owners: &mut owners,
                nodes: &mut nodes,
                ino: ino.0,
            };
            if fields.file_acl.0 != 0 {
                sink.touch(fields.file_acl.0, 1);
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
                    run.start + run.len - 1
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
            place.inode = inodes.first().copied();
            self.problem(Kind::SharedBlock, place, message);
        }
        Ok(())
    }
}

/// File blocks that a block map can address.
fn block_map_end(block_size: u64) -> u64 {
    let entries = block_size / 4;
    12 + entries + entries * entries + entries * entries * entries
}

/// Owners of one run that are named, at most.
const OWNERS_MAX: usize = 16;

/// Finds out which inodes have blocks in some runs.
struct Owning<'a> {
    runs: &'a [Run],
    owners: &'a mut [Vec<u32>],
    nodes: &'a mut Bits,
    ino: u32,
}

impl Owning<'_> {
    fn touch(&mut self, start: u64, len: u64) {
        let first = self
            .runs
            .partition_point(|run| run.start + run.len <= start);
        for (run, owners) in self.runs.iter().zip(self.owners.iter_mut()).skip(first) {
            if run.start >= start + len {
                break;
            }
            if owners.last() != Some(&self.ino) && owners.len() < OWNERS_MAX {
                owners.push(self.ino);
            }
        }
    }
}

impl Sink for Owning<'_> {
    fn node(&mut self, block: u64) -> bool {
        self.touch(block, 1);
        !self.nodes.set(block)
    }
    fn data(&mut self, _file_block: u64, start: u64, len: u64, _unwritten: bool) {
        self.touch(start, len);
    }
    fn wrong(&mut self, _block: Option<u64>, _message: String) {}
}

/// Whether a block can hold an inode's attributes.
pub(crate) fn can_hold_attributes(checker: &Checker<'_>, block: FsBlock) -> bool {
    checker.v.contains(block.0, 1)
}
