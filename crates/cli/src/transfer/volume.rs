//! Directories and files of a volume.

use super::endpoint::{
    Attributes, FileId, Kind, Listed, New, OpenedDir, SinkDir, SinkFile, SourceDir, SourceFile,
    Xattrs,
};
use crate::human::epoch;
use sluicefs::{Dir, File, Metadata, NewNode, OpenOptions, SetAttributes, SpecialFile};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

fn kind(meta: &Metadata) -> Kind {
    let kind = meta.file_type();
    match meta.rdev() {
        Some(number) if kind.is_char_device() => Kind::Special(SpecialFile::CharDevice(number)),
        Some(number) => Kind::Special(SpecialFile::BlockDevice(number)),
        None if kind.is_dir() => Kind::Dir,
        None if kind.is_symlink() => Kind::Symlink,
        None if kind.is_fifo() => Kind::Special(SpecialFile::Fifo),
        None if kind.is_socket() => Kind::Special(SpecialFile::Socket),
        None => Kind::File,
    }
}

fn attributes(meta: &Metadata) -> Attributes {
    Attributes {
        kind: kind(meta),
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        size: meta.len(),
        blocks: meta.blocks(),
        nlink: meta.nlink(),
        id: FileId {
            device: 0,
            inode: meta.ino(),
        },
        atime: epoch(meta.accessed()),
        mtime: epoch(meta.modified()),
        btime: Some(epoch(meta.created())),
    }
}

impl SourceDir for Dir {
    type File = File;

    fn open_dir(&self, name: &OsStr) -> io::Result<Dir> {
        if !self.symlink_metadata(name)?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Dir::open_dir(self, name)
    }

    fn own_attributes(&self) -> io::Result<Attributes> {
        Ok(attributes(&self.metadata(".")?))
    }

    fn own_xattrs(&self) -> io::Result<Xattrs> {
        let names = self.list_xattrs(".")?;
        values(names, |name| self.get_xattr(".", name))
    }

    fn entries(&self) -> io::Result<Vec<Listed>> {
        let mut entries = Vec::new();
        for entry in self.read_dir(".")? {
            let entry = entry?;
            let is_dir = entry.file_type().is_dir();
            // mkfs creates lost+found on every volume. An empty one is not copied.
            let lost_and_found = is_dir
                && self.path() == Path::new("/")
                && entry.file_name() == "lost+found"
                && self.read_dir("lost+found")?.next().is_none();
            if !lost_and_found {
                let name = entry.into_file_name();
                entries.push(Listed { name, is_dir });
            }
        }
        Ok(entries)
    }

    fn open_file(&self, name: &OsStr) -> io::Result<Option<(File, Attributes)>> {
        let meta = self.symlink_metadata(name)?;
        if !meta.is_file() {
            return Ok(None);
        }
        let file = OpenOptions::new()
            .read(true)
            .no_follow(true)
            .open(self, name)?;
        let like = attributes(&file.metadata()?);
        Ok(Some((file, like)))
    }

    fn attributes(&self, name: &OsStr) -> io::Result<Attributes> {
        Ok(attributes(&self.symlink_metadata(name)?))
    }

    fn xattrs(&self, name: &OsStr) -> io::Result<Xattrs> {
        let names = self.list_symlink_xattrs(name)?;
        values(names, |xattr| self.get_symlink_xattr(name, xattr))
    }

    fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        Dir::read_link(self, name)
    }
}

/// Adds the values to the names. An attribute that was removed meanwhile is skipped.
fn values(
    names: Vec<OsString>,
    get: impl Fn(&OsStr) -> io::Result<Option<Vec<u8>>>,
) -> io::Result<Xattrs> {
    let mut xattrs = Vec::with_capacity(names.len());
    for name in names {
        if let Some(value) = get(&name)? {
            xattrs.push((name, value));
        }
    }
    Ok(xattrs)
}

impl SourceFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, buf, offset)
    }
    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        File::seek_data(self, offset)
    }
    fn seek_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        File::seek_hole(self, offset)
    }
    fn xattrs(&self) -> io::Result<Xattrs> {
        values(self.list_xattrs()?, |name| self.get_xattr(name))
    }
}

