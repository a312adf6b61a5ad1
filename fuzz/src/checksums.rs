//! Corrects the checksums of damaged blocks, as an attacker would.

use crate::bases::{Base, Role};
use crate::cow::{BLOCK, Cow};
use ext4_format::group_desc::{self, GroupDesc};
use ext4_format::inode::InodeFields;
use ext4_format::{Geometry, Seed, Superblock};
use ext4_format::{dir_entry, extent, htree, inode, orphan_file, xattr};
use jbd2::LogBlock;
use jbd2::format::superblock::JournalSuperblock;
use jbd2::format::{Checksums, Header, Layout, block_type, checksum, descriptor, put_u16, put_u32};
use units::{FileBlock, FsBlock, GroupNo, Ino};

/// Corrects the checksum of each block of `device` that differs from `base`.
///
/// The bases with smaller blocks than 4 KiB have no checksums.
pub fn correct(device: &Cow, base: &Base) {
    if base.block_size() != BLOCK {
        return;
    }
    let mut corrector = Corrector {
        device,
        base,
        geometry: base.geometry.clone(),
    };
    corrector.superblock();
    let changed = device.changed();
    let is_log = |role: &Role| matches!(role, Role::Log(_) | Role::JournalSuper);
    let roles: Vec<(u64, Role)> = changed
        .iter()
        .filter_map(|&block| Some((block, *base.roles.get(&block)?)))
        .collect();
    // A block whose checksum is stored in another block comes before that block.
    for &(block, role) in &roles {
        device.edit(block, |bytes| corrector.leaf(block, role, bytes));
    }
    for &(block, role) in &roles {
        match role {
            Role::BlockBitmap(group) | Role::InodeBitmap(group) => {
                corrector.bitmap(block, role, group)
            }
            Role::Descs(first) => device.edit(block, |bytes| corrector.descs(first, bytes)),
            _ => {}
        }
    }
    if roles.iter().any(|(_, role)| is_log(role)) {
        corrector.log();
    }
}

struct Corrector<'a> {
    device: &'a Cow,
    base: &'a Base,
    geometry: Geometry,
}

