//! Options to open a file, and the functions that open files.

use crate::dir::Dir;
use crate::error::Cause;
use crate::file::{Access, File};
use crate::path::{Last, LastLink, Parent, resolve, walk_parent};
use ext4::{Error, FileType, FirstLink, InodeRef, NewInode, Opened, ReadMode, SetAttr, WriteMode};
use std::io;
use std::path::Path;

/// Options to open a file, as [`std::fs::OpenOptions`].
///
/// ```
/// use sluicefs::{FormatOptions, OpenOptions, Volume};
/// use std::io::Write;
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// let mut log = OpenOptions::new().append(true).create(true).mode(0o600).open(&volume, "log")?;
/// writeln!(log, "one more line")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    reads: ReadMode,
    truncate: bool,
    create: bool,
    create_new: bool,
    last: LastLink,
    mode: u16,
    umask: Option<u16>,
    owner: Option<(u32, u32)>,
    first_link: FirstLink,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// All options off.
    pub const fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            reads: ReadMode::Cached,
            truncate: false,
            create: false,
            create_new: false,
            last: LastLink::Follow,
            mode: 0o666,
            umask: None,
            owner: None,
            first_link: FirstLink::Allowed,
        }
    }
    /// Opens for reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }
    /// Opens for writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }
    /// Opens for writing. Each write appends to the file.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }
    /// Reads bypass the page cache, as with O_DIRECT: they copy cached pages, and read others from
    /// the device without keeping them or reading ahead. Offsets, lengths and buffers need no
    /// alignment. Writes go through the page cache as ever.
    pub fn direct_reads(&mut self, direct_reads: bool) -> &mut Self {
        self.reads = if direct_reads {
            ReadMode::Direct
        } else {
            ReadMode::Cached
        };
        self
    }
    /// Truncates an existing file to 0 bytes.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }
    /// Creates the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }
    /// Creates the file. Fails if the name exists, also as a symbolic link.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }
    /// Refuses a symbolic link as the last component.
    pub fn no_follow(&mut self, no_follow: bool) -> &mut Self {
        self.last = if no_follow {
            LastLink::Keep
        } else {
            LastLink::Follow
        };
        self
    }
    /// Permission bits of a new file, from which the umask is subtracted. Default: 0666.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = (mode & 0o7777) as u16;
        self
    }
    /// Umask, instead of that of the volume. With 0, [`OpenOptions::mode`] is used unchanged.
    pub fn umask(&mut self, umask: u32) -> &mut Self {
        self.umask = Some((umask & 0o777) as u16);
        self
    }
    /// User and group of a new file, instead of the defaults of the volume.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Self {
        self.owner = Some((uid, gid));
        self
    }

    /// Whether a file that [`OpenOptions::create_unnamed`] makes may get a name later
    /// ([`File::link_to`]). Default: true. `false` is O_EXCL of open(2) with O_TMPFILE.
    pub fn linkable(&mut self, linkable: bool) -> &mut Self {
        self.first_link = if linkable {
            FirstLink::Allowed
        } else {
            FirstLink::Refused
        };
        self
    }

    /// Creates a regular file without a name and opens it, as O_TMPFILE of open(2). Group and
    /// default ACL are inherited from `dir`, as by a file that is created there. The file is
    /// deleted when its last handle is dropped, and by the next mount after a crash, unless
    /// [`File::link_to`] has given it a name.
    ///
    /// Mode, umask, owner, [`OpenOptions::append`] and [`OpenOptions::linkable`] apply.
    ///
    /// # Errors
    /// `InvalidInput` without write access, and with [`OpenOptions::create`] or
    /// [`OpenOptions::create_new`], which need a name. `NotFound` if the directory was removed.
    /// Otherwise as open(2).
    pub fn create_unnamed(&self, dir: &Dir) -> io::Result<File> {
        let made = self.access_unnamed().and_then(|access| {
            let fs = dir.fs();
            let inode = fs.tmpfile(dir.inode(), self.new_inode(dir), self.first_link)?;
            Ok((inode, access))
        });
        let (inode, access) = made.map_err(|e| e.at("create an unnamed file in", dir.path()))?;
        let name = format!("#{}", inode.ino());
        Ok(File::new(
            dir.shared().clone(),
            inode,
            dir.path_arc().clone(),
            name.as_ref(),
            access,
        ))
    }

    fn access_unnamed(&self) -> Result<Access, Cause> {
        if self.create || self.create_new {
            return Err(Cause::Invalid("an unnamed file has no name to create"));
        }
        let access = self.access()?;
        match access.write {
            true => Ok(access),
            false => Err(Cause::Invalid("an unnamed file needs write access")),
        }
    }

    /// Opens `path`, which is relative to `dir` unless it is absolute. A [`crate::Volume`] can be
    /// passed as `dir`: it is its root directory.
    ///
    /// # Errors
    /// `InvalidInput` for options that exclude each other, and as open(2).
    pub fn open(&self, dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let op = if self.create || self.create_new {
            "create"
        } else {
            "open"
        };
        let access = self.access().map_err(|e| e.at(op, dir.full(path)))?;
        let inode = self
            .inode(dir, path)
            .map_err(|e| e.at(op, dir.full(path)))?;
        let shared = dir.shared().clone();
        Ok(File::new(
            shared,
            inode,
            dir.path_arc().clone(),
            path,
            access,
        ))
    }

    fn access(&self) -> Result<Access, Cause> {
        let write = self.write || self.append;
        if !self.read && !write {
            return Err(Cause::Invalid(
                "neither read nor write access was requested",
            ));
        }
        if !write && (self.truncate || self.create || self.create_new) {
            return Err(Cause::Invalid("creating and truncating need write access"));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(Cause::Invalid(
                "appending and truncating exclude each other",
            ));
        }
        Ok(Access {
            read: self.read,
            write,
            append: self.append,
            reads: self.reads,
        })
    }

    fn inode(&self, dir: &Dir, path: &Path) -> Result<InodeRef, Cause> {
        let path = path.as_os_str().as_encoded_bytes();
        if self.create_new {
            let parent = walk_parent(dir.fs(), dir.inode(), path)?;
            return self.create_at(dir, &parent);
        }
        if self.create
            && let Some(inode) = self.find_or_create(dir, path)?
        {
            return Ok(inode);
        }
        loop {
            let target = resolve(dir.fs(), dir.inode(), path, self.last)?;
            match target.inode {
                Some(inode) => return self.open_existing(dir, inode),
                None if !self.create => return Err(Error::NotFound.into()),
                None => match self.create_at(dir, &target.parent) {
                    // Another thread has created it meanwhile: open that file.
                    Err(Cause::Fs(Error::Exists)) => {}
                    created => return created,
                },
            }
        }
    }

    /// Finds or creates the file with one lookup in its directory. `None` if that is not enough:
    /// the path ends in a symbolic link to follow, or requires a directory.
    fn find_or_create(&self, dir: &Dir, path: &[u8]) -> Result<Option<InodeRef>, Cause> {
        let parent = walk_parent(dir.fs(), dir.inode(), path)?;
        let Last::Name(name) = &parent.last else {
            return Ok(None);
        };
        if parent.wants_dir {
            return Ok(None);
        }
        let fs = dir.fs();
        match fs.find_or_create(&parent.dir, name, self.new_inode(dir))? {
            Opened::Created(inode) => Ok(Some(inode)),
            Opened::Found(inode) => match (inode.kind(), self.last) {
                (FileType::Symlink, LastLink::Follow) => Ok(None),
                _ => self.open_existing(dir, inode).map(Some),
            },
        }
    }

    fn create_at(&self, dir: &Dir, parent: &Parent<'_>) -> Result<InodeRef, Cause> {
        let Last::Name(name) = &parent.last else {
            return Err(Error::Exists.into());
        };
        if parent.wants_dir {
            return Err(Error::IsDirectory.into());
        }
        Ok(dir.fs().create(&parent.dir, name, self.new_inode(dir))?)
    }

    fn new_inode(&self, dir: &Dir) -> NewInode {
        let defaults = dir.defaults();
        let (uid, gid) = self.owner.unwrap_or((defaults.uid, defaults.gid));
        NewInode {
            mode: FileType::Regular.mode_bits() | self.mode,
            umask: self.umask.unwrap_or(defaults.umask),
            uid,
            gid,
            rdev: 0,
        }
    }

    /// Checks the access to an existing file, and truncates it if requested.
    fn open_existing(&self, dir: &Dir, inode: InodeRef) -> Result<InodeRef, Cause> {
        match inode.kind() {
            FileType::Regular => inode.check_may_open_for_reading()?,
            FileType::Directory if !(self.write || self.append) => {}
            FileType::Directory => return Err(Error::IsDirectory.into()),
            FileType::Symlink => return Err(Cause::LinkLoop),
            _ => return Err(Error::NotSupported.into()),
        }
        if self.write || self.append {
            inode.check_may_open_for_writing(match self.append {
                true => WriteMode::Append,
                false => WriteMode::Anywhere,
            })?;
        }
        if self.truncate {
            let empty = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            dir.fs().set_attr(&inode, &empty)?;
        }
        Ok(inode)
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(dir, path)
    }
    /// Opens a file for writing and truncates it. Creates it if it does not exist.
    ///
    /// # Errors
    /// As open(2).
    pub fn create(dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(dir, path)
    }
    /// Creates a file for reading and writing. Fails if it exists.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as open(2).
    pub fn create_new(dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(dir, path)
    }
    /// The same as [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

