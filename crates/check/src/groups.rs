//! Pass 0: the super block's fields, its backups, group descriptors, and the places of the
//! metadata.

use crate::Error;
use crate::finding::{Kind, Place};
use crate::state::{Checker, Group};
use ext4_format::features::{CompatFeatures, IncompatFeatures};
use ext4_format::group_desc::{self, GroupDesc, GroupFlags};
use ext4_format::superblock::{SUPERBLOCK_SIZE, Superblock};
use units::{FsBlock, GroupNo};

impl Checker<'_> {
    /// Reads the descriptors. [`Checker::check_groups`] checks them.
    pub fn load_groups(&mut self) -> Result<(), Error> {
        let geo = &self.v.geo;
        let size = usize::from(geo.desc_size);
        let mut groups = Vec::new();
        for index in 0..geo.gdt_blocks {
            let bytes = self.v.read_block(geo.gdt_block(index))?;
            let per_block = geo.block_size as usize / size.max(1);
            for raw in bytes.chunks_exact(size).take(per_block) {
                let number = GroupNo(groups.len() as u32);
                if number.0 == geo.groups {
                    break;
                }
                let desc = GroupDesc::decode(raw, geo.desc_size).unwrap_or_default();
                let sound = group_desc::verify_checksum(geo, number, raw).is_ok();
                groups.push(Group {
                    desc,
                    block_bitmap_ok: false,
                    inode_bitmap_ok: false,
                    table_ok: false,
                    sound,
                });
            }
        }
        self.groups = groups;
        self.judge_places();
        Ok(())
    }

    fn judge_places(&mut self) {
        let geo = &self.v.geo;
        let flex = geo.incompat.contains(IncompatFeatures::FLEX_BG);
        let table_blocks = u64::from(geo.itable_blocks_per_group());
        for (number, group) in (0..).map(GroupNo).zip(&mut self.groups) {
            let start = geo.group_first_block(number).0;
            let end = start + u64::from(geo.blocks_in_group(number));
            let fits = |at: FsBlock, len: u64| {
                let on_volume = at.0 > geo.first_data_block
                    && at.0.checked_add(len).is_some_and(|e| e <= geo.blocks_count);
                on_volume && (flex || (at.0 >= start && at.0 + len <= end))
            };
            group.block_bitmap_ok = fits(group.desc.block_bitmap, 1);
            group.inode_bitmap_ok = fits(group.desc.inode_bitmap, 1);
            group.table_ok = fits(group.desc.inode_table, table_blocks);
        }
    }

    /// Checks fields of the super block that [`Superblock::parse`] does not check.
    pub fn check_superblock(&mut self) {
        let sb = &self.v.sb;
        let compat = sb.compat();
        let mut wrong = Vec::new();
        if !compat.contains(CompatFeatures::RESIZE_INODE) && sb.reserved_gdt_blocks.get() != 0 {
            wrong.push("s_reserved_gdt_blocks is set without the feature resize_inode".to_owned());
        }
        if !compat.contains(CompatFeatures::HAS_JOURNAL) && sb.journal_inum.get() != 0 {
            wrong.push("s_journal_inum is set without the feature has_journal".to_owned());
        }
        if compat.contains(CompatFeatures::HAS_JOURNAL)
            && sb.journal_inum.get() != 8
            && sb.journal_dev.get() == 0
            && (sb.journal_inum.get() != 0 || sb.journal_uuid == [0; 16])
        {
            wrong.push(format!(
                "s_journal_inum is {}, should be 8",
                sb.journal_inum.get()
            ));
        }
        if !compat.contains(CompatFeatures::HAS_JOURNAL)
            && sb.incompat().contains(IncompatFeatures::RECOVER)
        {
            wrong.push("needs_recovery is set without a journal".to_owned());
        }
        if sb.def_hash_version > 5 {
            wrong.push(format!("s_def_hash_version is {}", sb.def_hash_version));
        }
        if sb.creator_os.get() > 4 {
            wrong.push(format!("s_creator_os is {}", sb.creator_os.get()));
        }
        for message in wrong {
            self.problem(Kind::SuperBlock, Place::block(FsBlock(0)), message);
        }
    }

    /// Checks that each backup is a super block of this volume.
    pub fn check_backups(&mut self) -> Result<(), Error> {
        let (groups, size) = (self.v.geo.groups, self.v.geo.block_size);
        self.progress.begin("backups", u64::from(groups));
        for group in (1..groups).map(GroupNo) {
            if !self.v.geo.has_super(group) {
                continue;
            }
            let block = self.v.geo.group_first_block(group);
            let bytes = self.v.read_device(block.offset(size), SUPERBLOCK_SIZE)?;
            let place = Place::group(group.0).at_block(block);
            let mine = &self.v.sb;
            let message = match Superblock::parse(&bytes) {
                Err(error) => format!("backup of the super block: {error}"),
                Ok(sb) if sb.uuid != mine.uuid || sb.inode_size() != mine.inode_size() => {
                    "backup of the super block: it is another volume's".to_owned()
                }
                Ok(sb)
                    if sb.blocks_count() != mine.blocks_count()
                        || sb.inodes_count != mine.inodes_count
                        || sb.blocks_per_group != mine.blocks_per_group =>
                {
                    "backup of the super block: its geometry is not the volume's".to_owned()
                }
                Ok(sb) if sb.block_group_nr.get() != group.0 as u16 => format!(
                    "backup of the super block: it says that it is group {}'s",
                    sb.block_group_nr.get()
                ),
                Ok(_) => continue,
            };
            self.problem(Kind::SuperBlock, place, message);
        }
        Ok(())
    }

    /// Checks the descriptors and claims the blocks of the metadata.
    pub fn check_groups(&mut self) {
        // With blocks of 1 KiB, block 0 belongs to no group.
        for block in 0..self.v.geo.first_data_block {
            self.claims.taken.set(block);
        }
        self.progress.begin("groups", self.groups.len() as u64);
        let geo = self.v.geo.clone();
        let table_blocks = u64::from(geo.itable_blocks_per_group());
        for number in (0..geo.groups).map(GroupNo) {
            let supers = geo.super_blocks_in_group(number);
            self.claim_metadata(geo.group_first_block(number), u64::from(supers));
        }
        let multi_mount = FsBlock(self.v.sb.mmp_block.get());
        if geo.incompat.contains(IncompatFeatures::MMP) {
            if self.v.contains(multi_mount, 1) {
                self.claim_metadata(multi_mount, 1);
            } else {
                let message = format!("s_mmp_block is {multi_mount}, which is not on the volume");
                self.problem(Kind::SuperBlock, Place::block(FsBlock(0)), message);
            }
        }
        for number in (0..geo.groups).map(GroupNo) {
            let Some(group) = self.groups.get(number.0 as usize) else {
                break;
            };
            let place = || Place::group(number.0);
            let (desc, sound) = (group.desc.clone(), group.sound);
            let ok = (group.block_bitmap_ok, group.inode_bitmap_ok, group.table_ok);
            let mut wrong = Vec::new();
            if !sound {
                wrong.push("the descriptor's checksum is wrong".to_owned());
            }
            for (ok, what, at) in [
                (ok.0, "block bitmap", desc.block_bitmap),
                (ok.1, "inode bitmap", desc.inode_bitmap),
                (ok.2, "inode table", desc.inode_table),
            ] {
                if !ok {
                    wrong.push(format!("the {what} cannot be in block {}", at.0));
                }
            }
            let inodes = geo.inodes_per_group;
            for (value, most, what) in [
                (
                    desc.free_blocks_count,
                    geo.blocks_in_group(number),
                    "free blocks",
                ),
                (desc.free_inodes_count, inodes, "free inodes"),
                (desc.used_dirs_count, inodes, "directories"),
                (desc.itable_unused, inodes, "unused inodes"),
            ] {
                if value > most {
                    wrong.push(format!("{value} {what}, of at most {most}"));
                }
            }
            let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
            if !geo.has_group_csum() && desc.flags.intersects(uninit) {
                wrong.push("marked as not initialised on a volume without checksums".to_owned());
            }
            for message in wrong {
                self.problem(Kind::GroupDescriptor, place(), message);
            }
            for (ok, what, start, len) in [
                (ok.0, "block bitmap", desc.block_bitmap, 1),
                (ok.1, "inode bitmap", desc.inode_bitmap, 1),
                (ok.2, "inode table", desc.inode_table, table_blocks),
            ] {
                if ok && !self.claim_metadata(start, len) {
                    self.problem(
                        Kind::GroupDescriptor,
                        place().at_block(start),
                        format!("the {what} overlaps other metadata"),
                    );
                }
            }
            self.progress.done(1);
        }
    }

    fn claim_metadata(&mut self, start: FsBlock, len: u64) -> bool {
        self.metadata.set_run(start.0, len, &mut |_| {});
        self.claim(start, len)
    }

    /// Returns a description of the metadata that a block belongs to, if any.
    pub fn owner_of_metadata(&self, block: FsBlock) -> Option<String> {
        let geo = &self.v.geo;
        let table_blocks = u64::from(geo.itable_blocks_per_group());
        if let Ok(number) = geo.group_of_block(block) {
            let first = geo.group_first_block(number);
            if block - first < u64::from(geo.super_blocks_in_group(number)) {
                return Some(format!(
                    "the super block and group descriptors of group {}",
                    number.0
                ));
            }
        }
        self.groups.iter().enumerate().find_map(|(number, group)| {
            let desc = &group.desc;
            let within = |ok: bool, at: FsBlock, len: u64| ok && (at..at + len).contains(&block);
            let what = if within(group.block_bitmap_ok, desc.block_bitmap, 1) {
                "block bitmap"
            } else if within(group.inode_bitmap_ok, desc.inode_bitmap, 1) {
                "inode bitmap"
            } else if within(group.table_ok, desc.inode_table, table_blocks) {
                "inode table"
            } else {
                return None;
            };
            Some(format!("the {what} of group {number}"))
        })
    }
}