impl Corrector<'_> {
    fn superblock(&mut self) {
        let Ok(mut superblock) = Superblock::parse_unverified(&self.device.get(0)[1024..2048])
        else {
            return;
        };
        superblock.update_checksum();
        if self.device.changed().contains(&0) {
            self.device.edit(0, |bytes| {
                bytes[1024..2048].copy_from_slice(superblock.as_bytes())
            });
        }
        // The geometry is that of the base. Only the seed of the checksums may differ.
        if let Ok(superblock) = Superblock::parse(superblock.as_bytes())
            && let Ok(geometry) = Geometry::from_superblock(&superblock)
        {
            self.geometry.csum_seed = geometry.csum_seed;
            self.geometry.ro_compat = geometry.ro_compat;
            self.geometry.uuid = geometry.uuid;
        }
    }

    /// The seed of an inode's blocks, from its present generation.
    fn seed(&self, ino: u32) -> Option<Seed> {
        let geo = &self.base.geometry;
        let (group, _) = geo.inode_group(Ino(ino)).ok()?;
        let (block, offset) = geo.group_desc_location(group);
        let descs = self.device.get(block.0);
        let desc = GroupDesc::decode(descs.get(offset as usize..)?, geo.desc_size).ok()?;
        let (block, offset) = geo.inode_location(Ino(ino), desc.inode_table).ok()?;
        if block.0 >= self.device.blocks() {
            return None;
        }
        let inodes = self.device.get(block.0);
        let raw = inodes
            .get(offset as usize..)?
            .get(..usize::from(geo.inode_size))?;
        let generation = InodeFields::decode(geo, raw).ok()?.generation;
        self.geometry.inode_csum_seed(Ino(ino), generation)
    }

    /// Corrects a block that contains its own checksum.
    fn leaf(&self, block: u64, role: Role, bytes: &mut [u8]) {
        match role {
            Role::Inodes(first) => {
                let size = usize::from(self.geometry.inode_size);
                for (ino, raw) in (first..).zip(bytes.chunks_exact_mut(size)) {
                    if raw.iter().any(|&byte| byte != 0) {
                        let _ = inode::update_checksum(&self.geometry, Ino(ino), raw);
                    }
                }
            }
            Role::Node(ino) => extent::update_checksum(self.seed(ino), bytes),
            Role::Dir(ino, at) => match htree::guess_kind(bytes, FileBlock(at)) {
                Some(kind) => htree::update_checksum(self.seed(ino), bytes, kind),
                None => dir_entry::update_checksum(self.seed(ino), bytes),
            },
            Role::Xattr => {
                xattr::update_block_checksum(self.geometry.csum_seed, bytes, FsBlock(block));
            }
            Role::Orphans(ino) => {
                let _ = orphan_file::update_checksum(self.seed(ino), bytes, FsBlock(block));
            }
            _ => {}
        }
    }

    /// Corrects a bitmap's checksum, which is in the group's descriptor.
    fn bitmap(&self, block: u64, role: Role, group: u32) {
        let bitmap = self.device.get(block);
        let geo = &self.geometry;
        let (place, offset) = geo.group_desc_location(GroupNo(group));
        self.device.edit(place.0, |bytes| {
            let raw = &mut bytes[offset as usize..][..usize::from(geo.desc_size)];
            if let Ok(mut desc) = GroupDesc::decode(raw, geo.desc_size) {
                match role {
                    Role::BlockBitmap(_) => desc.update_block_bitmap_csum(geo, &bitmap[..]),
                    _ => desc.update_inode_bitmap_csum(geo, &bitmap[..]),
                }
                let _ = desc.encode(raw, geo.desc_size);
                group_desc::update_checksum(geo, GroupNo(group), raw);
            }
        });
    }

    fn descs(&self, first: u32, bytes: &mut [u8]) {
        let size = usize::from(self.geometry.desc_size);
        let groups = (first..self.geometry.groups).map(GroupNo);
        for (group, raw) in groups.zip(bytes.chunks_exact_mut(size)) {
            group_desc::update_checksum(&self.geometry, group, raw);
        }
    }

    /// Corrects the journal's super block, and the log from its start to its end.
    fn log(&self) {
        let journal = &self.base.journal;
        let Some(&head) = journal.first() else {
            return;
        };
        self.device.edit(head, |bytes| {
            let sum = checksum::with_hole(!0, &bytes[..1024], 0xFC);
            if bytes[0x50] != 0 {
                put_u32(bytes, 0xFC, sum);
            }
        });
        let count = journal.len() as u32;
        let first = self.device.get(head);
        let Ok(sb) = JournalSuperblock::parse(&first[..], BLOCK as u32, count) else {
            return;
        };
        let layout = sb.layout();
        let Some(mut at) = sb.start() else {
            return;
        };
        let mut left = sb.log_end() - sb.first();
        let next = |at: LogBlock| match at + 1 {
            end if end == sb.log_end() => sb.first(),
            other => other,
        };
        while left > 0 {
            let place = journal[at.0 as usize];
            let mut bytes = self.device.get(place);
            let Some(header) = Header::parse(&bytes[..]) else {
                return;
            };
            (at, left) = (next(at), left - 1);
            match header.kind {
                block_type::DESCRIPTOR => {
                    let tags = descriptor::parse(&layout, &bytes[..]);
                    let mut offset = 12;
                    for (nth, tag) in tags.iter().enumerate() {
                        if left == 0 {
                            return;
                        }
                        let copy = journal[at.0 as usize];
                        self.copy(copy, tag.block.0);
                        let data = self.device.get(copy);
                        let sum =
                            checksum::of_logged_block(layout.seed, header.sequence, &data[..]);
                        set_tag(&layout, &mut bytes[..], offset, sum);
                        offset += descriptor::tag_bytes(&layout) + if nth == 0 { 16 } else { 0 };
                        (at, left) = (next(at), left - 1);
                    }
                    layout.seal_tail(&mut bytes[..]);
                }
                block_type::REVOKE => layout.seal_tail(&mut bytes[..]),
                block_type::COMMIT if layout.block_checksums() => {
                    let sum = checksum::with_hole(layout.seed, &bytes[..], 16);
                    put_u32(&mut bytes[..], 16, sum);
                }
                _ => {}
            }
            self.device
                .edit(place, |old| old.copy_from_slice(&bytes[..]));
        }
    }

    /// Corrects a copy in the log: it contains the same checksum as its home.
    fn copy(&self, copy: u64, home: u64) {
        let Some(&role) = self.base.roles.get(&home) else {
            return;
        };
        self.device.edit(copy, |bytes| match role {
            Role::Super => {
                if let Ok(mut superblock) = Superblock::parse_unverified(&bytes[1024..2048]) {
                    superblock.update_checksum();
                    bytes[1024..2048].copy_from_slice(superblock.as_bytes());
                }
            }
            Role::Descs(first) => self.descs(first, bytes),
            role => self.leaf(home, role, bytes),
        });
    }
}

/// Sets the checksum of the tag at `offset`, if tags have one.
fn set_tag(layout: &Layout, block: &mut [u8], offset: usize, sum: u32) {
    if offset + 16 > block.len() {
        return;
    }
    match layout.checksums {
        Checksums::V3 => put_u32(block, offset + 12, sum),
        Checksums::V2 => put_u16(block, offset + 4, sum as u16),
        Checksums::None | Checksums::V1 => {}
    }
}
