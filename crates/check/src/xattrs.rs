//! Extended attributes, in inodes and in blocks that inodes share.

use crate::Error;
use crate::finding::{Kind, Place, describe};
use crate::state::{AttributeBlock, Checker};
use ext4_format::inode::{InodeFields, in_inode_xattr_area};
use ext4_format::xattr::{self, XattrEntry};
use units::{FsBlock, Ino};

impl Checker<'_> {
    /// Checks an inode's attributes. Returns the number of their blocks.
    pub fn check_attributes(
        &mut self,
        ino: Ino,
        fields: &InodeFields,
        raw: &[u8],
    ) -> Result<u64, Error> {
        if let Ok(area) = in_inode_xattr_area(&self.v.geo, raw) {
            let wrong = match xattr::parse_ibody(area) {
                Ok(entries) => wrong_entries(&entries, area),
                Err(error) => vec![describe(&error)],
            };
            for message in wrong {
                self.problem(
                    Kind::Attributes,
                    Place::inode(ino),
                    format!("attributes in the inode: {message}"),
                );
            }
        }
        let block = fields.file_acl;
        if block.0 == 0 {
            return Ok(0);
        }
        let place = Place::inode(ino).at_block(block);
        if !self.v.contains(block, 1) {
            self.problem(
                Kind::Attributes,
                place,
                "its attribute block is not on the volume",
            );
            return Ok(0);
        }
        if let Some(known) = self.attribute_blocks.get_mut(&block) {
            known.seen += 1;
            return Ok(1);
        }
        self.claim(block, 1);
        let bytes = self.v.read_block(block)?;
        if let Err(error) = xattr::verify_block_checksum(self.v.geo.csum_seed, &bytes, block) {
            self.problem(Kind::Attributes, place.clone(), describe(&error));
        }
        let mut refcount = 0;
        let wrong = match xattr::parse_block(&bytes) {
            Ok((header, entries)) => {
                refcount = header.refcount;
                wrong_entries(&entries, &bytes)
            }
            Err(error) => vec![describe(&error)],
        };
        for message in wrong {
            self.problem(Kind::Attributes, place.clone(), message);
        }
        self.attribute_blocks.insert(
            block,
            AttributeBlock {
                refcount,
                seen: 1,
                ino,
            },
        );
        Ok(1)
    }

    /// Checks the reference count of each attribute block.
    pub fn check_attribute_counts(&mut self) {
        let mut wrong: Vec<(FsBlock, Ino, u32, u32)> = self
            .attribute_blocks
            .iter()
            // 0: the block could not be read, which was reported before.
            .filter(|(_, b)| b.refcount != 0 && b.refcount != b.seen)
            .map(|(block, b)| (*block, b.ino, b.refcount, b.seen))
            .collect();
        wrong.sort_unstable();
        for (block, ino, refcount, seen) in wrong {
            self.problem(
                Kind::Attributes,
                Place::inode(ino).at_block(block),
                format!("the attribute block's reference count is {refcount}, should be {seen}"),
            );
        }
    }
}

/// Checks hashes, and that values do not overlap.
fn wrong_entries(entries: &[XattrEntry<'_>], area: &[u8]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut values = Vec::new();
    for entry in entries {
        if let Err(error) = entry.verify_hash() {
            wrong.push(describe(&error));
        }
        if !entry.value.is_empty() {
            let start = entry.value.as_ptr().addr() - area.as_ptr().addr();
            values.push((start, start + entry.value.len().next_multiple_of(4)));
        }
    }
    values.sort_unstable();
    if values.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        wrong.push("values of attributes overlap".to_owned());
    }
    wrong
}
