//! A short look at a device: does it have moving parts?

use super::{Queue, SECTOR};
use crate::{Class, PAGE_SIZE, Reason};
use std::time::Duration;

/// The places to read, in sixteenths of the device; far from one another.
const PLACES: [u64; 5] = [1, 11, 5, 14, 8];
/// A disk needs longer than this to move its head and to turn; flash memory is ten times faster.
const SLOW: Duration = Duration::from_millis(2);

/// Reads a page in five places. Most of these reads are slow on a rotating disk. Where the device
/// tells, it is not read. A device that cannot be read counts as flash memory.
pub(super) fn is_rotating(queue: &Queue) -> bool {
    if let Some(rotating) = queue.device().is_rotating() {
        return rotating;
    }
    let (mut slow, mut fast) = (0, 0);
    for place in PLACES {
        let offset = queue.capacity() / 16 * place / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        let len = (queue.capacity() - offset).min(PAGE_SIZE as u64) / SECTOR * SECTOR;
        if len == 0 {
            return false;
        }
        let began = sync::time::monotonic();
        let read = queue.read(offset, len as usize, PAGE_SIZE, Class::Data, Reason::Other);
        match sync::time::monotonic().saturating_sub(began) > SLOW && read.is_ok() {
            true => slow += 1,
            false => fast += 1,
        }
        if slow.max(fast) > PLACES.len() / 2 {
            break;
        }
    }
    slow > fast
}
