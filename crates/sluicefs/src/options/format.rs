//! What a new volume is to be.

use crate::error::Cause;
use crate::probe;
use crate::volume::{FormatReport, device_url};
use block::{Create, DeviceUrl, OpenMode, Queue};
use ext4::{Error, MkfsOptions};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a new volume is to be; everything left out is as mke2fs 1.47 does it.
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
    size: Option<u64>,
    force: bool,
}

impl FormatOptions {
    /// mke2fs's defaults.
    pub fn new() -> FormatOptions {
        FormatOptions::default()
    }
    /// Makes a sparse image file of so many bytes. An existing file is replaced if it is blank (or
    /// with [`FormatOptions::force`]).
    #[must_use]
    pub fn size(mut self, bytes: u64) -> FormatOptions {
        self.size = Some(bytes);
        self
    }
    /// Overwrites whatever is there.
    #[must_use]
    pub fn force(mut self, force: bool) -> FormatOptions {
        self.force = force;
        self
    }
    /// A label of at most 16 bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> FormatOptions {
        self.mkfs.label = label.into();
        self
    }
    /// A UUID instead of a random one.
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> FormatOptions {
        self.mkfs.uuid = Some(uuid);
        self
    }
    /// Bytes per inode.
    #[must_use]
    pub fn inode_ratio(mut self, bytes: u64) -> FormatOptions {
        self.mkfs.inode_ratio = Some(bytes);
        self
    }
    /// Inodes; overrides the ratio.
    #[must_use]
    pub fn inodes(mut self, inodes: u64) -> FormatOptions {
        self.mkfs.inodes = Some(inodes);
        self
    }
    /// Percent of the blocks that only root may use.
    #[must_use]
    pub fn reserved_percent(mut self, percent: u32) -> FormatOptions {
        self.mkfs.reserved_percent = percent;
        self
    }
    /// Bytes of the journal.
    #[must_use]
    pub fn journal_bytes(mut self, bytes: u64) -> FormatOptions {
        self.mkfs.journal_bytes = Some(bytes);
        self
    }
    /// Bytes in a block.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> FormatOptions {
        self.mkfs.block_size = bytes;
        self
    }
    /// Owner and group of the root directory.
    #[must_use]
    pub fn root_owner(mut self, uid: u32, gid: u32) -> FormatOptions {
        self.mkfs.root_owner = (uid, gid);
        self
    }
    /// A feature to add (`orphan_file`) or to leave out (`^orphan_file`).
    #[must_use]
    pub fn feature(mut self, feature: impl Into<String>) -> FormatOptions {
        self.mkfs.features.push(feature.into());
        self
    }
    /// Whether to discard what the device holds first.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> FormatOptions {
        self.mkfs.discard = discard;
        self
    }

    /// Formats a device and leaves it unmounted.
    ///
    /// # Errors
    /// `AlreadyExists` where something is on the device and [`FormatOptions::force`] was not asked
    /// for, `InvalidInput` for options that make no sense and for memory, which would be gone
    /// ([`Volume::format`](crate::Volume::format) keeps it), and the device's.
    pub fn format(&self, url: impl AsRef<OsStr>) -> io::Result<FormatReport> {
        let url = device_url(url.as_ref())?;
        if url.is_volatile() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{url} is memory, and gone as soon as it is formatted; format a file, or a sim: device with file=PATH"
                ),
            ));
        }
        Ok(self.format_device(&url)?.1)
    }

    /// Formats and keeps the device open (memory would be gone otherwise).
    pub(crate) fn format_device(&self, url: &DeviceUrl) -> io::Result<(Arc<Queue>, FormatReport)> {
        let name = PathBuf::from(url.to_string());
        let fail = |cause: Error| Cause::from(cause).at("format", &name);
        self.create_image(url)?;
        let queue = block::open(url, OpenMode::ReadWrite)?;
        if !self.force {
            refuse_used(&queue, &name)?;
        }
        let report = ext4::mkfs(&queue, &self.mkfs).map_err(fail)?;
        queue.flush().map_err(|e| fail(e.into()))?;
        Ok((queue, report))
    }

    /// Makes the image file if a size was given. An existing file is looked into before it is
    /// emptied.
    fn create_image(&self, url: &DeviceUrl) -> io::Result<()> {
        let path = match (url, self.size) {
            (DeviceUrl::Path(path), Some(size)) => return self.create_image_at(url, path, size),
            (DeviceUrl::Path(_), None) => return Ok(()),
            (_, Some(_)) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{url}: its size is in its name"),
                ));
            }
            (DeviceUrl::Memory(_), None) => return Ok(()),
            (DeviceUrl::Sim(sim), None) => sim.file().zip(sim.size()),
        };
        match path.map(|(path, size)| block::create_image(path, size, Create::New)) {
            Some(Err(e)) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
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
    match probe::what_is_there(queue).map_err(|e| Cause::Fs(e.into()).at("read", name))? {
        None => Ok(()),
        Some(what) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} holds {what}; to overwrite it, force it", name.display()),
        )),
    }
}
