//! A mounted volume on which the calls are made.

use crate::calls::Call;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    chmodat, chownat, copy_file_range, fallocate, fstat, fsync, ftruncate, lgetxattr, linkat,
    lremovexattr, lsetxattr, mkdirat, mknodat, openat, readlinkat, renameat_with, statat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwrite, read, write};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::Permissions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The times of access, modification and change in nanoseconds.
type Times = [i128; 3];

/// An inode as a program sees it. `changed` tells which times the last call changed, if they are
/// known from before.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    kind: FileType,
    mode: u32,
    links: u64,
    owner: (u32, u32),
    size: i64,
    rdev: u64,
    changed: Option<[bool; 3]>,
}

impl Seen {
    /// This inode as after a write that failed. Before a user's write to a file with set-user-ID or
    /// set-group-ID the kernel sends a SETATTR without attributes. It is that of chown(2) without
    /// an owner, which changes the time of change; ext4 changes it only if the write succeeds.
    pub fn after_failed_write(mut self) -> Seen {
        if self.mode & 0o6000 != 0
            && let Some([_, _, change]) = &mut self.changed
        {
            *change = false;
        }
        self
    }

    /// This inode as after a fallocate that failed. ext4 has changed its times before it finds that
    /// a file with a block map has no preallocated space.
    pub fn after_failed_fallocate(mut self) -> Seen {
        if let Some([_, modification, change]) = &mut self.changed {
            (*modification, *change) = (false, false);
        }
        self
    }
}

fn seen(stat: &Stat, changed: Option<[bool; 3]>) -> Seen {
    let kind = FileType::from_raw_mode(stat.st_mode);
    Seen {
        kind,
        mode: stat.st_mode & 0o7777,
        links: stat.st_nlink,
        owner: (stat.st_uid, stat.st_gid),
        // Directories grow differently.
        size: match kind {
            FileType::Directory => 0,
            _ => stat.st_size,
        },
        rdev: stat.st_rdev,
        changed,
    }
}

fn times(stat: &Stat) -> Times {
    let nanos = |secs: i64, nanos: u64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    [
        nanos(stat.st_atime, stat.st_atime_nsec),
        nanos(stat.st_mtime, stat.st_mtime_nsec),
        nanos(stat.st_ctime, stat.st_ctime_nsec),
    ]
}

/// A mounted volume and the files that are open on it.
pub struct Side {
    dir: PathBuf,
    open: BTreeMap<usize, OwnedFd>,
    /// Inode number and times by path.
    before: BTreeMap<PathBuf, (u64, Times)>,
}

pub type Outcome = Result<String, Errno>;

fn shown(value: impl Debug) -> String {
    format!("{value:?}")
}

