//! Errors: what was attempted, on which path, and why it failed.
//!
//! Every function returns [`std::io::Error`], whose payload is an [`Error`]; [`errno`] gives the
//! system's number.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The file system says so; this covers I/O errors, damage, unsupported features and everything
    /// POSIX knows.
    #[error(transparent)]
    Fs(#[from] ext4::Error),
    /// More than 40 symbolic links had to be followed.
    #[error("too many levels of symbolic links")]
    LinkLoop,
    /// The file was not opened for this.
    #[error("the file was not opened for {0}")]
    NotOpenFor(&'static str),
    /// It is the root of the volume, or in use.
    #[error("{0}")]
    Busy(&'static str),
    /// The arguments make no sense.
    #[error("{0}")]
    Invalid(&'static str),
}

impl Cause {
    /// The system's number for it.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Cause::Fs(e) => return e.errno(),
            Cause::LinkLoop => Errno::LOOP,
            Cause::NotOpenFor(_) => Errno::BADF,
            Cause::Busy(_) => Errno::BUSY,
            Cause::Invalid(_) => Errno::INVAL,
        }
        .raw_os_error()
    }

    /// Adds what was attempted and on what.
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
    /// What was attempted, as a verb ("create", "read").
    pub fn op(&self) -> &'static str {
        self.op
    }
    /// The path within the volume (or the device, where the whole volume is meant).
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Why.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }
    /// The system's number for it.
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
    /// What lies beneath the cause, which the message has named already.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(e.errno()).kind(), e)
    }
}

/// The system's number for an error of this library or of the system; `EIO` where there is none.
pub fn errno(error: &io::Error) -> i32 {
    let payload = error.get_ref();
    let ours = payload.and_then(|p| p.downcast_ref::<Error>());
    let beneath = payload.and_then(|p| p.downcast_ref::<ext4::Error>());
    ours.map(Error::errno)
        .or_else(|| beneath.map(ext4::Error::errno))
        .or_else(|| error.raw_os_error())
        .unwrap_or(rustix::io::Errno::IO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_and_where_and_keeps_its_number() {
        let e = Cause::Fs(ext4::Error::NotFound).at("open", "/a/b");
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert_eq!(e.to_string(), "cannot open /a/b: no such file or directory");
        assert_eq!(errno(&e), 2);
        assert_eq!(errno(&Cause::LinkLoop.at("open", "/a")), 40);
        assert_eq!(errno(&io::Error::from_raw_os_error(28)), 28);
        assert_eq!(errno(&io::Error::other("x")), 5);
    }
}
