//! A whole volume: the input damages it, its checksums are corrected, and it is mounted, used and
//! unmounted.
//!
//! The input selects a base and options (read-only, corrected checksums), then lists edits, then
//! operations.

use crate::bases::{self, Base};
use crate::bytes::Bytes;
use crate::cow::{BLOCK, Cow};
use crate::{checksums, operations};
use ext4::{Fs, MountOptions};
use std::time::{Duration, Instant};

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
        ..MountOptions::default()
    };
    let fs = match Fs::mount(device.queue(), options) {
        Ok(fs) => fs,
        Err(error) => {
            assert!(error.to_string().len() > 8, "an error that says nothing");
            return;
        }
    };
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
    let block = pick(base, input);
    let at = usize::from(input.u16()) % BLOCK;
    match kind % 16 {
        0 => {
            let other = device.get(pick(base, input));
            device.edit(block, |bytes| bytes.copy_from_slice(&other[..]));
        }
        1 => {
            let (value, len) = (input.u8(), usize::from(input.u16()));
            let end = (at + len).min(BLOCK);
            device.edit(block, |bytes| bytes[at..end].fill(value));
        }
        2 => {
            let (to, len) = (usize::from(input.u16()) % BLOCK, usize::from(input.u8()));
            let len = len.min(BLOCK - at).min(BLOCK - to);
            device.edit(block, |bytes| bytes.copy_within(at..at + len, to));
        }
        3 => {
            let part = input.slice(usize::from(kind >> 4) + 1);
            let len = part.len().min(BLOCK - at);
            device.edit(block, |bytes| {
                bytes[at..at + len].copy_from_slice(&part[..len])
            });
        }
        4 | 5 => {
            let value = 1 << (kind >> 4 & 7);
            device.edit(block, |bytes| bytes[at] ^= value);
        }
        _ => {
            // A field that is not zero gets another value.
            let (width, value) = ([1, 2, 4, 8][usize::from(kind >> 4 & 3)], input.number());
            device.edit(block, |bytes| {
                let at = (at..BLOCK).find(|&i| bytes[i] != 0).unwrap_or(at);
                let at = (at / width * width).min(BLOCK - width);
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            });
        }
    }
}
