//! What the kernel is told.

use crate::abi;
use crate::request::NodeId;
use crate::session::Channel;
use rustix::fs::StatxFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Slices that go out in one call without an allocation.
const FEW: usize = 4;

/// A time as files have it: seconds since 1970, and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub secs: i64,
    /// Nanoseconds, less than 1,000,000,000.
    pub nanos: u32,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// What stat(2) says to be the best size of I/O; 0: the kernel's choice.
    pub blksize: u32,
}

impl Attr {
    fn encode(&self) -> abi::FuseAttr {
        abi::FuseAttr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.secs as u64,
            mtime: self.mtime.secs as u64,
            ctime: self.ctime.secs as u64,
            atimensec: self.atime.nanos,
            mtimensec: self.mtime.nanos,
            ctimensec: self.ctime.nanos,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }
}

/// What is behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node, which the kernel now knows once more; 0: there is no such name.
    pub node: NodeId,
    /// Tells inodes apart that have had the same number.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
    /// How long name and attributes may be kept.
    pub ttl: Duration,
}

impl Entry {
    fn encode(&self) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: self.node.0,
            generation: self.generation,
            entry_valid: self.ttl.as_secs(),
            attr_valid: self.ttl.as_secs(),
            entry_valid_nsec: self.ttl.subsec_nanos(),
            attr_valid_nsec: self.ttl.subsec_nanos(),
            attr: self.attr.encode(),
        }
    }
}

/// Space, in units of `block_size` bytes, and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// All of it.
    pub blocks: u64,
    /// Free.
    pub free: u64,
    /// Free for everybody.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free ones.
    pub free_inodes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes in the longest name.
    pub max_name: u32,
}

/// A list of directory entries that grows until it is as large as the kernel wants.
#[derive(Debug)]
pub struct DirEntries {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirEntries {
    /// With room for `size` bytes, as the request says.
    pub fn new(size: u32) -> DirEntries {
        let limit = (size as usize).min(crate::MAX_WRITE as usize);
        DirEntries {
            bytes: Vec::with_capacity(limit),
            limit,
        }
    }

    /// Adds an entry of READDIR: whether there was no room for it. `mode` is a mode with the type;
    /// `next` is the offset that continues behind this entry.
    #[must_use]
    pub fn add(&mut self, ino: u64, next: u64, mode: u32, name: &OsStr) -> bool {
        self.push(&[], ino, next, mode, name)
    }

    /// Adds an entry of READDIRPLUS: whether there was no room for it.
    #[must_use]
    pub fn add_plus(&mut self, entry: &Entry, next: u64, name: &OsStr) -> bool {
        let Attr { ino, mode, .. } = entry.attr;
        self.push(entry.encode().as_bytes(), ino, next, mode, name)
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

/// The answer to one request, from any thread. One that is dropped says EIO.
#[must_use = "who asked waits for the answer"]
#[derive(Debug)]
pub struct Reply {
    channel: Arc<Channel>,
    unique: u64,
    sent: bool,
}

impl Reply {
    pub(crate) fn new(channel: Arc<Channel>, unique: u64) -> Reply {
        Reply {
            channel,
            unique,
            sent: false,
        }
    }

    /// Done.
    pub fn ok(self) {
        self.send(0, &[]);
    }

    /// It cannot be done.
    pub fn error(self, error: Errno) {
        self.send(-error.raw_os_error(), &[]);
    }

    /// What is behind a name.
    pub fn entry(self, entry: &Entry) {
        self.value(&entry.encode());
    }

    /// A file is open; its cached pages stay valid.
    pub fn opened(self) {
        self.value(&opened());
    }

    /// A file was made and is open.
    pub fn created(self, entry: &Entry) {
        self.send(0, &[entry.encode().as_bytes(), opened().as_bytes()]);
    }

    /// Attributes, and how long they may be kept.
    pub fn attr(self, attr: &Attr, ttl: Duration) {
        self.value(&abi::AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            dummy: 0,
            attr: attr.encode(),
        });
    }

    /// Attributes, the time of birth where it is known, and how long the attributes may be kept.
    pub fn statx(self, attr: &Attr, birth: Option<Time>, ttl: Duration) {
        let time = |time: Time| abi::SxTime {
            tv_sec: time.secs,
            tv_nsec: time.nanos,
            reserved: 0,
        };
        let known = match birth {
            Some(_) => StatxFlags::BASIC_STATS | StatxFlags::BTIME,
            None => StatxFlags::BASIC_STATS,
        };
        self.value(&abi::StatxOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            mask: known.bits(),
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            btime: time(birth.unwrap_or_default()),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major: rustix::fs::major(u64::from(attr.rdev)),
            rdev_minor: rustix::fs::minor(u64::from(attr.rdev)),
            ..abi::StatxOut::default()
        });
    }

