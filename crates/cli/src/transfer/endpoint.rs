//! Sources and targets of a copy.
//!
//! [`SourceDir`] and [`SinkDir`] are implemented for directories of the host and of a volume, so
//! that one copy routine serves all combinations. Both work on open directories: no path is
//! resolved for each file.

use sluicefs::SpecialFile;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// The metadata that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// Permissions minus the umask. Owner and times are those of a new file (cp -r).
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

/// Seconds and nanoseconds since 1970.
pub type Time = (i64, u32);

/// Attributes of a file, as stat(2) returns them.
#[derive(Clone, Debug)]
pub struct Attributes {
    pub kind: Kind,
    /// Permission bits (07777).
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// In bytes.
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    pub nlink: u64,
    pub id: FileId,
    pub atime: Time,
    pub mtime: Time,
    /// `None` if the file system does not store it.
    pub btime: Option<Time>,
}

/// Extended attributes: full names and values.
pub type Xattrs = Vec<(OsString, Vec<u8>)>;

/// Identifies a file: two names with the same identity are hard links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// Attributes of a new file or directory.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// Permission bits. The umask does not apply to them.
    pub mode: u32,
    /// User and group; `None`: those of the process.
    pub owner: Option<(u32, u32)>,
}

/// An entry of a source directory.
pub struct Listed {
    pub name: OsString,
    pub is_dir: bool,
}

/// A directory to copy from.
pub trait SourceDir: Send + Sync + Sized {
    type File: SourceFile;
    /// Opens a subdirectory. Symbolic links are refused.
    fn open_dir(&self, name: &OsStr) -> io::Result<Self>;
    /// Attributes of the directory itself.
    fn own_attributes(&self) -> io::Result<Attributes>;
    /// Extended attributes of the directory itself.
    fn own_xattrs(&self) -> io::Result<Xattrs>;
    fn entries(&self) -> io::Result<Vec<Listed>>;
    /// Opens a regular file; `None` if the entry has another type. Symbolic links are not followed.
    fn open_file(&self, name: &OsStr) -> io::Result<Option<(Self::File, Attributes)>>;
    /// Attributes of an entry. Symbolic links are not followed.
    fn attributes(&self, name: &OsStr) -> io::Result<Attributes>;
    /// Extended attributes of an entry that is neither a file nor a directory.
    fn xattrs(&self, name: &OsStr) -> io::Result<Xattrs>;
    /// The target of a symbolic link.
    fn read_link(&self, name: &OsStr) -> io::Result<PathBuf>;
}

/// A file to copy from.
pub trait SourceFile {
    /// Reads at an offset. Returns 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The first data at or after an offset.
    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>>;
    /// The first hole at or after an offset. The end of the file counts as a hole.
    fn seek_hole(&self, offset: u64) -> io::Result<Option<u64>>;
    fn xattrs(&self) -> io::Result<Xattrs>;
}

/// A directory of the target, created or opened.
pub struct OpenedDir<D> {
    pub dir: D,
    pub is_new: bool,
}

/// A directory to copy into.
pub trait SinkDir: Send + Sync + Sized {
    type File: SinkFile;
    /// Creates a directory, or opens the existing one.
    fn create_dir(&self, name: &OsStr, new: New) -> io::Result<OpenedDir<Self>>;
    /// Creates an empty file. An existing file is truncated; an entry of another type is replaced.
    fn create_file(&self, name: &OsStr, new: New) -> io::Result<Self::File>;
    /// Creates a symbolic link. It replaces an existing entry that is not a directory.
    fn symlink(&self, name: &OsStr, target: &Path, new: New) -> io::Result<()>;
    /// Creates a pipe, socket or device. It replaces an existing entry that is not a directory.
    fn special(&self, name: &OsStr, special: SpecialFile, new: New) -> io::Result<()>;
    /// Path of an entry, for [`SinkDir::hard_link`].
    fn location(&self, name: &OsStr) -> PathBuf;
    /// Creates another name of a file of the target. It replaces an existing entry that is not a
    /// directory.
    fn hard_link(&self, original: &Path, name: &OsStr) -> io::Result<()>;
    /// Sets the attributes of an entry that is neither a file nor a directory.
    fn finish_entry(&self, name: &OsStr, like: &Attributes, xattrs: &Xattrs) -> io::Result<()>;
    /// Sets the attributes of the directory itself.
    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()>;
    /// Sets the permission bits of the directory itself.
    fn set_mode(&self, mode: u32) -> io::Result<()>;
}

/// A file to copy into.
pub trait SinkFile {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Sets the attributes after the contents are written.
    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()>;
}
