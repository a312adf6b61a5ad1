//! Errors: the operation, the path and the cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// An error of the file system: I/O errors, damage, unsupported features and POSIX errors.
    #[error(transparent)]
    Fs(#[from] ext4::Error),
    /// Formatting failed.
    #[error(transparent)]
    Format(#[from] mkfs::Error),
    /// More than 40 symbolic links had to be followed.
    #[error("too many levels of symbolic links")]
    LinkLoop,
    /// The access mode of the file does not allow the operation.
    #[error("the file was not opened for {0}")]
    NotOpenFor(&'static str),
    /// The object is in use, or it is the root of the volume.
    #[error("{0}")]
    Busy(&'static str),
    /// An invalid argument.
    #[error("{0}")]
    Invalid(&'static str),
}

impl Cause {
    /// The system's error number.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Cause::Fs(e) => return e.errno(),
            Cause::Format(e) => return e.errno(),
            Cause::LinkLoop => Errno::LOOP,
            Cause::NotOpenFor(_) => Errno::BADF,
            Cause::Busy(_) => Errno::BUSY,
            Cause::Invalid(_) => Errno::INVAL,
        }
        .raw_os_error()
    }

    /// Adds the operation and the path.
    pub(crate) fn at(self, op: &'static str, path: impl Into<PathBuf>) -> io::Error {
        Error {
            op,
            path: path.into(),
            cause: self,
        }
        .into()
    }
}

/// A failed operation. Shown as `cannot create /a/b: no space left on the volume`.
#[derive(Clone, Debug)]
pub struct Error {
    op: &'static str,
    path: PathBuf,
    cause: Cause,
}

impl Error {
    /// The operation, as a verb ("create", "read").
    pub fn op(&self) -> &'static str {
        self.op
    }
    /// The path on the volume, or the device if the operation is on the whole volume.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The reason.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }
    /// The system's error number.
    pub fn errno(&self) -> i32 {
        self.cause.errno()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot {} {}: {}",
            self.op,
            self.path.display(),
            self.cause
        )
    }
}

impl std::error::Error for Error {
    /// The source of the cause. The message contains the cause itself.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(e.errno()).kind(), e)
    }
}

/// The system's error number of an error that this library or the system returned; `EIO` if it has
/// none.
pub fn errno(error: &io::Error) -> i32 {
    let payload = error.get_ref();
    let ours = payload.and_then(|p| p.downcast_ref::<Error>());
    let of_ext4 = payload.and_then(|p| p.downcast_ref::<ext4::Error>());
    ours.map(Error::errno)
        .or_else(|| of_ext4.map(ext4::Error::errno))
        .or_else(|| error.raw_os_error())
        .unwrap_or(rustix::io::Errno::IO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_operation_the_path_and_the_error_number() {
        let e = Cause::Fs(ext4::Error::NotFound).at("open", "/a/b");
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert_eq!(e.to_string(), "cannot open /a/b: no such file or directory");
        assert_eq!(errno(&e), 2);
        assert_eq!(errno(&Cause::LinkLoop.at("open", "/a")), 40);
        assert_eq!(errno(&io::Error::from_raw_os_error(28)), 28);
        assert_eq!(errno(&io::Error::other("x")), 5);
    }
}
