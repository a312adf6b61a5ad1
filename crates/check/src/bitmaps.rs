//! Pass 5: bitmaps and counts, compared with the blocks and inodes in use.

use crate::Error;
use crate::chunked::Bits;
use crate::finding::{Kind, Place, describe};
use crate::state::{Checker, Row};
use ext4_format::bitmap;
use ext4_format::features::IncompatFeatures;
use ext4_format::group_desc::GroupFlags;
use ext4_format::inode::FileType;
use std::fmt::Write;
use units::{GroupNo, Ino};

/// Most differences of one bitmap that a message names.
const DIFFERENCES_MAX: usize = 64;

impl Checker<'_> {
    pub fn check_bitmaps(&mut self) -> Result<(), Error> {
        self.progress.begin("bitmaps", self.groups.len() as u64);
        let (mut free_blocks, mut free_inodes) = (0u64, 0u64);
        for number in (0..self.groups.len() as u32).map(GroupNo) {
            free_blocks += self.check_block_bitmap(number)?;
            free_inodes += self.check_inode_bitmap(number)?;
            self.progress.done(1);
        }
        let geo = &self.v.geo;
        self.report.blocks = (geo.blocks_count - geo.first_data_block).saturating_sub(free_blocks);
        let sb = &self.v.sb;
        let stored = [
            (sb.free_blocks_count(), free_blocks, "blocks"),
            (u64::from(sb.free_inodes_count.get()), free_inodes, "inodes"),
        ];
        // These counts are only updated at unmount, and a mount computes them again.
        let in_use = sb.incompat().contains(IncompatFeatures::RECOVER);
        for (stored, counted, what) in stored {
            if stored != counted && !in_use {
                self.problem(
                    Kind::Count,
                    Place::default(),
                    format!("the super block counts {stored} free {what}, there are {counted}"),
                );
            }
        }
        Ok(())
    }

    /// Checks a group's block bitmap. Returns the number of free blocks.
    fn check_block_bitmap(&mut self, number: GroupNo) -> Result<u64, Error> {
        let geo = self.v.geo.clone();
        let first = geo.group_first_block(number).0;
        let blocks = geo.blocks_in_group(number);
        let clusters = blocks.div_ceil(1 << geo.cluster_bits);
        let used = match geo.cluster_bits {
            0 => self.claims.taken.count(first, first + u64::from(blocks)),
            bits => clusters_in_use(&self.claims.taken, first, clusters, bits),
        };
        let free = u64::from(clusters) - used;
        let group = &self.groups[number.0 as usize];
        let (desc, sound) = (group.desc.clone(), group.sound);
        let place = Place::group(number.0);
        let uninit = desc.flags.contains(GroupFlags::BLOCK_UNINIT) && geo.has_group_csum();
        if group.block_bitmap_ok {
            let block = desc.block_bitmap;
            let place = place.clone().at_block(block);
            let bytes = if uninit && sound {
                self.implied_bitmap(number)
            } else {
                let bytes = self.v.read_block(block)?;
                if let Err(error) = desc.verify_block_bitmap(&geo, number, &bytes) {
                    self.problem(Kind::BlockBitmap, place.clone(), describe(&error));
                }
                let bits = (bytes.len() * 8) as u32;
                if !bitmap::all_set(&bytes, clusters, bits.saturating_sub(clusters)) {
                    self.problem(
                        Kind::BlockBitmap,
                        place.clone(),
                        "the padding at the end of the block bitmap is not set",
                    );
                }
                bytes
            };
            let taken = |bit: u32| word_of(&self.claims.taken, first, bit, geo.cluster_bits);
            let (first, unit) = match geo.cluster_bits {
                0 => (first, "block"),
                bits => (first >> bits, "cluster"),
            };
            if let Some(message) = differences(&bytes, clusters, taken, first, unit) {
                self.problem(Kind::BlockBitmap, place, message);
            }
        }
        if u64::from(desc.free_blocks_count) != free {
            self.problem(
                Kind::Count,
                place,
                format!(
                    "the group counts {} free {}s, there are {free}",
                    desc.free_blocks_count,
                    match geo.cluster_bits {
                        0 => "block",
                        _ => "cluster",
                    }
                ),
            );
        }
        Ok(free << geo.cluster_bits)
    }

    /// Returns the bitmap of a group that only has metadata.
    fn implied_bitmap(&self, number: GroupNo) -> Vec<u8> {
        let geo = &self.v.geo;
        let first = geo.group_first_block(number).0;
        let words = (self.v.block_size() / 8) as u32;
        (0..words)
            .flat_map(|word| {
                word_of(&self.metadata, first, word * 64, geo.cluster_bits).to_le_bytes()
            })
            .collect()
    }

    /// Checks a group's inode bitmap and its counts. Returns the number of free inodes.
    fn check_inode_bitmap(&mut self, number: GroupNo) -> Result<u64, Error> {
        let geo = self.v.geo.clone();
        let inodes = geo.inodes_per_group;
        let first = Ino(number.0.saturating_mul(inodes).saturating_add(1));
        let group = &self.groups[number.0 as usize];
        let (desc, sound, has_table) = (group.desc.clone(), group.sound, group.table_ok);
        let bitmap_ok = group.inode_bitmap_ok;
        let place = Place::group(number.0);
        let directory = FileType::Directory.dirent_code();
        let (mut used, mut directories) = (0u32, 0u32);
        let end = first.saturating_add(inodes);
        let mut next = self.inodes.next_present(first);
        while let Some(ino) = next.filter(|ino| *ino < end) {
            let row = self.inodes.get(ino);
            if row.has(Row::IN_USE) {
                used += 1;
                directories += u32::from(row.kind == directory);
            }
            next = self.inodes.next_present(ino + 1);
        }
        let free = inodes - used.min(inodes);
        // For inodes that could not be read, the bitmap is believed.
        if !has_table {
            return Ok(u64::from(desc.free_inodes_count));
        }
        let uninit = desc.flags.contains(GroupFlags::INODE_UNINIT) && geo.has_group_csum();
        if bitmap_ok {
            let block = desc.inode_bitmap;
            let place = place.clone().at_block(block);
            let bytes = if uninit && sound {
                vec![0; self.v.block_size()]
            } else {
                let bytes = self.v.read_block(block)?;
                if let Err(error) = desc.verify_inode_bitmap(&geo, number, &bytes) {
                    self.problem(Kind::InodeBitmap, place.clone(), describe(&error));
                }
                let bits = (bytes.len() * 8) as u32;
                if !bitmap::all_set(&bytes, inodes, bits - inodes) {
                    self.problem(
                        Kind::InodeBitmap,
                        place.clone(),
                        "the padding at the end of the inode bitmap is not set",
                    );
                }
                bytes
            };
            let taken = |bit: u32| {
                let ends = bit.saturating_add(64).min(inodes);
                let in_use = |bit: u32| self.inodes.get(first + bit).has(Row::IN_USE);
                (bit..ends).fold(0, |word, at| word | u64::from(in_use(at)) << (at - bit))
            };
            if let Some(message) = differences(&bytes, inodes, taken, u64::from(first), "inode") {
                self.problem(Kind::InodeBitmap, place, message);
            }
        }
        let counts = [
            (desc.free_inodes_count, free, "free inodes"),
            (desc.used_dirs_count, directories, "directories"),
        ];
        for (stored, counted, what) in counts {
            if stored != counted {
                self.problem(
                    Kind::Count,
                    place.clone(),
                    format!("the group counts {stored} {what}, there are {counted}"),
                );
            }
        }
        Ok(u64::from(free))
    }
}

