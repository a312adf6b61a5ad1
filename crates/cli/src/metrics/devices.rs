//! Counters of a device: that of the volume, and that of a journal on a device of its own.

use super::families::Families;
use sluicefs::DeviceStats;

/// Adds the counters of a device. The names of the families begin with `device`.
pub fn counters(families: &mut Families, device: &str, stats: &DeviceStats) {
    for (name, help, value) in [
        (
            "reads_completed_total",
            "Read requests completed by the device.",
            stats.read_ios,
        ),
        (
            "read_bytes_total",
            "Bytes read from the device.",
            stats.read_bytes,
        ),
        (
            "writes_completed_total",
            "Write requests completed by the device.",
            stats.write_ios,
        ),
        (
            "written_bytes_total",
            "Bytes written to the device.",
            stats.write_bytes,
        ),
        (
            "merged_total",
            "Reads and writes that became a part of another request.",
            stats.merged,
        ),
        (
            "flushes_total",
            "Flushes that reached the device.",
            stats.flushes,
        ),
        (
            "flushes_elided_total",
            "Flushes that were not needed: nothing was written since the last one.",
            stats.flushes_elided,
        ),
        (
            "errors_total",
            "Requests that the device failed.",
            stats.errors,
        ),
    ] {
        families.counter(&format!("{device}_{name}"), help, value);
    }
}
