//! Random damage of an image, and the checksums that an attacker would correct.

use super::BLOCK;
use ext4_format::{Geometry, Superblock};
use testkit::disk::Disk;
use testkit::seed::Rng;

/// An image and its nonzero blocks. The first ones are picked more often, because they hold
/// metadata.
pub struct Target {
    image: Vec<u8>,
    used: Vec<usize>,
}

impl Target {
    pub fn new(disk: &Disk) -> Target {
        let image = disk.bytes();
        let used = image.chunks(BLOCK).enumerate();
        let used = used
            .filter(|(_, b)| b.iter().any(|&b| b != 0))
            .map(|(i, _)| i);
        Target {
            used: used.collect(),
            image,
        }
    }

    fn block(&self, rng: &mut Rng) -> usize {
        match rng.below(4) {
            0 => self.used[rng.index(self.used.len().min(60))],
            _ => *rng.pick(&self.used),
        }
    }

    pub fn mutated(&self, rng: &mut Rng) -> Vec<u8> {
        let mut image = self.image.clone();
        for _ in 0..1 + rng.below(6) {
            let block = self.block(rng);
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            match rng.below(12) {
                0 => image[bytes].fill(0),
                1 => image[bytes].fill(0xff),
                2 => {
                    let other = self.block(rng) * BLOCK;
                    image.copy_within(other..other + BLOCK, bytes.start);
                }
                3 => {
                    let (from, to) = (rng.index(BLOCK / 64) * 64, rng.index(BLOCK / 64) * 64);
                    image.copy_within(
                        bytes.start + from..bytes.start + from + 64,
                        bytes.start + to,
                    );
                }
                _ => poke(&mut image[bytes], rng),
            }
        }
        // Sometimes only the super block.
        if rng.one_in(5) {
            poke(&mut image[1024..2048], rng);
        }
        image
    }
}

/// Changes a number in a random nonzero block.
pub fn poke(block: &mut [u8], rng: &mut Rng) {
    let interesting = [
        0,
        1,
        2,
        4,
        12,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        u64::from(u32::MAX),
        u64::MAX,
        4095,
        4096,
        rng.next_u64(),
        rng.below(4096),
        rng.below(64),
    ];
    let value = *rng.pick(&interesting);
    let width = *rng.pick(&[1, 2, 2, 4, 4, 8]);
    let busy: Vec<usize> = (0..block.len()).filter(|&i| block[i] != 0).collect();
    let at = match busy.is_empty() || rng.one_in(4) {
        true => rng.index(block.len()),
        false => *rng.pick(&busy),
    };
    let at = (at / width * width).min(block.len() - width);
    block[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Corrects the checksums that an attacker would correct.
pub fn fix_checksums(image: &mut [u8]) {
    let Ok(mut superblock) = Superblock::parse_unverified(&image[1024..2048]) else {
        return;
    };
    superblock.update_checksum();
    image[1024..2048].copy_from_slice(superblock.as_bytes());
    let Ok(geometry) = Geometry::from_superblock(&superblock) else {
        return;
    };
    for group in 0..geometry.groups.min(4) {
        let (block, offset) = geometry.group_desc_location(units::GroupNo(group));
        let at = (block.0 as usize)
            .saturating_mul(BLOCK)
            .saturating_add(offset as usize);
        let size = usize::from(geometry.desc_size);
        let Some(raw) = image.get_mut(at..at.saturating_add(size)) else {
            continue;
        };
        ext4_format::group_desc::update_checksum(&geometry, units::GroupNo(group), raw);
        let Ok(desc) = ext4_format::group_desc::GroupDesc::decode(raw, geometry.desc_size) else {
            continue;
        };
        let table = desc.inode_table.0 as usize;
        let size = usize::from(geometry.inode_size);
        for index in 0..geometry.inodes_per_group.min(4096) {
            let Some(ino) = geometry.ino_at(units::GroupNo(group), index) else {
                break;
            };
            let at = table
                .saturating_mul(BLOCK)
                .saturating_add(index as usize * size);
            let Some(raw) = image.get_mut(at..at.saturating_add(size)) else {
                break;
            };
            if raw.iter().any(|&b| b != 0) {
                let _ = ext4_format::inode::update_checksum(&geometry, ino, raw);
            }
        }
    }
}
