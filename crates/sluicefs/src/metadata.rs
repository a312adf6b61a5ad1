//! What stat tells and what can be set.

use ext4::{Attr, SetAttr, SetTime, Timestamp};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(pub(crate) ext4::FileType);

impl FileType {
    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.0 == ext4::FileType::Directory
    }
    /// A regular file.
    pub fn is_file(&self) -> bool {
        self.0 == ext4::FileType::Regular
    }
    /// A symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0 == ext4::FileType::Symlink
    }
    /// A named pipe.
    pub fn is_fifo(&self) -> bool {
        self.0 == ext4::FileType::Fifo
    }
    /// A socket.
    pub fn is_socket(&self) -> bool {
        self.0 == ext4::FileType::Socket
    }
    /// A character device.
    pub fn is_char_device(&self) -> bool {
        self.0 == ext4::FileType::CharDevice
    }
    /// A block device.
    pub fn is_block_device(&self) -> bool {
        self.0 == ext4::FileType::BlockDevice
    }
    /// The letter that `ls -l` begins a line with.
    pub fn letter(&self) -> char {
        match self.0 {
            ext4::FileType::Regular => '-',
            ext4::FileType::Directory => 'd',
            ext4::FileType::CharDevice => 'c',
            ext4::FileType::BlockDevice => 'b',
            ext4::FileType::Fifo => 'p',
            ext4::FileType::Socket => 's',
            ext4::FileType::Symlink => 'l',
        }
    }
    /// Its name: "file", "directory", "symlink", …
    pub fn name(&self) -> &'static str {
        match self.0 {
            ext4::FileType::Regular => "file",
            ext4::FileType::Directory => "directory",
            ext4::FileType::CharDevice => "character device",
            ext4::FileType::BlockDevice => "block device",
            ext4::FileType::Fifo => "fifo",
            ext4::FileType::Socket => "socket",
            ext4::FileType::Symlink => "symlink",
        }
    }
}

/// What an inode says of itself, at one moment.
#[derive(Clone, Debug)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// Its type.
    pub fn file_type(&self) -> FileType {
        FileType(self.0.kind)
    }
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }
    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }
    /// Bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.size
    }
    /// Permission bits.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }
    /// Last change of contents.
    pub fn modified(&self) -> SystemTime {
        to_system(self.0.mtime)
    }
    /// Last access.
    pub fn accessed(&self) -> SystemTime {
        to_system(self.0.atime)
    }
    /// Last change of the inode.
    pub fn changed(&self) -> SystemTime {
        to_system(self.0.ctime)
    }
    /// Birth.
    pub fn created(&self) -> SystemTime {
        to_system(self.0.crtime)
    }
    /// Inode number.
    pub fn ino(&self) -> u64 {
        u64::from(self.0.ino)
    }
    /// Type and permission bits, as in `st_mode`.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.mode)
    }
    /// Names that refer to it.
    pub fn nlink(&self) -> u64 {
        u64::from(self.0.nlink)
    }
    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }
    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }
    /// Device number of a device file: (major, minor).
    pub fn rdev(&self) -> (u32, u32) {
        let dev = self.0.rdev;
        ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xf_ff00))
    }
    /// Space used, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }
    /// Inode flags as of `FS_IOC_GETFLAGS` (immutable, append-only, …).
    pub fn flags(&self) -> u32 {
        self.0.flags
    }
    /// Everything, in the form of the file system beneath.
    pub fn attr(&self) -> &Attr {
        &self.0
    }
}

/// Times to set, as [`std::fs::FileTimes`]; what is not set is left alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// None at all.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }
    /// Last access.
    #[must_use]
    pub fn set_accessed(mut self, t: SystemTime) -> FileTimes {
        self.accessed = Some(t);
        self
    }
    /// Last change of contents.
    #[must_use]
    pub fn set_modified(mut self, t: SystemTime) -> FileTimes {
        self.modified = Some(t);
        self
    }
}

/// Several attributes to set in one step (one journal handle); what is not named is left alone.
///
/// ```
/// use sluicefs::{FormatOptions, SetAttributes, Volume};
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// volume.write("/tool", "#!/bin/sh\n")?;
/// volume.set_attributes("/tool", &SetAttributes::new().mode(0o755).owner(1000, 1000))?;
/// assert_eq!(volume.metadata("/tool")?.mode() & 0o7777, 0o755);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttributes(pub(crate) SetAttr);

impl SetAttributes {
    /// Nothing yet.
    pub fn new() -> SetAttributes {
        SetAttributes::default()
    }
    /// Permission bits, set-user-id, set-group-id and sticky.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> SetAttributes {
        self.0.mode = Some((mode & 0o7777) as u16);
        self
    }
    /// Owner and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> SetAttributes {
        self.0.uid = Some(uid);
        self.0.gid = Some(gid);
        self
    }
    /// Access and modification times.
    #[must_use]
    pub fn times(mut self, times: FileTimes) -> SetAttributes {
        self.0.atime = times.accessed.map(|t| SetTime::At(from_system(t)));
        self.0.mtime = times.modified.map(|t| SetTime::At(from_system(t)));
        self
    }
    /// Access time in seconds and nanoseconds since the epoch.
    #[must_use]
    pub fn accessed_at(mut self, secs: i64, nanos: u32) -> SetAttributes {
        self.0.atime = Some(SetTime::At(Timestamp { secs, nanos }));
        self
    }
    /// Modification time in seconds and nanoseconds since the epoch.
    #[must_use]
    pub fn modified_at(mut self, secs: i64, nanos: u32) -> SetAttributes {
        self.0.mtime = Some(SetTime::At(Timestamp { secs, nanos }));
        self
    }
    /// Birth time in seconds and nanoseconds since the epoch.
    #[must_use]
    pub fn created_at(mut self, secs: i64, nanos: u32) -> SetAttributes {
        self.0.crtime = Some(Timestamp { secs, nanos });
        self
    }
    /// Size of a regular file; what is added reads as zeroes.
    #[must_use]
    pub fn len(mut self, len: u64) -> SetAttributes {
        self.0.size = Some(len);
        self
    }
    /// Inode flags as of `FS_IOC_SETFLAGS`.
    #[must_use]
    pub fn flags(mut self, flags: u32) -> SetAttributes {
        self.0.flags = Some(flags);
        self
    }
}

/// A point in time as the system's type.
pub(crate) fn to_system(t: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(t.secs.unsigned_abs());
    let base = if t.secs < 0 {
        SystemTime::UNIX_EPOCH - whole
    } else {
        SystemTime::UNIX_EPOCH + whole
    };
    base + Duration::from_nanos(u64::from(t.nanos))
}

fn from_system(t: SystemTime) -> Timestamp {
    match t.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timestamp {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp {
                    secs: -secs,
                    nanos: 0,
                },
                n => Timestamp {
                    secs: -secs - 1,
                    nanos: 1_000_000_000 - n,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for (secs, nanos) in [
            (0, 0),
            (1, 999_999_999),
            (-1, 1),
            (-5, 0),
            (15_032_385_535, 7),
        ] {
            let t = Timestamp { secs, nanos };
            assert_eq!(from_system(to_system(t)), t);
        }
    }
}
