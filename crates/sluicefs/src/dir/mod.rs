//! Directories: everything that takes a path.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`Dir`]: names made, moved and removed |
//! | `attributes.rs` | metadata, owners, times, extended attributes by path |
//! | `read_dir.rs` | [`ReadDir`]: entries |
//! | `tree.rs` | whole files and whole trees: read, write, copy, `create_dir_all`, `remove_dir_all` |

mod attributes;
mod read_dir;
mod tree;

pub use read_dir::{DirEntry, ReadDir};

use crate::error::Cause;
use crate::file::File;
use crate::path::{Last, LastLink, Parent, Special, canonical, find, walk_parent};
use crate::volume::{Defaults, Shared};
use ext4::{Error, FileType, Fs, InodeRef, NewInode, RenameFlags};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Cause>;

/// An open directory. Relative paths given to it begin there, absolute ones at the root of the
/// volume.
///
/// Work on many files of one directory is fastest through a handle: no path is walked for each.
///
/// ```
/// use sluicefs::{FormatOptions, Volume};
/// use std::io::Write;
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// let dir = volume.create_dir("/many")?;
/// for i in 0..100 {
///     dir.create_new_file(format!("f{i}"))?.write_all(b"contents")?;
/// }
/// assert_eq!(volume.read_dir("/many")?.count(), 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dir {
    // Before `shared`: a pin goes before what might be the last hold on the volume.
    inode: InodeRef,
    path: Arc<Path>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Dir").field(&self.path).finish()
    }
}

/// Mode and owner of something new; what is left out is the volume's default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewNode {
    mode: Option<u16>,
    owner: Option<(u32, u32)>,
}

impl NewNode {
    /// The defaults.
    pub fn new() -> NewNode {
        NewNode::default()
    }
    /// Permission bits, taken as they are (no umask).
    #[must_use]
    pub fn mode(mut self, mode: u32) -> NewNode {
        self.mode = Some((mode & 0o7777) as u16);
        self
    }
    /// Owner and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> NewNode {
        self.owner = Some((uid, gid));
        self
    }

    fn inode(self, defaults: Defaults, kind: FileType, usual_mode: u16) -> NewInode {
        let (uid, gid) = self.owner.unwrap_or((defaults.uid, defaults.gid));
        NewInode {
            mode: kind.mode_bits() | self.mode.unwrap_or(usual_mode),
            umask: match (self.mode, kind) {
                (Some(_), _) | (_, FileType::Symlink) => 0,
                _ => defaults.umask,
            },
            uid,
            gid,
            rdev: 0,
        }
    }
}

/// Files that are neither regular, directories nor symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFile {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with its major and minor number.
    CharDevice(u32, u32),
    /// A block device with its major and minor number.
    BlockDevice(u32, u32),
}

impl SpecialFile {
    fn kind(self) -> FileType {
        match self {
            SpecialFile::Fifo => FileType::Fifo,
            SpecialFile::Socket => FileType::Socket,
            SpecialFile::CharDevice(..) => FileType::CharDevice,
            SpecialFile::BlockDevice(..) => FileType::BlockDevice,
        }
    }

    /// The number in the form of Linux's 32-bit `dev_t`; `None` where ext4 cannot hold it.
    fn rdev(self) -> Option<u32> {
        match self {
            SpecialFile::Fifo | SpecialFile::Socket => Some(0),
            SpecialFile::CharDevice(major, minor) | SpecialFile::BlockDevice(major, minor) => {
                let fits = major <= 0xfff && minor <= 0xf_ffff;
                fits.then_some((minor & 0xff) | (major << 8) | ((minor & 0xf_ff00) << 12))
            }
        }
    }
}

