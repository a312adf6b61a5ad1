//! Directories and files of the host, by descriptor. Symbolic links in the tree are not followed.

use super::endpoint::{
    Attributes, FileId, Kind, Listed, New, OpenedDir, SinkDir, SinkFile, SourceDir, SourceFile,
    Time, Xattrs,
};
use super::host_xattr::{self, On};
use crate::signals;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Statx, StatxFlags, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;
use sluicefs::{DeviceNumber, SpecialFile};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A directory of the host.
pub struct HostDir {
    fd: OwnedFd,
    path: PathBuf,
    /// The image that is being written, which must not be copied into itself.
    excluded: Option<FileId>,
}

/// A file of the host.
pub struct HostFile {
    fd: OwnedFd,
}

impl HostDir {
    /// Opens a directory. The file `excluded` cannot be copied from it or from its subdirectories.
    ///
    /// # Errors
    /// As open(2), with the path.
    pub fn open(path: &Path, excluded: Option<FileId>) -> io::Result<HostDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(HostDir {
            fd,
            path: path.to_path_buf(),
            excluded,
        })
    }

    fn open_below(&self, name: &OsStr) -> io::Result<HostDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(HostDir {
            fd: rustix::fs::openat(&self.fd, name, flags, Mode::empty())?,
            path: self.path.join(name),
            excluded: self.excluded,
        })
    }

    fn statx(&self, name: &OsStr) -> io::Result<Statx> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::statx(&self.fd, name, flags, STATX)?)
    }
}

const STATX: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

fn statx_fd(fd: BorrowedFd<'_>) -> io::Result<Statx> {
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STATX)?)
}

fn id(stat: &Statx) -> FileId {
    FileId {
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
    }
}

/// The identity of a file, for [`HostDir::open`]; `None` if it does not exist.
pub fn host_file_id(path: &Path) -> Option<FileId> {
    let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), STATX).ok()?;
    Some(id(&stat))
}

fn kind(stat: &Statx) -> Kind {
    let number = DeviceNumber {
        major: stat.stx_rdev_major,
        minor: stat.stx_rdev_minor,
    };
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Special(SpecialFile::Fifo),
        FileType::Socket => Kind::Special(SpecialFile::Socket),
        FileType::CharacterDevice => Kind::Special(SpecialFile::CharDevice(number)),
        FileType::BlockDevice => Kind::Special(SpecialFile::BlockDevice(number)),
        _ => Kind::File,
    }
}

fn attributes(stat: &Statx) -> Attributes {
    let time = |t: rustix::fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
    let has_btime = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    Attributes {
        kind: kind(stat),
        mode: u32::from(stat.stx_mode) & 0o7777,
        owner: (stat.stx_uid, stat.stx_gid),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        nlink: stat.stx_nlink.into(),
        id: id(stat),
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        btime: has_btime.then(|| time(stat.stx_btime)),
    }
}

impl SourceDir for HostDir {
    type File = HostFile;

    fn open_dir(&self, name: &OsStr) -> io::Result<HostDir> {
        self.open_below(name)
    }

    fn own_attributes(&self) -> io::Result<Attributes> {
        Ok(attributes(&statx_fd(self.fd.as_fd())?))
    }

    fn own_xattrs(&self) -> io::Result<Xattrs> {
        host_xattr::get_all(On::Fd(self.fd.as_fd()))
    }

    fn entries(&self) -> io::Result<Vec<Listed>> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsString::from_vec(name.to_vec());
            let is_dir = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => kind(&self.statx(&name)?) == Kind::Dir,
                _ => false,
            };
            entries.push(Listed { name, is_dir });
        }
        Ok(entries)
    }

    fn open_file(&self, name: &OsStr) -> io::Result<Option<(HostFile, Attributes)>> {
        // Opening a pipe or a device has side effects, so the type is checked first. O_NONBLOCK is
        // for an entry that changes its type meanwhile.
        let stat = self.statx(name)?;
        if kind(&stat) != Kind::File {
            return Ok(None);
        }
        if self.excluded == Some(id(&stat)) {
            return Err(io::Error::other("skipped: it is the image being written"));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = |flags| rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        // O_NOATIME is allowed for root and the owner.
        let fd = match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => open(flags),
            other => other,
        }?;
        Ok(Some((HostFile { fd }, attributes(&stat))))
    }

    fn attributes(&self, name: &OsStr) -> io::Result<Attributes> {
        Ok(attributes(&self.statx(name)?))
    }

    fn xattrs(&self, name: &OsStr) -> io::Result<Xattrs> {
        host_xattr::get_all(On::Entry(self.fd.as_fd(), name))
    }

    fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }
}

impl SourceFile for HostFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::pread(&self.fd, &mut *buf, offset)
        })?)
    }
    fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        found(rustix::fs::seek(&self.fd, SeekFrom::Data(offset)))
    }
    fn seek_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        found(rustix::fs::seek(&self.fd, SeekFrom::Hole(offset)))
    }
    fn xattrs(&self) -> io::Result<Xattrs> {
        host_xattr::get_all(On::Fd(self.fd.as_fd()))
    }
}

fn found(result: rustix::io::Result<u64>) -> io::Result<Option<u64>> {
    match result {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Runs `create`. If the name exists and is not a directory, removes it and runs `create` again.
fn replacing<T>(
    dir: &HostDir,
    name: &OsStr,
    create: impl Fn() -> rustix::io::Result<T>,
) -> io::Result<T> {
    match create() {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(&dir.fd, name, AtFlags::empty())?;
            Ok(create()?)
        }
        other => Ok(other?),
    }
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & 0o7777)
}

