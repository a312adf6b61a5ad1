//! What is in a new volume: root directory, lost+found, the resize inode, the orphan file and the
//! journal's inode.

use super::layout::Run;
use super::write::Writer;
use crate::Result;
use ext4_format::dir_entry::{self, Tail};
use ext4_format::extent::{self, Extent, ExtentIndex};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::{
    self, FileType, I_BLOCK_SIZE, InodeFields, InodeFlags, InodeMode, Timestamp,
};
use ext4_format::types::{GroupNo, Ino};
use ext4_format::{bitmap, orphan_file};
use jbd2::format::superblock::format_new;

/// Inode of the orphan file, right behind `lost+found`.
pub(super) const ORPHAN_FILE: Ino = Ino(12);

/// The inodes of a new volume, by index in the first group's table, and the blocks that belong to
/// them.
pub(super) struct Contents<'a> {
    geo: &'a Geometry,
    now: Timestamp,
    table: Vec<u8>,
}

/// A file that is mapped by extents: its blocks, and a block for an extent node where the inode's
/// root is too small.
pub(super) struct Placed {
    pub runs: Vec<Run>,
    pub node: Option<u64>,
}

impl<'a> Contents<'a> {
    /// `inodes` inodes, all unused so far.
    pub fn new(geo: &'a Geometry, now: Timestamp, inodes: u32) -> Contents<'a> {
        let blocks = inodes.div_ceil(geo.inodes_per_block());
        Contents {
            geo,
            now,
            table: vec![0; (blocks * geo.block_size) as usize],
        }
    }

    fn fields(&self, mode: InodeMode, links: u16) -> InodeFields {
        let extra_isize = inode::FULL_EXTRA_ISIZE.min(self.geo.inode_size - 128);
        InodeFields {
            mode,
            atime: self.now,
            ctime: self.now,
            mtime: self.now,
            crtime: Some(self.now),
            links_count: links,
            extra_isize,
            ..InodeFields::default()
        }
    }

    fn set(&mut self, ino: Ino, fields: &InodeFields) -> Result<()> {
        let size = usize::from(self.geo.inode_size);
        let at = (ino.0 as usize - 1) * size;
        fields.encode(self.geo, &mut self.table[at..at + size])?;
        Ok(())
    }

    fn sectors(&self, blocks: u64) -> u64 {
        blocks * u64::from(self.geo.block_size / 512)
    }

    /// Makes `ino` a file of all of `placed`'s blocks and writes its extent node, if it has one.
    /// Its map, for the copy of the journal's in the superblock.
    pub fn file(
        &mut self,
        writer: &mut Writer<'_>,
        ino: Ino,
        mut fields: InodeFields,
        placed: &Placed,
    ) -> Result<InodeFields> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut file_block = 0;
        for (start, len) in &placed.runs {
            let (mut start, mut len) = (*start, *len);
            while len > 0 {
                let step = len.min(u64::from(extent::MAX_WRITTEN_LEN)) as u32;
                extents.push(Extent {
                    file_block,
                    len: step,
                    unwritten: false,
                    start,
                });
                file_block += step;
                start += u64::from(step);
                len -= u64::from(step);
            }
        }
        let mut i_block = [0; I_BLOCK_SIZE];
        match placed.node {
            None => {
                extent::init(&mut i_block, 0)?;
                extent::set_extents(&mut i_block, &extents)?;
            }
            Some(child) => {
                let mut node = vec![0; self.geo.block_size as usize];
                extent::init(&mut node, 0)?;
                extent::set_extents(&mut node, &extents)?;
                extent::update_checksum(self.geo.inode_csum_seed(ino, 0), &mut node);
                writer.put(child, &node);
                extent::init(&mut i_block, 1)?;
                let index = ExtentIndex {
                    file_block: 0,
                    child,
                };
                extent::set_indexes(&mut i_block, 1, &[index])?;
            }
        }
        let blocks = u64::from(file_block);
        fields.i_block = i_block;
        fields.flags = InodeFlags::EXTENTS;
        fields.size = blocks * u64::from(self.geo.block_size);
        fields.blocks = self.sectors(blocks + u64::from(placed.node.is_some()));
        self.set(ino, &fields)?;
        Ok(fields)
    }

    /// The root directory and `lost+found`.
    pub fn directories(
        &mut self,
        writer: &mut Writer<'_>,
        owner: (u32, u32),
        root: &Placed,
        lost_found: &Placed,
    ) -> Result<()> {
        let mut fields = self.fields(InodeMode::new(FileType::Directory, 0o755), 3);
        (fields.uid, fields.gid) = owner;
        self.file(writer, Ino::ROOT, fields, root)?;
        let fields = self.fields(InodeMode::new(FileType::Directory, 0o700), 2);
        self.file(writer, Ino::LOST_FOUND, fields, lost_found)?;

        let mut block = vec![0; self.geo.block_size as usize];
        let mut is_first = true;
        for number in blocks_of(&root.runs) {
            let seed = self.geo.inode_csum_seed(Ino::ROOT, 0);
            dir_entry::init_dot_dotdot(&mut block, Ino::ROOT, Ino::ROOT, Tail::for_seed(seed));
            let file_type = Some(FileType::Directory);
            dir_entry::insert(&mut block, b"lost+found", Ino::LOST_FOUND, file_type)?;
            dir_entry::update_checksum(seed, &mut block);
            writer.put(number, &block);
        }
        for number in blocks_of(&lost_found.runs) {
            let seed = self.geo.inode_csum_seed(Ino::LOST_FOUND, 0);
            let tail = Tail::for_seed(seed);
            if std::mem::take(&mut is_first) {
                dir_entry::init_dot_dotdot(&mut block, Ino::LOST_FOUND, Ino::ROOT, tail);
            } else {
                dir_entry::init_empty(&mut block, tail);
            }
            dir_entry::update_checksum(seed, &mut block);
            writer.put(number, &block);
        }
        Ok(())
    }

