//! A volume: opened, formatted, synced, closed.
//!
//! [`Volume`] is a [`Dir`] on the root with the volume's own functions beside it. Every handle
//! (volume, directory, file, directory reader) holds the shared part; when the last one goes, the
//! volume is unmounted.

use crate::dir::Dir;
use crate::error::Cause;
use crate::file::File;
use crate::options::{FormatOptions, VolumeOptions};
use crate::path::LastLink;
use block::{DeviceUrl, Queue};
use ext4::{Fs, MountOptions, StatFs, SyncTarget, VolumeInfo, VolumeStats};
use std::borrow::Borrow;
use std::ffi::OsStr;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use writeback::Tunables;

/// What formatting made.
pub type FormatReport = ext4::mkfs::MkfsReport;

/// Who owns what is created, and with which mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub umask: u16,
    pub uid: u32,
    pub gid: u32,
}

/// What all handles on a volume share.
pub(crate) struct Shared {
    pub fs: Arc<Fs>,
    pub defaults: Defaults,
    queue: Arc<Queue>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`; here only the log is left.
        if let Err(e) = self.fs.unmount() {
            tracing::error!(device = self.queue.name(), "unmount failed: {e}");
        }
    }
}

/// An open volume. Cheap to clone; unmounted when it and everything opened through it is gone.
///
/// All that works on paths comes from [`Dir`]: a volume is its root directory.
///
/// ```
/// use sluicefs::{FormatOptions, Volume};
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// volume.create_dir("/new")?;
/// volume.write("/new/file", b"contents")?;
/// volume.rename("/new/file", "/moved")?;
/// assert_eq!(volume.read("/moved")?, b"contents");
/// volume.sync()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Volume {
    root: Dir,
}

impl Deref for Volume {
    type Target = Dir;
    fn deref(&self) -> &Dir {
        &self.root
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Volume").field(&self.device()).finish()
    }
}

impl Volume {
    /// Opens the volume on a device for reading and writing; the journal is replayed if need be.
    /// See [`VolumeOptions`] for more.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`].
    pub fn open(url: impl AsRef<OsStr>) -> io::Result<Volume> {
        VolumeOptions::new().open(url)
    }

    /// Formats a device and opens the new volume.
    ///
    /// # Errors
    /// As [`FormatOptions::format`].
    pub fn format(url: impl AsRef<OsStr>, options: FormatOptions) -> io::Result<Volume> {
        VolumeOptions::new().format(url, &options)
    }

    pub(crate) fn mount(
        queue: Arc<Queue>,
        options: MountOptions,
        defaults: Defaults,
    ) -> io::Result<Volume> {
        let fail = |e: ext4::Error| Cause::from(e).at("open", queue.name());
        let fs = Fs::mount(queue.clone(), options).map_err(fail)?;
        let root = fs.root().map_err(fail)?;
        let shared = Arc::new(Shared {
            fs,
            defaults,
            queue: queue.clone(),
        });
        Ok(Volume {
            root: Dir::new(shared, root, Arc::from(Path::new("/"))),
        })
    }

    /// The root directory.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Path or URL of the device.
    pub fn device(&self) -> &str {
        self.root.shared().queue.name()
    }

    /// Bytes the device holds.
    pub fn device_bytes(&self) -> u64 {
        self.root.shared().queue.capacity()
    }

    /// Counters of the device, the journal and the caches since it was opened.
    pub fn stats(&self) -> VolumeStats {
        self.fs().stats()
    }

    /// Label, UUID, features, geometry, state, and what recovery did at this mount.
    pub fn info(&self) -> VolumeInfo {
        self.fs().info()
    }

    /// Whether changes are refused, by wish or after an error.
    pub fn is_read_only(&self) -> bool {
        self.fs().is_read_only()
    }

    /// Writeback's parameters.
    pub fn tunables(&self) -> Tunables {
        self.fs().tunables()
    }

    /// Changes writeback's parameters; they hold at once.
    ///
    /// ```
    /// # use sluicefs::{FormatOptions, Volume};
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
    /// let mut tunables = volume.tunables();
    /// tunables.apply("dirty_bytes=16MiB,dirty_expire=2.5")?;
    /// volume.set_tunables(tunables)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` says which value makes no sense; then nothing has changed.
    pub fn set_tunables(&self, tunables: Tunables) -> io::Result<()> {
        tunables.validate()?;
        let set = self.fs().set_tunables(tunables);
        set.map_err(|e| Cause::from(e).at("tune", self.device()))
    }

