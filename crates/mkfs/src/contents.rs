//! The files of a new volume: root directory, `lost+found`, resize inode, orphan file and journal.

use crate::Result;
use crate::layout::Run;
use crate::write::Writer;
use ext4_format::dir_entry::{self, Tail};
use ext4_format::extent::{self, Extent, ExtentIndex, ExtentState};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::{
    self, FileType, I_BLOCK_SIZE, InodeFields, InodeFlags, InodeMode, Timestamp,
};
use ext4_format::{bitmap, orphan_file};
use jbd2::format::superblock::format_new;
use units::{FileBlock, FsBlock, GroupNo, Ino};

/// The inode after `lost+found`.
pub(crate) const ORPHAN_FILE: Ino = Ino(12);

/// Builds the first inodes of the first group's inode table and writes the blocks of these files.
pub(crate) struct Contents<'a> {
    geo: &'a Geometry,
    now: Timestamp,
    /// The first blocks of the inode table.
    table: Vec<u8>,
}

/// The blocks of a file that is mapped by extents.
pub(crate) struct Placed {
    pub runs: Vec<Run>,
    /// An extent node, if the inode's root is too small.
    pub node: Option<FsBlock>,
}

impl<'a> Contents<'a> {
    /// Starts with `inodes` unused inodes.
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

    /// Makes `ino` a file of all blocks of `placed` and writes its extent node, if it has one.
    /// Returns the inode's fields.
    pub fn file(
        &mut self,
        writer: &mut Writer<'_>,
        ino: Ino,
        mut fields: InodeFields,
        placed: &Placed,
    ) -> Result<InodeFields> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut file_block = FileBlock::FIRST;
        for (start, len) in &placed.runs {
            let (mut start, mut len) = (*start, *len);
            while len > 0 {
                let step = len.min(u64::from(extent::MAX_WRITTEN_LEN)) as u32;
                extents.push(Extent {
                    file_block,
                    len: step,
                    state: ExtentState::Written,
                    start: FsBlock(start),
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
                    file_block: FileBlock::FIRST,
                    child,
                };
                extent::set_indexes(&mut i_block, 1, &[index])?;
            }
        }
        let blocks = u64::from(file_block);
        fields.i_block = i_block;
        fields.flags = InodeFlags::EXTENTS;
        fields.size = blocks * u64::from(self.geo.block_size);
        let clusters = self.geo.cluster().clusters_for(blocks) + u64::from(placed.node.is_some());
        fields.blocks = clusters * self.geo.sectors_per_cluster();
        self.set(ino, &fields)?;
        Ok(fields)
    }

    /// Makes the root directory and `lost+found`.
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

    /// Makes the orphan file with all slots free.
    pub fn orphan_file(&mut self, writer: &mut Writer<'_>, placed: &Placed) -> Result<()> {
        let fields = self.fields(InodeMode::new(FileType::Regular, 0o600), 1);
        self.file(writer, ORPHAN_FILE, fields, placed)?;
        let seed = self.geo.inode_csum_seed(ORPHAN_FILE, 0);
        let mut block = vec![0; self.geo.block_size as usize];
        for number in blocks_of(&placed.runs) {
            orphan_file::init(&mut block)?;
            orphan_file::update_checksum(seed, &mut block, number)?;
            writer.put(number, &block);
        }
        Ok(())
    }

    /// Makes the journal's inode and super block. Returns the inode's fields.
    pub fn journal(&mut self, writer: &mut Writer<'_>, placed: &Placed) -> Result<InodeFields> {
        let fields = self.fields(InodeMode::new(FileType::Regular, 0o600), 1);
        let fields = self.file(writer, Ino::JOURNAL, fields, placed)?;
        let blocks: u64 = placed.runs.iter().map(|(_, len)| len).sum();
        // Like mke2fs, this sets no feature. The first mount adds those that it uses.
        let block = format_new(blocks as u32, self.geo.block_size, self.geo.uuid, 0);
        if let Some((first, _)) = placed.runs.first() {
            writer.put(FsBlock(*first), &block);
        }
        Ok(fields)
    }

    /// Makes the resize inode. Its double indirect block lists the reserved blocks after the
    /// descriptor table. Each of these lists its copies in the groups with backups.
    pub fn resize_inode(
        &mut self,
        writer: &mut Writer<'_>,
        double_indirect: FsBlock,
    ) -> Result<()> {
        let geo = self.geo;
        let addresses = u64::from(geo.block_size / 4);
        let backups: Vec<u32> = (1..geo.groups)
            .filter(|g| geo.has_super(GroupNo(*g)))
            .collect();
        let mut pointers = vec![0; geo.block_size as usize];
        for slot in 0..geo.reserved_gdt_blocks {
            // The index within the grown descriptor table.
            let index = geo.gdt_blocks + slot;
            let block = geo.gdt_block(index);
            put_le32(&mut pointers, u64::from(index) % addresses, block.0);
            let mut copies = vec![0; geo.block_size as usize];
            for (nth, group) in (0..).zip(&backups) {
                put_le32(&mut copies, nth, geo.nominal_copy(block, GroupNo(*group)).0);
            }
            writer.put(block, &copies);
        }
        writer.put(double_indirect, &pointers);

        let mut fields = self.fields(InodeMode::new(FileType::Regular, 0o600), 1);
        put_le32(&mut fields.i_block, 13, double_indirect.0);
        let size_blocks = addresses * addresses + addresses + 12;
        fields.size = size_blocks * u64::from(geo.block_size);
        let copies = backups.len() as u64 + 1;
        // With `bigalloc` each block counts as a cluster.
        let blocks = 1 + u64::from(geo.reserved_gdt_blocks) * copies;
        fields.blocks = blocks * geo.sectors_per_cluster();
        self.set(Ino::RESIZE, &fields)
    }

    /// Writes the inode table and the first group's inode bitmap, and stores the bitmap's checksum
    /// in `desc`.
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
            writer.put(FsBlock(desc.inode_table.0 + nth), bytes);
        }
        let map = inode_bitmap(self.geo, inodes);
        writer.put(desc.inode_bitmap, &map);
        desc.update_inode_bitmap_csum(self.geo, &map);
        Ok(())
    }
}

/// Returns an inode bitmap with the first `used` inodes in use. Bits after the last inode are set.
pub(crate) fn inode_bitmap(geo: &Geometry, used: u32) -> Vec<u8> {
    let mut map = vec![0; geo.block_size as usize];
    bitmap::set_range(&mut map, 0, used);
    bitmap::set_range(&mut map, geo.inodes_per_group, u32::MAX);
    map
}

fn blocks_of(runs: &[Run]) -> impl Iterator<Item = FsBlock> + '_ {
    runs.iter()
        .flat_map(|(start, len)| (*start..start + len).map(FsBlock))
}

fn put_le32(bytes: &mut [u8], index: u64, value: u64) {
    let at = index as usize * 4;
    bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}
