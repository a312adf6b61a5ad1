//! The entries of a directory, read in batches.

use super::handle::Dir;
use crate::metadata::{FileType, Metadata};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::Ino;

/// Entries in a batch. The directory is locked while a batch is read.
const BATCH: usize = 512;

/// Iterator over the entries of a directory without `.` and `..`, in the order of the directory.
/// Entries that are added or removed meanwhile may or may not be returned. Each other entry is
/// returned exactly once.
pub struct ReadDir {
    dir: Dir,
    next: u64,
    batch: VecDeque<Found>,
    inodes: Arc<Inodes>,
    done: bool,
}

/// The inodes of a batch. They are read ahead together when the metadata of one of them is read.
#[derive(Default)]
struct Inodes {
    all: Vec<Ino>,
    read_ahead: AtomicBool,
}

/// An entry as it is stored in the directory.
struct Found {
    name: OsString,
    ino: Ino,
    kind: ext4::FileType,
}

/// An entry of a directory.
pub struct DirEntry {
    dir: Dir,
    found: Found,
    inodes: Arc<Inodes>,
}

impl Dir {
    /// The entries of a directory. `"."` is this directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`. The iterator returns errors of reading.
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
            inodes: Arc::default(),
            done: false,
        })
    }
}

impl ReadDir {
    /// The directory that contains the entries.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    fn fetch(&mut self) -> io::Result<()> {
        let (batch, next) = (&mut self.batch, &mut self.next);
        let mut full = false;
        let read = self
            .dir
            .fs()
            .read_dir(self.dir.inode(), *next, &mut |entry| {
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
        self.inodes = Arc::new(Inodes {
            all: self.batch.iter().map(|found| found.ino).collect(),
            read_ahead: AtomicBool::new(false),
        });
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
        Some(Ok(DirEntry {
            dir: self.dir.clone(),
            found,
            inodes: self.inodes.clone(),
        }))
    }
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.found.name
    }
    /// The name, as an owned string.
    pub fn into_file_name(self) -> OsString {
        self.found.name
    }
    /// The path: that of the directory, and the name.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.found.name)
    }
    /// Inode number.
    pub fn ino(&self) -> u64 {
        u64::from(self.found.ino)
    }
    /// The type.
    pub fn file_type(&self) -> FileType {
        FileType(self.found.kind)
    }
    /// Metadata, as lstat(2) returns it. The first call for entries that were read together starts
    /// to read the inodes of all of them.
    ///
    /// # Errors
    /// `NotFound` if the entry was removed, and as lstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        if !self.inodes.read_ahead.swap(true, Ordering::Relaxed) {
            let inos = self.inodes.all.iter().copied();
            self.dir.fs().read_inodes_ahead(inos);
        }
        self.dir.symlink_metadata(&self.found.name)
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
