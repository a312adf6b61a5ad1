//! Volumes in image files, and short forms of the engine's calls that take paths.

use crate::kernel::KernelMount;
use crate::needs::{Need, have};
use crate::oracle::{self, Mke2fs};
use crate::scratch::Scratch;
use crate::seed::Rng;
use block::Queue;
use ext4::{
    Error, FallocateMode, FileType, Fs, InodeRef, MountOptions, NewInode, Result, SetXattrMode,
    SyncKind,
};
use mkfs::MkfsOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::Ino;

/// fsync or fdatasync.
pub fn any_sync(rng: &mut Rng) -> SyncKind {
    match rng.one_in(2) {
        true => SyncKind::Fdatasync,
        false => SyncKind::Fsync,
    }
}

/// Mount options with little memory, so that reclaim runs.
pub fn options() -> MountOptions {
    MountOptions {
        memory: 64 << 20,
        ..MountOptions::default()
    }
}

/// Mount options with which nothing is written or committed unless the test asks for it.
pub fn quiet() -> MountOptions {
    const NEVER: Duration = Duration::from_secs(3600);
    intervals(NEVER, NEVER)
}

/// Mount options with which the flusher and the journal work all the time.
pub fn busy() -> MountOptions {
    intervals(Duration::from_millis(50), Duration::from_millis(20))
}

fn intervals(commit: Duration, writeback: Duration) -> MountOptions {
    MountOptions {
        commit_interval: commit,
        tunables: writeback::Tunables {
            dirty_expire: writeback,
            dirty_writeback: writeback,
            ..Default::default()
        },
        ..MountOptions::default()
    }
}

/// Opens an image.
pub fn open(image: &Path) -> Arc<Queue> {
    let url = block::DeviceUrl::Path(image.to_owned());
    // The lock of an earlier mount is released when its last thread has ended. The kernel closes
    // the files of an io_uring some time after its process was killed.
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match block::open(&url, block::OpenMode::ReadWrite) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other.expect("the image opens"),
        }
    }
}

/// Opens an image and mounts it.
///
/// # Errors
/// The engine's.
pub fn mount(image: &Path) -> Result<Arc<Fs>> {
    mount_with(image, options())
}

/// Opens an image, and its journal if that is in a file of its own, and mounts it with these
/// options.
///
/// # Errors
/// The engine's.
pub fn mount_with(image: &Path, options: MountOptions) -> Result<Arc<Fs>> {
    let journal = oracle::journal_of(image).map(|journal| open(&journal));
    Fs::mount(open(image), MountOptions { journal, ..options })
}

/// Mounts the volume on a disk in memory.
pub fn mount_on(disk: &crate::disk::Disk) -> Arc<Fs> {
    try_mount_on(disk, options()).expect("the volume mounts")
}

/// Mounts the volume on a disk in memory, with its journal on the second device if there are two.
///
/// # Errors
/// The engine's.
pub fn try_mount_on(disk: &crate::disk::Disk, options: MountOptions) -> Result<Arc<Fs>> {
    let journal = disk.journal();
    Fs::mount(disk.queue(), MountOptions { journal, ..options })
}

/// Formats an image of `size` bytes with our mkfs.
pub fn mkfs(image: &Path, size: u64, features: &[&str]) {
    let options = MkfsOptions {
        features: features.iter().map(|s| (*s).to_owned()).collect(),
        ..MkfsOptions::default()
    };
    mkfs_with(image, size, &options);
}

/// Formats an image of `size` bytes with our mkfs and these options.
pub fn mkfs_with(image: &Path, size: u64, options: &MkfsOptions) {
    block::create_image(image, size, block::Create::Overwrite).expect("an image");
    mkfs::format(&open(image), options).expect("mkfs");
}

/// A volume in an image file, in a directory of its own.
pub struct Image(Scratch);

impl Image {
    /// A volume by our mkfs.
    pub fn ours(size: u64, features: &[&str]) -> Image {
        let image = Image(Scratch::new());
        mkfs(&image.path(), size, features);
        image
    }

    /// A volume by our mkfs with these options.
    pub fn ours_with(size: u64, options: &MkfsOptions) -> Image {
        let image = Image(Scratch::new());
        mkfs_with(&image.path(), size, options);
        image
    }

