//! Pass 1: each inode's fields, and the blocks that it claims.

use crate::Error;
use crate::finding::{Kind, Place, Report, describe};
use crate::mapping::{self, Sink};
use crate::state::{Checker, Claims, Directory, Names, Row};
use crate::volume::READ_MAX;
use crate::xattrs::inline_attribute;
use ext4_format::error::FormatError;
use ext4_format::extent::ExtentState;
use ext4_format::features::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
use ext4_format::inode::{FileType, InodeFields, InodeFlags, verify_checksum};
use units::{ClusterSize, FileBlock, FileCluster, FsBlock, GroupNo, Ino, Span};

/// Most directory blocks that are kept in memory (16 bytes each).
const DIRECTORY_BLOCKS_MAX: usize = 16 << 20;
/// Bytes of inline data in `i_block`.
const GOOD_OLD_I_BLOCK: u64 = 60;
/// Bytes of an inode that every revision has.
const GOOD_OLD: usize = 128;

/// Claims an inode's blocks, and collects the facts for the checks of its size.
struct Claiming<'a> {
    claims: &'a mut Claims,
    report: &'a mut Report,
    directory_blocks: Option<&'a mut Vec<(FileBlock, FsBlock)>>,
    ino: Ino,
    cluster: ClusterSize,
    /// The last cluster of the file that was counted, and its place.
    last_cluster: Option<(FileCluster, FsBlock)>,
    /// Number of clusters of data and of the tree.
    clusters: u64,
    /// End of the mapped file blocks.
    end: FileBlock,
    /// The last file block that is not unwritten.
    last_written: Option<FileBlock>,
    has_unwritten: bool,
    first_block: Option<FsBlock>,
    overflow: bool,
}

impl Claiming<'_> {
    /// Counts and claims the clusters of blocks. The parts of one cluster follow one another in the
    /// file.
    fn claim(&mut self, file_block: FileBlock, start: FsBlock, len: u32) {
        let size = self.cluster;
        let file_clusters = size.touching(file_block..file_block.saturating_add(len));
        let (mut first, end) = self.claims.clusters_of(start, len.into());
        if let Some((cluster, place)) = self.last_cluster {
            let is_same = place == first && cluster == file_clusters.start;
            if is_same {
                first += u64::from(size.blocks());
            }
            // Blocks of one cluster are in one cluster.
            if cluster == file_clusters.start && !is_same {
                self.misplaced(file_block, start);
            }
        }
        if !size.is_aligned(file_block, start) {
            self.misplaced(file_block, start);
        }
        self.clusters += size.clusters_for(end.0.saturating_sub(first.0));
        self.claims.claim(first, end.0.saturating_sub(first.0));
        let last = size.start_of(start + u64::from(len.max(1) - 1));
        self.last_cluster = file_clusters.last().map(|cluster| (cluster, last));
    }

    fn misplaced(&mut self, file_block: FileBlock, start: FsBlock) {
        let message = format!(
            "file block {file_block} is mapped to block {start}, outside of its cluster's place"
        );
        self.wrong(None, message);
    }
}

impl Sink for Claiming<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        // A cluster of the tree holds one block of it.
        self.clusters += 1;
        self.claims.claim_clusters(block, 1)
    }

    fn data(&mut self, file_block: FileBlock, start: FsBlock, len: u32, state: ExtentState) {
        let run = start..start + u64::from(len);
        self.claim(file_block, start, len);
        let end = file_block.saturating_add(len);
        self.end = self.end.max(end);
        if file_block == FileBlock::FIRST {
            self.first_block = Some(start);
        }
        self.has_unwritten |= state == ExtentState::Unwritten;
        if state == ExtentState::Written {
            self.last_written = self.last_written.max((file_block..end).last());
        }
        if let Some(blocks) = &mut self.directory_blocks {
            if blocks.len() + len as usize > DIRECTORY_BLOCKS_MAX {
                self.overflow = true;
                return;
            }
            blocks.extend((file_block..end).numbers().zip(run.numbers()));
        }
    }

    fn wrong(&mut self, block: Option<FsBlock>, message: String) {
        let mut place = Place::inode(self.ino);
        place.block = block.map(|block| block.0);
        self.report.problem(Kind::Mapping, place, message);
    }
}

