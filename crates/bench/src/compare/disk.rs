//! The storage that file systems are made on: an image file, or a modelled device.

use super::image::Image;
use super::mount_point::MountPoint;
use super::process::Interrupt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) enum Disk {
    Image(Image),
    Modelled {
        path: PathBuf,
        bytes: u64,
        /// Unmounts and ends the server when it is dropped.
        _server: MountPoint,
    },
}

impl Disk {
    /// Lets the program `sluice` serve a modelled device as a file in `directory`.
    pub(super) fn serve(
        sluice: &Path,
        device: &str,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Disk> {
        let mut serve = Command::new(sluice);
        serve.args(["bench", "disk", device]);
        let server = MountPoint::serve(serve, directory, interrupt)?;
        let path = directory.join("disk");
        Ok(Disk::Modelled {
            bytes: path.metadata()?.len(),
            path,
            _server: server,
        })
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Disk::Image(image) => image.path(),
            Disk::Modelled { path, .. } => path,
        }
    }

    /// Writes zeroes to the holes of an image file. A modelled device has none.
    pub(super) fn write_holes(&self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        match self {
            Disk::Image(image) => image.write_holes(interrupt),
            Disk::Modelled { .. } => Ok(()),
        }
    }
}
