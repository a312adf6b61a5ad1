//! Attributes of inodes, to read and to set.

use ext4::{Attr, SetAttr, SetTime, Timestamp};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(pub(crate) ext4::FileType);

impl FileType {
    /// Returns whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.0 == ext4::FileType::Directory
    }
    /// Returns whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.0 == ext4::FileType::Regular
    }
    /// Returns whether this is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0 == ext4::FileType::Symlink
    }
    /// Returns whether this is a named pipe.
    pub fn is_fifo(&self) -> bool {
        self.0 == ext4::FileType::Fifo
    }
    /// Returns whether this is a socket.
    pub fn is_socket(&self) -> bool {
        self.0 == ext4::FileType::Socket
    }
    /// Returns whether this is a character device.
    pub fn is_char_device(&self) -> bool {
        self.0 == ext4::FileType::CharDevice
    }
    /// Returns whether this is a block device.
    pub fn is_block_device(&self) -> bool {
        self.0 == ext4::FileType::BlockDevice
    }
    /// The letter at the start of a line of `ls -l`.
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
    /// The name of the type: "file", "directory", "symlink", …
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

/// Major and minor number of a device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// The driver; at most 4,095 on ext4.
    pub major: u32,
    /// The device of that driver; at most 1,048,575 on ext4.
    pub minor: u32,
}

impl DeviceNumber {
    /// From Linux's 32-bit `dev_t`.
    fn unpack(dev: u32) -> DeviceNumber {
        DeviceNumber {
            major: (dev >> 8) & 0xfff,
            minor: (dev & 0xff) | ((dev >> 12) & 0xf_ff00),
        }
    }

    /// Linux's 32-bit `dev_t`; `None` if the number does not fit.
    pub(crate) fn pack(self) -> Option<u32> {
        let DeviceNumber { major, minor } = self;
        let fits = major <= 0xfff && minor <= 0xf_ffff;
        fits.then_some((minor & 0xff) | (major << 8) | ((minor & 0xf_ff00) << 12))
    }
}

/// The attributes of an inode at one moment.
#[derive(Clone, Debug)]
pub struct Metadata(pub(crate) Attr);

/// The inverse of [`Metadata::attr`].
impl From<Attr> for Metadata {
    fn from(attr: Attr) -> Metadata {
        Metadata(attr)
    }
}

/// From the type that the `ext4` crate uses.
impl From<ext4::FileType> for FileType {
    fn from(kind: ext4::FileType) -> FileType {
        FileType(kind)
    }
}

impl Metadata {
    /// The type of the inode.
    pub fn file_type(&self) -> FileType {
        FileType(self.0.kind)
    }
    /// Returns whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }
    /// Returns whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }
    /// Returns whether this is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }
    /// Size in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.size
    }
    /// Permission bits.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }
    /// Time of the last change of the contents.
    pub fn modified(&self) -> SystemTime {
        to_system(self.0.mtime)
    }
    /// Time of the last access.
    pub fn accessed(&self) -> SystemTime {
        to_system(self.0.atime)
    }
    /// Time of the last change of the inode.
    pub fn changed(&self) -> SystemTime {
        to_system(self.0.ctime)
    }
    /// Time of creation.
    pub fn created(&self) -> SystemTime {
        to_system(self.0.crtime)
    }
    /// Inode number.
    pub fn ino(&self) -> u64 {
        u64::from(self.0.ino)
    }
    /// Generation: it differs between the files that had this inode number one after another.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }
    /// Type and permission bits, as in `st_mode`.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.mode)
    }
    /// Number of hard links.
    pub fn nlink(&self) -> u64 {
        u64::from(self.0.nlink)
    }
    /// User that owns it.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }
    /// Group that owns it.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }
    /// Device number, if this is a device file.
    pub fn rdev(&self) -> Option<DeviceNumber> {
        let kind = self.file_type();
        let is_device = kind.is_char_device() || kind.is_block_device();
        is_device.then(|| DeviceNumber::unpack(self.0.rdev))
    }
    /// Allocated space, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }
    /// Inode flags, as `FS_IOC_GETFLAGS` returns them (immutable, append-only, …).
    pub fn flags(&self) -> u32 {
        self.0.flags
    }
    /// All attributes, in the form that the `ext4` crate uses.
    pub fn attr(&self) -> &Attr {
        &self.0
    }
}

/// Times to set, as [`std::fs::FileTimes`]. Other times do not change.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// No times.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }
    /// Sets the time of the last access.
    #[must_use]
    pub fn set_accessed(mut self, t: SystemTime) -> FileTimes {
        self.accessed = Some(t);
        self
    }
    /// Sets the time of the last change of the contents.
    #[must_use]
    pub fn set_modified(mut self, t: SystemTime) -> FileTimes {
        self.modified = Some(t);
        self
    }
}

/// Attributes to set in one step (one journal handle). Other attributes do not change.
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
    /// No attributes.
    pub fn new() -> SetAttributes {
        SetAttributes::default()
    }
    /// Sets the permission bits, set-user-id, set-group-id and sticky.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> SetAttributes {
        self.0.mode = Some((mode & 0o7777) as u16);
        self
    }
    /// Sets user and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> SetAttributes {
        self.0.uid = Some(uid);
        self.0.gid = Some(gid);
        self
    }
    /// Sets access and modification times.
    #[must_use]
    pub fn times(mut self, times: FileTimes) -> SetAttributes {
        self.0.atime = times.accessed.map(|t| SetTime::At(from_system(t)));
        self.0.mtime = times.modified.map(|t| SetTime::At(from_system(t)));
        self
    }
    /// Sets the access time, in seconds and nanoseconds since the epoch.
    #[must_use]
    pub fn accessed_at(mut self, secs: i64, nanos: u32) -> SetAttributes {
        self.0.atime = Some(SetTime::At(Timestamp { secs, nanos }));
        self
    }
    /// Sets the modification time, in seconds and nanoseconds since the epoch.
    #[must_use]
    pub fn modified_at(mut self, secs: i64, nanos: u32) -> SetAttributes {
        self.0.mtime = Some(SetTime::At(Timestamp { secs, nanos }));
        self
    }
    /// Sets the creation time, in seconds and nanoseconds since the epoch.
    #[must_use]
    pub fn created_at(mut self, secs: i64, nanos: u32) -> SetAttributes {
        self.0.crtime = Some(Timestamp { secs, nanos });
        self
    }
    /// Sets the size of a regular file, in bytes. Added bytes read as zeroes.
    #[must_use]
    pub fn len(mut self, len: u64) -> SetAttributes {
        self.0.size = Some(len);
        self
    }
    /// Sets the inode flags, as `FS_IOC_SETFLAGS` does.
    #[must_use]
    pub fn flags(mut self, flags: u32) -> SetAttributes {
        self.0.flags = Some(flags);
        self
    }
}

/// Converts an ext4 timestamp.
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
    fn times_survive_conversion_in_both_directions() {
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

    #[test]
    fn device_numbers_are_packed_as_linux_does() {
        let null = DeviceNumber { major: 1, minor: 3 };
        assert_eq!(null.pack(), Some(0x0103));
        let disk = DeviceNumber {
            major: 259,
            minor: 0x12345,
        };
        assert_eq!(disk.pack(), Some(0x1231_0345));
        assert_eq!(DeviceNumber::unpack(0x1231_0345), disk);
        let too_large = DeviceNumber {
            major: 0x1000,
            minor: 0,
        };
        assert_eq!(too_large.pack(), None);
    }
}
