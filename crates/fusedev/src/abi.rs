//! Structures and numbers of the protocol, with their names in `linux/fuse.h`. Integers have the
//! machine's byte order.

// A structure has all fields of the kernel's, also those that are not read.
#![allow(dead_code)]

#[cfg(test)]
mod tests;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of this implementation: 7.40, Linux 6.9. It also handles newer requests that need no
/// agreement.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 40;
/// The oldest minor version that it accepts: Linux 5.4.
pub(crate) const OLDEST_MINOR: u32 = 31;

/// `enum fuse_opcode`.
pub(crate) mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const READDIR: u32 = 28;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// `write_flags`: writeback of pages that a program has changed in a mapping.
pub(crate) const WRITE_CACHE: u32 = 1;

/// `write_flags`: set-user-ID and set-group-ID are cleared, see HANDLE_KILLPRIV_V2.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// `fsync_flags`: fdatasync(2).
pub(crate) const FSYNC_FDATASYNC: u32 = 1;

/// `open_flags`: the kernel keeps cached pages.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;

/// `read_flags` and `write_flags`: `lock_owner` is valid.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;

/// `valid` of [`SetAttrIn`].
pub(crate) mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FUSE_NOTIFY_*`, sent in the `error` field of a header.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
pub(crate) const NOTIFY_STORE: i32 = 4;

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub total_extlen: u16,
    pub padding: u16,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

/// The part of `fuse_init_in` that all versions have. [`InitInExt`] follows if the flags have
/// INIT_EXT.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InitInExt {
    pub flags2: u32,
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub max_stack_depth: u32,
    pub request_timeout: u16,
    pub unused: [u16; 11],
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ForgetIn {
    pub nlookup: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct BatchForgetIn {
    pub count: u32,
    pub dummy: u32,
}

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct ForgetOne {
    pub nodeid: u64,
    pub nlookup: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SetAttrIn {
    pub valid: u32,
    pub padding: u32,
    pub fh: u64,
    pub size: u64,
    pub lock_owner: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub unused4: u32,
    pub uid: u32,
    pub gid: u32,
    pub unused5: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MknodIn {
    pub mode: u32,
    pub rdev: u32,
    pub umask: u32,
    pub padding: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MkdirIn {
    pub mode: u32,
    pub umask: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RenameIn {
    pub newdir: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rename2In {
    pub newdir: u64,
    pub flags: u32,
    pub padding: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LinkIn {
    pub oldnodeid: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct OpenIn {
    pub flags: u32,
    pub open_flags: u32,
}

/// Reply to OPEN; in replies to CREATE and TMPFILE it follows the entry.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct OpenOut {
    pub fh: u64,
    pub open_flags: u32,
    pub backing_id: i32,
}

/// Arguments of CREATE and TMPFILE.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CreateIn {
    pub flags: u32,
    pub mode: u32,
    pub umask: u32,
    pub open_flags: u32,
}

/// Arguments of READ, READDIR and READDIRPLUS.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ReadIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub read_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct WriteIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub write_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// Reply to WRITE and COPY_FILE_RANGE.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct WriteOut {
    pub size: u32,
    pub padding: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FsyncIn {
    pub fh: u64,
    pub fsync_flags: u32,
    pub padding: u32,
}

/// The form without `FUSE_SETXATTR_EXT`.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SetxattrIn {
    pub size: u32,
    pub flags: u32,
}

/// Arguments of GETXATTR and LISTXATTR.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct GetxattrIn {
    pub size: u32,
    pub padding: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct GetxattrOut {
    pub size: u32,
    pub padding: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct IoctlIn {
    pub fh: u64,
    pub flags: u32,
    pub cmd: u32,
    pub arg: u64,
    pub in_size: u32,
    pub out_size: u32,
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct IoctlOut {
    pub result: i32,
    pub flags: u32,
    pub in_iovs: u32,
    pub out_iovs: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FallocateIn {
    pub fh: u64,
    pub offset: u64,
    pub length: u64,
    pub mode: u32,
    pub padding: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LseekIn {
    pub fh: u64,
    pub offset: u64,
    pub whence: u32,
    pub padding: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct LseekOut {
    pub offset: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CopyFileRangeIn {
    pub fh_in: u64,
    pub off_in: u64,
    pub nodeid_out: u64,
    pub fh_out: u64,
    pub off_out: u64,
    pub len: u64,
    pub flags: u64,
}

/// `struct fuse_attr`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct FuseAttr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
    pub flags: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct AttrOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: FuseAttr,
}

/// `struct fuse_sx_time`.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct SxTime {
    pub tv_sec: i64,
    pub tv_nsec: u32,
    pub reserved: i32,
}

/// `struct fuse_statx_out`, with the `struct fuse_statx` that ends it.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct StatxOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub flags: u32,
    pub spare: [u64; 2],
    pub mask: u32,
    pub blksize: u32,
    pub attributes: u64,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub spare0: u16,
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub attributes_mask: u64,
    pub atime: SxTime,
    pub btime: SxTime,
    pub ctime: SxTime,
    pub mtime: SxTime,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub spare2: [u64; 14],
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct EntryOut {
    pub nodeid: u64,
    pub generation: u64,
    pub entry_valid: u64,
    pub attr_valid: u64,
    pub entry_valid_nsec: u32,
    pub attr_valid_nsec: u32,
    pub attr: FuseAttr,
}

/// The header of an entry in a list of directory entries. The name follows, then padding to a
/// multiple of eight bytes.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Dirent {
    pub ino: u64,
    pub off: u64,
    pub namelen: u32,
    pub kind: u32,
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct StatfsOut {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct InvalInodeOut {
    pub ino: u64,
    pub off: i64,
    pub len: i64,
}

/// `struct fuse_notify_store_out`; the data follows.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct NotifyStoreOut {
    pub nodeid: u64,
    pub offset: u64,
    pub size: u32,
    pub padding: u32,
}
