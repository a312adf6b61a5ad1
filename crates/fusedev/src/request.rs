//! Requests of the kernel.

use crate::abi::{self, fattr, opcode};
use crate::message::{Malformed, Message, Payload};
use crate::types::{NodeId, Time};
use std::ffi::OsStr;

#[cfg(test)]
mod tests;

/// One request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The number of the operation, for statistics ([`crate::OperationCounts`]).
    pub opcode: u32,
    /// The inode; for requests with a name, the directory of the name.
    pub node: NodeId,
    /// User id of the caller: for permissions, and the owner of a new inode.
    pub uid: u32,
    /// Group id of the caller.
    pub gid: u32,
    /// Thread id of the caller; 0 for the kernel itself and for threads outside of the server's
    /// pid namespace.
    pub pid: u32,
    /// The operation and its arguments.
    pub operation: Operation<'a>,
}

/// An operation. Each comment ends with the method of [`crate::Reply`] that answers it, in
/// brackets; without one it is [`crate::Reply::ok`]. Any operation may be answered with an error.
#[derive(Debug)]
// The fields are the arguments under their usual names.
#[allow(missing_docs)]
pub enum Operation<'a> {
    /// Looks a name up. Node 0 in the reply lets the kernel cache that there is no such name.
    /// \[entry\]
    Lookup { name: &'a OsStr },
    /// Returns attributes. \[attr\]
    GetAttr,
    /// Returns attributes and the time of birth. \[statx\]
    StatX,
    /// Changes attributes. \[attr, with the new ones\]
    SetAttr(SetAttr),
    /// Returns the target of a symbolic link. \[data\]
    ReadLink,
    /// Creates a symbolic link. \[entry\]
    SymLink { name: &'a OsStr, target: &'a OsStr },
    /// Creates a file of any type but a directory. \[entry\]
    MkNod {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    /// Creates a directory. \[entry\]
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    /// Removes a name.
    Unlink { name: &'a OsStr },
    /// Removes a directory.
    RmDir { name: &'a OsStr },
    /// Renames; `flags` are those of renameat2(2).
    Rename {
        name: &'a OsStr,
        new_parent: NodeId,
        new_name: &'a OsStr,
        flags: u32,
    },
    /// Creates a hard link to `node` in the directory [`Request::node`]. \[entry\]
    Link { node: NodeId, name: &'a OsStr },
    /// Opens a file; `flags` are those of open(2). After ENOSYS every open succeeds without a
    /// request, and there is no [`Operation::Release`]. \[opened\]
    Open { flags: i32 },
    /// The last descriptor of an open file is closed.
    Release,
    /// Creates a regular file and opens it. After ENOSYS the kernel sends MKNOD and OPEN instead.
    /// \[created\]
    Create {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    /// Creates a regular file without a name and opens it (O_TMPFILE). \[created\]
    TmpFile { mode: u32, umask: u32 },
    /// Reads; the reply is short only at the end of the file. `direct` reads bypass the kernel's
    /// page cache. A `hidden` read (O_NOATIME) changes no access time. \[data\]
    Read {
        offset: u64,
        size: u32,
        direct: bool,
        hidden: bool,
    },
    /// Writes; `flags` are those of open(2). With `clear_privileges` the server clears set-user-ID
    /// and set-group-ID first (HANDLE_KILLPRIV_V2). \[written\]
    Write {
        offset: u64,
        data: &'a [u8],
        flags: i32,
        kind: WriteKind,
        clear_privileges: bool,
    },
    /// Returns used and free space. \[statfs\]
    StatFs,
    /// Makes a file or a directory durable.
    Fsync { data_only: bool },
    /// Makes the file system durable, for sync(2) and syncfs(2). The kernel sends it for `fuseblk`
    /// mounts only, from Linux 6.18 on.
    SyncFs,
    /// Sets an extended attribute; `flags` are those of setxattr(2).
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: i32,
    },
    /// Returns an extended attribute, or its size if `size` is 0. \[xattr\]
    GetXattr { name: &'a OsStr, size: u32 },
    /// Returns the names of the extended attributes, each with a NUL after it, or the size of this
    /// list if `size` is 0. \[xattr\]
    ListXattr { size: u32 },
    /// Removes an extended attribute.
    RemoveXattr { name: &'a OsStr },
    /// Lists a directory from `offset` on: 0, or the `next` of an earlier entry. \[entries\]
    ReadDir { offset: u64, size: u32 },
    /// [`Operation::ReadDir`] with attributes. Each entry counts as a lookup. \[entries\]
    ReadDirPlus { offset: u64, size: u32 },
    /// ioctl(2). \[ioctl\]
    Ioctl { command: u32, data: &'a [u8] },
    /// fallocate(2).
    Fallocate { offset: u64, length: u64, mode: i32 },
    /// lseek(2) with SEEK_DATA or SEEK_HOLE. \[offset\]
    Lseek { offset: i64, whence: i32 },
    /// Copies within the file system. \[written\]
    CopyFileRange {
        offset: u64,
        to: NodeId,
        to_offset: u64,
        length: u64,
    },
    /// An operation that is not listed here, by its number. After ENOSYS the kernel does not send
    /// it again.
    Other(u32),
}

/// The source of the data of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// The program's memory; the page cache is bypassed.
    Direct,
    /// The page cache, during the program's write(2).
    WriteThrough,
    /// The page cache, after a program has changed pages of a mapping. There is no open file.
    Writeback,
}

/// The attributes that [`Operation::SetAttr`] changes.
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
    /// Time of the last access.
    pub atime: Option<SetTime>,
    /// Time of the last change of the contents.
    pub mtime: Option<SetTime>,
    /// The server clears set-user-ID and set-group-ID (HANDLE_KILLPRIV_V2).
    pub clear_privileges: bool,
}

/// A new time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which the server carries the request out.
    Now,
    /// A given time.
    At(Time),
}

/// Calls `forget` with each node of a FORGET or BATCH_FORGET, and the number of lookups to
/// subtract.
pub(crate) fn each_forget(
    message: Message<'_>,
    mut forget: impl FnMut(NodeId, u64),
) -> Result<(), Malformed> {
    let Message {
        header,
        mut arguments,
        mut payload,
    } = message;
    if header.opcode == opcode::FORGET {
        let one: abi::ForgetIn = arguments.take()?;
        forget(NodeId(header.nodeid), one.nlookup);
        return Ok(());
    }
    let batch: abi::BatchForgetIn = arguments.take()?;
    for _ in 0..batch.count {
        let one: abi::ForgetOne = payload.take()?;
        forget(NodeId(one.nodeid), one.nlookup);
    }
    Ok(())
}

/// Decodes a request.
pub(crate) fn parse(message: Message<'_>) -> Result<Request<'_>, Malformed> {
    Ok(Request {
        opcode: message.header.opcode,
        node: NodeId(message.header.nodeid),
        uid: message.header.uid,
        gid: message.header.gid,
        pid: message.header.pid,
        operation: operation(message)?,
    })
}

fn operation(message: Message<'_>) -> Result<Operation<'_>, Malformed> {
    let Message {
        header,
        mut arguments,
        mut payload,
    } = message;
    Ok(match header.opcode {
        opcode::LOOKUP => Operation::Lookup {
            name: payload.name()?,
        },
        opcode::GETATTR => Operation::GetAttr,
        opcode::STATX => Operation::StatX,
        opcode::SETATTR => Operation::SetAttr(set_attr(&arguments.take()?)),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => Operation::SymLink {
            name: payload.name()?,
            target: payload.name()?,
        },
        opcode::MKNOD => {
            let new: abi::MknodIn = arguments.take()?;
            Operation::MkNod {
                name: payload.name()?,
                mode: new.mode,
                umask: new.umask,
                rdev: new.rdev,
            }
        }
        opcode::MKDIR => {
            let new: abi::MkdirIn = arguments.take()?;
            Operation::MkDir {
                name: payload.name()?,
                mode: new.mode,
                umask: new.umask,
            }
        }
        opcode::UNLINK => Operation::Unlink {
            name: payload.name()?,
        },
        opcode::RMDIR => Operation::RmDir {
            name: payload.name()?,
        },
        opcode::RENAME => {
            let to: abi::RenameIn = arguments.take()?;
            rename(NodeId(to.newdir), 0, payload)?
        }
        opcode::RENAME2 => {
            let to: abi::Rename2In = arguments.take()?;
            rename(NodeId(to.newdir), to.flags, payload)?
        }
        opcode::LINK => {
            let from: abi::LinkIn = arguments.take()?;
            Operation::Link {
                node: NodeId(from.oldnodeid),
                name: payload.name()?,
            }
        }
        opcode::OPEN => {
            let open: abi::OpenIn = arguments.take()?;
            Operation::Open {
                flags: open.flags as i32,
            }
        }
        opcode::RELEASE => Operation::Release,
        opcode::CREATE => {
            let new: abi::CreateIn = arguments.take()?;
            Operation::Create {
                name: payload.name()?,
                mode: new.mode,
                umask: new.umask,
            }
        }
        opcode::TMPFILE => {
            let new: abi::CreateIn = arguments.take()?;
            Operation::TmpFile {
                mode: new.mode,
                umask: new.umask,
            }
        }
        opcode::READ => {
            let read: abi::ReadIn = arguments.take()?;
            Operation::Read {
                offset: read.offset,
                size: read.size,
                // The kernel sets a lock owner for direct I/O only. O_DIRECT in the flags is not
                // enough: such a file can be mapped, and a direct write can fall back to the page
                // cache.
                direct: read.read_flags & abi::READ_LOCKOWNER != 0,
                hidden: read.flags as i32 & libc::O_NOATIME != 0,
            }
        }
        opcode::WRITE => {
            let write: abi::WriteIn = arguments.take()?;
            Operation::Write {
                offset: write.offset,
                data: payload.bytes(write.size)?,
                flags: write.flags as i32,
                kind: write_kind(write.write_flags),
                clear_privileges: write.write_flags & abi::WRITE_KILL_SUIDGID != 0,
            }
        }
        opcode::STATFS => Operation::StatFs,
        opcode::FSYNC | opcode::FSYNCDIR => {
            let fsync: abi::FsyncIn = arguments.take()?;
            Operation::Fsync {
                data_only: fsync.fsync_flags & abi::FSYNC_FDATASYNC != 0,
            }
        }
        opcode::SYNCFS => Operation::SyncFs,
        opcode::SETXATTR => {
            let set: abi::SetxattrIn = arguments.take()?;
            Operation::SetXattr {
                name: payload.name()?,
                value: payload.bytes(set.size)?,
                flags: set.flags as i32,
            }
        }
        opcode::GETXATTR => {
            let get: abi::GetxattrIn = arguments.take()?;
            Operation::GetXattr {
                name: payload.name()?,
                size: get.size,
            }
        }
        opcode::LISTXATTR => {
            let list: abi::GetxattrIn = arguments.take()?;
            Operation::ListXattr { size: list.size }
        }
        opcode::REMOVEXATTR => Operation::RemoveXattr {
            name: payload.name()?,
        },
        opcode::READDIR => {
            let read: abi::ReadIn = arguments.take()?;
            Operation::ReadDir {
                offset: read.offset,
                size: read.size,
            }
        }
        opcode::READDIRPLUS => {
            let read: abi::ReadIn = arguments.take()?;
            Operation::ReadDirPlus {
                offset: read.offset,
                size: read.size,
            }
        }
        opcode::IOCTL => {
            let ioctl: abi::IoctlIn = arguments.take()?;
            Operation::Ioctl {
                command: ioctl.cmd,
                data: payload.bytes(ioctl.in_size)?,
            }
        }
        opcode::FALLOCATE => {
            let range: abi::FallocateIn = arguments.take()?;
            Operation::Fallocate {
                offset: range.offset,
                length: range.length,
                mode: range.mode as i32,
            }
        }
        opcode::LSEEK => {
            let seek: abi::LseekIn = arguments.take()?;
            Operation::Lseek {
                offset: seek.offset as i64,
                whence: seek.whence as i32,
            }
        }
        opcode::COPY_FILE_RANGE => {
            let copy: abi::CopyFileRangeIn = arguments.take()?;
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

fn write_kind(write_flags: u32) -> WriteKind {
    // For the lock owner see READ.
    if write_flags & abi::WRITE_LOCKOWNER != 0 {
        WriteKind::Direct
    } else if write_flags & abi::WRITE_CACHE != 0 {
        WriteKind::Writeback
    } else {
        WriteKind::WriteThrough
    }
}

fn rename(
    new_parent: NodeId,
    flags: u32,
    mut payload: Payload<'_>,
) -> Result<Operation<'_>, Malformed> {
    Ok(Operation::Rename {
        name: payload.name()?,
        new_parent,
        new_name: payload.name()?,
        flags,
    })
}

fn set_attr(set: &abi::SetAttrIn) -> SetAttr {
    let has = |bit| set.valid & bit != 0;
    let time = |bit, now, secs: u64, nanos| {
        has(bit).then(|| match has(now) {
            true => SetTime::Now,
            // Seconds before 1970 are negative; nanoseconds always count forwards.
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
        clear_privileges: has(fattr::KILL_SUIDGID),
    }
}
