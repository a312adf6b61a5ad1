//! Errors of the file system, each with the `errno` that a system call would give.

mod inode_damage;

pub use inode_damage::InodeDamage;

use block::IoError;
use ext4_format::error::FormatError;
use ext4_format::journal_device::{ExternalJournal, JournalDeviceError};
use jbd2::JournalError;
use std::io;
use units::{FsBlock, Ino};

/// Result of an operation of the file system.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A structure on the volume is damaged; the error names it and its place.
    #[error("{0}; run e2fsck")]
    Corrupt(FormatError),
    /// A structure on the volume is damaged in a way that shows only beside others.
    #[error("inode {ino}: {damage}; run e2fsck")]
    CorruptInode {
        /// The inode.
        ino: Ino,
        /// The block on the volume that is damaged, or to which the damage refers; `None` if it is
        /// not known, or is the inode's own.
        block: Option<FsBlock>,
        /// The damage and its place.
        damage: InodeDamage,
    },
    /// A block of a directory is damaged.
    #[error("inode {ino}: directory block {block}: {error}; run e2fsck")]
    CorruptDirectory {
        /// The directory's inode.
        ino: Ino,
        /// The block on the volume.
        block: FsBlock,
        /// The damage of the block.
        error: FormatError,
    },
    /// An inode number of which the inode has been deleted, or never was.
    #[error("the file has been deleted (stale handle)")]
    Stale,
    /// The journal failed or is damaged.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The volume's journal is on a device of its own, which is needed and was not given.
    #[error(
        "its journal is on a device of its own, with UUID {}; name that device by -o journal=PATH \
         (mount) or --journal PATH",
        .0.uuid
    )]
    NoJournalDevice(ExternalJournal),
    /// The device that was given does not have the volume's journal.
    #[error("{device} is not the journal of this volume: {error}")]
    WrongJournalDevice {
        /// The device's name.
        device: String,
        /// The difference.
        error: JournalDeviceError,
    },
    /// A feature in the volume's superblock is not supported.
    #[error("{0}")]
    UnsupportedFeature(FormatError),
    /// A property of the volume is not supported.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// Another node, or e2fsck, uses the volume.
    #[error("{0}")]
    InUse(String),
    /// The contents or names are encrypted, and the key is not known here.
    #[error("inode {ino} is encrypted (fscrypt); mount the volume with the kernel and add its key")]
    Encrypted {
        /// The inode.
        ino: Ino,
    },
    /// A name cannot be added to a directory that ignores case.
    #[error(
        "directory {ino} ignores case (casefold); names cannot be added to it yet, only removed"
    )]
    IgnoresCase {
        /// The directory.
        ino: Ino,
    },
    /// The contents of a file with a hash tree cannot change.
    #[error("inode {ino} is protected by fs-verity: its contents cannot be changed")]
    Verity {
        /// The inode.
        ino: Ino,
    },
    /// No blocks, or no inodes, are left.
    #[error("no space left on the volume")]
    NoSpace,
    /// No such entry.
    #[error("no such file or directory")]
    NotFound,
    /// The entry exists already.
    #[error("the entry exists already")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// Something other than a directory was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name has more than 255 bytes.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// An inode has as many links as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The volume is read-only, by the mount options or after an error.
    #[error("the volume is read-only")]
    ReadOnly,
    /// An argument makes no sense.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The immutable or append-only flag forbids it.
    #[error("operation not permitted (immutable or append-only)")]
    NotPermitted,
    /// A file cannot be that large.
    #[error("file too large")]
    FileTooLarge,
    /// No such extended attribute.
    #[error("no such extended attribute")]
    NoAttribute,
    /// An attribute or a symbolic link's target is too large.
    #[error("value too large")]
    ValueTooLarge,
    /// No data or hole beyond the offset.
    #[error("offset beyond the end of the file")]
    NoData,
    /// Not possible on this type of file.
    #[error("operation not supported on this type of file")]
    NotSupported,
    /// The program contradicts itself: a bug, neither damage nor a wrong argument.
    #[error("internal error: {0}; please report this bug")]
    Internal(&'static str),
}

impl Error {
    /// A deleted inode that a structure on the volume refers to is damage, not a stale handle.
    pub(crate) fn stale_is_damage(self, ino: Ino, damage: InodeDamage) -> Error {
        match self {
            Error::Stale => damage.of(ino),
            other => other,
        }
    }

    /// The error number (`errno`).
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Error::Io(e) if e.errno != 0 => return e.errno,
            Error::Journal(JournalError::LogNeedsMemory { .. }) => Errno::NOMEM,
            // EIO for a bug: e2fsck cannot help, so it is not EFSCORRUPTED. A panic in a request
            // is answered with EIO, too.
            Error::Io(_) | Error::Journal(_) | Error::Internal(_) => Errno::IO,
            // The kernel's EFSCORRUPTED.
            Error::Corrupt(_) | Error::CorruptInode { .. } | Error::CorruptDirectory { .. } => {
                Errno::UCLEAN
            }
            Error::Unsupported(_)
            | Error::UnsupportedFeature(_)
            | Error::NotSupported
            | Error::IgnoresCase { .. } => Errno::OPNOTSUPP,
            Error::InUse(_) => Errno::BUSY,
            Error::Encrypted { .. } => Errno::NOKEY,
            Error::Stale => Errno::STALE,
            Error::NoSpace => Errno::NOSPC,
            Error::NotFound => Errno::NOENT,
            Error::Exists => Errno::EXIST,
            Error::NotDirectory => Errno::NOTDIR,
            Error::IsDirectory => Errno::ISDIR,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::TooManyLinks => Errno::MLINK,
            Error::ReadOnly => Errno::ROFS,
            Error::Invalid(_) | Error::NoJournalDevice(_) | Error::WrongJournalDevice { .. } => {
                Errno::INVAL
            }
            Error::NotPermitted | Error::Verity { .. } => Errno::PERM,
            Error::FileTooLarge => Errno::FBIG,
            Error::NoAttribute => Errno::NODATA,
            Error::ValueTooLarge => Errno::TOOBIG,
            Error::NoData => Errno::NXIO,
        }
        .raw_os_error()
    }
}

/// Not `#[from]`: the message contains the cause, so the cause is not its source as well.
impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        if e.is_unsupported_feature() {
            return Error::UnsupportedFeature(e);
        }
        Error::Corrupt(e)
    }
}

/// Keeps the `errno` as the kind and the message as the payload.
impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        let kind = io::Error::from_raw_os_error(e.errno()).kind();
        io::Error::new(kind, e)
    }
}
