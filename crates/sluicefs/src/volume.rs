//! Operations on a whole volume: sync, statistics, close.
//!
//! [`Volume`] is its root directory, with functions for the volume. Every handle (volume,
//! directory, file, directory iterator) holds a reference to [`Shared`]. The volume is unmounted
//! when the last one is dropped.

use crate::dir::Dir;
use crate::error::Cause;
use crate::file::File;
use crate::path::LastLink;
use crate::shared::{Defaults, Shared};
use block::Queue;
use ext4::{
    Fs, MountOptions, ResizeProgress, StatFs, SyncKind, SyncTarget, VolumeInfo, VolumeStats,
};
use std::borrow::Borrow;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use writeback::Tunables;

/// An open volume. A clone is cheap. The volume is unmounted when all clones, and all files and
/// directories on it, are dropped.
///
/// Operations on paths are those of [`Dir`]: a volume is its root directory.
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

    /// The path or URL of the device.
    pub fn device(&self) -> &str {
        self.root.shared().queue.name()
    }

    /// The size of the device, in bytes.
    pub fn device_bytes(&self) -> u64 {
        self.root.shared().queue.capacity()
    }

    /// Counters of the device, the journal and the caches, since the volume was opened.
    pub fn stats(&self) -> VolumeStats {
        self.fs().stats()
    }

    /// Label, UUID, features, geometry, state, and the recovery at this mount.
    pub fn info(&self) -> VolumeInfo {
        self.fs().info()
    }

    /// Returns whether the volume refuses changes, by option or after an error.
    pub fn is_read_only(&self) -> bool {
        self.fs().is_read_only()
    }

    /// The writeback parameters.
    pub fn tunables(&self) -> Tunables {
        self.fs().tunables()
    }

    /// Changes the writeback parameters, with immediate effect.
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
    /// `InvalidInput` with the name of the invalid value. Then no parameter has changed.
    pub fn set_tunables(&self, tunables: Tunables) -> io::Result<()> {
        tunables.validate()?;
        let set = self.fs().set_tunables(tunables);
        set.map_err(|e| Cause::from(e).at("tune", self.device()))
    }

    /// The file system in terms of inodes, for a server or a benchmark. This interface is not
    /// stable.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.root.shared().fs
    }

    /// Numbers of blocks and inodes, total and free.
    pub fn statfs(&self) -> StatFs {
        self.fs().statfs()
    }

    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// The first write error. The data stays dirty and is written again later.
    pub fn sync(&self) -> io::Result<()> {
        let done = self.fs().sync();
        done.map_err(|e| Cause::from(e).at("sync", self.device()))
    }

    /// Discards free space, in runs of at least `least` bytes, so that an image file gets small
    /// again. Returns how many bytes were discarded. Blocks that were freed since the last commit
    /// of the journal are left out ([`Volume::sync`] commits).
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`; `Unsupported` for a device that cannot discard; `InvalidInput` if
    /// `least` is more than a block group. Device errors.
    pub fn trim(&self, least: u64) -> io::Result<u64> {
        let done = self.fs().trim(0, u64::MAX, least);
        done.map_err(|e| Cause::from(e).at("discard free space of", self.device()))
    }

    /// Grows the volume to `size` bytes, or to the size of its device. An image file that is
    /// smaller is extended first; it takes no space for that. Returns the size in bytes. Other
    /// operations run meanwhile and use the new space at once. After a crash the volume has the old
    /// size, the new size or one between.
    ///
    /// ```no_run
    /// # use sluicefs::{Volume, VolumeOptions};
    /// # fn main() -> std::io::Result<()> {
    /// let volume = VolumeOptions::new().open("disk.img")?;
    /// assert_eq!(volume.resize(Some(20 << 30))?, 20 << 30);
    /// # volume.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`; `Unsupported` for a smaller size, for one that the device or the
    /// format does not have, and while another resize runs. Device errors. Steps that were done
    /// remain.
    pub fn resize(&self, size: Option<u64>) -> io::Result<u64> {
        self.resize_with(size, &mut |_| {})
    }

    /// As [`Volume::resize`]; `progress` is called after each step, which adds 64 groups at most.
    ///
    /// # Errors
    /// As [`Volume::resize`].
    pub fn resize_with(
        &self,
        size: Option<u64>,
        progress: &mut dyn FnMut(ResizeProgress),
    ) -> io::Result<u64> {
        let grown = self.fs().resize(size, progress);
        let bytes = grown.map(|blocks| blocks * u64::from(self.statfs().block_size));
        bytes.map_err(|e| Cause::from(e).at("resize", self.device()))
    }

    /// Makes many files durable. The results are in the order of the files. The data of all files
    /// is written together in large writes, and one commit of the journal is enough: apart from the
    /// data, the cost is that of one [`File::sync_all`]. An error of one file does not affect the
    /// others. A file may occur several times. Clean files cost nothing.
    ///
    /// Dirty data of other files is not written.
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
    /// As [`File::sync_all`] for each file; `InvalidInput` for a file of another volume.
    pub fn sync_files<F: Borrow<File>>(&self, files: &[F]) -> Vec<io::Result<()>> {
        let files = files.iter().map(Borrow::borrow);
        let on_this_volume = |file: &&File| file.is_on(self.root.shared());
        let targets: Vec<_> = files
            .clone()
            .filter(on_this_volume)
            .map(|file| SyncTarget {
                inode: file.inode().clone(),
                kind: SyncKind::Fsync,
            })
            .collect();
        let mut results = self.fs().fsync_many(&targets).into_iter();
        let foreign = || Err(Cause::Invalid("the file is on another volume"));
        files
            .map(|file| {
                let result = match on_this_volume(&file) {
                    true => results.next().unwrap_or(Ok(())).map_err(Cause::from),
                    false => foreign(),
                };
                result.map_err(|cause| cause.at("sync", file.path()))
            })
            .collect()
    }

    /// Makes a directory and everything below it durable, or a single file. Dirty data of other
    /// files is not written, with one exception: small dirty files whose directory is not known,
    /// for example because they have several names.
    ///
    /// The cost is that of the dirty data below `path`, and of a look at the parents of each other
    /// dirty file of the volume. Clean files cost nothing.
    ///
    /// # Errors
    /// `NotFound`, and the first write error. The data stays dirty and is written again later.
    pub fn sync_tree(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let root = self.root.find(path, LastLink::Follow);
        let done = root.and_then(|root| Ok(self.fs().sync_tree(&root)?));
        done.map_err(|cause| cause.at("sync", self.root.path().join(path)))
    }

    /// Writes all dirty data, marks the volume clean and unmounts it.
    ///
    /// # Errors
    /// Write errors. `ResourceBusy` while clones of the volume, or files or directories on it, are
    /// open; the volume is then unmounted when the last of them is dropped.
    pub fn close(self) -> io::Result<()> {
        let shared = self.root.shared().clone();
        let name = PathBuf::from(self.device());
        drop(self);
        // The only reference stays the only one: a new handle can only be made from a handle.
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
