//! The number of queues: one for each processor that the system may ever have.

use std::io;
use std::path::Path;

/// The kernel's list of processors that may become present, for example `0-3,8`.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The number of possible processors. The kernel uses its rings only if each has a queue.
///
/// # Errors
/// The list cannot be read.
pub fn possible() -> io::Result<u16> {
    let list = std::fs::read_to_string(Path::new(POSSIBLE))
        .map_err(|error| io::Error::new(error.kind(), format!("{POSSIBLE}: {error}")))?;
    count(&list).ok_or_else(|| io::Error::other(format!("{POSSIBLE}: unknown list {list:?}")))
}

/// The number of processors in a list.
fn count(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        for (list, expected) in [
            ("0\n", Some(1)),
            ("0-1\n", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("0-511", Some(512)),
            ("", None),
            ("3-1", None),
            ("0-x", None),
            ("0-65535", None),
        ] {
            assert_eq!(count(list), expected, "{list}");
        }
        assert!(possible().unwrap() > 0);
    }
}