    /// A volume by mke2fs.
    pub fn by_mke2fs(how: &Mke2fs) -> Image {
        let image = Image(Scratch::new());
        how.make(&image.path()).expect("mke2fs");
        image
    }

    /// The path of the image.
    pub fn path(&self) -> PathBuf {
        self.0.join("volume.img")
    }

    /// An empty directory next to the image.
    pub fn mount_point(&self) -> PathBuf {
        let dir = self.0.join("mnt");
        std::fs::create_dir_all(&dir).expect("a mount point");
        dir
    }

    /// Opens the image.
    pub fn queue(&self) -> Arc<Queue> {
        open(&self.path())
    }

    /// Mounts the volume with the engine's default options.
    pub fn mount(&self) -> Arc<Fs> {
        self.mount_with(MountOptions::default())
    }

    /// Mounts the volume with these options.
    pub fn mount_with(&self, options: MountOptions) -> Arc<Fs> {
        Fs::mount(self.queue(), options).expect("the volume mounts")
    }

    /// Mounts the volume for reading.
    pub fn mount_read_only(&self) -> Arc<Fs> {
        self.mount_with(MountOptions {
            read_only: true,
            ..MountOptions::default()
        })
    }

    /// Mounts the volume, calls `work` and unmounts it.
    pub fn with<R>(&self, work: impl FnOnce(&Arc<Fs>) -> R) -> R {
        let fs = self.mount();
        let result = work(&fs);
        fs.unmount().expect("unmount");
        result
    }

    /// Unmounts the volume and checks it.
    pub fn unmount(&self, fs: Arc<Fs>) {
        fs.unmount().expect("unmount");
        drop(fs);
        self.check();
    }

    /// Asserts that e2fsck finds the volume clean.
    pub fn check(&self) {
        oracle::assert_clean(&self.path(), "unmounted");
    }

    /// Runs one request of debugfs; returns its output.
    pub fn debugfs(&self, request: &str) -> String {
        oracle::debugfs(&self.path(), request)
    }

    /// Calls `work` with a mount by the kernel. Without root and loop devices prints `SKIPPED: …`
    /// and returns `None`.
    pub fn with_kernel<R>(&self, options: &str, work: impl FnOnce(&Path) -> R) -> Option<R> {
        if !have("a mount by the kernel", &[Need::Loop, Need::Tool("mount")]) {
            return None;
        }
        let mount = KernelMount::with(&self.path(), options);
        let result = work(mount.path());
        mount.unmount();
        Some(result)
    }

    /// A copy of the image at this moment, as a crash of the process would leave it.
    pub fn copy(&self) -> Image {
        let copy = Image(Scratch::new());
        oracle::copy(&self.path(), &copy.path());
        copy
    }
}

/// Attributes of a new inode.
pub fn new(mode: u16) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn components(path: &str) -> impl Iterator<Item = &[u8]> {
    path.split('/').filter(|c| !c.is_empty()).map(str::as_bytes)
}

/// The inode at `path`.
///
/// # Errors
/// The engine's.
pub fn at(fs: &Fs, path: &str) -> Result<InodeRef> {
    components(path).try_fold(fs.root()?, |dir, name| fs.lookup(&dir, name))
}

/// The directory that holds `path`, and the last name.
///
/// # Errors
/// The engine's.
pub fn parent<'a>(fs: &Fs, path: &'a str) -> Result<(InodeRef, &'a [u8])> {
    match path.rsplit_once('/') {
        Some((dir, name)) => Ok((at(fs, dir)?, name.as_bytes())),
        None => Ok((fs.root()?, path.as_bytes())),
    }
}

/// Creates an empty file.
///
/// # Errors
/// The engine's.
pub fn touch(fs: &Fs, dir: &InodeRef, name: &str) -> Result<InodeRef> {
    fs.create(dir, name.as_bytes(), new(0o100_644))
}

/// Creates a directory.
///
/// # Errors
/// The engine's.
pub fn mkdir(fs: &Fs, dir: &InodeRef, name: &str) -> Result<InodeRef> {
    fs.mkdir(dir, name.as_bytes(), new(0o040_755))
}

