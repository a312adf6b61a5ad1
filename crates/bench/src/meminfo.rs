//! The machine's memory (`/proc/meminfo`, proc_meminfo(5)).

/// Bytes in a field, such as `MemTotal`; `None` if there is no such field.
pub fn bytes(field: &str) -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/meminfo").ok()?, field)
}

fn parse(meminfo: &str, field: &str) -> Option<u64> {
    let value = meminfo
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_name() {
        let text = "MemTotal:       24655736 kB\nMemFree:        23461612 kB\nMemAvailable:   23718344 kB\n";
        assert_eq!(parse(text, "MemAvailable"), Some(23_718_344 << 10));
        assert_eq!(parse(text, "MemTotal"), Some(24_655_736 << 10));
        assert_eq!(parse("MemTotal: 1 kB\n", "MemAvailable"), None);
        assert_eq!(parse(text, "Mem"), None);
    }
}