fn times(like: &Attributes) -> Timestamps {
    let at = |(secs, nanos): Time| Timespec {
        tv_sec: secs,
        tv_nsec: nanos.into(),
    };
    Timestamps {
        last_access: at(like.atime),
        last_modification: at(like.mtime),
    }
}

fn makedev(number: DeviceNumber) -> u64 {
    rustix::fs::makedev(number.major, number.minor)
}

fn owner(like: &Attributes) -> (Option<Uid>, Option<Gid>) {
    let (uid, gid) = like.owner;
    (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

/// The mode to set after chown(2). Without privilege the owner stays that of this process, and a
/// set-user-id bit would grant the rights of the wrong user; so it is removed.
fn mode_after_chown(like: &Attributes, chowned: rustix::io::Result<()>) -> io::Result<Mode> {
    match chowned {
        Ok(()) => Ok(mode(like.mode)),
        Err(Errno::PERM | Errno::INVAL) if !rustix::process::geteuid().is_root() => {
            Ok(mode(like.mode & 0o1777))
        }
        Err(e) => Err(e.into()),
    }
}

fn finish_fd(fd: BorrowedFd<'_>, like: &Attributes, xattrs: &Xattrs) -> io::Result<()> {
    let (uid, gid) = owner(like);
    let bits = mode_after_chown(like, rustix::fs::fchown(fd, uid, gid))?;
    rustix::fs::fchmod(fd, bits)?;
    host_xattr::set_all(On::Fd(fd), xattrs)?;
    Ok(rustix::fs::futimens(fd, &times(like))?)
}

impl SinkDir for HostDir {
    type File = HostFile;

    fn create_dir(&self, name: &OsStr, new: New) -> io::Result<OpenedDir<HostDir>> {
        let is_new = match rustix::fs::mkdirat(&self.fd, name, mode(new.mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(e.into()),
        };
        let dir = self.open_below(name)?;
        Ok(OpenedDir { dir, is_new })
    }

    fn create_file(&self, name: &OsStr, new: New) -> io::Result<HostFile> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No other user may open it before it has its final owner.
        let bits = match new.owner {
            Some(_) => mode(new.mode & 0o700 | 0o200),
            None => mode(new.mode),
        };
        let create =
            || rustix::fs::openat(&self.fd, name, flags | OFlags::CREATE | OFlags::EXCL, bits);
        let fd = match create() {
            Err(Errno::EXIST) if kind(&self.statx(name)?) == Kind::File => {
                rustix::fs::openat(&self.fd, name, flags | OFlags::TRUNC, Mode::empty())?
            }
            Err(Errno::EXIST) => replacing(self, name, create)?,
            other => other?,
        };
        Ok(HostFile { fd })
    }

    fn symlink(&self, name: &OsStr, target: &Path, _new: New) -> io::Result<()> {
        replacing(self, name, || rustix::fs::symlinkat(target, &self.fd, name))
    }

    fn special(&self, name: &OsStr, special: SpecialFile, new: New) -> io::Result<()> {
        let (kind, dev) = match special {
            SpecialFile::Fifo => (FileType::Fifo, 0),
            SpecialFile::Socket => (FileType::Socket, 0),
            SpecialFile::CharDevice(number) => (FileType::CharacterDevice, makedev(number)),
            SpecialFile::BlockDevice(number) => (FileType::BlockDevice, makedev(number)),
        };
        replacing(self, name, || {
            rustix::fs::mknodat(&self.fd, name, kind, mode(new.mode), dev)
        })
    }

    fn location(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    fn hard_link(&self, original: &Path, name: &OsStr) -> io::Result<()> {
        replacing(self, name, || {
            rustix::fs::linkat(rustix::fs::CWD, original, &self.fd, name, AtFlags::empty())
        })
    }

    fn finish_entry(&self, name: &OsStr, like: &Attributes, xattrs: &Xattrs) -> io::Result<()> {
        let (uid, gid) = owner(like);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let chowned = rustix::fs::chownat(&self.fd, name, uid, gid, flags);
        let bits = mode_after_chown(like, chowned)?;
        if like.kind != Kind::Symlink {
            rustix::fs::chmodat(&self.fd, name, bits, AtFlags::empty())?;
        }
        host_xattr::set_all(On::Entry(self.fd.as_fd(), name), xattrs)?;
        Ok(rustix::fs::utimensat(&self.fd, name, &times(like), flags)?)
    }

    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()> {
        finish_fd(self.fd.as_fd(), like, xattrs)
    }

    fn set_mode(&self, bits: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.fd, mode(bits))?)
    }
}

impl SinkFile for HostFile {
    fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            let n = rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.fd, data, offset))?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            data = &data[n..];
            offset += n as u64;
        }
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.fd, len)?)
    }
    fn finish(&self, like: &Attributes, xattrs: &Xattrs) -> io::Result<()> {
        finish_fd(self.fd.as_fd(), like, xattrs)
    }
}

/// The umask of the process. Reading it changes it for a moment, so this must be called before
/// threads are started.
pub fn umask() -> u32 {
    let bits = rustix::process::umask(Mode::empty());
    rustix::process::umask(bits);
    bits.bits()
}

/// Counts the files below `top`, for the progress bar. Directories that cannot be read are skipped.
pub fn count_host_files(top: &Path) -> u64 {
    let mut files = 0;
    let mut dirs = vec![top.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        if signals::interrupted() {
            break;
        }
        let Ok(entries) = std::fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                _ => files += 1,
            }
        }
    }
    files
}

/// Raises the limit of open files to its maximum. Directories stay open while something in them is
/// copied, and deep trees need more than the usual 1,024.
pub fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(e) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("the limit of open files was not raised: {e}");
    }
}
