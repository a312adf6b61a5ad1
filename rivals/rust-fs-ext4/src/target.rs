//! rust-fs-ext4 as a target of workloads.
//!
//! The crate has no open files, so an open file is an inode number here. It commits and flushes
//! each change itself, so fsync and sync only flush the device. Its documentation allows threads
//! only to flush and read concurrently, so a lock serialises changes here. `apply_pwrite_ino`
//! overwrites existing data in place.

use crate::device::Image;
use bench::Device;
use bench::target::{Create, Directory, OpenFile, Target};
use fs_ext4::block_io::BlockDevice;
use fs_ext4::{Error, Filesystem, Superblock};
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ROOT_INODE: u32 = 2;

/// A mounted image.
pub struct Rival {
    shared: Arc<Shared>,
    name: String,
    before: Device,
}

struct Shared {
    fs: Filesystem,
    device: Arc<Image>,
    changing: Mutex<()>,
}

impl Rival {
    pub fn mount(image: &Path) -> io::Result<Rival> {
        let device = Arc::new(Image::open(image)?);
        let fs = Filesystem::mount(device.clone()).map_err(error)?;
        let before = device.counters();
        let changing = Mutex::new(());
        Ok(Rival {
            shared: Arc::new(Shared {
                fs,
                device,
                changing,
            }),
            name: format!("rust-fs-ext4 in process on {}", image.display()),
            before,
        })
    }

    pub fn unmount(self) -> io::Result<()> {
        match Arc::try_unwrap(self.shared) {
            Ok(shared) => shared.fs.finish().map_err(error),
            Err(_) => Err(io::Error::other("a file or directory is still open")),
        }
    }
}

impl Shared {
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_directory(&self, parent: u32, name: &str) -> io::Result<u32> {
        let _changing = self.change();
        match self.fs.apply_mkdir_at(parent, name.as_bytes(), 0o755) {
            Err(Error::AlreadyExists) => self.fs.lookup_at(parent, name.as_bytes()),
            made => made,
        }
        .map_err(error)
    }

    /// The directory and the name that a relative path ends in.
    fn parent<'p>(&self, inode: u32, path: &'p str) -> io::Result<(u32, &'p [u8])> {
        match path.rsplit_once('/') {
            None => Ok((inode, path.as_bytes())),
            Some((directory, name)) => {
                let found = self.fs.lookup_at(inode, directory.as_bytes());
                Ok((found.map_err(error)?, name.as_bytes()))
            }
        }
    }
}

impl Target for Rival {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        let mut inode = ROOT_INODE;
        for component in path.components() {
            if let Component::Normal(name) = component {
                let name = name.to_str().ok_or_else(|| io::Error::other("not UTF-8"))?;
                inode = self.shared.make_directory(inode, name)?;
            }
        }
        let shared = self.shared.clone();
        Ok(Box::new(RivalDirectory { shared, inode }))
    }
    fn sync(&self) -> io::Result<()> {
        self.shared.fs.flush().map_err(error)
    }
    fn sync_files(&self, _files: &[Box<dyn OpenFile>]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn used_percent(&self) -> io::Result<f64> {
        let device: &dyn BlockDevice = &*self.shared.device;
        let sb = Superblock::read(device).map_err(error)?;
        let free = sb.free_blocks_count as f64 / sb.blocks_count.max(1) as f64;
        Ok(100.0 * (1.0 - free))
    }
    fn device(&self) -> Option<Device> {
        let now = self.shared.device.counters();
        Some(Device {
            read_ios: now.read_ios - self.before.read_ios,
            read_bytes: now.read_bytes - self.before.read_bytes,
            write_ios: now.write_ios - self.before.write_ios,
            write_bytes: now.write_bytes - self.before.write_bytes,
            flushes: now.flushes - self.before.flushes,
            ..Device::default()
        })
    }
}

struct RivalDirectory {
    shared: Arc<Shared>,
    inode: u32,
}

impl RivalDirectory {
    fn file(&self, inode: u32) -> Box<dyn OpenFile> {
        let shared = self.shared.clone();
        Box::new(RivalFile { shared, inode })
    }

    fn look_up(&self, path: &str) -> io::Result<u32> {
        let (parent, name) = self.shared.parent(self.inode, path)?;
        self.shared.fs.lookup_at(parent, name).map_err(error)
    }
}

impl Directory for RivalDirectory {
    fn make_subdirectory(&self, name: &str) -> io::Result<()> {
        self.shared.make_directory(self.inode, name).map(|_| ())
    }
    fn create(&self, path: &str, create: Create) -> io::Result<Box<dyn OpenFile>> {
        let (parent, name) = self.shared.parent(self.inode, path)?;
        let _changing = self.shared.change();
        let fs = &self.shared.fs;
        let inode = match fs.apply_create_at(parent, name, 0o644) {
            Err(Error::AlreadyExists) if create == Create::Truncate => {
                let inode = fs.lookup_at(parent, name).map_err(error)?;
                fs.apply_truncate_ino(inode, 0).map_err(error)?;
                inode
            }
            made => made.map_err(error)?,
        };
        Ok(self.file(inode))
    }
    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(self.file(self.look_up(path)?))
    }
    /// The crate caches no contents of files.
    fn open_uncached(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        self.open(path)
    }
    fn stat(&self, path: &str) -> io::Result<()> {
        let inode = self.look_up(path)?;
        self.shared.fs.stat_ino(inode).map(|_| ()).map_err(error)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.shared.parent(self.inode, path)?;
        let _changing = self.shared.change();
        self.shared.fs.apply_unlink_at(parent, name).map_err(error)
    }
}

struct RivalFile {
    shared: Arc<Shared>,
    inode: u32,
}

impl OpenFile for RivalFile {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let _changing = self.shared.change();
        let written = self.shared.fs.apply_pwrite_ino(self.inode, offset, data);
        written.map(|_| ()).map_err(error)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.shared
            .fs
            .read_ino(self.inode, offset, buf)
            .map_err(error)
    }
    fn sync_all(&self) -> io::Result<()> {
        self.shared.fs.flush().map_err(error)
    }
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

fn error(e: Error) -> io::Error {
    match e {
        Error::Io(e) => e,
        other => io::Error::other(format!("rust-fs-ext4: {other:?}")),
    }
}
