//! What a workload runs on.

use crate::Device;
use rustix::fs::{AtFlags, Mode, OFlags};
use sluicefs::{Dir, File, Volume, VolumeStats};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The operations that workloads are made of. Every thread works in a directory of its own, which it holds open.
pub trait Target: Sync {
    /// For reports.
    fn name(&self) -> String;
    /// Makes a directory at the top and opens it.
    ///
    /// # Errors
    /// As the file system gives them; so for all the others.
    fn directory(&self, name: &str) -> io::Result<Box<dyn Directory>>;
    /// Makes everything durable.
    fn sync(&self) -> io::Result<()>;
    /// Forgets what is cached of `file`, in directory `directory`.
    fn forget(&self, directory: &str, file: &str) -> io::Result<()>;
    /// What reached the device since the target was made, where that is known.
    fn device(&self) -> Option<Device>;
}

/// An open directory.
pub trait Directory: Send + Sync {
    /// Creates a file, writes `data` into it and closes it; with `sync` it is durable before that.
    fn create(&self, name: &str, data: &[u8], sync: bool) -> io::Result<()>;
    /// Asks for a file's attributes.
    fn stat(&self, name: &str) -> io::Result<()>;
    /// Opens a file, reads it into `buf` and closes it: bytes read.
    fn read(&self, name: &str, buf: &mut [u8]) -> io::Result<usize>;
    /// Removes a file.
    fn unlink(&self, name: &str) -> io::Result<()>;
    /// Creates a file and writes `mib` times `data`.
    fn write_stream(&self, name: &str, data: &[u8], mib: u64) -> io::Result<()>;
    /// Makes a file durable.
    fn sync_file(&self, name: &str) -> io::Result<()>;
    /// Reads a file from its beginning to its end through `buf`: bytes read.
    fn read_stream(&self, name: &str, buf: &mut [u8]) -> io::Result<u64>;
}

/// A volume in this process.
pub struct VolumeTarget {
    volume: Volume,
    before: VolumeStats,
}

impl VolumeTarget {
    /// Runs on `volume`.
    pub fn new(volume: Volume) -> VolumeTarget {
        let before = volume.stats();
        VolumeTarget { volume, before }
    }

    /// The volume back.
    pub fn into_volume(self) -> Volume {
        self.volume
    }
}

impl Target for VolumeTarget {
    fn name(&self) -> String {
        format!("sluicefs on {}", self.volume.device())
    }
    fn directory(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        Ok(Box::new(self.volume.root().create_dir(name)?))
    }
    fn sync(&self) -> io::Result<()> {
        self.volume.sync()
    }
    fn forget(&self, directory: &str, file: &str) -> io::Result<()> {
        let file = self
            .volume
            .root()
            .open_file(Path::new(directory).join(file))?;
        file.drop_cache();
        Ok(())
    }
    fn device(&self) -> Option<Device> {
        let d = self.volume.stats().device - self.before.device;
        Some(Device {
            write_ios: d.write_ios,
            write_bytes: d.write_bytes,
            merged: d.merged,
            flushes: d.flushes,
            read_ios: d.read_ios,
            read_bytes: d.read_bytes,
        })
    }
}

impl Directory for Dir {
    fn create(&self, name: &str, data: &[u8], sync: bool) -> io::Result<()> {
        let file = self.create_new_file(name)?;
        file.write_all_at(data, 0)?;
        if sync { file.sync_all() } else { Ok(()) }
    }
    fn stat(&self, name: &str) -> io::Result<()> {
        self.symlink_metadata(name).map(|_| ())
    }
    fn read(&self, name: &str, buf: &mut [u8]) -> io::Result<usize> {
        self.open_file(name)?.read_at(buf, 0)
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        self.remove_file(name)
    }
    fn write_stream(&self, name: &str, data: &[u8], mib: u64) -> io::Result<()> {
        let file = self.create_new_file(name)?;
        (0..mib).try_for_each(|i| file.write_all_at(data, i << 20))
    }
    fn sync_file(&self, name: &str) -> io::Result<()> {
        File::options().write(true).open(self, name)?.sync_all()
    }
    fn read_stream(&self, name: &str, buf: &mut [u8]) -> io::Result<u64> {
        let file = self.open_file(name)?;
        let mut at = 0;
        loop {
            match file.read_at(buf, at)? {
                0 => return Ok(at),
                n => at += n as u64,
            }
        }
    }
}

/// A directory of a mounted file system.
pub struct DirectoryTarget {
    root: PathBuf,
}

impl DirectoryTarget {
    /// Runs below `root`.
    pub fn new(root: impl Into<PathBuf>) -> DirectoryTarget {
        DirectoryTarget { root: root.into() }
    }
}

/// An open directory of the system, worked in by the calls that end in "at".
struct SystemDirectory(OwnedFd);

impl Target for DirectoryTarget {
    fn name(&self) -> String {
        self.root.display().to_string()
    }
    fn directory(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        let path = self.root.join(name);
        std::fs::create_dir(&path)?;
        let fd = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Box::new(SystemDirectory(fd)))
    }
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(&self.root)?)?)
    }
    fn forget(&self, directory: &str, file: &str) -> io::Result<()> {
        let file = std::fs::File::open(self.root.join(directory).join(file))?;
        Ok(rustix::fs::fadvise(
            &file,
            0,
            None,
            rustix::fs::Advice::DontNeed,
        )?)
    }
    fn device(&self) -> Option<Device> {
        None
    }
}

impl SystemDirectory {
    fn open(&self, name: &str, flags: OFlags) -> io::Result<std::fs::File> {
        Ok(rustix::fs::openat(
            &self.0,
            name,
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o644),
        )?
        .into())
    }
}

impl Directory for SystemDirectory {
    fn create(&self, name: &str, data: &[u8], sync: bool) -> io::Result<()> {
        use std::io::Write;
        let mut file = self.open(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
        file.write_all(data)?;
        if sync { file.sync_all() } else { Ok(()) }
    }
    fn stat(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).map(|_| ())?)
    }
    fn read(&self, name: &str, buf: &mut [u8]) -> io::Result<usize> {
        use std::io::Read;
        self.open(name, OFlags::RDONLY)?.read(buf)
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }
    fn write_stream(&self, name: &str, data: &[u8], mib: u64) -> io::Result<()> {
        use std::io::Write;
        let mut file = self.open(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
        (0..mib).try_for_each(|_| file.write_all(data))
    }
    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.open(name, OFlags::WRONLY)?.sync_all()
    }
    fn read_stream(&self, name: &str, buf: &mut [u8]) -> io::Result<u64> {
        use std::io::Read;
        let mut file = self.open(name, OFlags::RDONLY)?;
        let mut total = 0;
        loop {
            match file.read(buf)? {
                0 => return Ok(total),
                n => total += n as u64,
            }
        }
    }
}
