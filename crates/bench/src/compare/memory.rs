//! Memory that is as cheap for one as for the other.
//!
//! Beneath a virtual machine a page that nobody has used lately may have been given back to the
//! host (free page reporting, balloons). Whoever is first to touch it pays for it: on one such host
//! 10 µs for a page instead of 0.3 to 1.4, which is more than it takes to make a file. Without care
//! that depends on how long ago, and in which order, others ran.

use super::process::Interrupt;
use crate::meminfo;
use memmap2::{Advice, MmapMut};
use std::io;

/// Bytes that are touched between two looks at whether to stop.
const PIECE: usize = 64 << 20;
const PAGE_SIZE: usize = 4096;

/// Touches `bytes` of memory, or half of what is available if that is less, and frees it.
pub(super) fn touch(bytes: u64, interrupt: &Interrupt<'_>) -> io::Result<()> {
    let available = meminfo::bytes("MemAvailable");
    let bytes = available.map_or(bytes, |available| bytes.min(available / 2)) as usize;
    if bytes == 0 {
        return Ok(());
    }
    let mut memory = MmapMut::map_anon(bytes)?;
    // What is freed in large pieces can be had in large pieces. It is a hint.
    let _ = memory.advise(Advice::HugePage);
    for piece in memory.chunks_mut(PIECE) {
        interrupt.check()?;
        piece.iter_mut().step_by(PAGE_SIZE).for_each(|b| *b = 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_stop_is_not_held_up() {
        assert!(touch(3 * PIECE as u64, &Interrupt::new(&|| true)).is_err());
        touch(PAGE_SIZE as u64, &Interrupt::new(&|| false)).unwrap();
    }
}
