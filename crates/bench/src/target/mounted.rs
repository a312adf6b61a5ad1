//! Directories of mounted file systems, used through openat(2) and the other "at" calls.

use super::counters::{Counters, Mount, Source};
use super::fsync_queue::{FsyncQueue, Uring};
use super::{Create, Directory, OpenFile, Reading, Target, xfs};
use crate::Device;
use memmap2::MmapMut;
use rustix::fs::{Advice, AtFlags, Mode, OFlags, RawDir, XattrFlags, setxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of entries that are read at once, as by the C library.
const READ_BYTES: usize = 32 << 10;
/// The extended attribute of a mount's root directory that drops the caches of `sluice mount`.
const SLUICE_DROP_CACHES: &str = "user.sluicefs.drop_caches";

/// Directories of one or more mounted file systems.
pub struct MountedTarget {
    roots: Vec<PathBuf>,
    file_systems: Vec<FileSystem>,
    sync_sluice: Option<SyncMount>,
}

/// Makes the mounted volume that holds a directory durable.
pub type SyncMount = fn(&Path) -> io::Result<()>;

/// A mounted file system that at least one of the directories is on.
struct FileSystem {
    root: File,
    path: PathBuf,
    /// The root directory of the mount, if `sluice mount` made it.
    sluice_root: Option<PathBuf>,
    counters: Option<(Source, Counters)>,
}

impl MountedTarget {
    /// Runs in `roots`, which are made if they do not exist.
    ///
    /// # Errors
    /// The file system's, with the directory's name; `InvalidInput` if `roots` is empty.
    pub fn new(roots: &[PathBuf]) -> io::Result<MountedTarget> {
        let mut by_device = BTreeMap::new();
        let mut absolute = Vec::new();
        for root in roots {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", root.display()));
            make_directory(root).map_err(named)?;
            let file = File::open(root).map_err(named)?;
            let path = root.canonicalize().map_err(named)?;
            by_device
                .entry(file.metadata()?.dev())
                .or_insert((file, path.clone()));
            absolute.push(path);
        }
        if absolute.is_empty() {
            let what = "no directory to work in";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let file_systems = by_device.into_values().map(|(root, path)| {
            let source = Source::of(&root);
            let counters = source.and_then(|s| s.read().map(|now| (s, now)));
            FileSystem {
                sluice_root: Mount::of(&root)
                    .filter(|mount| mount.is_sluice())
                    .map(|mount| mount.root),
                root,
                path,
                counters,
            }
        });
        Ok(MountedTarget {
            file_systems: file_systems.collect(),
            roots: absolute,
            sync_sluice: None,
        })
    }

    /// Syncs mounts of `sluice mount` by `sync`, because syncfs(2) does not reach them.
    #[must_use]
    pub fn syncing_sluice_by(mut self, sync: SyncMount) -> MountedTarget {
        self.sync_sluice = Some(sync);
        self
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

impl MountedTarget {
    /// Drops the caches of the servers of `sluice mount`. The kernel's are dropped before, since
    /// they pin inodes of the server.
    fn drop_caches_of_servers(&self) -> io::Result<()> {
        let roots = self.file_systems.iter();
        for root in roots.filter_map(|fs| fs.sluice_root.as_ref()) {
            setxattr(root, SLUICE_DROP_CACHES, b"1", XattrFlags::empty())?;
        }
        Ok(())
    }
}

impl Target for MountedTarget {
    fn name(&self) -> String {
        let names: Vec<_> = self.roots.iter().map(|r| r.display().to_string()).collect();
        names.join(" ")
    }
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        let path = self.roots[0].join(path);
        make_directory(&path)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Box::new(SystemDirectory(rustix::fs::open(
            &path,
            flags,
            Mode::empty(),
        )?)))
    }
    fn sync(&self) -> io::Result<()> {
        for fs in &self.file_systems {
            match self.sync_sluice.filter(|_| fs.sluice_root.is_some()) {
                Some(sync) => sync(&fs.path)?,
                None => rustix::fs::syncfs(&fs.root)?,
            }
        }
        Ok(())
    }
    fn sync_files(&self, _files: &[Box<dyn OpenFile>]) -> io::Result<()> {
        let what = "a mounted file system has no bulk fsync; use --volume, or --fsync async";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }
    fn fsync_queue(&self, depth: usize) -> io::Result<Box<dyn FsyncQueue>> {
        Ok(Box::new(Uring::new(depth)?))
    }
    fn used_percent(&self) -> io::Result<f64> {
        let s = rustix::fs::statvfs(&self.roots[0])?;
        Ok(100.0 * (1.0 - s.f_bavail as f64 / s.f_blocks.max(1) as f64))
    }
    fn device(&self) -> Option<Device> {
        let mut sum: Option<Device> = None;
        for (source, before) in self.file_systems.iter().filter_map(|f| f.counters.as_ref()) {
            let now = source.read()?.since(before);
            sum = Some(sum.map_or(now.clone(), |s| s.plus(&now)));
        }
        sum
    }
    fn cached_inodes(&self) -> Option<u64> {
        // "nr_inodes nr_free_inodes", of all file systems.
        let text = std::fs::read_to_string("/proc/sys/fs/inode-nr").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }
    fn wbt_lat_usec(&self) -> Option<u64> {
        let mut sources = self.file_systems.iter().filter_map(|f| f.counters.as_ref());
        sources.find_map(|(source, _)| source.wbt_lat_usec())
    }
    fn drop_caches(&self) {
        // Only root may do that. Otherwise names and inodes stay in the kernel's caches.
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
        let _ = self.drop_caches_of_servers();
    }
    fn make_cold(&self) -> io::Result<String> {
        self.sync()?;
        // The first time drops names, which hold their inodes, and the second time the rest.
        for _ in 0..2 {
            std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| {
                io::Error::new(
                    e.kind(),
                    format!("only root may drop the kernel's caches: {e}"),
                )
            })?;
        }
        self.drop_caches_of_servers()?;
        let served = self.file_systems.iter().any(|fs| fs.sluice_root.is_some());
        Ok(match served {
            true => "the caches of the kernel and of the server were dropped".to_owned(),
            false => "the kernel's caches were dropped (/proc/sys/vm/drop_caches)".to_owned(),
        })
    }
    fn has_bulkstat(&self) -> bool {
        self.file_systems.iter().all(|fs| xfs::is_xfs(&fs.root))
    }
    fn bulkstat(&self, threads: usize) -> io::Result<u64> {
        let counts = self.file_systems.iter();
        counts.map(|fs| xfs::bulkstat(&fs.root, threads)).sum()
    }
}

struct SystemDirectory(OwnedFd);

impl SystemDirectory {
    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<Box<dyn OpenFile>> {
        let flags = flags | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o666))?;
        Ok(Box::new(File::from(fd)))
    }
}