/// An inode's bytes and its fields.
pub(crate) type Loaded = (Vec<u8>, Result<InodeFields, FormatError>);

impl Checker<'_> {
    /// Reads an inode. Returns `None` if its table has no valid place.
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
        let bytes = self.v.read_block(block)?;
        let at = offset as usize;
        let raw = bytes.get(at..at + usize::from(geo.inode_size));
        Ok(raw.map(|raw| (raw.to_vec(), InodeFields::decode(geo, raw))))
    }

    pub fn check_inodes(&mut self) -> Result<(), Error> {
        let groups = self.groups.len() as u64;
        self.progress.begin("inodes", groups);
        self.each_inode(|checker, ino, raw| checker.check_inode(ino, raw))?;
        for ino in (1..self.v.geo.first_ino.0).map(Ino) {
            // Reserved inodes always count as used.
            if let Some(row) = self.inodes.at(ino) {
                row.flags |= Row::IN_USE | if ino == Ino::ROOT { 0 } else { Row::HIDDEN };
            }
        }
        let sb = &self.v.sb;
        let quota = [&sb.usr_quota_inum, &sb.grp_quota_inum, &sb.prj_quota_inum];
        let hidden = quota.into_iter().chain([&sb.orphan_file_inum]);
        for ino in hidden.map(|inum| Ino(inum.get())) {
            if self.inodes.get(ino).has(Row::IN_USE)
                && let Some(row) = self.inodes.at(ino)
            {
                row.flags |= Row::HIDDEN;
            }
        }
        Ok(())
    }

    /// Calls `each` with each inode that may be in use and is not all zeroes.
    pub(crate) fn each_inode(
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
            let first = group.desc.inode_table;
            let inodes = group.inodes_in_use(&geo);
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
        let place = Place::inode(ino);
        let mut wrong = Vec::new();
        let mut raw = raw.to_vec();
        if let Err(error) = verify_checksum(&geo, ino, &raw) {
            wrong.push(describe(&error));
        }
        let fields = match InodeFields::decode(&geo, &raw) {
            Ok(fields) => fields,
            Err(error) => {
                wrong.push(describe(&error));
                // Only `i_extra_isize` makes an inode unreadable.
                if let Some(extra) = raw.get_mut(GOOD_OLD..GOOD_OLD + 2) {
                    extra.copy_from_slice(&geo.want_extra_isize.to_le_bytes());
                }
                match InodeFields::decode(&geo, &raw) {
                    Ok(fields) => fields,
                    Err(_) => {
                        self.inode_problems(&place, wrong);
                        return Ok(());
                    }
                }
            }
        };
        let is_orphan = self.orphans.contains(&ino);
        let is_reserved = ino < geo.first_ino;
        if fields.links_count == 0 && !is_orphan && !is_reserved {
            if fields.mode.0 != 0 && fields.dtime == 0 {
                wrong.push("it is deleted, but its deletion time is 0".to_owned());
            }
            self.inode_problems(&place, wrong);
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
        // i_faddr is for fragments, which Linux never implemented.
        if raw.get(0x70..0x74).is_some_and(|bytes| bytes != [0; 4]) {
            wrong.push("i_faddr is not 0".to_owned());
        }
        if let Some(row) = self.inodes.at(ino) {
            row.links = fields.links_count;
            row.kind = kind.map_or(0, FileType::dirent_code);
            row.flags |= Row::IN_USE | if is_orphan { Row::ORPHAN } else { 0 };
            if fields.flags.contains(InodeFlags::EA_INODE) {
                row.flags |= Row::HIDDEN;
                self.values.add_inode(ino, &fields);
            }
        }
        self.report.inodes += 1;
        self.inode_problems(&place, wrong);
        let mut clusters = self.check_attributes(ino, &fields, &raw)?;
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
        } else if fields.flags.contains(InodeFlags::INLINE_DATA) {
            self.check_inline(&place, &fields, kind, &raw);
        } else if fields.is_fast_symlink() {
            self.check_fast_symlink(&place, &fields);
        } else if ino != Ino::RESIZE {
            clusters += self.check_mapping(ino, &fields, kind)?;
        } else {
            return Ok(());
        }
        let expected = (clusters << geo.cluster_bits) * u64::from(geo.block_size / 512);
        if fields.blocks != expected {
            self.problem(
                Kind::Inode,
                place,
                format!("i_blocks is {}, should be {expected}", fields.blocks),
            );
        }
        Ok(())
    }

    fn inode_problems(&mut self, place: &Place, messages: Vec<String>) {
        for message in messages {
            self.problem(Kind::Inode, place.clone(), message);
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
        let incompat = |feature| geo.incompat.contains(feature);
        let has_hash_tree = geo.compat.contains(CompatFeatures::DIR_INDEX);
        let has_verity = geo.ro_compat.contains(RoCompatFeatures::VERITY);
        let may_be_directory = matches!(kind, Some(FileType::Directory) | None);
        let rules = [
            (
                InodeFlags::EXTENTS,
                incompat(IncompatFeatures::EXTENTS),
                "it has extents on a volume without the feature extent",
            ),
            (
                InodeFlags::INDEX,
                has_hash_tree,
                "it has a hash tree on a volume without the feature dir_index",
            ),
            (
                InodeFlags::INDEX,
                may_be_directory,
                "it has the flag of a hash tree, but is no directory",
            ),
            (
                InodeFlags::INLINE_DATA,
                incompat(IncompatFeatures::INLINE_DATA),
                "it has inline data on a volume without the feature inline_data",
            ),
            (
                InodeFlags::ENCRYPT,
                incompat(IncompatFeatures::ENCRYPT),
                "it is encrypted on a volume without the feature encrypt",
            ),
            (
                InodeFlags::CASEFOLD,
                incompat(IncompatFeatures::CASEFOLD),
                "it ignores case on a volume without the feature casefold",
            ),
            (
                InodeFlags::VERITY,
                has_verity,
                "it has a hash of its contents on a volume without the feature verity",
            ),
            (
                InodeFlags::EA_INODE,
                incompat(IncompatFeatures::EA_INODE),
                "it holds an attribute's value on a volume without the feature ea_inode",
            ),
            (InodeFlags::IMAGIC, false, "it has the imagic flag"),
        ];
        for (flag, is_allowed, message) in rules {
            if fields.flags.contains(flag) && !is_allowed {
                wrong.push(message.to_owned());
            }
        }
    }

    fn check_fast_symlink(&mut self, place: &Place, fields: &InodeFields) {
        if let Some(message) = wrong_target(&fields.i_block, fields.size) {
            self.problem(Kind::Inode, place.clone(), message);
        }
    }

    /// Claims the blocks that an inode maps. Returns the number of their clusters.
    fn check_mapping(
        &mut self,
        ino: Ino,
        fields: &InodeFields,
        kind: Option<FileType>,
    ) -> Result<u64, Error> {
        let place = Place::inode(ino);
        let size = u64::from(self.v.geo.block_size);
        let is_dir = kind == Some(FileType::Directory);
        let first = self.directory_blocks.len();
        let mut sink = Claiming {
            claims: &mut self.claims,
            report: &mut self.report,
            directory_blocks: is_dir.then_some(&mut self.directory_blocks),
            ino,
            cluster: self.v.geo.cluster(),
            last_cluster: None,
            clusters: 0,
            end: FileBlock::FIRST,
            last_written: None,
            has_unwritten: false,
            first_block: None,
            overflow: false,
        };
        mapping::walk(&self.v, ino, fields, &mut sink)?;
        let (clusters, end, first_block) = (sink.clusters, u64::from(sink.end), sink.first_block);
        let (last_written, has_unwritten) = (sink.last_written, sink.has_unwritten);
        if sink.overflow {
            let what = format!("blocks of directory inode {ino}: there are too many");
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
                if has_unwritten {
                    self.problem(Kind::Mapping, place, "the directory has unwritten blocks");
                }
                self.add_directory(ino, fields, first);
            }
            Some(FileType::Symlink) => {
                self.check_slow_symlink(&place, bytes, end, first_block)?;
            }
            Some(FileType::Regular) => {
                if let Some(message) = wrong_file_size(fields, size, last_written) {
                    self.problem(Kind::Inode, place, message);
                }
            }
            _ => {}
        }
        Ok(clusters)
    }

    /// Adds a directory to the list. Its blocks begin at `first`.
    fn add_directory(&mut self, ino: Ino, fields: &InodeFields, first: usize) {
        let geo = &self.v.geo;
        let has = |flag| fields.flags.contains(flag);
        self.directories.push(Directory {
            ino,
            generation: match geo.has_metadata_csum() {
                true => fields.generation,
                false => 0,
            },
            indexed: has(InodeFlags::INDEX) && geo.compat.contains(CompatFeatures::DIR_INDEX),
            inline: has(InodeFlags::INLINE_DATA),
            names: match (has(InodeFlags::ENCRYPT), has(InodeFlags::CASEFOLD)) {
                (true, _) => Names::Encrypted,
                (false, true) => Names::Folded,
                (false, false) => Names::Plain,
            },
            first,
            blocks: (self.directory_blocks.len() - first) as u32,
            parent: Ino(0),
            dotdot: Ino(0),
        });
        self.report.directories += 1;
    }

    /// Checks contents that are in the inode.
    fn check_inline(
        &mut self,
        place: &Place,
        fields: &InodeFields,
        kind: Option<FileType>,
        raw: &[u8],
    ) {
        let more = inline_attribute(&self.v.geo, raw).map(<[u8]>::len);
        let have = GOOD_OLD_I_BLOCK + more.unwrap_or(0) as u64;
        if more.is_none() {
            let message = "it has inline data, but no attribute \"system.data\"";
            self.problem(Kind::Inode, place.clone(), message);
        }
        // The kernel leaves a hole behind the contents of a file that grows by a truncation.
        let is_wrong = match kind {
            Some(FileType::Directory) => fields.size != have,
            Some(FileType::Regular) => false,
            _ => fields.size > have,
        };
        if is_wrong {
            let size = fields.size;
            let message = format!("its size is {size}, but {have} bytes are in the inode");
            self.problem(Kind::Inode, place.clone(), message);
        }
        if kind == Some(FileType::Directory)
            && let Some(ino) = place.inode
        {
            self.add_directory(Ino(ino), fields, self.directory_blocks.len());
        }
    }

    fn check_slow_symlink(
        &mut self,
        place: &Place,
        bytes: u64,
        end: u64,
        first_block: Option<FsBlock>,
    ) -> Result<(), Error> {
        let message = match first_block {
            Some(block) if end == 1 => wrong_target(&self.v.read_block(block)?, bytes),
            _ => Some(format!(
                "the symbolic link has {end} blocks for a target of {bytes} bytes"
            )),
        };
        if let Some(message) = message {
            self.problem(Kind::Inode, place.clone(), message);
        }
        Ok(())
    }
}

