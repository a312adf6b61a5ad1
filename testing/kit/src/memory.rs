//! The memory of processes.

/// A value of `/proc/PID/status` in bytes, such as `VmRSS` and `VmHWM`; `None` if the process has
/// ended.
pub fn status(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned());
    let kib = status.lines().find_map(value)?;
    Some(kib.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The same of this process.
///
/// # Panics
/// There is no such value.
pub fn own_status(field: &str) -> u64 {
    status(std::process::id(), field).expect("a number of KiB in /proc")
}
