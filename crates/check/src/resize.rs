//! The resize inode: it maps the reserved blocks after each copy of the descriptor table.

use crate::Error;
use crate::finding::{Kind, Place};
use crate::state::Checker;
use ext4_format::features::CompatFeatures;
use units::{FsBlock, GroupNo, Ino};

/// Index of the double indirect block in `i_block`.
const DOUBLY: usize = 13 * 4;

impl Checker<'_> {
    /// Checks the map, and claims its double indirect block.
    pub fn check_resize_inode(&mut self) -> Result<(), Error> {
        let geo = self.v.geo.clone();
        let has = geo.compat.contains(CompatFeatures::RESIZE_INODE);
        let reserved = geo.reserved_gdt_blocks;
        let Some((_, Ok(fields))) = self.read_inode(Ino::RESIZE)? else {
            return Ok(());
        };
        let root = le32(&fields.i_block, DOUBLY);
        let others = fields
            .i_block
            .iter()
            .enumerate()
            .any(|(at, byte)| *byte != 0 && !(DOUBLY..DOUBLY + 4).contains(&at));
        let place = Place::inode(Ino::RESIZE);
        if !has {
            if fields.links_count != 0 || fields.i_block.iter().any(|byte| *byte != 0) {
                self.problem(
                    Kind::ResizeInode,
                    place,
                    "it is in use without the feature resize_inode",
                );
            }
            return Ok(());
        }
        if reserved == 0 && root == 0 {
            return Ok(());
        }
        if !fields.mode.is_regular()
            || fields.links_count == 0
            || others
            || !self.v.contains(FsBlock(root.into()), 1)
        {
            self.problem(Kind::ResizeInode, place, "it is no map of reserved blocks");
            return Ok(());
        }
        let root = FsBlock(root.into());
        self.claims.claim_clusters(root, 1);
        let entries = u64::from(geo.block_size / 4);
        let table = self.v.read_block(root)?;
        let backups: Vec<GroupNo> = (1..geo.groups)
            .map(GroupNo)
            .filter(|group| geo.has_super(*group))
            .collect();
        let first = geo.superblock_block().0 + 1 + u64::from(geo.gdt_blocks);
        let expected = |slot: u64| {
            let nth = (slot + entries - u64::from(geo.gdt_blocks) % entries) % entries;
            if nth < u64::from(reserved) {
                first + nth
            } else {
                0
            }
        };
        for slot in 0..entries {
            let found = u64::from(le32(&table, slot as usize * 4));
            if found != expected(slot) {
                self.problem(
                    Kind::ResizeInode,
                    place.clone().at_block(root),
                    format!(
                        "entry {slot} leads to block {found}, should be {}",
                        expected(slot)
                    ),
                );
                return Ok(());
            }
        }
        for nth in 0..u64::from(reserved) {
            let reserved = FsBlock(first + nth);
            let block = self.v.read_block(reserved)?;
            for slot in 0..entries as usize {
                let found = u64::from(le32(&block, slot * 4));
                let copy = backups.get(slot);
                let expected = copy.map_or(0, |group| geo.nominal_copy(reserved, *group).0);
                if found != expected {
                    self.problem(
                        Kind::ResizeInode,
                        place.clone().at_block(reserved),
                        format!("entry {slot} leads to block {found}, should be {expected}"),
                    );
                    return Ok(());
                }
            }
        }
        let blocks = 1 + u64::from(reserved) * (1 + backups.len() as u64);
        // Each block counts as a cluster.
        let expected = (blocks << geo.cluster_bits) * u64::from(geo.block_size / 512);
        if fields.blocks != expected {
            self.problem(
                Kind::ResizeInode,
                place,
                format!("i_blocks is {}, should be {expected}", fields.blocks),
            );
        }
        Ok(())
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
