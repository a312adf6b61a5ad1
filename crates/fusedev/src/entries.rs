//! Lists of directory entries, as READDIR and READDIRPLUS return them.

use crate::abi;
use crate::buffers::MAX_WRITE;
use crate::types::{Attr, Entry};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::IntoBytes;

/// A list of directory entries with a limit on its size.
#[derive(Debug)]
pub struct DirEntries {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirEntries {
    /// Returns an empty list that holds up to `size` bytes, the size in the request.
    pub fn new(size: u32) -> DirEntries {
        let limit = (size as usize).min(MAX_WRITE as usize);
        DirEntries {
            bytes: Vec::with_capacity(limit),
            limit,
        }
    }

    /// Adds an entry of READDIR. Returns true, and adds nothing, if the list is full. The type
    /// comes from `mode`; `next` is the offset of the entry after this one.
    #[must_use]
    pub fn add(&mut self, ino: u64, next: u64, mode: u32, name: &OsStr) -> bool {
        self.push(&[], ino, next, mode, name)
    }

    /// Adds an entry of READDIRPLUS. Returns true, and adds nothing, if the list is full.
    #[must_use]
    pub fn add_plus(&mut self, entry: &Entry, next: u64, name: &OsStr) -> bool {
        let Attr { ino, mode, .. } = entry.attr;
        self.push(entry.encode().as_bytes(), ino, next, mode, name)
    }

    /// The list in the form of the protocol.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push(&mut self, before: &[u8], ino: u64, next: u64, mode: u32, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let dirent = abi::Dirent {
            ino,
            off: next,
            namelen: name.len() as u32,
            // `DT_*`.
            kind: mode >> 12 & 0o17,
        };
        let len = before.len() + (size_of::<abi::Dirent>() + name.len()).next_multiple_of(8);
        if self.bytes.len() + len > self.limit {
            return true;
        }
        let end = self.bytes.len() + len;
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeId;
    use std::time::Duration;

    #[test]
    fn lists_of_entries_are_padded_and_end_where_they_are_full() {
        let mut list = DirEntries::new(70);
        assert!(!list.add(11, 1, 0o040_755, OsStr::new("abc")));
        assert!(!list.add(12, 2, 0o100_644, OsStr::new("12345678")));
        assert!(list.add(13, 3, 0o100_644, OsStr::new("x")));
        assert_eq!(list.bytes.len(), 32 + 32);
        assert_eq!(&list.bytes[24..32], b"abc\0\0\0\0\0");
        // Types are DT_DIR and DT_REG.
        assert_eq!((list.bytes[20], list.bytes[32 + 20]), (4, 8));
        let mut list = DirEntries::new(200);
        let entry = Entry {
            node: NodeId(11),
            generation: 0,
            attr: Attr::default(),
            ttl: Duration::ZERO,
        };
        assert!(!list.add_plus(&entry, 1, OsStr::new("abc")));
        assert!(list.add_plus(&entry, 2, OsStr::new("def")));
        assert_eq!(list.bytes.len(), 128 + 32);
    }
}
