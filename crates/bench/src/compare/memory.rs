//! Memory that is as cheap for one as for the other.
//!
//! Beneath a virtual machine a page that nobody has used lately may have been given back to the host (free page reporting,
//! balloons). Whoever is first to touch it pays for it: on one such host 10 µs for a page instead of 0.3 to 1.4, which is more
//! than it takes to make a file. Without care that depends on how long ago, and in which order, others ran.

use super::process::Interrupt;
use memmap2::{Advice, MmapMut};
use std::io;

/// Bytes that are touched between two looks at whether to stop.
const PIECE: usize = 64 << 20;
const PAGE_SIZE: usize = 4096;

/// Touches `bytes` of memory, or half of what is available if that is less, and frees it.
pub(super) fn touch(bytes: u64, interrupt: &Interrupt<'_>) -> io::Result<()> {
    let bytes = available().map_or(bytes, |available| bytes.min(available / 2)) as usize;
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

/// Bytes that programs can have without swapping.
fn available() -> Option<u64> {
    parse_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read() {
        let text = "MemTotal:       24655736 kB\nMemFree:        23461612 kB\nMemAvailable:   23718344 kB\n";
        assert_eq!(parse_available(text), Some(23_718_344 << 10));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn who_is_to_stop_is_not_held_up() {
        assert!(touch(3 * PIECE as u64, &Interrupt::new(&|| true)).is_err());
        touch(PAGE_SIZE as u64, &Interrupt::new(&|| false)).unwrap();
    }
}
