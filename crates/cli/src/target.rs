//! `DEVICE:/path`: a path on a volume. Opens devices, and adds the device to errors.

use anyhow::{Result, anyhow};
use sluicefs::{Volume, VolumeOptions};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The journal device of `--journal`.
static JOURNAL: OnceLock<OsString> = OnceLock::new();

/// Sets the device with the journal of volumes whose journal is on a device of its own.
pub fn set_journal(device: OsString) {
    let _ = JOURNAL.set(device);
}

/// The device of [`set_journal`].
pub fn journal() -> Option<&'static OsStr> {
    JOURNAL.get().map(OsString::as_os_str)
}

/// A path on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A path or URL.
    pub device: OsString,
    /// Absolute.
    pub path: PathBuf,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device.display(), self.path.display())
    }
}

/// Parses a target. A text without `:/` is a device, with the path `/`.
pub fn parse(text: &OsStr) -> Target {
    split(text).unwrap_or_else(|| Target {
        device: text.to_owned(),
        path: PathBuf::from("/"),
    })
}

impl From<OsString> for Target {
    fn from(text: OsString) -> Target {
        parse(&text)
    }
}

/// Splits a text at the last `:` that is followed by `/`; `None` if there is none.
pub fn split(text: &OsStr) -> Option<Target> {
    let bytes = text.as_bytes();
    let at = bytes.windows(2).rposition(|w| w == b":/")?;
    if at == 0 {
        return None;
    }
    Some(Target {
        device: OsStr::from_bytes(&bytes[..at]).to_owned(),
        path: PathBuf::from(OsStr::from_bytes(&bytes[at + 1..])),
    })
}

impl Target {
    /// Opens the volume read-only.
    pub fn open_read_only(&self) -> Result<Volume> {
        open(&self.device, VolumeOptions::new().read_only(true))
    }
    /// Opens the volume for reading and writing.
    pub fn open_read_write(&self) -> Result<Volume> {
        open(&self.device, VolumeOptions::new())
    }
    /// Adds the device to an error of the library, which has the path.
    pub fn on<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(|e| named(&self.device, e))
    }
}

/// The options to open a volume, from mount options.
pub fn options(mount: &fuse::MountOptions) -> VolumeOptions {
    VolumeOptions::from(mount.volume()).plug(mount.plug)
}

/// Opens a volume, with the journal device of `--journal` if its journal is on a device of its own.
/// Errors contain advice.
pub fn open(device: &OsStr, options: VolumeOptions) -> Result<Volume> {
    let options = match journal() {
        Some(journal) if has_external_journal(device) => options.journal(journal),
        _ => options,
    };
    options.open(device).map_err(|e| explain_open(device, e))
}

/// Whether the journal of the volume is on a device of its own.
pub fn has_external_journal(device: &OsStr) -> bool {
    matches!(sluicefs::external_journal(device), Ok(Some(_)))
}

/// Adds advice to the common errors of opening a device.
fn explain_open(device: &OsStr, e: io::Error) -> anyhow::Error {
    let name = device.display();
    let advice = match e.kind() {
        io::ErrorKind::NotFound if device.as_bytes().starts_with(b"sim:") => {
            "there is no such file; `sluice mkfs` with size= in the URL creates it".into()
        }
        // Another file is missing, such as the backing file of an image.
        io::ErrorKind::NotFound if std::path::Path::new(device).exists() => {
            return named(device, e);
        }
        io::ErrorKind::NotFound => {
            format!("there is no such device; `sluice mkfs {name} --size 10GiB` creates an image")
        }
        io::ErrorKind::PermissionDenied => NEEDS_ACCESS.into(),
        // The error says that the disk has no file system, which is true of the whole disk only.
        _ => return partition_advice(device).unwrap_or_else(|| named(device, e)),
    };
    anyhow!("{:#}: {advice}", named(device, e))
}

/// Advice for a disk with partitions, whose name was given as that of a volume.
fn partition_advice(device: &OsStr) -> Option<anyhow::Error> {
    let table = sluicefs::partition_table(device).ok()??;
    let names = table.partitions.iter();
    let mut names = names.map(|p| format!("{}#{}", device.display(), p.number));
    let first = names.next()?;
    let volume = std::iter::once(first.clone())
        .chain(names)
        .find(|name| sluicefs::contents(name) == Some(sluicefs::EXT4_CONTENTS))
        .unwrap_or(first);
    Some(anyhow!(
        "{} is a disk with a partition table ({}), not a volume; name a partition, such as \
         {volume} (`sluice info` lists them)",
        device.display(),
        table.format
    ))
}

/// Adds advice to the common errors of formatting a device.
pub fn explain_format(device: &OsStr, e: io::Error) -> anyhow::Error {
    let kind = e.kind();
    let text = format!("{:#}", named(device, e));
    match kind {
        io::ErrorKind::NotFound if device.as_bytes().starts_with(b"sim:") => {
            anyhow!("{text}: size= in the URL creates the file")
        }
        io::ErrorKind::NotFound => anyhow!("{text}: --size creates an image file"),
        io::ErrorKind::AlreadyExists => anyhow!("{text}: --force overwrites it"),
        io::ErrorKind::PermissionDenied => anyhow!("{text}: {NEEDS_ACCESS}"),
        _ => anyhow!(text),
    }
}

const NEEDS_ACCESS: &str = "root, or write access to the device, is required";

/// Adds the device's name to an error that does not contain it.
pub fn named(device: &OsStr, e: io::Error) -> anyhow::Error {
    let name = device.display().to_string();
    if e.to_string().contains(&name) {
        e.into()
    } else {
        anyhow::Error::new(e).context(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parts(text: &str) -> Option<(String, String)> {
        split(OsStr::new(text)).map(|t| {
            (
                t.device.into_string().unwrap(),
                t.path.display().to_string(),
            )
        })
    }

    #[test]
    fn splits_at_the_last_colon_before_a_slash() {
        let pair = |a: &str, b: &str| Some((a.to_string(), b.to_string()));
        assert_eq!(parts("disk.img:/a/b"), pair("disk.img", "/a/b"));
        assert_eq!(parts("mem:1GiB:/a"), pair("mem:1GiB", "/a"));
        assert_eq!(parts("a:b:/c:/d"), pair("a:b:/c", "/d"));
        assert_eq!(parts("/dev/sdb:/"), pair("/dev/sdb", "/"));
        assert_eq!(parts("disk.img"), None);
        assert_eq!(parts("mem:1GiB"), None);
        assert_eq!(parts(":/a"), None);
        assert_eq!(parse(OsStr::new("mem:1GiB")).path, Path::new("/"));
    }
}
