//! A mounted peer and its device.

use super::device::Device;
use super::mount_point::MountPoint;
use super::peer::Peer;
use super::process::{Interrupt, installed};
use crate::target::counters::Counters;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

/// A mounted file system. It is unmounted when the value is dropped.
pub(super) struct Mount {
    // Dropped before its device.
    point: MountPoint,
    device: Device,
}

impl Mount {
    /// A file system of the kernel.
    pub(super) fn kernel(
        peer: Peer,
        device: Device,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let (kind, options) = peer.kernel_mount().unwrap_or(("auto", "defaults"));
        let point = MountPoint::kernel(kind, options, device.path(), directory, interrupt)?;
        // The changes of the mount itself do not count as the workload's.
        rustix::fs::syncfs(File::open(directory)?)?;
        Ok(Mount { point, device })
    }

    /// SluiceFS through FUSE.
    pub(super) fn sluice(
        sluice: &Path,
        options: &str,
        device: Device,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let mut serve = Command::new(sluice);
        serve.args(["mount", "--foreground", "-o", options]);
        serve.arg(device.path());
        let point = MountPoint::serve(serve, directory, interrupt)?;
        Ok(Mount { point, device })
    }

    /// The FUSE server of e2fsprogs.
    pub(super) fn fuse2fs(
        device: Device,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let mut serve = Command::new(installed("fuse2fs")?);
        serve.args(["-f", "-o", "fakeroot"]).arg(device.path());
        let point = MountPoint::serve(serve, directory, interrupt)?;
        Ok(Mount { point, device })
    }

    pub(super) fn directory(&self) -> &Path {
        self.point.directory()
    }

    /// The I/O so far; `None` where the kernel does not count it.
    pub(super) fn counters(&self) -> Option<Counters> {
        self.device.counters()
    }

    /// Unmounts, and waits until the server has ended.
    pub(super) fn unmount(mut self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        self.point.unmount(interrupt)
    }

    /// Unmounts, and waits until all data is on the device. Returns the counters, and the device,
    /// whose removal is not to be measured.
    pub(super) fn unmount_and_count(
        self,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<(Option<Counters>, Device)> {
        let Mount { mut point, device } = self;
        point.unmount(interrupt)?;
        device.sync()?;
        Ok((device.counters(), device))
    }
}
