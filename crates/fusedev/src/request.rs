//! What the kernel asks.

use crate::abi::{self, fattr, opcode};
use crate::reply::Time;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use zerocopy::{FromBytes, Immutable};

/// The server's name of an inode; what the kernel has been told of with an entry, or the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(1);
}

/// One request.
#[derive(Debug)]
pub struct Request<'a> {
    /// What it is about: the directory, where it is about a name.
    pub node: NodeId,
    /// Who asks: for permissions, and the owner of what is made.
    pub uid: u32,
    /// The group of who asks.
    pub gid: u32,
    /// The thread that asks; 0: one that the server could not see, or the kernel by itself.
    pub pid: u32,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// What is asked. The comments name what answers it, beside an error, if that is not an empty
/// [`crate::Reply::ok`].
#[derive(Debug)]
// The fields are the arguments, by the names that they have elsewhere.
#[allow(missing_docs)]
pub enum Operation<'a> {
    /// What is behind a name: an entry. Node 0 in it means "nothing, and that may be remembered".
    Lookup { name: &'a OsStr },
    /// Attributes.
    GetAttr,
    /// Attributes and the time of birth, which only statx(2) knows: statx.
    StatX,
    /// Changes attributes: the new ones.
    SetAttr(SetAttr),
    /// The target of a symbolic link: data.
    ReadLink,
    /// Makes a symbolic link: an entry.
    SymLink { name: &'a OsStr, target: &'a OsStr },
    /// Makes a file of any type but a directory: an entry.
    MkNod {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    /// Makes a directory: an entry.
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    /// Removes a name.
    Unlink { name: &'a OsStr },
    /// Removes a directory.
    RmDir { name: &'a OsStr },
    /// Renames; `flags` are renameat2(2)'s.
    Rename {
        name: &'a OsStr,
        new_parent: NodeId,
        new_name: &'a OsStr,
        flags: u32,
    },
    /// Gives `node` one more name, in the directory that the request is about: an entry.
    Link { node: NodeId, name: &'a OsStr },
    /// Opens a file; `flags` are open(2)'s: opened. ENOSYS is remembered: every open succeeds from
    /// then on, and nothing is released.
    Open { flags: i32 },
    /// An open file is closed for the last time.
    Release,
    /// Makes a regular file and opens it: created. ENOSYS is remembered: MKNOD and OPEN come
    /// instead.
    Create {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    /// Makes a regular file without a name in the directory's place, and opens it (O_TMPFILE):
    /// created.
    TmpFile { mode: u32, umask: u32 },
    /// Reads: data, shorter only at the end of the file. `direct`: past the kernel's page cache.
    Read {
        offset: u64,
        size: u32,
        direct: bool,
    },
    /// Writes: the number of bytes. `flags` are open(2)'s. `direct`: past the kernel's page cache.
    /// `cached`: pages of a mapping, without a file that is open.
    Write {
        offset: u64,
        data: &'a [u8],
        flags: i32,
        direct: bool,
        cached: bool,
    },
    /// Space that is used and free: statfs.
    StatFs,
    /// Makes a file or directory durable.
    Fsync { data_only: bool },
    /// Makes everything durable: sync(2) and syncfs(2), of block devices from Linux 6.18 on.
    SyncFs,
    /// Sets an extended attribute; `flags` are setxattr(2)'s.
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: i32,
    },
    /// An extended attribute: data of at most `size` bytes; its size, where that is 0.
    GetXattr { name: &'a OsStr, size: u32 },
    /// Names of extended attributes, each with a NUL behind it: as of [`Operation::GetXattr`].
    ListXattr { size: u32 },
    /// Removes an extended attribute.
    RemoveXattr { name: &'a OsStr },
    /// Entries of a directory, from where the one ended whose `next` is `offset`:
    /// [`crate::DirEntries`].
    ReadDir { offset: u64, size: u32 },
    /// The same with attributes: each entry counts as a lookup.
    ReadDirPlus { offset: u64, size: u32 },
    /// ioctl(2).
    Ioctl { command: u32, data: &'a [u8] },
    /// fallocate(2).
    Fallocate { offset: u64, length: u64, mode: i32 },
    /// lseek(2) for data or a hole: an offset.
    Lseek { offset: i64, whence: i32 },
    /// Copies within the file system: the number of bytes.
    CopyFileRange {
        offset: u64,
        to: NodeId,
        to_offset: u64,
        length: u64,
    },
    /// What is not listed here, by its number: ENOSYS, which the kernel remembers.
    Other(u32),
}

/// What [`Operation::SetAttr`] changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions, with the type.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
}

/// A new time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// When it is set.
    Now,
    /// This one.
    At(Time),
}

/// The kernel sent less than the protocol says, or a name without an end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shorter than the protocol says")
    }
}

/// What follows the header, from its beginning on.
pub(crate) struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    /// A structure.
    pub fn take<T: FromBytes + Immutable>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(value)
    }

    /// A name, up to its NUL.
    fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(Malformed)?;
        let name = OsStr::from_bytes(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len as usize).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// The header of a request, and what follows it.
pub(crate) fn split(message: &[u8]) -> Result<(abi::InHeader, Args<'_>), Malformed> {
    let (header, rest) = abi::InHeader::read_from_prefix(message).map_err(|_| Malformed)?;
    Ok((header, Args(rest)))
}

/// Each node of FORGET or BATCH_FORGET, and how many of its lookups are over.
pub(crate) fn each_forget(
    header: &abi::InHeader,
    mut args: Args<'_>,
    mut forget: impl FnMut(NodeId, u64),
) -> Result<(), Malformed> {
    if header.opcode == opcode::FORGET {
        let one: abi::ForgetIn = args.take()?;
        forget(NodeId(header.nodeid), one.nlookup);
        return Ok(());
    }
    let batch: abi::BatchForgetIn = args.take()?;
    for _ in 0..batch.count {
        let one: abi::ForgetOne = args.take()?;
        forget(NodeId(one.nodeid), one.nlookup);
    }
    Ok(())
}

/// The request that a header begins.
pub(crate) fn parse<'a>(header: &abi::InHeader, args: Args<'a>) -> Result<Request<'a>, Malformed> {
    Ok(Request {
        node: NodeId(header.nodeid),
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        operation: operation(header.opcode, args)?,
    })
}