    /// Bytes.
    pub fn data(self, data: &[u8]) {
        self.send(0, &[data]);
    }

    /// Bytes that lie in several places.
    pub fn data_vectored(self, data: &[&[u8]]) {
        self.send(0, data);
    }

    /// Entries of a directory.
    pub fn entries(self, entries: &DirEntries) {
        self.send(0, &[&entries.bytes]);
    }

    /// How many bytes were written or copied.
    pub fn written(self, bytes: u32) {
        self.value(&abi::WriteOut {
            size: bytes,
            padding: 0,
        });
    }

    /// An extended attribute, or a list of names, for whom gave room for `room` bytes: its size if
    /// that is 0, ERANGE if it is too little.
    pub fn xattr(self, value: &[u8], room: u32) {
        if room == 0 {
            self.value(&abi::GetxattrOut {
                size: value.len() as u32,
                padding: 0,
            });
        } else if value.len() > room as usize {
            self.error(Errno::RANGE);
        } else {
            self.data(value);
        }
    }

    /// Space and inodes.
    pub fn statfs(self, s: &StatFs) {
        self.value(&abi::StatfsOut {
            blocks: s.blocks,
            bfree: s.free,
            bavail: s.available,
            files: s.inodes,
            ffree: s.free_inodes,
            bsize: s.block_size,
            namelen: s.max_name,
            frsize: s.block_size,
            ..abi::StatfsOut::default()
        });
    }

    /// What an ioctl returns, and what it stores.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        let out = abi::IoctlOut {
            result,
            ..abi::IoctlOut::default()
        };
        self.send(0, &[out.as_bytes(), data]);
    }

    /// Where data or a hole begins.
    pub fn offset(self, offset: u64) {
        self.value(&abi::LseekOut { offset });
    }

    pub(crate) fn value(self, value: &(impl IntoBytes + Immutable)) {
        self.send(0, &[value.as_bytes()]);
    }

    fn send(mut self, error: i32, parts: &[&[u8]]) {
        self.sent = true;
        self.channel.write(error, self.unique, parts);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.sent {
            self.channel
                .write(-Errno::IO.raw_os_error(), self.unique, &[]);
        }
    }
}

fn opened() -> abi::OpenOut {
    abi::OpenOut {
        open_flags: abi::FOPEN_KEEP_CACHE,
        ..abi::OpenOut::default()
    }
}

/// Hands a message to `write` as one list of slices: a header, and what follows it.
pub(crate) fn with_message<T>(
    error: i32,
    unique: u64,
    parts: &[&[u8]],
    write: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let len = size_of::<abi::OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = abi::OutHeader {
        len: len as u32,
        error,
        unique,
    };
    let header = IoSlice::new(header.as_bytes());
    if parts.len() < FEW {
        let mut slices = [IoSlice::new(&[]); FEW];
        slices[0] = header;
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        return write(&slices[..=parts.len()]);
    }
    let slices: Vec<IoSlice<'_>> = std::iter::once(header)
        .chain(parts.iter().map(|part| IoSlice::new(part)))
        .collect();
    write(&slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        for parts in [&[][..], &[&b"12345"[..]], &[&b"1"[..]; 9]] {
            let bytes: Vec<u8> = parts.concat();
            with_message(-5, 77, parts, |slices| {
                let sent: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
                let mut expected = (16 + bytes.len() as u32).to_ne_bytes().to_vec();
                expected.extend_from_slice(&(-5_i32).to_ne_bytes());
                expected.extend_from_slice(&77_u64.to_ne_bytes());
                expected.extend_from_slice(&bytes);
                assert_eq!(sent, expected);
            });
        }
    }

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
