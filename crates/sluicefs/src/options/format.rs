//! Options to format a device.

use crate::devices::SCHEMES;
use crate::error::Cause;
use crate::{journal_device, probe};
use block::{Create, DeviceUrl, OpenMode, Queue, Reason};
use mkfs::{MkfsOptions, Usage};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Properties of a newly formatted volume, as [`FormatOptions::format`] reports them.
pub type FormatReport = mkfs::MkfsReport;

/// The use of a volume, which decides the size of blocks and the number of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageType {
    /// As mke2fs chooses by the size of the volume: below 512 MiB blocks have 1 KiB.
    BySize,
    /// A type of mke2fs.conf.
    Of(Usage),
}

/// Options to format a device. The defaults are those of mke2fs 1.47, but small volumes have blocks
/// of 4 KiB, too ([`FormatOptions::usage_type`] changes that).
///
/// ```
/// use sluicefs::{FormatOptions, Volume};
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new().label("scratch"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    mkfs: MkfsOptions,
    block_size: Option<u32>,
    usage: Option<UsageType>,
    journal: Option<OsString>,
    size: Option<u64>,
    force: bool,
}

impl FormatOptions {
    /// The defaults of mke2fs.
    pub fn new() -> FormatOptions {
        FormatOptions::default()
    }
    /// Creates a sparse image file of `bytes` bytes. An existing file is replaced if it is blank,
    /// or with [`FormatOptions::force`].
    #[must_use]
    pub fn size(mut self, bytes: u64) -> FormatOptions {
        self.size = Some(bytes);
        self
    }
    /// Overwrites existing data.
    #[must_use]
    pub fn force(mut self, force: bool) -> FormatOptions {
        self.force = force;
        self
    }
    /// Sets the label, at most 16 bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> FormatOptions {
        self.mkfs.label = label.into();
        self
    }
    /// Sets the UUID. The default is a random one.
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> FormatOptions {
        self.mkfs.uuid = Some(uuid);
        self
    }
    /// Creates one inode for each `bytes` bytes of the volume.
    #[must_use]
    pub fn inode_ratio(mut self, bytes: u64) -> FormatOptions {
        self.mkfs.inode_ratio = Some(bytes);
        self
    }
    /// Sets the number of inodes. It overrides the ratio.
    #[must_use]
    pub fn inodes(mut self, inodes: u64) -> FormatOptions {
        self.mkfs.inodes = Some(inodes);
        self
    }
    /// Reserves a percentage of the blocks for root.
    #[must_use]
    pub fn reserved_percent(mut self, percent: u32) -> FormatOptions {
        self.mkfs.reserved_percent = percent;
        self
    }
    /// Sets the size of the journal, in bytes.
    #[must_use]
    pub fn journal_bytes(mut self, bytes: u64) -> FormatOptions {
        self.mkfs.journal_bytes = Some(bytes);
        self
    }
    /// Names the device that is to be the volume's journal: a path or URL. The feature
    /// `journal_dev` has made it a journal, and no volume uses it.
    #[must_use]
    pub fn journal(mut self, url: impl AsRef<OsStr>) -> FormatOptions {
        self.journal = Some(url.as_ref().to_owned());
        self
    }
    /// Returns the device of [`FormatOptions::journal`].
    pub(crate) fn journal_url(&self) -> Option<&OsStr> {
        self.journal.as_deref()
    }
    /// Sets the block size, in bytes: 1024, 2048 or 4096.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> FormatOptions {
        self.block_size = Some(bytes);
        self
    }
    /// Sets the cluster size in bytes, a power of two, for the feature `bigalloc`. The default is
    /// 16 blocks.
    #[must_use]
    pub fn cluster_size(mut self, bytes: u64) -> FormatOptions {
        self.mkfs.cluster_size = Some(bytes);
        self
    }
    /// Chooses block size and inode ratio by a usage type, unless they are set.
    #[must_use]
    pub fn usage_type(mut self, usage: UsageType) -> FormatOptions {
        self.usage = Some(usage);
        self
    }
    /// Sets user and group of the root directory.
    #[must_use]
    pub fn root_owner(mut self, uid: u32, gid: u32) -> FormatOptions {
        self.mkfs.root_owner = (uid, gid);
        self
    }
    /// Adds a feature (`orphan_file`), or removes it from the defaults (`^orphan_file`).
    #[must_use]
    pub fn feature(mut self, feature: impl Into<String>) -> FormatOptions {
        self.mkfs.features.push(feature.into());
        self
    }
    /// Discards the old contents of the device first. On by default.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> FormatOptions {
        self.mkfs.discard = discard;
        self
    }

    /// Formats a device and does not mount it.
    ///
    /// # Errors
    /// `AlreadyExists` if the device has data and [`FormatOptions::force`] is off. `InvalidInput`
    /// for invalid options, and for memory, which would be lost on return
    /// ([`Volume::format`](crate::Volume::format) keeps it). Device errors.
    pub fn format(&self, url: impl AsRef<OsStr>) -> io::Result<FormatReport> {
        let url = SCHEMES.parse_os(url.as_ref())?;
        if url.is_volatile() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{url} is memory, and gone as soon as formatting ends; format a file, or a sim: device with file=PATH"
                ),
            ));
        }
        Ok(self.format_device(&url)?.1)
    }

    /// Formats a device and returns it open. Memory is lost when its device is closed.
    pub(crate) fn format_device(&self, url: &DeviceUrl) -> io::Result<(Arc<Queue>, FormatReport)> {
        let name = PathBuf::from(url.to_string());
        let fail = |cause: mkfs::Error| Cause::from(cause).at("format", &name);
        self.create_image(url)?;
        let queue = block::open(url, OpenMode::ReadWrite)?;
        if !self.force {
            refuse_used(&queue, &name)?;
        }
        let options = self.mkfs_options(queue.capacity());
        let report = match &self.journal {
            Some(url) => {
                let journal = journal_device::open(url, OpenMode::ReadWrite)?;
                mkfs::format_with_journal(&queue, &journal, &options)
            }
            None => mkfs::format(&queue, &options),
        };
        let report = report.map_err(fail)?;
        queue.flush(Reason::Format).map_err(|e| fail(e.into()))?;
        Ok((queue, report))
    }

    /// The options for a device of `capacity` bytes.
    fn mkfs_options(&self, capacity: u64) -> MkfsOptions {
        let mut options = self.mkfs.clone();
        let usage = self.usage.map(|usage| match usage {
            UsageType::BySize => Usage::of_size(capacity),
            UsageType::Of(usage) => usage,
        });
        if let Some(usage) = usage {
            options.block_size = usage.block_size();
        }
        options.usage = usage;
        options.block_size = self.block_size.unwrap_or(options.block_size);
        options
    }

    /// Creates the image file if a size was given. An existing file is probed before it is
    /// truncated.
    fn create_image(&self, url: &DeviceUrl) -> io::Result<()> {
        match (url, self.size) {
            (DeviceUrl::Path(path), Some(size)) => self.create_image_at(url, path, size),
            (DeviceUrl::Path(_) | DeviceUrl::Part(_), None) => Ok(()),
            (DeviceUrl::Part(_), Some(_)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{url}: a part of a disk has its size; leave out the size option"),
            )),
            (DeviceUrl::Backend(backend), None) => backend.create(),
            (DeviceUrl::Backend(_), Some(_)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{url}: the size of this device is in its name; leave out the size option"),
            )),
        }
    }

    fn create_image_at(&self, url: &DeviceUrl, path: &Path, size: u64) -> io::Result<()> {
        match block::create_image(path, size, Create::New) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
        if !self.force && std::fs::metadata(path)?.len() > 0 {
            let queue = block::open(url, OpenMode::ReadOnly)?;
            refuse_used(&queue, path)?;
        }
        block::create_image(path, size, Create::Overwrite)
    }
}

fn refuse_used(queue: &Queue, name: &Path) -> io::Result<()> {
    match probe::existing_data(queue).map_err(|e| Cause::Fs(e.into()).at("read", name))? {
        None => Ok(()),
        Some(what) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} holds {what}, and force is off", name.display()),
        )),
    }
}