fn operation(code: u32, mut args: Args<'_>) -> Result<Operation<'_>, Malformed> {
    Ok(match code {
        opcode::LOOKUP => Operation::Lookup { name: args.name()? },
        opcode::GETATTR => Operation::GetAttr,
        opcode::STATX => Operation::StatX,
        opcode::SETATTR => Operation::SetAttr(set_attr(&args.take()?)),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => Operation::SymLink {
            name: args.name()?,
            target: args.name()?,
        },
        opcode::MKNOD => {
            let new: abi::MknodIn = args.take()?;
            Operation::MkNod {
                name: args.name()?,
                mode: new.mode,
                umask: new.umask,
                rdev: new.rdev,
            }
        }
        opcode::MKDIR => {
            let new: abi::MkdirIn = args.take()?;
            Operation::MkDir {
                name: args.name()?,
                mode: new.mode,
                umask: new.umask,
            }
        }
        opcode::UNLINK => Operation::Unlink { name: args.name()? },
        opcode::RMDIR => Operation::RmDir { name: args.name()? },
        opcode::RENAME => {
            let to: abi::RenameIn = args.take()?;
            rename(NodeId(to.newdir), 0, args)?
        }
        opcode::RENAME2 => {
            let to: abi::Rename2In = args.take()?;
            rename(NodeId(to.newdir), to.flags, args)?
        }
        opcode::LINK => {
            let from: abi::LinkIn = args.take()?;
            Operation::Link {
                node: NodeId(from.oldnodeid),
                name: args.name()?,
            }
        }
        opcode::OPEN => {
            let open: abi::OpenIn = args.take()?;
            Operation::Open {
                flags: open.flags as i32,
            }
        }
        opcode::RELEASE => Operation::Release,
        opcode::CREATE => {
            let new: abi::CreateIn = args.take()?;
            Operation::Create {
                name: args.name()?,
                mode: new.mode,
                umask: new.umask,
            }
        }
        opcode::TMPFILE => {
            let new: abi::CreateIn = args.take()?;
            Operation::TmpFile {
                mode: new.mode,
                umask: new.umask,
            }
        }
        opcode::READ => {
            let read: abi::ReadIn = args.take()?;
            Operation::Read {
                offset: read.offset,
                size: read.size,
                // The kernel names a lock owner for direct I/O only. O_DIRECT in the flags does not
                // tell, because such a file can be mapped, and a direct write can fall back to the
                // page cache.
                direct: read.read_flags & abi::READ_LOCKOWNER != 0,
            }
        }
        opcode::WRITE => {
            let write: abi::WriteIn = args.take()?;
            Operation::Write {
                offset: write.offset,
                data: args.bytes(write.size)?,
                flags: write.flags as i32,
                direct: write.write_flags & abi::WRITE_LOCKOWNER != 0,
                cached: write.write_flags & abi::WRITE_CACHE != 0,
            }
        }
        opcode::STATFS => Operation::StatFs,
        opcode::FSYNC | opcode::FSYNCDIR => {
            let fsync: abi::FsyncIn = args.take()?;
            Operation::Fsync {
                data_only: fsync.fsync_flags & abi::FSYNC_FDATASYNC != 0,
            }
        }
        opcode::SYNCFS => Operation::SyncFs,
        opcode::SETXATTR => {
            let set: abi::SetxattrIn = args.take()?;
            Operation::SetXattr {
                name: args.name()?,
                value: args.bytes(set.size)?,
                flags: set.flags as i32,
            }
        }
        opcode::GETXATTR => {
            let get: abi::GetxattrIn = args.take()?;
            Operation::GetXattr {
                name: args.name()?,
                size: get.size,
            }
        }
        opcode::LISTXATTR => {
            let list: abi::GetxattrIn = args.take()?;
            Operation::ListXattr { size: list.size }
        }
        opcode::REMOVEXATTR => Operation::RemoveXattr { name: args.name()? },
        opcode::READDIR => {
            let read: abi::ReadIn = args.take()?;
            Operation::ReadDir {
                offset: read.offset,
                size: read.size,
            }
        }
        opcode::READDIRPLUS => {
            let read: abi::ReadIn = args.take()?;
            Operation::ReadDirPlus {
                offset: read.offset,
                size: read.size,
            }
        }
        opcode::IOCTL => {
            let ioctl: abi::IoctlIn = args.take()?;
            Operation::Ioctl {
                command: ioctl.cmd,
                data: args.bytes(ioctl.in_size)?,
            }
        }
        opcode::FALLOCATE => {
            let range: abi::FallocateIn = args.take()?;
            Operation::Fallocate {
                offset: range.offset,
                length: range.length,
                mode: range.mode as i32,
            }
        }
        opcode::LSEEK => {
            let seek: abi::LseekIn = args.take()?;
            Operation::Lseek {
                offset: seek.offset as i64,
                whence: seek.whence as i32,
            }
        }
        opcode::COPY_FILE_RANGE => {
            let copy: abi::CopyFileRangeIn = args.take()?;
            Operation::CopyFileRange {
                offset: copy.off_in,
                to: NodeId(copy.nodeid_out),
                to_offset: copy.off_out,
                length: copy.len,
            }
        }
        other => Operation::Other(other),
    })
}

fn rename(new_parent: NodeId, flags: u32, mut args: Args<'_>) -> Result<Operation<'_>, Malformed> {
    Ok(Operation::Rename {
        name: args.name()?,
        new_parent,
        new_name: args.name()?,
        flags,
    })
}

fn set_attr(set: &abi::SetAttrIn) -> SetAttr {
    let has = |bit| set.valid & bit != 0;
    let time = |bit, now, secs: u64, nanos| {
        has(bit).then(|| match has(now) {
            true => SetTime::Now,
            // Times before 1970 are negative, and nanoseconds count from the second before.
            false => SetTime::At(Time {
                secs: secs as i64,
                nanos,
            }),
        })
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(set.mode),
        uid: has(fattr::UID).then_some(set.uid),
        gid: has(fattr::GID).then_some(set.gid),
        size: has(fattr::SIZE).then_some(set.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, set.atime, set.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, set.mtime, set.mtimensec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the kernel sends it: words of the machine's byte order after the header.
    fn message(code: u32, node: u64, words: &[u32], tail: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let len = 40 + words.len() * 4 + tail.len();
        for word in [len as u32, code, 7, 0, node as u32, (node >> 32) as u32] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for word in [1000_u32, 100, 4242, 0].iter().chain(words) {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(tail);
        bytes
    }

    fn parsed(message: &[u8]) -> Result<Request<'_>, Malformed> {
        let (header, args) = split(message)?;
        parse(&header, args)
    }

    #[test]
    fn a_write() {
        // fh, offset, size, write_flags (from the page cache), lock_owner, flags, padding.
        let words = [0, 0, 4096, 1, 5, 1, 0, 0, 0x1002, 0];
        let message = message(opcode::WRITE, 12, &words, b"bytes");
        let request = parsed(&message).unwrap();
        assert_eq!(
            (request.node, request.uid, request.gid),
            (NodeId(12), 1000, 100)
        );
        let Operation::Write {
            offset,
            data,
            flags,
            direct,
            cached,
        } = request.operation
        else {
            panic!("{request:?}");
        };
        assert_eq!(
            (offset, data, flags, direct, cached),
            (1 << 32 | 4096, &b"bytes"[..], 0x1002, false, true)
        );
    }

    #[test]
    fn a_write_that_is_cut_off() {
        let words = [0, 0, 0, 0, 6, 0, 0, 0, 0, 0];
        let message = message(opcode::WRITE, 12, &words, b"bytes");
        assert_eq!(parsed(&message).unwrap_err(), Malformed);
    }

    #[test]
    fn names() {
        let message = message(opcode::RENAME2, 1, &[9, 0, 1, 0], b"old\0new\0");
        let Operation::Rename {
            name,
            new_parent,
            new_name,
            flags,
        } = parsed(&message).unwrap().operation
        else {
            panic!("not a rename");
        };
        assert_eq!((name, new_name), (OsStr::new("old"), OsStr::new("new")));
        assert_eq!((new_parent, flags), (NodeId(9), 1));
    }

    #[test]
    fn a_name_without_an_end() {
        let message = message(opcode::LOOKUP, 1, &[], b"name");
        assert_eq!(parsed(&message).unwrap_err(), Malformed);
    }

    #[test]
    fn times_before_1970() {
        let mut words = [0; 22];
        words[0] = fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW | fattr::SIZE;
        words[4] = 77;
        // atime: -2 s and 800,000,000 ns.
        words[8] = -2_i32 as u32;
        words[9] = u32::MAX;
        words[14] = 800_000_000;
        let message = message(opcode::SETATTR, 1, &words, &[]);
        let Operation::SetAttr(set) = parsed(&message).unwrap().operation else {
            panic!("not a setattr");
        };
        let expected = SetAttr {
            size: Some(77),
            atime: Some(SetTime::At(Time {
                secs: -2,
                nanos: 800_000_000,
            })),
            mtime: Some(SetTime::Now),
            ..SetAttr::default()
        };
        assert_eq!(set, expected);
    }

    #[test]
    fn forgets() {
        let mut seen = Vec::new();
        let one = message(opcode::FORGET, 5, &[3, 0], &[]);
        let many = message(
            opcode::BATCH_FORGET,
            0,
            &[2, 0, 6, 0, 1, 0, 7, 0, 2, 0],
            &[],
        );
        for message in [&one, &many] {
            let (header, args) = split(message).unwrap();
            each_forget(&header, args, |node, lookups| seen.push((node.0, lookups))).unwrap();
        }
        assert_eq!(seen, [(5, 3), (6, 1), (7, 2)]);
        let promised = message(opcode::BATCH_FORGET, 0, &[u32::MAX, 0, 6, 0, 1, 0], &[]);
        let (header, args) = split(&promised).unwrap();
        assert_eq!(each_forget(&header, args, |_, _| ()), Err(Malformed));
    }

    #[test]
    fn what_is_not_known() {
        let message = message(999, 1, &[1, 2, 3], &[]);
        let operation = parsed(&message).unwrap().operation;
        assert!(matches!(operation, Operation::Other(999)));
    }

    proptest! {
        /// Whatever comes, it is parsed or refused.
        #[test]
        fn never_panics(code in 0_u32..60, tail in proptest::collection::vec(any::<u8>(), 0..120)) {
            let message = message(code, 1, &[], &tail);
            if let Ok((header, args)) = split(&message) {
                let _ = parse(&header, args);
            }
            if let Ok((header, args)) = split(&tail) {
                let mut left = 1000;
                let _ = each_forget(&header, args, |_, _| left -= 1);
            }
        }
    }
}
