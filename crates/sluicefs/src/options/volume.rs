//! Options to open a volume.

use crate::devices::SCHEMES;
use crate::error::{Cause, Error};
use crate::journal_device;
use crate::options::format::FormatOptions;
use crate::shared::Defaults;
use crate::volume::Volume;
use block::{OpenMode, ThrottleOptions};
use cache::Budget;
use ext4::{AsyncCommit, ExternalJournal, MountOptions, OnError};
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use writeback::{Flushers, Tunables};

/// Options to open a volume.
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
    journal: Option<OsString>,
    defaults: Defaults,
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            mount: MountOptions::default(),
            plug: true,
            claimed: false,
            journal: None,
            defaults: Defaults {
                umask: 0o022,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            },
        }
    }
}

/// Takes the options of the `ext4` crate, which a server parses from `-o`.
impl From<MountOptions> for VolumeOptions {
    fn from(mount: MountOptions) -> VolumeOptions {
        VolumeOptions {
            mount,
            ..VolumeOptions::default()
        }
    }
}

impl VolumeOptions {
    /// The defaults: read and write access.
    pub fn new() -> VolumeOptions {
        VolumeOptions::default()
    }
    /// Refuses all changes. The device is opened read-only. A journal that needs recovery is
    /// replayed in memory.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> VolumeOptions {
        self.mount.read_only = read_only;
        self
    }
    /// Gives freed blocks back to the device or image file, as `-o discard` of Linux: by the
    /// flusher, after the transaction that freed them has committed. Off by default.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> VolumeOptions {
        self.mount.discard = discard;
        self
    }
    /// Sets the memory for pages, inodes and metadata together, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> VolumeOptions {
        self.mount.memory = bytes;
        self
    }
    /// Uses a memory budget that several volumes share, instead of [`VolumeOptions::memory`].
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> VolumeOptions {
        self.mount.budget = Some(budget);
        self
    }
    /// Sets all writeback parameters. Opening the volume fails if a value is invalid.
    #[must_use]
    pub fn tunables(mut self, tunables: Tunables) -> VolumeOptions {
        self.mount.tunables = tunables;
        self
    }
    /// Sets the percentage of the memory that may be dirty before writers are throttled to the
    /// device's rate.
    #[must_use]
    pub fn dirty_ratio(mut self, percent: u32) -> VolumeOptions {
        self.mount.tunables.dirty_ratio = percent;
        self
    }
    /// Sets the percentage of the memory that may be dirty before the flusher starts.
    #[must_use]
    pub fn dirty_background_ratio(mut self, percent: u32) -> VolumeOptions {
        self.mount.tunables.dirty_background_ratio = percent;
        self
    }
    /// Sets the age at which dirty data is written.
    #[must_use]
    pub fn dirty_expire(mut self, age: Duration) -> VolumeOptions {
        self.mount.tunables.dirty_expire = age;
        self
    }
    /// Sets the interval at which the flusher looks for data of that age.
    #[must_use]
    pub fn dirty_writeback(mut self, every: Duration) -> VolumeOptions {
        self.mount.tunables.dirty_writeback = every;
        self
    }
    /// Sets the throttle of background writes, which leaves room for reads and small syncs
    /// ([`Volume::stats`](crate::Volume::stats) shows it). By default it adapts to the device.
    #[must_use]
    pub fn throttle(mut self, options: ThrottleOptions) -> VolumeOptions {
        self.mount.tunables.wbt = options;
        self
    }
    /// Sets the age at which a transaction is committed.
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> VolumeOptions {
        self.mount.commit_interval = interval;
        self
    }
    /// Chooses when the commit block of a small transaction is written together with the blocks
    /// that it commits, as the kernel does with the mount option `journal_async_commit`. A sync
    /// then waits for the device less often. Meanwhile the log has one checksum for each
    /// transaction (csum v1) instead of one for each block (v3); closing the volume restores v3. By
    /// default this is on while small syncs follow one another (docs/FSYNC.md).
    #[must_use]
    pub fn journal_async_commit(mut self, when: AsyncCommit) -> VolumeOptions {
        self.mount.async_commit = when;
        self
    }
    /// Names the device with the journal of a volume whose journal is on a device of its own: a
    /// path or URL, as for [`VolumeOptions::open`]. Without this, the journal of a volume on a
    /// block device is searched for by its device number and its UUID; that of an image is not. A
    /// clean volume can be opened read-only without its journal.
    #[must_use]
    pub fn journal(mut self, url: impl AsRef<OsStr>) -> VolumeOptions {
        self.journal = Some(url.as_ref().to_owned());
        self
    }
    /// Updates access times on reads, as `relatime` does. Off by default.
    #[must_use]
    pub fn atime(mut self, atime: bool) -> VolumeOptions {
        self.mount.atime = atime;
        self
    }
    /// Chooses the reaction to damage that is found while the volume is in use, as ext4's `errors=`
    /// does. The default is that of the super block (`tune2fs -e`). The error is recorded in the
    /// super block in any case, unless the volume is read-only.
    #[must_use]
    pub fn errors(mut self, errors: OnError) -> VolumeOptions {
        self.mount.errors = Some(errors);
        self
    }
    /// Holds one plug over many files during writeback, so that their writes merge. On by default;
    /// off, each file has its own plug, which is for measurements only. Writes of the journal and
    /// of checkpoints merge in both cases.
    #[must_use]
    pub fn plug(mut self, plug: bool) -> VolumeOptions {
        self.plug = plug;
        self
    }
    /// Chooses whether the volume has its own flusher thread. A thread that several volumes of the
    /// process share is for measurements only.
    #[must_use]
    pub fn flushers(mut self, flushers: Flushers) -> VolumeOptions {
        self.mount.flushers = flushers;
        self
    }
    /// Declares that the caller holds the exclusive claim on the block device, as a mount of type
    /// `fuseblk` does. Otherwise opening the volume claims the device.
    #[must_use]
    pub fn claimed(mut self, claimed: bool) -> VolumeOptions {
        self.claimed = claimed;
        self
    }
    /// Sets the umask of new inodes. Default: 022.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> VolumeOptions {
        self.defaults.umask = (umask & 0o777) as u16;
        self
    }
    /// Sets user and group of new inodes. Default: those of the process.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> VolumeOptions {
        self.defaults.uid = uid;
        self.defaults.gid = gid;
        self
    }

    /// Opens the volume on a device: the path of an image or block device, or a URL. The journal is
    /// replayed if that is needed. A write-protected device is opened read-only
    /// ([`VolumeInfo::read_only_reason`](crate::VolumeInfo::read_only_reason)).
    ///
    /// # Errors
    /// `NotFound` if the device does not exist, `ResourceBusy` if it is in use. Unsupported
    /// features and damaged structures, with their names. `InvalidInput` if the journal is on a
    /// device of its own and is not found ([`VolumeOptions::journal`]). Device errors.
    pub fn open(&self, url: impl AsRef<OsStr>) -> io::Result<Volume> {
        let name = url.as_ref();
        let url = SCHEMES.parse_os(name)?;
        let queue = match block::open(&url, self.mode()) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                block::open(&url, OpenMode::ReadOnly)?
            }
            opened => opened?,
        };
        let refused = match self.mount(queue.clone()) {
            Err(error) if self.journal.is_none() => error,
            result => return result,
        };
        let journal =
            wanted_journal(&refused).and_then(|wanted| journal_device::find_journal(name, &wanted));
        match journal {
            Some(journal) => self.clone().journal(journal).mount(queue),
            None => Err(refused),
        }
    }

    fn mode(&self) -> OpenMode {
        match (self.mount.read_only, self.claimed) {
            (true, _) => OpenMode::ReadOnly,
            (false, true) => OpenMode::ReadWriteClaimed,
            (false, false) => OpenMode::ReadWrite,
        }
    }

    /// Formats a device and opens the new volume.
    ///
    /// # Errors
    /// As [`FormatOptions::format`] and [`VolumeOptions::open`].
    pub fn format(&self, url: impl AsRef<OsStr>, options: &FormatOptions) -> io::Result<Volume> {
        let url = SCHEMES.parse_os(url.as_ref())?;
        let queue = options.format_device(&url)?.0;
        match options.journal_url() {
            Some(journal) => self.clone().journal(journal).mount(queue),
            None => self.mount(queue),
        }
    }

    /// Opens the volume on a queue of the caller, for example over a recording device.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`].
    pub fn mount(&self, queue: Arc<block::Queue>) -> io::Result<Volume> {
        self.mount.tunables.validate()?;
        queue.set_plugging(self.plug);
        let mut mount = self.mount.clone();
        if let Some(journal) = &self.journal {
            mount.journal = Some(journal_device::open(journal, self.mode())?);
        }
        Volume::mount(queue, mount, self.defaults)
    }
}

/// The journal for want of which a volume was not opened.
fn wanted_journal(error: &io::Error) -> Option<ExternalJournal> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    match error.cause() {
        Cause::Fs(ext4::Error::NoJournalDevice(wanted)) => Some(*wanted),
        _ => None,
    }
}

impl Volume {
    /// Opens the volume on a device for reading and writing, with the default
    /// [`VolumeOptions`].
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
}