/// Checks the size of a regular file. `last_written` is its last file block that is not unwritten.
/// Returns the problem, if any.
fn wrong_file_size(
    fields: &InodeFields,
    block_size: u64,
    last_written: Option<FileBlock>,
) -> Option<String> {
    let bytes = fields.size;
    let last = last_written.map_or(0, u64::from);
    let most = match fields.flags.contains(InodeFlags::EXTENTS) {
        true => block_size << 32,
        false => block_map_end(block_size) * block_size,
    };
    if bytes < last * block_size && !fields.flags.contains(InodeFlags::VERITY) {
        return Some(format!(
            "its size is {bytes}, but file block {last} is written"
        ));
    }
    (bytes > most).then(|| format!("its size is {bytes}, of at most {most}"))
}

/// Compares the target of a symbolic link, which ends at the first NUL in `data`, with the inode's
/// size. Returns the problem, if any.
fn wrong_target(data: &[u8], size: u64) -> Option<String> {
    let end = data.iter().position(|byte| *byte == 0);
    let length = end.unwrap_or(data.len()) as u64;
    (length == 0 || length != size)
        .then(|| format!("the symbolic link's target has {length} bytes, its size says {size}"))
}

/// Returns the number of file blocks that a block map can address.
fn block_map_end(block_size: u64) -> u64 {
    let entries = block_size / 4;
    12 + entries + entries * entries + entries * entries * entries
}
