//! Trees copied between the host and volumes.
//!
//! A [`SourceDir`] and a [`SinkDir`] are each implemented for the host's directories and for a
//! volume's; [`engine`] joins any two. Work goes by handles (openat and the library's `Dir`), so
//! that no path is walked for a file.
//!
//! | file | what it holds |
//! |---|---|
//! | `archive.rs` | tar archives into a volume |
//! | `durable.rs` | files made durable in groups while others are copied |
//! | `engine.rs` | the work queue, hard links, sparse files, directories finished when all in them is |
//! | `host.rs`, `host_xattr.rs` | the host's side |
//! | `volume.rs` | a volume's side |
//! | `progress.rs` | counts, rates, a bar on terminals |

pub mod archive;
pub mod durable;
pub mod engine;
pub mod host;
pub mod host_xattr;
pub mod progress;
pub mod volume;

use sluicefs::SpecialFile;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// How much of a file is copied beside its contents and permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// Permissions less the umask; owner and times are the copier's (cp -r).
    Contents,
    /// Owner, mode, times, extended attributes, ACLs and hard links (cp -a).
    Full,
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Special(SpecialFile),
}

/// A point in time: seconds and nanoseconds since 1970.
pub type Time = (i64, u32);

/// What stat tells of a file.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Its type.
    pub kind: Kind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Names.
    pub nlink: u64,
    /// Device and inode number.
    pub id: (u64, u64),
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Birth, where it is known.
    pub btime: Option<Time>,
}

/// Extended attributes with their full names.
pub type Xattrs = Vec<(OsString, Vec<u8>)>;

/// What something new is to be.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// Permission bits, to be taken as they are.
    pub mode: u32,
    /// Owner and group; `None`: the copier's.
    pub owner: Option<(u32, u32)>,
}

/// A directory to copy from.
pub trait SourceDir: Send + Sync + Sized {
    /// A file to read.
    type File: SourceFile;
    /// Opens a directory in it; symbolic links are refused.
    fn open_dir(&self, name: &OsStr) -> io::Result<Self>;
    /// Its own attributes.
    fn own_attributes(&self) -> io::Result<Attributes>;
    /// Its own extended attributes.
    fn own_xattrs(&self) -> io::Result<Xattrs>;
    /// Names in it, with whether each is a directory.
    fn entries(&self) -> io::Result<Vec<(OsString, bool)>>;
    /// Opens a regular file; `None` where the entry is of another type. Symbolic links are not
    /// followed.
    fn open_file(&self, name: &OsStr) -> io::Result<Option<(Self::File, Attributes)>>;
    /// Attributes of an entry; symbolic links are not followed.
    fn attributes(&self, name: &OsStr) -> io::Result<Attributes>;
    /// Extended attributes of an entry that is neither file nor directory.
    fn xattrs(&self, name: &OsStr) -> io::Result<Xattrs>;
    /// Where a symbolic link points.
    fn read_link(&self, name: &OsStr) -> io::Result<PathBuf>;
}

/// A file to copy from.
pub trait SourceFile {
    /// Reads at an offset; 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The first data at or after an offset.
    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>>;
    /// The first hole at or after an offset; the end is one.
    fn seek_hole(&self, offset: u64) -> io::Result<Option<u64>>;
    /// Its extended attributes.
    fn xattrs(&self) -> io::Result<Xattrs>;
}

/// A directory to copy into.
pub trait SinkDir: Send + Sync + Sized {
    /// A file to write.
    type File: SinkFile;
    /// Creates a directory, or opens the one that is there; whether it is new.
    fn create_dir(&self, name: &OsStr, new: New) -> io::Result<(Self, bool)>;
    /// Creates an empty file, or empties the one that is there; what is no file is replaced.
    fn create_file(&self, name: &OsStr, new: New) -> io::Result<Self::File>;
    /// Creates a symbolic link, over anything but a directory.
    fn symlink(&self, name: &OsStr, target: &Path, new: New) -> io::Result<()>;
    /// Creates a pipe, socket or device, over anything but a directory.
    fn special(&self, name: &OsStr, special: SpecialFile, new: New) -> io::Result<()>;
    /// Where an entry is, for [`SinkDir::hard_link`].
    fn location(&self, name: &OsStr) -> PathBuf;
    /// Creates another name for what was created before, over anything but a directory.
    fn hard_link(&self, original: &Path, name: &OsStr) -> io::Result<()>;
    /// Gives an entry that is neither file nor directory its attributes.
    fn finish_entry(&self, name: &OsStr, like: &Attributes, xattrs: &Xattrs) -> io::Result<()>;
    /// Gives the directory itself its attributes.
    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()>;
    /// Sets the directory's own permission bits.
    fn set_mode(&self, mode: u32) -> io::Result<()>;
}

/// A file to copy into.
pub trait SinkFile {
    /// Writes at an offset.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Sets the size.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Gives it its attributes.
    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()>;
}