impl Directory for SystemDirectory {
    fn make_subdirectory(&self, name: &str) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
    fn create(&self, name: &str, create: Create) -> io::Result<Box<dyn OpenFile>> {
        let how = match create {
            Create::New => OFlags::EXCL,
            Create::Truncate => OFlags::TRUNC,
            Create::Keep => OFlags::empty(),
        };
        self.open_file(name, OFlags::CREATE | OFlags::RDWR | how)
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        self.open_file(name, OFlags::RDONLY)
    }
    fn open_uncached(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        match self.open_file(name, OFlags::RDONLY | OFlags::DIRECT) {
            // This file system has no direct I/O.
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => self.open(name),
            opened => opened,
        }
    }
    fn stat(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).map(|_| ())?)
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }
    fn remove_subdirectory(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }
    fn read_directory(
        &self,
        name: &str,
        reading: Reading,
        each: &mut dyn FnMut(),
    ) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        let mut buf = Vec::with_capacity(READ_BYTES);
        let mut entries = RawDir::new(&dir, buf.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if reading == Reading::Attributes {
                rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            each();
        }
        Ok(())
    }
}

impl OpenFile for File {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, data, offset)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }
    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
    fn drop_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(self, 0, None, Advice::DontNeed)?)
    }
    fn map(&self) -> io::Result<MmapMut> {
        // SAFETY: a workload made the file for itself. Only the thread that maps it writes to it,
        // and it is not truncated while it is mapped.
        unsafe { MmapMut::map_mut(self) }
    }
}