/// Returns 64 bits of the bitmap of a group that begins at block `first`, from bit `bit` on.
fn word_of(taken: &Bits, first: u64, bit: u32, cluster_bits: u32) -> u64 {
    if cluster_bits == 0 {
        return taken.word_from(first + u64::from(bit));
    }
    let is_used = |nth: u32| {
        let start = first + (u64::from(bit + nth) << cluster_bits);
        taken.count(start, start + (1 << cluster_bits)) > 0
    };
    (0..u64::BITS).fold(0, |word, nth| word | u64::from(is_used(nth)) << nth)
}

/// Returns the number of clusters in use among those from block `first` on.
fn clusters_in_use(taken: &Bits, first: u64, clusters: u32, cluster_bits: u32) -> u64 {
    let is_used = |cluster: &u64| {
        let start = first + (cluster << cluster_bits);
        taken.count(start, start + (1 << cluster_bits)) > 0
    };
    (0..u64::from(clusters)).filter(is_used).count() as u64
}

/// Describes the differences of a bitmap as e2fsck does: `+` in use but not marked, `-` marked but
/// not in use. `taken` returns the use of 64 bits.
fn differences(
    bytes: &[u8],
    bits: u32,
    taken: impl Fn(u32) -> u64,
    first: u64,
    what: &str,
) -> Option<String> {
    let mut runs: Vec<(bool, u32, u32)> = Vec::new();
    let mut count = 0u64;
    for (from, word) in (0..bits).step_by(64).zip(bytes.chunks(8)) {
        let marked = word
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        let used = taken(from);
        let mut differ = marked ^ used;
        if bits - from < 64 {
            differ &= (1 << (bits - from)) - 1;
        }
        while differ != 0 {
            let bit = differ.trailing_zeros();
            differ &= differ - 1;
            count += 1;
            let (plus, at) = (used & 1 << bit != 0, from + bit);
            let has_room = runs.len() < DIFFERENCES_MAX;
            match runs.last_mut() {
                Some((sign, _, end)) if *sign == plus && *end == at => *end += 1,
                _ if has_room => runs.push((plus, at, at + 1)),
                _ => {}
            }
        }
    }
    if count == 0 {
        return None;
    }
    let mut text = format!("the {what} bitmap differs in {count} {what}s:");
    for (plus, start, end) in runs {
        let sign = if plus { '+' } else { '-' };
        let (start, last) = (first + u64::from(start), first + u64::from(end) - 1);
        let _ = match start == last {
            true => write!(text, " {sign}{start}"),
            false => write!(text, " {sign}({start}--{last})"),
        };
    }
    Some(text)
}
