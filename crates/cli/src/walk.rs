//! The files below a directory, in the order of their paths, with their attributes.
//!
//! Names come from the directories. For the whole volume the attributes come from
//! [`Volume::inodes`], which reads the inode tables once and in large requests; below another
//! directory they are read one by one.

use sluicefs::{Dir, FileType, Metadata, Volume};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The attributes that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// None but the type and the inode number, which directories have.
    Names,
    /// All.
    Attributes,
}

/// The file that is visited after a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The files in it.
    Below,
    /// The file after it.
    Skip,
}

/// A file.
pub struct Found<'a> {
    walk: &'a Walk,
    /// The directory that has the name; `None` for the start.
    dir: Option<&'a Dir>,
    start: &'a Path,
    /// The path on the volume.
    pub path: &'a Path,
    /// The number of directories between the start and this file, and one; 0 for the start.
    pub depth: usize,
    pub kind: FileType,
    pub ino: u64,
}

/// A walk of a volume.
pub struct Walk {
    volume: Volume,
    /// By inode number, if the volume was scanned.
    attributes: Vec<Metadata>,
}

/// A directory whose entries are being visited.
struct Open {
    dir: Dir,
    ino: u64,
    /// In descending order of names.
    entries: Vec<(OsString, u64, FileType)>,
}

impl Walk {
    /// Prepares a walk from `start`.
    pub fn new(volume: Volume, start: &Path, needs: Needs) -> Walk {
        let attributes = match needs == Needs::Attributes && start == Path::new("/") {
            true => scan(&volume),
            false => Vec::new(),
        };
        Walk { volume, attributes }
    }

    /// Visits `start` and everything below it. A directory is visited before its entries, which are
    /// sorted by the bytes of their names. Symbolic links are not followed. Errors of directories
    /// go to `failed`, and the walk continues.
    ///
    /// # Errors
    /// Those of `start`, and those of `visit`, which end the walk.
    pub fn run(
        &self,
        start: &Path,
        failed: &mut dyn FnMut(io::Error),
        visit: &mut dyn FnMut(&Found<'_>) -> io::Result<Next>,
    ) -> io::Result<()> {
        let meta = self.volume.symlink_metadata(start)?;
        let next = visit(&Found {
            walk: self,
            dir: None,
            start,
            path: start,
            depth: 0,
            kind: meta.file_type(),
            ino: meta.ino(),
        })?;
        let mut open: Vec<Open> = Vec::new();
        if meta.is_dir() && next == Next::Below {
            open.push(read(self.volume.open_dir(start)?, meta.ino(), failed));
        }
        let mut path = start.to_path_buf();
        loop {
            let depth = open.len();
            let Some(last) = open.last_mut() else {
                return Ok(());
            };
            let Some((name, ino, kind)) = last.entries.pop() else {
                open.pop();
                if !open.is_empty() {
                    path.pop();
                }
                continue;
            };
            path.push(&name);
            let next = visit(&Found {
                walk: self,
                dir: Some(&last.dir),
                start,
                path: &path,
                depth,
                kind,
                ino,
            })?;
            if kind.is_dir() && next == Next::Below {
                match self.enter(&open, &name, ino, &path) {
                    Ok(dir) => {
                        open.push(read(dir, ino, failed));
                        continue;
                    }
                    Err(error) => failed(error),
                }
            }
            path.pop();
        }
    }

    /// Opens a directory in the last of `open`.
    fn enter(&self, open: &[Open], name: &OsStr, ino: u64, path: &Path) -> io::Result<Dir> {
        if open.iter().any(|above| above.ino == ino) {
            let path = path.display();
            return Err(io::Error::other(format!(
                "{path}: the directory contains itself; run e2fsck"
            )));
        }
        match open.last() {
            Some(above) => above.dir.open_dir(name),
            None => self.volume.open_dir(path),
        }
    }
}

impl Found<'_> {
    /// The name; that of the start is the last part of its path.
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(OsStr::new("/"))
    }

    /// The path below the start.
    pub fn below_start(&self) -> &Path {
        self.path.strip_prefix(self.start).unwrap_or(self.path)
    }

    /// The attributes, as of lstat(2).
    ///
    /// # Errors
    /// Damage and errors of the device.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let all = &self.walk.attributes;
        if let Ok(at) = all.binary_search_by_key(&self.ino, Metadata::ino) {
            return Ok(all[at].clone());
        }
        match self.dir {
            Some(dir) => dir.symlink_metadata(self.name()),
            None => self.walk.volume.symlink_metadata(self.path),
        }
    }

    /// The target of a symbolic link; `None` for another type.
    ///
    /// # Errors
    /// Damage and errors of the device.
    pub fn link_target(&self) -> io::Result<Option<PathBuf>> {
        match self.kind.is_symlink() {
            true => self.walk.volume.read_link(self.path).map(Some),
            false => Ok(None),
        }
    }
}

/// The attributes of all inodes, sorted by number. Those that cannot be read are missing; a visit
/// of a file with such an inode reads it again and gets the error.
fn scan(volume: &Volume) -> Vec<Metadata> {
    let all = Mutex::new(Vec::new());
    volume.inodes(|found| {
        if let Ok(meta) = found {
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(meta);
        }
        ControlFlow::Continue(())
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_unstable_by_key(Metadata::ino);
    all
}

/// Reads the entries of a directory. After an error those before it are kept.
fn read(dir: Dir, ino: u64, failed: &mut dyn FnMut(io::Error)) -> Open {
    let mut entries = Vec::new();
    match dir.read_dir(".") {
        Ok(found) => {
            for entry in found {
                match entry {
                    Ok(entry) => {
                        let (ino, kind) = (entry.ino(), entry.file_type());
                        entries.push((entry.into_file_name(), ino, kind));
                    }
                    Err(error) => failed(error),
                }
            }
        }
        Err(error) => failed(error),
    }
    entries.sort_unstable_by(|a, b| b.0.cmp(&a.0));
    Open { dir, ino, entries }
}