impl Dir {
    /// Opens a file for reading. [`OpenOptions`] has the other modes.
    ///
    /// # Errors
    /// As open(2).
    pub fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        File::open(self, path)
    }

    /// Opens a file for writing and truncates it. Creates it if it does not exist.
    ///
    /// # Errors
    /// As open(2).
    pub fn create_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        File::create(self, path)
    }

    /// Creates a file for reading and writing. Fails if it exists.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as open(2).
    pub fn create_new_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        File::create_new(self, path)
    }

    /// Creates a file without a name, for reading and writing. It is deleted when it is dropped,
    /// and after a crash, unless [`File::link_to`] has given it a name. [`OpenOptions`] has the
    /// other modes.
    ///
    /// A reader never sees a part of a file that gets its name last:
    ///
    /// ```
    /// use sluicefs::{FormatOptions, Volume};
    /// use std::io::Write;
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
    /// let mut file = volume.create_unnamed_file()?;
    /// file.write_all(b"all of the contents")?;
    /// file.sync_all()?;
    /// assert!(!volume.exists("report"));
    /// file.link_to(&volume, "report")?;
    /// assert_eq!(volume.read("report")?, b"all of the contents");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the directory was removed, and otherwise as open(2) with O_TMPFILE.
    pub fn create_unnamed_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_unnamed(self)
    }
}