impl Dir {
    pub(crate) fn new(shared: Arc<Shared>, inode: InodeRef, path: Arc<Path>) -> Dir {
        Dir {
            inode,
            path,
            shared,
        }
    }
    pub(crate) fn fs(&self) -> &Fs {
        &self.shared.fs
    }
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    pub(crate) fn inode(&self) -> &InodeRef {
        &self.inode
    }
    pub(crate) fn path_arc(&self) -> &Arc<Path> {
        &self.path
    }
    pub(crate) fn defaults(&self) -> Defaults {
        self.shared.defaults
    }
    /// The path for messages.
    pub(crate) fn full(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    fn ctx<T>(&self, op: &'static str, path: &Path, result: Result<T>) -> io::Result<T> {
        result.map_err(|cause| cause.at(op, self.full(path)))
    }

    pub(crate) fn find(&self, path: &Path, last: LastLink) -> Result<InodeRef> {
        find(self.fs(), &self.inode, path.as_os_str().as_bytes(), last)
    }

    fn parent<'p>(&self, path: &'p Path) -> Result<Parent<'p>> {
        walk_parent(self.fs(), &self.inode, path.as_os_str().as_bytes())
    }

    /// The path it was opened by, from the root of the volume.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        let path = path.as_ref();
        let inode = self.ctx("open", path, self.find_dir(path))?;
        Ok(self.child(path, inode))
    }

    fn find_dir(&self, path: &Path) -> Result<InodeRef> {
        let inode = self.find(path, LastLink::Follow)?;
        match inode.kind() {
            FileType::Directory => Ok(inode),
            _ => Err(Error::NotDirectory.into()),
        }
    }

    fn child(&self, path: &Path, inode: InodeRef) -> Dir {
        Dir::new(self.shared.clone(), inode, Arc::from(self.full(path)))
    }

    /// Opens a file for reading; see [`crate::OpenOptions`] for everything else.
    ///
    /// # Errors
    /// As open(2).
    pub fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        File::open(self, path)
    }

    /// Opens a file for writing, empty; creates it if it is not there.
    ///
    /// # Errors
    /// As open(2).
    pub fn create_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        File::create(self, path)
    }

    /// Creates a file that must not exist, for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as open(2).
    pub fn create_new_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        File::create_new(self, path)
    }

    /// Creates a directory and opens it.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as mkdir(2).
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        self.create_dir_with(path, NewNode::new())
    }

    /// Creates a directory with a mode and owner, and opens it.
    ///
    /// # Errors
    /// As [`Dir::create_dir`].
    pub fn create_dir_with(&self, path: impl AsRef<Path>, new: NewNode) -> io::Result<Dir> {
        let path = path.as_ref();
        let made = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            let new = new.inode(self.defaults(), FileType::Directory, 0o777);
            Ok(self.fs().mkdir(&parent.dir, name, new)?)
        });
        let inode = self.ctx("create directory", path, made)?;
        Ok(self.child(path, inode))
    }

    /// Creates a symbolic link at `link` that points to `target`.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        self.symlink_with(target, link, NewNode::new())
    }

    /// Creates a symbolic link with an owner of its own.
    ///
    /// # Errors
    /// As [`Dir::symlink`].
    pub fn symlink_with(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
        new: NewNode,
    ) -> io::Result<()> {
        let path = link.as_ref();
        let made = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            must_be_file(&parent)?;
            let new = new.inode(self.defaults(), FileType::Symlink, 0o777);
            let target = target.as_ref().as_os_str().as_bytes();
            if target.is_empty() {
                return Err(Error::NotFound.into());
            }
            self.fs().symlink(&parent.dir, name, target, new)?;
            Ok(())
        });
        self.ctx("create symbolic link", path, made)
    }

    /// Creates a named pipe, socket or device file.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as mknod(2).
    pub fn create_special(
        &self,
        path: impl AsRef<Path>,
        special: SpecialFile,
        new: NewNode,
    ) -> io::Result<()> {
        let path = path.as_ref();
        let made = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            must_be_file(&parent)?;
            let mut new = new.inode(self.defaults(), special.kind(), 0o666);
            new.rdev = special
                .rdev()
                .ok_or(Cause::Invalid("device numbers go up to 4095:1048575"))?;
            self.fs().create(&parent.dir, name, new)?;
            Ok(())
        });
        self.ctx("create", path, made)
    }

    /// Adds a name for a file; a symbolic link is linked itself and not followed.
    ///
    /// # Errors
    /// As link(2).
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let path = link.as_ref();
        let made = self
            .find(original.as_ref(), LastLink::Keep)
            .map_err(|cause| cause.at("link", self.full(original.as_ref())))?;
        let made = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            must_be_file(&parent)?;
            Ok(self.fs().link(&made, &parent.dir, name)?)
        });
        self.ctx("create link", path, made)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// `InvalidInput` where it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        let target = self
            .find(path, LastLink::Keep)
            .and_then(|inode| match inode.kind() {
                FileType::Symlink => Ok(self.fs().readlink(&inode)?),
                _ => Err(Cause::Invalid("not a symbolic link")),
            });
        let target = self.ctx("read link", path, target)?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Removes a name that is not a directory's. The file goes when its last name and user are
    /// gone.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let done = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::IsDirectory)?;
            if parent.wants_dir {
                return Err(Error::NotDirectory.into());
            }
            Ok(self.fs().unlink(&parent.dir, name)?)
        });
        self.ctx("remove", path, done)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, and otherwise as rmdir(2).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let done = self.parent(path).and_then(|parent| {
            let name = match &parent.last {
                Last::Name(name) => name,
                Last::This(Special::Root) => {
                    return Err(Cause::Busy("the root of the volume cannot be removed"));
                }
                Last::This(Special::Dot) => return Err(Cause::Invalid("the path ends in .")),
                Last::This(Special::DotDot) => return Err(Error::NotEmpty.into()),
            };
            Ok(self.fs().rmdir(&parent.dir, name)?)
        });
        self.ctx("remove directory", path, done)
    }

    /// Renames; an existing target is replaced in one step.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.rename_with(from, self, to, RenameFlags::Replace)
    }

    /// Renames to a path in another directory, replacing, not replacing or exchanging a target.
    ///
    /// # Errors
    /// As renameat2(2); `CrossesDevices` where the directories are on different volumes.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to_dir: &Dir,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> io::Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        if !Arc::ptr_eq(&self.shared, &to_dir.shared) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        const ROOT: Cause = Cause::Busy("the root, . and .. cannot be renamed");
        let source = self.parent(from).and_then(|source| match source.last {
            Last::Name(_) => Ok(source),
            Last::This(_) => Err(ROOT),
        });
        let source = self.ctx("rename", from, source)?;
        let done = to_dir.parent(to).and_then(|target| {
            let (Last::Name(old), Last::Name(new)) = (&source.last, &target.last) else {
                return Err(ROOT);
            };
            if source.wants_dir || target.wants_dir {
                let inode = self.fs().lookup(&source.dir, old)?;
                if inode.kind() != FileType::Directory {
                    return Err(Error::NotDirectory.into());
                }
            }
            let fs = self.fs();
            Ok(fs.rename(&source.dir, old, &target.dir, new, flags)?)
        });
        done.map_err(|cause| cause.at("rename to", to_dir.full(to)))
    }

    /// The path from the root without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// `NotFound`, and as any look-up.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let full = self.full(path.as_ref());
        let root = self.fs().root().map_err(Cause::from);
        let found = root.and_then(|root| canonical(self.fs(), &root, full.as_os_str().as_bytes()));
        match found {
            Ok(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes))),
            Err(cause) => Err(cause.at("find", full)),
        }
    }
}

/// The name to make or remove; `special` where the path names a directory without naming an entry.
fn entry_name<'p>(parent: &'p Parent<'_>, special: Error) -> Result<&'p [u8]> {
    match &parent.last {
        Last::Name(name) => Ok(name),
        Last::This(_) => Err(special.into()),
    }
}

/// What is no directory cannot be made at a path with a trailing slash.
fn must_be_file(parent: &Parent<'_>) -> Result<()> {
    if parent.wants_dir {
        return Err(Error::NotFound.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_packed_as_linux_does() {
        assert_eq!(SpecialFile::CharDevice(1, 3).rdev(), Some(0x0103));
        assert_eq!(
            SpecialFile::BlockDevice(259, 0x12345).rdev(),
            Some(0x1231_0345)
        );
        assert_eq!(SpecialFile::BlockDevice(0x1000, 0).rdev(), None);
        assert_eq!(SpecialFile::Fifo.rdev(), Some(0));
    }
}
