//! The mount table of a process, /proc/PID/mountinfo. A line of it:
//!
//! ```text
//! 36 35 0:52 / /mnt rw,nosuid shared:1 - fuse.sluicefs /disk.img rw,user_id=0
//! ```

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of the mount table.
pub(super) struct Mount {
    /// Major and minor device number of the file system.
    pub number: String,
    /// Type of the file system, e.g. `fuse.sluicefs`.
    pub kind: String,
    pub device: PathBuf,
    pub read_only: bool,
}

/// The topmost mount on `dir`.
pub(super) fn find_mount(dir: &Path) -> Result<Option<Mount>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    Ok(table.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let number = before.next()?;
        let mut before = before.skip(1);
        if unescape(before.next()?) != dir {
            return None;
        }
        let flags = before.next()?;
        let mut after = after.split(' ');
        Some(Mount {
            number: number.to_owned(),
            kind: after.next()?.to_string(),
            device: unescape(after.next()?),
            read_only: flags.split(',').any(|f| f == "ro"),
        })
    }))
}

/// The mount points of the file system with the device number `number` in a mount table.
pub(super) fn mount_points<'a>(
    table: &'a str,
    number: &'a str,
) -> impl Iterator<Item = PathBuf> + 'a {
    table.lines().filter_map(move |line| {
        let mut fields = line.split(' ').skip(2);
        let found = fields.next()? == number;
        if !found {
            return None;
        }
        fields.nth(1).map(unescape)
    })
}

/// Decodes the octal escapes of the mount table.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let byte = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_mount_table_are_decoded() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(r"/plain\9"), Path::new(r"/plain\9"));
    }
}
