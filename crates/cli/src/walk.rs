//! The files below a directory, in the order of their paths, with their attributes.
//!
//! Names come from the directories. For the whole volume the attributes come from
//! [`Volume::inodes`], which reads the inode tables once and in large requests; below another
//! directory they are read with its entries. A mounted volume is asked for the same through its
//! mount.

use crate::mount_scan::{Mounted, WithAttributes};
use crate::target::{self, Target};
use sluicefs::{Dir, FileType, Metadata, Volume};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The inode of the root directory.
const ROOT: u64 = 2;

/// The place where files come from.
pub enum Files {
    /// A volume that this process has opened.
    Volume(Volume),
    /// A directory of a mounted volume.
    Mounted(Mounted),
}

impl Files {
    /// Opens a volume for reading, or a directory of a mounted one. Returns the path of the start,
    /// too.
    pub fn open(target: &Target) -> anyhow::Result<(Files, PathBuf)> {
        let dir = Path::new(&target.device);
        if target.path == Path::new("/") && dir.is_dir() {
            let mounted = Mounted::open(dir).map_err(|e| target::named(&target.device, e))?;
            return Ok((Files::Mounted(mounted), dir.to_owned()));
        }
        Ok((Files::Volume(target.open_read_only()?), target.path.clone()))
    }

    /// The time of the last change of a file's contents. The path is on the volume; for a mounted
    /// one it is any path.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn modified(&self, path: &Path) -> io::Result<SystemTime> {
        match self {
            Files::Volume(volume) => Ok(volume.metadata(path)?.modified()),
            Files::Mounted(_) => std::fs::metadata(path)?.modified(),
        }
    }

    /// The attributes of the start of a walk.
    ///
    /// # Errors
    /// Those of lstat(2).
    pub fn start(&self, path: &Path) -> io::Result<Metadata> {
        match self {
            Files::Volume(volume) => volume.symlink_metadata(path),
            Files::Mounted(mounted) => mounted.inode(mounted.start),
        }
    }

    /// The attributes that `keep` returns for the inodes in use, or for the errors of those that
    /// cannot be read, sorted by inode number.
    fn scan(
        &self,
        keep: impl Fn(io::Result<Metadata>) -> Option<Metadata> + Sync,
    ) -> io::Result<Vec<Metadata>> {
        let kept = Mutex::new(Vec::new());
        let visit = |found| {
            if let Some(meta) = keep(found) {
                lock(&kept).push(meta);
            }
        };
        match self {
            Files::Volume(volume) => volume.inodes(|found| {
                visit(found.map_err(|unreadable| unreadable.error));
                ControlFlow::Continue(())
            }),
            Files::Mounted(mounted) => mounted.inodes(&visit)?,
        }
        let mut kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        kept.sort_unstable_by_key(Metadata::ino);
        Ok(kept)
    }
}

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
    /// The directory that has the name; `None` for the start and for a mounted volume.
    dir: Option<&'a Dir>,
    known: Option<&'a Metadata>,
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
    files: Files,
    needs: Needs,
    /// By inode number, if the volume was scanned.
    attributes: Vec<Metadata>,
}

/// A directory whose entries are being visited.
struct Open {
    /// `None` for a mounted volume.
    dir: Option<Dir>,
    ino: u64,
    /// In descending order of names.
    entries: Vec<Entry>,
}

struct Entry {
    name: OsString,
    ino: u64,
    kind: FileType,
    known: Option<Box<Metadata>>,
}

impl Walk {
    /// Prepares a walk from `start`.
    ///
    /// # Errors
    /// Those of the mount of a mounted volume.
    pub fn new(files: Files, start: &Path, needs: Needs) -> io::Result<Walk> {
        let is_whole = match &files {
            Files::Volume(_) => start == Path::new("/"),
            Files::Mounted(mounted) => mounted.start == ROOT,
        };
        let attributes = match needs == Needs::Attributes && is_whole {
            // A visit of a file with an unreadable inode reads it again and gets the error.
            true => files.scan(Result::ok)?,
            false => Vec::new(),
        };
        Ok(Walk {
            files,
            needs,
            attributes,
        })
    }

    /// Prepares a walk that has only the attributes of inodes that pass `keep`. Also returns the
    /// errors of those that cannot be read.
    ///
    /// # Errors
    /// Those of the mount of a mounted volume.
    pub fn of_inodes(
        files: Files,
        keep: impl Fn(&Metadata) -> bool + Sync,
    ) -> io::Result<(Walk, Vec<io::Error>)> {
        let errors = Mutex::new(Vec::new());
        let attributes = files.scan(|found| match found {
            Ok(meta) => keep(&meta).then_some(meta),
            Err(error) => {
                lock(&errors).push(error);
                None
            }
        })?;
        let walk = Walk {
            files,
            needs: Needs::Names,
            attributes,
        };
        let errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((walk, errors))
    }

    /// Whether an inode passed the test of [`Walk::of_inodes`].
    pub fn has_inode(&self, ino: u64) -> bool {
        let all = &self.attributes;
        all.binary_search_by_key(&ino, Metadata::ino).is_ok()
    }