impl Side {
    pub fn new(dir: &Path) -> Side {
        let readable = Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.parent().expect("a parent"), readable).expect("chmod");
        std::fs::set_permissions(dir, Permissions::from_mode(0o777)).expect("chmod");
        let _ = std::fs::remove_dir(dir.join("lost+found"));
        Side {
            dir: dir.to_owned(),
            open: BTreeMap::new(),
            before: BTreeMap::new(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn fd(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.open.get(&slot).ok_or(Errno::BADF)
    }

    /// Makes the call as this user.
    pub fn call_as(&mut self, (uid, gid): (u32, u32), call: &Call) -> Outcome {
        let root = (Uid::from_raw(0), Gid::from_raw(0));
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_res_gid(None, group, None).expect("root");
        set_thread_res_uid(None, user, None).expect("root");
        let outcome = self.call(call);
        set_thread_res_uid(None, root.0, None).expect("the saved id");
        set_thread_res_gid(None, root.1, None).expect("root");
        outcome
    }

    fn call(&mut self, call: &Call) -> Outcome {
        let done = |()| String::new();
        match call {
            Call::Open(path, flags, mode, slot) => {
                self.open.remove(slot);
                let mode = Mode::from_raw_mode(*mode);
                let fd = openat(CWD, self.at(path), *flags, mode)?;
                self.open.insert(*slot, fd);
                Ok(String::new())
            }
            Call::Close(slot) => {
                self.open.remove(slot);
                Ok(String::new())
            }
            Call::Write(slot, byte, len) => {
                write(self.regular(*slot)?, &vec![*byte; *len as usize]).map(shown)
            }
            Call::WriteAt(slot, byte, offset, len) => {
                let data = vec![*byte; *len as usize];
                pwrite(self.regular(*slot)?, &data, *offset).map(shown)
            }
            Call::Read(slot, len) => {
                let mut data = vec![0; *len as usize];
                let n = read(self.regular(*slot)?, &mut data)?;
                Ok(shown(&data[..n]))
            }
            Call::ReadAt(slot, offset, len) => {
                let mut data = vec![0; *len as usize];
                let n = pread(self.regular(*slot)?, &mut data, *offset)?;
                Ok(shown(&data[..n]))
            }
            Call::Truncate(slot, size) => ftruncate(self.fd(*slot)?, *size).map(done),
            Call::Fallocate(slot, flags, offset, len) => {
                fallocate(self.fd(*slot)?, *flags, *offset, *len).map(done)
            }
            Call::Copy(from, from_offset, to, to_offset, len) => {
                let (mut from_offset, mut to_offset) = (*from_offset, *to_offset);
                let (from, to) = (self.fd(*from)?, self.fd(*to)?);
                let len = *len as usize;
                let offsets = (Some(&mut from_offset), Some(&mut to_offset));
                copy_file_range(from, offsets.0, to, offsets.1, len).map(shown)
            }
            Call::Fsync(slot) => fsync(self.fd(*slot)?).map(done),
            Call::Link(from, to, flags) => {
                linkat(CWD, self.at(from), CWD, self.at(to), *flags).map(done)
            }
            Call::LinkOpen(slot, to) => {
                linkat(self.fd(*slot)?, "", CWD, self.at(to), AtFlags::EMPTY_PATH).map(done)
            }
            Call::Symlink(target, path) => symlinkat(*target, CWD, self.at(path)).map(done),
            Call::ReadLink(path) => readlinkat(CWD, self.at(path), Vec::new()).map(shown),
            Call::Rename(from, to, flags) => {
                renameat_with(CWD, self.at(from), CWD, self.at(to), *flags).map(done)
            }
            Call::Unlink(path, flags) => unlinkat(CWD, self.at(path), *flags).map(done),
            Call::Mkdir(path, mode) => {
                mkdirat(CWD, self.at(path), Mode::from_raw_mode(*mode)).map(done)
            }
            Call::Mknod(path, kind, mode, dev) => {
                mknodat(CWD, self.at(path), *kind, Mode::from_raw_mode(*mode), *dev).map(done)
            }
            Call::Chmod(path, mode) => {
                let mode = Mode::from_raw_mode(*mode);
                chmodat(CWD, self.at(path), mode, AtFlags::empty()).map(done)
            }
            Call::Chown(path, user, group, flags) => {
                let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
                chownat(CWD, self.at(path), user, group, *flags).map(done)
            }
            Call::SetTimes(path, atime, mtime, flags) => {
                let times = Timestamps {
                    last_access: timespec(*atime),
                    last_modification: timespec(*mtime),
                };
                utimensat(CWD, self.at(path), &times, *flags).map(done)
            }
            Call::SetXattr(path, name, value, flags) => {
                lsetxattr(self.at(path), *name, value, *flags).map(done)
            }
            Call::GetXattr(path, name) => {
                let mut value = vec![0; 1 << 16];
                let n = lgetxattr(self.at(path), *name, &mut value[..])?;
                Ok(shown(&value[..n]))
            }
            Call::RemoveXattr(path, name) => lremovexattr(self.at(path), *name).map(done),
            Call::List(path) => self.list(path),
        }
    }

    /// An open regular file: writing to a FIFO changes no file.
    fn regular(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        let fd = self.fd(slot)?;
        match FileType::from_raw_mode(fstat(fd)?.st_mode) {
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice => Err(Errno::BADF),
            _ => Ok(fd),
        }
    }

    fn list(&self, path: &str) -> Outcome {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.at(path)).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            names.push((entry.file_name(), entry.file_type().map_err(errno)?));
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(shown(names))
    }

    /// Looks at all files and returns them by path or slot.
    pub fn look(&mut self) -> BTreeMap<String, Seen> {
        let mut all = BTreeMap::new();
        let mut now = BTreeMap::new();
        let mut paths = vec![self.dir.clone()];
        while let Some(path) = paths.pop() {
            let stat = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).expect("it exists");
            let (ino, times) = (stat.st_ino, times(&stat));
            let before = self.before.get(&path).filter(|before| before.0 == ino);
            let changed = before.map(|(_, old)| std::array::from_fn(|n| old[n] != times[n]));
            let seen = seen(&stat, changed);
            if seen.kind == FileType::Directory {
                let entries = std::fs::read_dir(&path).expect("a directory");
                paths.extend(entries.map(|entry| entry.expect("an entry").path()));
            }
            let name = path.strip_prefix(&self.dir).expect("below");
            all.insert(name.display().to_string(), seen);
            now.insert(path, (ino, times));
        }
        self.before = now;
        for (slot, fd) in &self.open {
            let stat = fstat(fd).expect("it is open");
            all.insert(format!("slot {slot}"), seen(&stat, None));
        }
        all
    }

    /// The contents of all regular files of less than 4 MiB.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        for path in self.before.keys() {
            let meta = path.symlink_metadata().expect("it exists");
            if meta.is_file() && meta.len() < 4 << 20 {
                let name = path.strip_prefix(&self.dir).expect("below").to_owned();
                all.insert(name, std::fs::read(path).expect("it can be read"));
            }
        }
        all
    }
}

/// A time of utimensat(2). -1 is now, and 0 leaves the time.
fn timespec(secs: i64) -> Timespec {
    let (tv_sec, tv_nsec) = match secs {
        -1 => (0, UTIME_NOW),
        0 => (0, UTIME_OMIT),
        secs => (secs, 5),
    };
    Timespec {
        tv_sec,
        tv_nsec: tv_nsec as _,
    }
}
