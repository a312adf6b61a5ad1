//! Extended attributes, in inodes and in blocks that inodes share.

use crate::Error;
use crate::finding::{Kind, Place, describe};
use crate::state::{AttributeBlock, Checker};
use ext4_format::geometry::Geometry;
use ext4_format::inline_data;
use ext4_format::inode::{InodeFields, in_inode_xattr_area};
use ext4_format::xattr::{self, INDEX_SYSTEM, XattrEntry};
use units::{FsBlock, Ino};

impl Checker<'_> {
    /// Checks an inode's attributes. Returns the number of clusters that count for the inode: that
    /// of the attribute block, and those of values in inodes.
    pub fn check_attributes(
        &mut self,
        ino: Ino,
        fields: &InodeFields,
        raw: &[u8],
    ) -> Result<u64, Error> {
        let mut clusters = 0;
        if let Ok(area) = in_inode_xattr_area(&self.v.geo, raw) {
            let wrong = match xattr::parse_ibody(area) {
                Ok(entries) => {
                    clusters += self.clusters_of_values(&entries);
                    let generation = fields.generation;
                    self.values.add_references(ino, generation, &entries);
                    wrong_entries(&entries, area)
                }
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
            return Ok(clusters);
        }
        let place = Place::inode(ino).at_block(block);
        if !self.v.contains(block, 1) {
            self.problem(
                Kind::Attributes,
                place,
                "its attribute block is not on the volume",
            );
            return Ok(clusters);
        }
        if let Some(known) = self.attribute_blocks.get_mut(&block) {
            known.seen += 1;
            return Ok(clusters + 1 + known.value_clusters);
        }
        self.claims.claim_clusters(block, 1);
        let bytes = self.v.read_block(block)?;
        if let Err(error) = xattr::verify_block_checksum(self.v.geo.csum_seed, &bytes, block) {
            self.problem(Kind::Attributes, place.clone(), describe(&error));
        }
        let (mut refcount, mut value_clusters) = (0, 0);
        let wrong = match xattr::parse_block(&bytes) {
            Ok((header, entries)) => {
                refcount = header.refcount;
                value_clusters = self.clusters_of_values(&entries);
                self.values.add_references(ino, fields.generation, &entries);
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
                value_clusters,
            },
        );
        Ok(clusters + 1 + value_clusters)
    }

    /// Returns the number of clusters of values in inodes. They count for each inode with the
    /// attribute.
    fn clusters_of_values(&self, entries: &[XattrEntry<'_>]) -> u64 {
        let bits = self.v.geo.block_bits + self.v.geo.cluster_bits;
        let values = entries.iter().filter_map(|entry| entry.value_inode);
        values
            .map(|value| u64::from(value.size).div_ceil(1 << bits))
            .sum()
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

/// Returns the part of an inode's contents that is in an attribute.
pub(crate) fn inline_attribute<'a>(geo: &Geometry, raw: &'a [u8]) -> Option<&'a [u8]> {
    let area = in_inode_xattr_area(geo, raw).ok()?;
    let entries = xattr::parse_ibody(area).ok()?;
    let is_data = |entry: &&xattr::XattrEntry<'_>| {
        entry.index == INDEX_SYSTEM && entry.name == inline_data::ATTRIBUTE
    };
    entries.iter().find(is_data).map(|entry| entry.value)
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
