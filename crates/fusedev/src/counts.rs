//! Numbers of requests by operation, for statistics.

use crate::abi::opcode;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operations that have a count of their own, and their names.
const NAMED: [(u32, &str); 33] = [
    (opcode::LOOKUP, "lookup"),
    (opcode::GETATTR, "getattr"),
    (opcode::STATX, "statx"),
    (opcode::SETATTR, "setattr"),
    (opcode::READLINK, "readlink"),
    (opcode::SYMLINK, "symlink"),
    (opcode::MKNOD, "mknod"),
    (opcode::MKDIR, "mkdir"),
    (opcode::UNLINK, "unlink"),
    (opcode::RMDIR, "rmdir"),
    (opcode::RENAME, "rename"),
    (opcode::RENAME2, "rename2"),
    (opcode::LINK, "link"),
    (opcode::CREATE, "create"),
    (opcode::TMPFILE, "tmpfile"),
    (opcode::OPEN, "open"),
    (opcode::RELEASE, "release"),
    (opcode::READ, "read"),
    (opcode::WRITE, "write"),
    (opcode::FSYNC, "fsync"),
    (opcode::FSYNCDIR, "fsyncdir"),
    (opcode::SYNCFS, "syncfs"),
    (opcode::FALLOCATE, "fallocate"),
    (opcode::LSEEK, "lseek"),
    (opcode::COPY_FILE_RANGE, "copy_file_range"),
    (opcode::READDIR, "readdir"),
    (opcode::READDIRPLUS, "readdirplus"),
    (opcode::GETXATTR, "getxattr"),
    (opcode::LISTXATTR, "listxattr"),
    (opcode::SETXATTR, "setxattr"),
    (opcode::REMOVEXATTR, "removexattr"),
    (opcode::STATFS, "statfs"),
    (opcode::IOCTL, "ioctl"),
];

/// The name of all other operations.
const OTHER: &str = "other";
/// Larger than every number in [`NAMED`].
const NUMBERS: usize = 64;

/// The place of each number's count.
const PLACES: [u8; NUMBERS] = {
    let mut places = [NAMED.len() as u8; NUMBERS];
    let mut at = 0;
    while at < NAMED.len() {
        places[NAMED[at].0 as usize] = at as u8;
        at += 1;
    }
    places
};

/// Numbers of requests by operation. Messages that no server answers (INIT, DESTROY, forgets) are
/// not counted.
#[derive(Debug)]
pub struct OperationCounts([AtomicU64; NAMED.len() + 1]);

impl Default for OperationCounts {
    fn default() -> OperationCounts {
        OperationCounts(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl OperationCounts {
    /// Counts a request with this [`crate::Request::opcode`].
    pub fn count(&self, opcode: u32) {
        let place = PLACES.get(opcode as usize).copied();
        let place = place.map_or(NAMED.len(), usize::from);
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the operations and their numbers of requests, in a fixed order.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = NAMED.iter().map(|(_, name)| *name).chain([OTHER]);
        names
            .zip(&self.0)
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_a_count_of_its_own() {
        let counts = OperationCounts::default();
        for (opcode, _) in NAMED {
            counts.count(opcode);
        }
        // FLUSH, and a number that no kernel sends yet.
        counts.count(25);
        counts.count(1000);
        let mut names: Vec<_> = counts.each().map(|(name, _)| name).collect();
        for (name, count) in counts.each() {
            assert_eq!(count, if name == OTHER { 2 } else { 1 }, "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMED.len() + 1);
    }
}