/// Whether [`preserved`] sets the mode. A file is created with its mode, so that this is needed
/// only if writing or an ACL may have changed it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Set,
    Keep,
}

/// All attributes that are preserved, to be set in one step.
fn preserved(like: &Attributes, mode: Mode) -> SetAttributes {
    let mut set = SetAttributes::new()
        .accessed_at(like.atime.0, like.atime.1)
        .modified_at(like.mtime.0, like.mtime.1);
    if let Some((secs, nanos)) = like.btime {
        set = set.created_at(secs, nanos);
    }
    if mode == Mode::Set {
        set = set.mode(like.mode);
    }
    set
}

fn node(new: New) -> NewNode {
    let node = NewNode::new().mode(new.mode);
    match new.owner {
        Some((uid, gid)) => node.owner(uid, gid),
        None => node,
    }
}

/// Runs `create`. If the name exists and is not a directory, removes it and runs `create` again.
pub(super) fn replacing<T>(
    dir: &Dir,
    name: &OsStr,
    create: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    match create() {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            dir.remove_file(name)?;
            create()
        }
        other => other,
    }
}

impl SinkDir for Dir {
    type File = File;

    fn create_dir(&self, name: &OsStr, new: New) -> io::Result<OpenedDir<Dir>> {
        match self.create_dir_with(name, node(new)) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                if !self.symlink_metadata(name)?.is_dir() {
                    return Err(e);
                }
                let dir = Dir::open_dir(self, name)?;
                Ok(OpenedDir { dir, is_new: false })
            }
            created => Ok(OpenedDir {
                dir: created?,
                is_new: true,
            }),
        }
    }

    fn create_file(&self, name: &OsStr, new: New) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).no_follow(true);
        options.mode(new.mode).umask(0);
        if let Some((uid, gid)) = new.owner {
            options.owner(uid, gid);
        }
        match options.open(self, name) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            created => return created,
        }
        if self.symlink_metadata(name)?.is_file() {
            let mut existing = OpenOptions::new();
            existing.write(true).truncate(true).no_follow(true);
            let file = existing.open(self, name)?;
            if let Some((uid, gid)) = new.owner {
                file.set_attributes(&SetAttributes::new().owner(uid, gid).mode(new.mode))?;
            }
            return Ok(file);
        }
        self.remove_file(name)?;
        options.open(self, name)
    }

    fn symlink(&self, name: &OsStr, target: &Path, new: New) -> io::Result<()> {
        let new = match new.owner {
            Some((uid, gid)) => NewNode::new().owner(uid, gid),
            None => NewNode::new(),
        };
        replacing(self, name, || self.symlink_with(target, name, new))
    }

    fn special(&self, name: &OsStr, special: SpecialFile, new: New) -> io::Result<()> {
        replacing(self, name, || self.create_special(name, special, node(new)))
    }

    fn location(&self, name: &OsStr) -> PathBuf {
        self.path().join(name)
    }

    fn hard_link(&self, original: &Path, name: &OsStr) -> io::Result<()> {
        replacing(self, name, || Dir::hard_link(self, original, name))
    }

    fn finish_entry(&self, name: &OsStr, like: &Attributes, xattrs: &Xattrs) -> io::Result<()> {
        for (xattr, value) in xattrs {
            self.set_symlink_xattr(name, xattr, value)?;
        }
        let mode = match like.kind {
            Kind::Symlink => Mode::Keep,
            _ => Mode::Set,
        };
        self.set_symlink_attributes(name, &preserved(like, mode))
    }

    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()> {
        for (xattr, value) in xattrs {
            self.set_xattr(".", xattr, value)?;
        }
        let (uid, gid) = like.owner;
        self.set_attributes(".", &preserved(like, Mode::Set).owner(uid, gid))
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.set_attributes(".", &SetAttributes::new().mode(mode))
    }
}

impl SinkFile for File {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        File::write_all_at(self, data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()> {
        for (name, value) in xattrs {
            self.set_xattr(name, value)?;
        }
        // Writing clears set-user-id bits, and an ACL changes the mode.
        let mode = match like.mode & 0o6000 != 0 || !xattrs.is_empty() {
            true => Mode::Set,
            false => Mode::Keep,
        };
        self.set_attributes(&preserved(like, mode))
    }
}
