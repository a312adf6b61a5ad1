//! Attributing damage to the operation and the inode that met it.

use crate::damage::is_damage;
use crate::{Error, Fs, Result};
use jbd2::JournalError;
use units::Ino;

impl Fs {
    /// Records damage that an operation on inode `ino` has met. Returns the error.
    #[track_caller]
    pub(crate) fn blame(&self, func: &'static str, ino: Ino, error: Error) -> Error {
        if is_damage(&error) {
            self.errors.note(func, Some(ino), &error);
        }
        error
    }

    /// [`Fs::blame`] for a result.
    #[track_caller]
    #[inline]
    pub(crate) fn witness<T>(&self, func: &'static str, ino: Ino, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.blame(func, ino, error)),
        }
    }

    /// Records that a change of several blocks ended half way. Blocks or inodes may be lost, so any
    /// cause counts as damage.
    #[track_caller]
    pub(crate) fn blame_half_done(&self, func: &'static str, ino: Ino, error: &Error) {
        let is_io = matches!(error, Error::Io(_) | Error::Journal(JournalError::Io(_)));
        if is_damage(error) || is_io {
            self.errors.note(func, Some(ino), error);
        }
    }
}
