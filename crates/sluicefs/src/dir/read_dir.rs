//! The entries of a directory, read in batches.

use super::handle::Dir;
use crate::metadata::{FileType, Metadata};
use ext4::NamesVersion;
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
    /// The position after the batch.
    next: u64,
    batch: Arc<Batch>,
    /// Entries of the batch that were returned.
    returned: usize,
    done: bool,
}

/// Entries that were read together.
struct Batch {
    dir: Dir,
    /// The version of the directory before they were read.
    version: NamesVersion,
    /// Their names, one after another.
    names: Vec<u8>,
    entries: Vec<Found>,
    /// Whether somebody has asked for the metadata of one of them.
    announced: AtomicBool,
}

/// An entry as it is stored in the directory.
struct Found {
    /// The end of its name; that of the entry before is the start.
    end: u32,
    ino: Ino,
    kind: ext4::FileType,
}

/// An entry of a directory.
pub struct DirEntry {
    batch: Arc<Batch>,
    at: usize,
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
            batch: Arc::new(Batch::new(&dir)),
            dir,
            next: 0,
            returned: 0,
            done: false,
        })
    }
}

impl Batch {
    fn new(dir: &Dir) -> Batch {
        Batch {
            version: dir.inode().names_version(),
            dir: dir.clone(),
            names: Vec::new(),
            entries: Vec::new(),
            announced: AtomicBool::new(false),
        }
    }
    fn name(&self, at: usize) -> &[u8] {
        let start = match at.checked_sub(1) {
            None => 0,
            Some(before) => self.entries[before].end,
        };
        &self.names[start as usize..self.entries[at].end as usize]
    }
    /// Starts to read the inodes of all entries, once.
    fn read_ahead(&self) {
        if !self.announced.swap(true, Ordering::Relaxed) {
            let inodes = self.entries.iter().map(|found| found.ino);
            self.dir.fs().read_inodes_ahead(inodes);
        }
    }
}

impl ReadDir {
    /// The directory that contains the entries.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    fn fetch(&mut self) -> io::Result<()> {
        let mut batch = Batch::new(&self.dir);
        let (names, entries, next) = (&mut batch.names, &mut batch.entries, &mut self.next);
        let mut full = false;
        let read = self
            .dir
            .fs()
            .read_dir(self.dir.inode(), *next, &mut |entry| {
                *next = entry.next;
                if entry.name != b"." && entry.name != b".." {
                    names.extend_from_slice(entry.name);
                    entries.push(Found {
                        end: names.len() as u32,
                        ino: entry.ino,
                        kind: entry.kind,
                    });
                }
                full = entries.len() >= BATCH;
                !full
            });
        self.dir.fs().note_access(self.dir.inode());
        self.done = !full;
        self.batch = Arc::new(batch);
        self.returned = 0;
        self.dir
            .ctx("read directory", Path::new(""), read.map_err(Into::into))
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if self.returned == self.batch.entries.len()
            && !self.done
            && let Err(e) = self.fetch()
        {
            self.done = true;
            self.returned = self.batch.entries.len();
            return Some(Err(e));
        }
        let at = self.returned;
        self.batch.entries.get(at)?;
        self.returned += 1;
        Some(Ok(DirEntry {
            batch: self.batch.clone(),
            at,
        }))
    }
}

impl DirEntry {
    fn found(&self) -> &Found {
        &self.batch.entries[self.at]
    }
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(self.batch.name(self.at))
    }
    /// The name, as an owned string.
    pub fn into_file_name(self) -> OsString {
        self.file_name().to_owned()
    }
    /// The path: that of the directory, and the name.
    pub fn path(&self) -> PathBuf {
        self.batch.dir.path().join(self.file_name())
    }
    /// Inode number.
    pub fn ino(&self) -> u64 {
        u64::from(self.found().ino)
    }
    /// The type.
    pub fn file_type(&self) -> FileType {
        FileType(self.found().kind)
    }
    /// Metadata, as lstat(2) returns it. The first call for entries that were read together starts
    /// to read the inodes of all of them. No inode and no name enters a cache for it.
    ///
    /// # Errors
    /// `NotFound` if the entry was removed, and as lstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        let Batch { dir, version, .. } = &*self.batch;
        self.batch.read_ahead();
        match dir.fs().entry_attr(dir.inode(), *version, self.found().ino) {
            Some(attr) => Ok(Metadata(attr)),
            None => dir.symlink_metadata(self.file_name()),
        }
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
