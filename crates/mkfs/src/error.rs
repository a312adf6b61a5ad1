//! Errors of formatting, each with the `errno` that a system call would give.

use block::IoError;
use ext4_format::error::FormatError;

/// Result of formatting.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a volume was not made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A feature or block size that this crate does not make.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The device that was named as the journal cannot be the journal of this volume.
    #[error("journal device {name}: {why}")]
    Journal {
        /// The device.
        name: String,
        /// The reason.
        why: String,
    },
    /// The options do not fit each other or the device.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The new volume's own numbers contradict each other, which is a bug.
    #[error("internal error in the layout of the new volume: {0}; please report it")]
    Internal(FormatError),
}

impl Error {
    /// Returns the system's error number.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Error::Io(e) if e.errno != 0 => return e.errno,
            Error::Io(_) | Error::Internal(_) => Errno::IO,
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            Error::Invalid(_) | Error::Journal { .. } => Errno::INVAL,
        }
        .raw_os_error()
    }
}

/// Not `#[from]`: the message contains the cause, so it is not a `source` as well.
impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        Error::Internal(e)
    }
}