    /// The file system beneath, for a server or benchmark that works on inodes. It follows no
    /// stability promise.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.root.shared().fs
    }

    /// Blocks and inodes, used and free.
    pub fn statfs(&self) -> StatFs {
        self.fs().statfs()
    }

    /// Makes everything durable that has been changed so far.
    ///
    /// # Errors
    /// Where something could not be written; it stays dirty and will be tried again.
    pub fn sync(&self) -> io::Result<()> {
        let done = self.fs().sync();
        done.map_err(|e| Cause::from(e).at("sync", self.device()))
    }

    /// Makes many files durable, with a result for each in their order. It costs what a
    /// [`File::sync_all`] of one file costs beside the data: the data of all leaves together in
    /// large writes, and there is one commit of the journal. The error of one file is no other's.
    /// One file may be named several times, and what is not dirty costs nothing.
    ///
    /// Nothing else's dirty data is written or waited for.
    ///
    /// ```
    /// # use sluicefs::{FormatOptions, Volume};
    /// # use std::io::Write;
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
    /// let mut files = Vec::new();
    /// for i in 0..100 {
    ///     let mut file = volume.create_file(format!("/package-{i}"))?;
    ///     file.write_all(b"contents")?;
    ///     files.push(file);
    /// }
    /// for result in volume.sync_files(&files) {
    ///     result?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Each result is as that of [`File::sync_all`]; `InvalidInput` for a file of another volume.
    pub fn sync_files<F: Borrow<File>>(&self, files: &[F]) -> Vec<io::Result<()>> {
        let files = files.iter().map(Borrow::borrow);
        let mine = |file: &&File| file.is_on(self.root.shared());
        let targets: Vec<_> = files
            .clone()
            .filter(mine)
            .map(|file| SyncTarget {
                inode: file.inode().clone(),
                data_only: false,
            })
            .collect();
        let mut results = self.fs().fsync_many(&targets).into_iter();
        let foreign = || Err(Cause::Invalid("the file is on another volume"));
        files
            .map(|file| {
                let result = match mine(&file) {
                    true => results.next().unwrap_or(Ok(())).map_err(Cause::from),
                    false => foreign(),
                };
                result.map_err(|cause| cause.at("sync", file.path()))
            })
            .collect()
    }

    /// Makes a directory and everything below it durable, or a single file. Nothing else's dirty
    /// data is waited for, but for files of which it is not known where they lie (they have several
    /// names, say) and which have little.
    ///
    /// It costs what is dirty there, and a look at the parents of every other dirty file of the
    /// volume; what is clean costs nothing.
    ///
    /// # Errors
    /// `NotFound`, and where something could not be written; it stays dirty and will be tried
    /// again.
    pub fn sync_tree(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let root = self.root.find(path, LastLink::Follow);
        let done = root.and_then(|root| Ok(self.fs().sync_tree(&root)?));
        done.map_err(|cause| cause.at("sync", self.root.path().join(path)))
    }

    /// Writes everything back, marks the volume clean and unmounts it.
    ///
    /// # Errors
    /// `ResourceBusy` while clones, files or directories of it are still open (the volume is then
    /// unmounted when the last of them goes), and what writing back met.
    pub fn close(self) -> io::Result<()> {
        let shared = self.root.shared().clone();
        let name = PathBuf::from(self.device());
        drop(self);
        // Alone means for good: a new handle can only be made from an old one.
        match Arc::try_unwrap(shared) {
            Ok(shared) => {
                let done = shared.fs.unmount();
                done.map_err(|e| Cause::from(e).at("unmount", name))
            }
            Err(_) => Err(Cause::Busy(
                "files or directories on it are still open; drop them first",
            )
            .at("unmount", name)),
        }
    }
}

/// What a device is called, from a path of any bytes or a URL.
pub(crate) fn device_url(name: &OsStr) -> io::Result<DeviceUrl> {
    match name.to_str() {
        Some(text) => DeviceUrl::parse(text),
        None => Ok(DeviceUrl::Path(PathBuf::from(name))),
    }
}
