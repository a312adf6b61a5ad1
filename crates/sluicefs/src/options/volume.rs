//! How to open a volume.

use crate::options::FormatOptions;
use crate::volume::{Defaults, Volume, device_url};
use block::OpenMode;
use cache::Budget;
use ext4::{AsyncCommit, MountOptions, OnError};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use writeback::{Flushers, Tunables};

/// How to open a volume.
///
/// ```no_run
/// use sluicefs::VolumeOptions;
/// # fn main() -> std::io::Result<()> {
/// let volume = VolumeOptions::new().read_only(true).memory(256 << 20).open("disk.img")?;
/// println!("{}", volume.read_to_string("/etc/hostname")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct VolumeOptions {
    mount: MountOptions,
    plug: bool,
    claimed: bool,
    defaults: Defaults,
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            mount: MountOptions::default(),
            plug: true,
            claimed: false,
            defaults: Defaults {
                umask: 0o022,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            },
        }
    }
}

/// The file system's own options, as a server builds them from `-o`.
impl From<MountOptions> for VolumeOptions {
    fn from(mount: MountOptions) -> VolumeOptions {
        VolumeOptions {
            mount,
            ..VolumeOptions::default()
        }
    }
}

impl VolumeOptions {
    /// Read and write, with defaults for everything else.
    pub fn new() -> VolumeOptions {
        VolumeOptions::default()
    }
    /// Refuses every change. The device is opened for reading only; a journal that needs replay is
    /// replayed in memory.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> VolumeOptions {
        self.mount.read_only = read_only;
        self
    }
    /// Bytes of memory for pages, inodes and metadata together.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> VolumeOptions {
        self.mount.memory = bytes;
        self
    }
    /// A budget of memory that several volumes share, instead of [`VolumeOptions::memory`].
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> VolumeOptions {
        self.mount.budget = Some(budget);
        self
    }
    /// All writeback parameters at once; values that make no sense are refused when the volume is
    /// opened.
    #[must_use]
    pub fn tunables(mut self, tunables: Tunables) -> VolumeOptions {
        self.mount.tunables = tunables;
        self
    }
    /// Percent of the memory that may be dirty before writers are slowed to the device's pace.
    #[must_use]
    pub fn dirty_ratio(mut self, percent: u32) -> VolumeOptions {
        self.mount.tunables.dirty_ratio = percent;
        self
    }
    /// Percent of the memory that may be dirty before the flusher starts.
    #[must_use]
    pub fn dirty_background_ratio(mut self, percent: u32) -> VolumeOptions {
        self.mount.tunables.dirty_background_ratio = percent;
        self
    }
    /// Age at which dirty data is written.
    #[must_use]
    pub fn dirty_expire(mut self, age: Duration) -> VolumeOptions {
        self.mount.tunables.dirty_expire = age;
        self
    }
    /// How often the flusher looks for aged data.
    #[must_use]
    pub fn dirty_writeback(mut self, every: Duration) -> VolumeOptions {
        self.mount.tunables.dirty_writeback = every;
        self
    }
    /// How long a transaction gathers changes.
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> VolumeOptions {
        self.mount.commit_interval = interval;
        self
    }
    /// When the commit block of a small transaction is written together with what it commits, as
    /// the kernel does by its mount option `journal_async_commit`: fewer trips to the device for
    /// each sync, and meanwhile a log with one checksum for a transaction (csum v1) instead of one
    /// for each block (v3). By default while small syncs follow one another; see docs/FSYNC.md. A
    /// log that is closed has v3 again.
    #[must_use]
    pub fn journal_async_commit(mut self, when: AsyncCommit) -> VolumeOptions {
        self.mount.async_commit = when;
        self
    }
    /// Whether reading updates access times (as relatime does) or not.
    #[must_use]
    pub fn atime(mut self, atime: bool) -> VolumeOptions {
        self.mount.atime = atime;
        self
    }
    /// What happens when damage is met while the volume is in use, as ext4's `errors=` says. By
    /// default it is what the super block says (`tune2fs -e`). The error is recorded in the super
    /// block either way, unless the volume is read-only.
    #[must_use]
    pub fn errors(mut self, errors: OnError) -> VolumeOptions {
        self.mount.errors = Some(errors);
        self
    }
    /// Whether one plug is held over many files at writeback, so that their writes merge (as is by
    /// default), or one for each file, as kernels had before 2013 (an ablation for measurements).
    /// The journal's stream and the checkpoint are one sorted list each, and merged either way.
    #[must_use]
    pub fn plug(mut self, plug: bool) -> VolumeOptions {
        self.plug = plug;
        self
    }
    /// Whether the volume's flusher has a thread of its own, or shares one with all volumes of the
    /// process that say so (an ablation for measurements).
    #[must_use]
    pub fn flushers(mut self, flushers: Flushers) -> VolumeOptions {
        self.mount.flushers = flushers;
        self
    }
    /// The caller has a claim on the block device already, as by a mount of type `fuseblk`;
    /// otherwise the volume claims it.
    #[must_use]
    pub fn claimed(mut self, claimed: bool) -> VolumeOptions {
        self.claimed = claimed;
        self
    }
    /// Bits taken from the mode of what is created (022).
    #[must_use]
    pub fn umask(mut self, umask: u32) -> VolumeOptions {
        self.defaults.umask = (umask & 0o777) as u16;
        self
    }
    /// Owner and group of what is created (the process's).
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> VolumeOptions {
        self.defaults.uid = uid;
        self.defaults.gid = gid;
        self
    }

    /// Opens the volume on a device: the path of an image or block device, or a URL.
    ///
    /// # Errors
    /// `NotFound` without the device, `ResourceBusy` where it is in use, the names of unsupported
    /// features or of the damaged structure, and the device's.
    pub fn open(&self, url: impl AsRef<OsStr>) -> io::Result<Volume> {
        let url = device_url(url.as_ref())?;
        let mode = match (self.mount.read_only, self.claimed) {
            (true, _) => OpenMode::ReadOnly,
            (false, true) => OpenMode::ReadWriteClaimed,
            (false, false) => OpenMode::ReadWrite,
        };
        self.mount(block::open(&url, mode)?)
    }

    /// Formats a device and opens the new volume.
    ///
    /// # Errors
    /// As [`FormatOptions::format`] and [`VolumeOptions::open`].
    pub fn format(&self, url: impl AsRef<OsStr>, options: &FormatOptions) -> io::Result<Volume> {
        let url = device_url(url.as_ref())?;
        self.mount(options.format_device(&url)?.0)
    }

    /// Opens the volume behind a queue that the caller made (a device of its own, a recording or a
    /// modelled one).
    ///
    /// # Errors
    /// As [`VolumeOptions::open`].
    pub fn mount(&self, queue: Arc<block::Queue>) -> io::Result<Volume> {
        self.mount.tunables.validate()?;
        queue.set_plugging(self.plug);
        Volume::mount(queue, self.mount.clone(), self.defaults)
    }
}