    /// Whether no inode passed it.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
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
        let meta = self.files.start(start)?;
        let next = visit(&Found {
            walk: self,
            dir: None,
            known: None,
            start,
            path: start,
            depth: 0,
            kind: meta.file_type(),
            ino: meta.ino(),
        })?;
        let mut open: Vec<Open> = Vec::new();
        if meta.is_dir() && next == Next::Below {
            let dir = match &self.files {
                Files::Volume(volume) => Some(volume.open_dir(start)?),
                Files::Mounted(_) => None,
            };
            open.push(self.read(dir, meta.ino(), failed));
        }
        let mut path = start.to_path_buf();
        loop {
            let depth = open.len();
            let Some(last) = open.last_mut() else {
                return Ok(());
            };
            let Some(entry) = last.entries.pop() else {
                open.pop();
                if !open.is_empty() {
                    path.pop();
                }
                continue;
            };
            let Entry {
                name, ino, kind, ..
            } = entry;
            path.push(&name);
            let next = visit(&Found {
                walk: self,
                dir: last.dir.as_ref(),
                known: entry.known.as_deref(),
                start,
                path: &path,
                depth,
                kind,
                ino,
            })?;
            if kind.is_dir() && next == Next::Below {
                match self.enter(&open, &name, ino, &path) {
                    Ok(dir) => {
                        open.push(self.read(dir, ino, failed));
                        continue;
                    }
                    Err(error) => failed(error),
                }
            }
            path.pop();
        }
    }

    /// Opens a directory in the last of `open`.
    fn enter(&self, open: &[Open], name: &OsStr, ino: u64, path: &Path) -> io::Result<Option<Dir>> {
        if open.iter().any(|above| above.ino == ino) {
            let path = path.display();
            return Err(io::Error::other(format!(
                "{path}: the directory contains itself; run e2fsck"
            )));
        }
        match (
            &self.files,
            open.last().and_then(|above| above.dir.as_ref()),
        ) {
            (Files::Mounted(_), _) => Ok(None),
            (Files::Volume(_), Some(above)) => above.open_dir(name).map(Some),
            (Files::Volume(volume), None) => volume.open_dir(path).map(Some),
        }
    }

    /// Reads the entries of a directory. After an error those before it are kept.
    fn read(&self, dir: Option<Dir>, ino: u64, failed: &mut dyn FnMut(io::Error)) -> Open {
        let mut entries = Vec::new();
        let done = match (&self.files, &dir) {
            (Files::Mounted(mounted), _) => {
                let with_attributes = match self.needs_inodes() {
                    true => WithAttributes::Yes,
                    false => WithAttributes::No,
                };
                mounted.read_dir(ino, with_attributes, &mut |entry| {
                    entries.push(Entry {
                        name: OsString::from_vec(entry.name),
                        ino: entry.ino.into(),
                        kind: entry.kind.into(),
                        known: entry.attr.map(|attr| Box::new(attr.into())),
                    });
                })
            }
            (Files::Volume(volume), Some(dir)) => {
                let done = entries_of(dir, &mut entries, failed);
                let needed = entries
                    .iter()
                    .filter(|entry| self.needs_inodes() || entry.kind.is_dir());
                volume.read_inodes_ahead(needed.map(|entry| entry.ino));
                done
            }
            (Files::Volume(_), None) => Ok(()),
        };
        if let Err(error) = done {
            failed(error);
        }
        entries.sort_unstable_by(|a, b| b.name.cmp(&a.name));
        Open { dir, ino, entries }
    }

    /// Whether attributes are needed that the scan has not read.
    fn needs_inodes(&self) -> bool {
        self.needs == Needs::Attributes && self.attributes.is_empty()
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
        if let Some(known) = self.known {
            return Ok(known.clone());
        }
        let all = &self.walk.attributes;
        if let Ok(at) = all.binary_search_by_key(&self.ino, Metadata::ino) {
            return Ok(all[at].clone());
        }
        match (&self.walk.files, self.dir) {
            (Files::Mounted(mounted), _) => mounted.inode(self.ino),
            (Files::Volume(_), Some(dir)) => dir.symlink_metadata(self.name()),
            (Files::Volume(volume), None) => volume.symlink_metadata(self.path),
        }
    }

    /// The target of a symbolic link; `None` for another type.
    ///
    /// # Errors
    /// Damage and errors of the device.
    pub fn link_target(&self) -> io::Result<Option<PathBuf>> {
        if !self.kind.is_symlink() {
            return Ok(None);
        }
        Some(match &self.walk.files {
            Files::Volume(volume) => volume.read_link(self.path),
            Files::Mounted(mounted) => mounted.read_link(self.ino),
        })
        .transpose()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the entries of a directory to `entries`.
fn entries_of(
    dir: &Dir,
    entries: &mut Vec<Entry>,
    failed: &mut dyn FnMut(io::Error),
) -> io::Result<()> {
    for entry in dir.read_dir(".")? {
        match entry {
            Ok(entry) => entries.push(Entry {
                ino: entry.ino(),
                kind: entry.file_type(),
                name: entry.into_file_name(),
                known: None,
            }),
            Err(error) => failed(error),
        }
    }
    Ok(())
}
