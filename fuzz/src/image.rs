//! A whole volume: the input damages it, its checksums are corrected, and it is mounted, used and
//! unmounted.
//!
//! The input selects a base and options (read-only, corrected checksums), then lists edits, then
//! operations. Data is never written to the super block, a descriptor, a bitmap or an inode table.

use crate::bases::{self, Base};
use crate::bytes::Bytes;
use crate::cow::{BLOCK, Cow};
use crate::{checksums, operations};
use ext4::{Fs, MountOptions, OnError};
use ext4_format::group_desc::GroupDesc;
use ext4_format::{Geometry, Superblock};
use std::ops::Range;
use std::time::{Duration, Instant};
use units::{FsBlock, GroupNo};

/// The memory budget of a mount.
const MEMORY: u64 = 8 << 20;
/// The most edits of an input.
const EDITS: u8 = 24;

/// Damages a volume, corrects its checksums and uses it.
pub fn run(data: &[u8]) {
    let mut input = Bytes(data);
    let bases = bases::all();
    let base = &bases[usize::from(input.u8()) % bases.len()];
    let choice = input.u8();
    let device = Cow::new(&base.image);
    for _ in 0..input.u8() % EDITS {
        edit(&device, base, &mut input);
    }
    // Volumes with wrong checksums fail at the first of them. One in eight is enough.
    if choice & 7 != 0 {
        checksums::correct(&device, base);
    }
    let options = MountOptions {
        read_only: choice & 0x18 == 0x18,
        memory: MEMORY,
        errors: (choice & 0x40 != 0).then_some(OnError::RemountReadOnly),
        discard: choice & 0x80 != 0,
        ..MountOptions::default()
    };
    let fs = match Fs::mount(device.queue(), options) {
        Ok(fs) => fs,
        Err(error) => {
            assert!(error.to_string().len() > 8, "an error that says nothing");
            return;
        }
    };
    device.protect(system_bytes(&device).unwrap_or_default());
    let budget = fs.budget().clone();
    operations::run(&fs, &mut input);
    if choice & 0x20 != 0 {
        fs.crash();
    } else {
        let _ = fs.unmount();
    }
    drop(fs);
    // Threads drop the volume when they end.
    let start = Instant::now();
    while budget.used() > 0 {
        let used = budget.used();
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{used} bytes stay charged"
        );
        std::thread::yield_now();
    }
}

/// The bytes of the super block, the descriptors, bitmaps and inode tables.
fn system_bytes(device: &Cow) -> Option<Vec<Range<u64>>> {
    let superblock = Superblock::parse(&device.get(0)[1024..2048]).ok()?;
    let geo = Geometry::from_superblock(&superblock).ok()?;
    let of = |block: FsBlock, count: u32| {
        let start = block.offset(geo.block_size);
        start..start.saturating_add(u64::from(count) * u64::from(geo.block_size))
    };
    let mut ranges = vec![1024..2048];
    for group in (0..geo.groups).map(GroupNo) {
        let (place, offset) = geo.group_desc_location(group);
        ranges.push(of(place, 1));
        let at = place.offset(geo.block_size) + u64::from(offset);
        let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
        if block >= device.blocks() {
            return None;
        }
        let bytes = device.get(block);
        let desc = GroupDesc::decode(bytes.get(start..)?, geo.desc_size).ok()?;
        ranges.push(of(desc.block_bitmap, 1));
        ranges.push(of(desc.inode_bitmap, 1));
        ranges.push(of(desc.inode_table, geo.itable_blocks_per_group()));
    }
    Some(ranges)
}

fn pick(base: &Base, input: &mut Bytes<'_>) -> u64 {
    let nth = usize::from(input.u16());
    match nth & 0x8000 {
        0 => base.targets[nth % base.targets.len()],
        // The first blocks have the super block and the descriptors.
        _ => base.targets[nth % base.targets.len().min(8)],
    }
}

/// One change of some bytes of a block.
fn edit(device: &Cow, base: &Base, input: &mut Bytes<'_>) {
    let kind = input.u8();
    let size = base.block_size();
    let block = pick(base, input) * size as u64;
    let at = usize::from(input.u16()) % size;
    let edit = |change: &mut dyn FnMut(&mut [u8])| device.edit_bytes(block, size, change);
    match kind % 16 {
        0 => {
            let mut other = Vec::new();
            let from = pick(base, input) * size as u64;
            device.edit_bytes(from, size, |bytes| other = bytes.to_vec());
            edit(&mut |bytes| bytes.copy_from_slice(&other));
        }
        1 => {
            let (value, len) = (input.u8(), usize::from(input.u16()));
            let end = (at + len).min(size);
            edit(&mut |bytes| bytes[at..end].fill(value));
        }
        2 => {
            let (to, len) = (usize::from(input.u16()) % size, usize::from(input.u8()));
            let len = len.min(size - at).min(size - to);
            edit(&mut |bytes| bytes.copy_within(at..at + len, to));
        }
        3 => {
            let part = input.slice(usize::from(kind >> 4) + 1);
            let len = part.len().min(size - at);
            edit(&mut |bytes| bytes[at..at + len].copy_from_slice(&part[..len]));
        }
        4 | 5 => {
            let value = 1 << (kind >> 4 & 7);
            edit(&mut |bytes| bytes[at] ^= value);
        }
        _ => {
            // A field that is not zero gets another value.
            let (width, value) = ([1, 2, 4, 8][usize::from(kind >> 4 & 3)], input.number());
            edit(&mut |bytes| {
                let at = (at..size).find(|&i| bytes[i] != 0).unwrap_or(at);
                let at = (at / width * width).min(size - width);
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            });
        }
    }
}