/// Creates a file with these contents, or replaces its contents.
///
/// # Errors
/// The engine's.
pub fn put(fs: &Fs, path: &str, data: &[u8]) -> Result<InodeRef> {
    let (dir, name) = parent(fs, path)?;
    let file = match fs.create(&dir, name, new(0o100_644)) {
        Err(Error::Exists) => {
            let file = fs.lookup(&dir, name)?;
            fs.truncate(&file, 0)?;
            file
        }
        other => other?,
    };
    write_all(fs, &file, 0, data)?;
    Ok(file)
}

/// Writes all of `data`.
///
/// # Errors
/// The engine's; `NoSpace` where only a part was written.
pub fn write_all(fs: &Fs, file: &InodeRef, offset: u64, data: &[u8]) -> Result<()> {
    let n = fs.write(file, offset, data)?;
    if n < data.len() {
        return Err(Error::NoSpace);
    }
    Ok(())
}

/// fallocate. A file with a block map has no preallocated space: it gets zeroes that are written.
///
/// # Errors
/// The engine's; `NoSpace` where only a part was written.
pub fn fallocate(
    fs: &Fs,
    file: &InodeRef,
    mode: FallocateMode,
    offset: u64,
    len: u64,
) -> Result<()> {
    match fs.fallocate(file, mode, offset, len) {
        Err(Error::NotSupported) => {}
        other => return other,
    }
    let (size, end) = (file.size(), offset + len);
    let (from, to) = match mode {
        FallocateMode::Allocate { keep_size: true } => return Ok(()),
        FallocateMode::Allocate { keep_size: false } => (offset.max(size), end),
        FallocateMode::ZeroRange { keep_size: true } | FallocateMode::PunchHole => {
            (offset, end.min(size))
        }
        FallocateMode::ZeroRange { keep_size: false } => (offset, end),
    };
    match to.checked_sub(from) {
        Some(len) if len > 0 => write_all(fs, file, from, &vec![0; len as usize]),
        _ => Ok(()),
    }
}

/// Reads the file at `path`.
///
/// # Errors
/// The engine's.
pub fn get(fs: &Fs, path: &str) -> Result<Vec<u8>> {
    contents(fs, &at(fs, path)?)
}

/// Reads all of a file.
///
/// # Errors
/// The engine's.
pub fn contents(fs: &Fs, file: &InodeRef) -> Result<Vec<u8>> {
    let mut data = vec![0; file.size() as usize];
    let n = fs.read(file, 0, &mut data)?;
    data.truncate(n);
    Ok(data)
}

/// Creates a directory and its parents unless they exist.
///
/// # Errors
/// The engine's.
pub fn mkdir_all(fs: &Fs, path: &str) -> Result<InodeRef> {
    components(path).try_fold(fs.root()?, |dir, name| {
        match fs.mkdir(&dir, name, new(0o040_755)) {
            Err(Error::Exists) => fs.lookup(&dir, name),
            other => other,
        }
    })
}

/// Lists a directory, without "." and "..".
///
/// # Errors
/// The engine's.
pub fn list(fs: &Fs, dir: &InodeRef) -> Result<Vec<(Vec<u8>, Ino, FileType)>> {
    let mut found = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            found.push((entry.name.to_vec(), entry.ino, entry.kind));
        }
        true
    })?;
    Ok(found)
}

/// Removes the file at `path`.
///
/// # Errors
/// The engine's.
pub fn remove(fs: &Fs, path: &str) -> Result<()> {
    let (dir, name) = parent(fs, path)?;
    fs.unlink(&dir, name)
}

/// Renames; replaces what is at `to`.
///
/// # Errors
/// The engine's.
pub fn rename(fs: &Fs, from: &str, to: &str) -> Result<()> {
    let (from_dir, from_name) = parent(fs, from)?;
    let (to_dir, to_name) = parent(fs, to)?;
    fs.rename(
        &from_dir,
        from_name,
        &to_dir,
        to_name,
        ext4::RenameFlags::Replace,
    )
}

/// Sets an extended attribute of the file at `path`.
///
/// # Errors
/// The engine's.
pub fn set_xattr(fs: &Fs, path: &str, name: &str, value: &[u8]) -> Result<()> {
    fs.set_xattr(&at(fs, path)?, name.as_bytes(), value, SetXattrMode::Any)
}