    /// The orphan file, all slots free.
    pub fn orphan_file(&mut self, writer: &mut Writer<'_>, placed: &Placed) -> Result<()> {
        let fields = self.fields(InodeMode::new(FileType::Regular, 0o600), 1);
        self.file(writer, ORPHAN_FILE, fields, placed)?;
        let seed = self.geo.inode_csum_seed(ORPHAN_FILE, 0);
        let mut block = vec![0; self.geo.block_size as usize];
        for number in blocks_of(&placed.runs) {
            orphan_file::init(&mut block)?;
            let place = ext4_format::types::FsBlock(number);
            orphan_file::update_checksum(seed, &mut block, place)?;
            writer.put(number, &block);
        }
        Ok(())
    }

    /// The journal's inode and its superblock; the fields go into the superblock's copy.
    pub fn journal(&mut self, writer: &mut Writer<'_>, placed: &Placed) -> Result<InodeFields> {
        let fields = self.fields(InodeMode::new(FileType::Regular, 0o600), 1);
        let fields = self.file(writer, Ino::JOURNAL, fields, placed)?;
        let blocks: u64 = placed.runs.iter().map(|(_, len)| len).sum();
        // Without features, as mke2fs makes it: whoever mounts adds those that it uses.
        let block = format_new(blocks as u32, self.geo.block_size, self.geo.uuid, 0);
        if let Some((first, _)) = placed.runs.first() {
            writer.put(*first, &block);
        }
        Ok(fields)
    }

    /// The resize inode: a double indirect block whose entries are the reserved blocks behind the
    /// descriptor table, each of which lists its copies in the groups with backups.
    pub fn resize_inode(&mut self, writer: &mut Writer<'_>, double_indirect: u64) -> Result<()> {
        let geo = self.geo;
        let addresses = u64::from(geo.block_size / 4);
        let backups: Vec<u32> = (1..geo.groups)
            .filter(|g| geo.has_super(GroupNo(*g)))
            .collect();
        let mut pointers = vec![0; geo.block_size as usize];
        for slot in 0..geo.reserved_gdt_blocks {
            // Index within the descriptor table as it would be after growing.
            let index = u64::from(geo.gdt_blocks + slot);
            let block = geo.first_data_block + 1 + index;
            put_le32(&mut pointers, index % addresses, block);
            let mut copies = vec![0; geo.block_size as usize];
            for (nth, group) in (0..).zip(&backups) {
                let copy = geo.group_first_block(GroupNo(*group)).0 + 1 + index;
                put_le32(&mut copies, nth, copy);
            }
            writer.put(block, &copies);
        }
        writer.put(double_indirect, &pointers);

        let mut fields = self.fields(InodeMode::new(FileType::Regular, 0o600), 1);
        put_le32(&mut fields.i_block, 13, double_indirect);
        let size_blocks = addresses * addresses + addresses + 12;
        fields.size = size_blocks * u64::from(geo.block_size);
        let copies = backups.len() as u64 + 1;
        fields.blocks = self.sectors(1 + u64::from(geo.reserved_gdt_blocks) * copies);
        self.set(Ino::RESIZE, &fields)
    }

    /// Writes the table's blocks and the first group's inode bitmap, whose checksum goes into
    /// `desc`.
    pub fn finish(
        mut self,
        writer: &mut Writer<'_>,
        desc: &mut GroupDesc,
        inodes: u32,
    ) -> Result<()> {
        let size = usize::from(self.geo.inode_size);
        for (ino, raw) in (1..=inodes).zip(self.table.chunks_exact_mut(size)) {
            inode::update_checksum(self.geo, Ino(ino), raw)?;
        }
        let block_size = self.geo.block_size as usize;
        for (nth, bytes) in (0..).zip(self.table.chunks_exact(block_size)) {
            writer.put(desc.inode_table.0 + nth, bytes);
        }
        let map = inode_bitmap(self.geo, inodes);
        writer.put(desc.inode_bitmap.0, &map);
        desc.update_inode_bitmap_csum(self.geo, &map);
        Ok(())
    }
}

/// An inode bitmap with the first `used` inodes in use; bits behind the last inode are set.
pub(super) fn inode_bitmap(geo: &Geometry, used: u32) -> Vec<u8> {
    let mut map = vec![0; geo.block_size as usize];
    bitmap::set_range(&mut map, 0, used);
    bitmap::set_range(&mut map, geo.inodes_per_group, u32::MAX);
    map
}

fn blocks_of(runs: &[Run]) -> impl Iterator<Item = u64> + '_ {
    runs.iter().flat_map(|(start, len)| *start..start + len)
}

fn put_le32(bytes: &mut [u8], index: u64, value: u64) {
    let at = index as usize * 4;
    bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}
