//! Makes memory equally cheap for all workers.
//!
//! A virtual machine may have returned free pages to its host (free page reporting, balloons). The
//! first process that touches such a page waits for the host: on one machine 10 µs instead of 0.3
//! to 1.4, which is longer than the creation of a file. Without this module that cost depends on
//! the order of the workers.

use super::process::Interrupt;
use crate::meminfo;
use memmap2::{Advice, MmapMut};
use std::io;

/// Bytes that are touched between two checks for an interrupt.
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
    // Only a hint: memory that is freed in huge pages can be allocated in huge pages.
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
    fn an_interrupt_stops_the_touching() {
        assert!(touch(3 * PIECE as u64, &Interrupt::new(&|| true)).is_err());
        touch(PAGE_SIZE as u64, &Interrupt::new(&|| false)).unwrap();
    }
}
