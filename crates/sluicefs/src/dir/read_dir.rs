//! Entries of a directory, read in batches.

use super::Dir;
use crate::metadata::{FileType, Metadata};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries fetched in one step: few enough to hold no directory lock for long.
const BATCH: usize = 512;

/// The entries of a directory without `.` and `..`, in the order of the directory. What is added or
/// removed meanwhile may or may not show; everything else shows exactly once.
pub struct ReadDir {
    dir: Dir,
    next: u64,
    batch: VecDeque<Found>,
    done: bool,
}

/// What the directory says of an entry.
struct Found {
    name: OsString,
    ino: u32,
    kind: ext4::FileType,
}

/// An entry of a directory.
pub struct DirEntry {
    dir: Dir,
    found: Found,
}

impl Dir {
    /// The entries of a directory. This one's own are at `"."`.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`; the iterator's items carry what reading meets.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = path.as_ref();
        let dir = if path.as_os_str() == "." {
            self.clone()
        } else {
            self.open_dir(path)?
        };
        Ok(ReadDir {
            dir,
            next: 0,
            batch: VecDeque::new(),
            done: false,
        })
    }
}

impl ReadDir {
    /// The directory that is read.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    fn fetch(&mut self) -> io::Result<()> {
        let (batch, next) = (&mut self.batch, &mut self.next);
        let mut full = false;
        let read = self
            .dir
            .fs()
            .read_dir(&self.dir.inode, *next, &mut |entry| {
                *next = entry.next;
                if entry.name != b"." && entry.name != b".." {
                    batch.push_back(Found {
                        name: OsStr::from_bytes(entry.name).to_owned(),
                        ino: entry.ino,
                        kind: entry.kind,
                    });
                }
                full = batch.len() >= BATCH;
                !full
            });
        self.done = !full;
        self.dir
            .ctx("read directory", Path::new(""), read.map_err(Into::into))
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if self.batch.is_empty()
            && !self.done
            && let Err(e) = self.fetch()
        {
            self.done = true;
            self.batch.clear();
            return Some(Err(e));
        }
        let found = self.batch.pop_front()?;
        let dir = self.dir.clone();
        Some(Ok(DirEntry { dir, found }))
    }
}

impl DirEntry {
    /// Its name.
    pub fn file_name(&self) -> &OsStr {
        &self.found.name
    }
    /// Its name, to keep.
    pub fn into_file_name(self) -> OsString {
        self.found.name
    }
    /// The directory's path and its name.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.found.name)
    }
    /// Inode number.
    pub fn ino(&self) -> u64 {
        u64::from(self.found.ino)
    }
    /// Its type.
    pub fn file_type(&self) -> FileType {
        FileType(self.found.kind)
    }
    /// What lstat tells.
    ///
    /// # Errors
    /// `NotFound` if it is gone, and as lstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.dir.symlink_metadata(&self.found.name)
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
