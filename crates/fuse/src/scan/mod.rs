//! Names and attributes of all files of a mounted volume, for its owner and root.
//!
//! A client asks by extended attributes of any directory of the mount, whose names are requests and
//! whose values are answers. They are not listed, and nothing is stored:
//!
//! | attribute | answer |
//! |---|---|
//! | `user.sluicefs.scan.inodes.FIRST` | inodes in use from number FIRST on |
//! | `user.sluicefs.scan.names.INO.POSITION` | entries of a directory from a position on |
//! | `user.sluicefs.scan.files.INO.POSITION` | the same, each with its attributes |
//! | `user.sluicefs.scan.inode.INO` | one inode |
//! | `user.sluicefs.scan.target.INO` | the target of a symbolic link |
//!
//! The first three have many answers. Each says where the next one begins. So the server keeps
//! nothing between two requests, and a client that ends leaves nothing behind. An answer has at
//! most [`ANSWER_BYTES`]. Permissions of files do not apply: who may ask may read the device, too.
//!
//! An answer to one of the first three begins with [`VERSION`] (4 bytes) and the start of the next
//! answer (8 bytes; [`END`]: there is none). Then come records, without padding, in the byte order
//! of the machine: both sides run on it.

mod wire;

pub use wire::{Answer, Entry, Record, WireError};
pub(crate) use wire::{Writer, inode_answer};

/// The largest answer, in bytes: Linux's limit for the value of an extended attribute.
pub const ANSWER_BYTES: usize = 64 << 10;
/// The version of the form of answers.
pub const VERSION: u32 = 1;
/// The next start in the last answer.
pub const END: u64 = u64::MAX;

const PREFIX: &str = "user.sluicefs.scan.";

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Inodes in use from this number on.
    Inodes {
        /// The first number; 1 at first.
        first: u32,
    },
    /// Entries of a directory.
    Names {
        /// The directory.
        dir: u32,
        /// The position; 0 at first.
        position: u64,
    },
    /// Entries of a directory with attributes.
    Files {
        /// The directory.
        dir: u32,
        /// The position; 0 at first.
        position: u64,
    },
    /// One inode.
    Inode {
        /// Its number.
        ino: u32,
    },
    /// The target of a symbolic link.
    Target {
        /// Its inode.
        ino: u32,
    },
}

impl Request {
    /// Returns the name of the extended attribute.
    pub fn name(&self) -> String {
        match self {
            Request::Inodes { first } => format!("{PREFIX}inodes.{first}"),
            Request::Names { dir, position } => format!("{PREFIX}names.{dir}.{position}"),
            Request::Files { dir, position } => format!("{PREFIX}files.{dir}.{position}"),
            Request::Inode { ino } => format!("{PREFIX}inode.{ino}"),
            Request::Target { ino } => format!("{PREFIX}target.{ino}"),
        }
    }

    /// Returns the request with this name; `None` for another attribute.
    pub fn of_name(name: &[u8]) -> Option<Request> {
        let rest = str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
        let (kind, numbers) = rest.split_once('.')?;
        let one = || numbers.parse().ok();
        let two = || {
            let (dir, position) = numbers.split_once('.')?;
            Some((dir.parse().ok()?, position.parse().ok()?))
        };
        Some(match kind {
            "inodes" => Request::Inodes { first: one()? },
            "names" => two().map(|(dir, position)| Request::Names { dir, position })?,
            "files" => two().map(|(dir, position)| Request::Files { dir, position })?,
            "inode" => Request::Inode { ino: one()? },
            "target" => Request::Target { ino: one()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_name() {
        let (dir, position) = (12, 1 << 40);
        for request in [
            Request::Inodes { first: 1 },
            Request::Names { dir, position },
            Request::Files { dir, position },
            Request::Inode { ino: u32::MAX },
            Request::Target { ino: 7 },
        ] {
            assert_eq!(Request::of_name(request.name().as_bytes()), Some(request));
        }
        for other in [
            "user.sluicefs.stats",
            "user.sluicefs.scan.",
            "user.sluicefs.scan.inode.x",
        ] {
            assert_eq!(Request::of_name(other.as_bytes()), None);
        }
        assert_eq!(Request::of_name(b"user.sluicefs.scan.names.5"), None);
        assert_eq!(
            Request::of_name(b"user.sluicefs.scan.inode.4294967296"),
            None
        );
    }
}
