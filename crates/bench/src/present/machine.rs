//! A description of the machine.

use super::number::bytes;
use crate::meminfo;

/// Processors, memory and kernel.
pub(super) fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = meminfo::bytes("MemTotal").map_or(String::new(), |total| {
        format!(", {} of memory", bytes(total))
    });
    format!("{processors} processors{memory}, Linux {}", kernel.trim())
}
