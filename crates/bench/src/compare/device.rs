//! The device of a file system: a loop device, or the disk itself.

use super::disk::Disk;
use super::peer::Peer;
use super::process::{Interrupt, is_root, output, run};
use super::setting::Setting;
use super::wbt::{self, Wbt};
use crate::target::counters::{Counters, Source};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A loop device with direct I/O. It is detached when the value is dropped.
pub(super) struct LoopDevice {
    path: PathBuf,
    wbt: Option<Setting>,
    disk: Arc<Disk>,
}

impl LoopDevice {
    fn attach(disk: Arc<Disk>, interrupt: &Interrupt<'_>) -> io::Result<LoopDevice> {
        let args = ["--direct-io=on", "--find", "--show"];
        let path = run("losetup", &args, disk.path(), interrupt)?;
        let device = LoopDevice {
            path: PathBuf::from(path.trim()),
            wbt: None,
            disk,
        };
        let name = device.path.file_name().unwrap_or_default();
        let dio = Path::new("/sys/block").join(name).join("loop/dio");
        if std::fs::read_to_string(&dio).is_ok_and(|on| on.trim() == "0") {
            let what = "the scratch directory's file system has no direct I/O; name a real disk with --scratch";
            return Err(io::Error::other(what));
        }
        Ok(device)
    }

    fn counters(&self) -> Option<Counters> {
        let number = std::fs::metadata(&self.path).ok()?.rdev();
        Source::block(number)?.read()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.wbt = None;
        let mut command = Command::new("losetup");
        command.arg("--detach").arg(&self.path);
        if let Err(e) = output(&mut command, &Interrupt::new(&|| false)) {
            eprintln!("sluice: {}: not detached: {e}", self.path.display());
        }
    }
}

/// The device of a file system.
pub(super) enum Device {
    Loop(LoopDevice),
    Disk(Arc<Disk>),
}

impl Device {
    /// Chooses the device of a peer.
    ///
    /// - In process: the disk itself.
    /// - In the kernel: a loop device.
    /// - A FUSE server: a loop device if that is possible, because the kernel counts its I/O.
    /// - On a modelled device: a loop device for every peer, as the requests to the model's server
    ///   take time, too.
    pub(super) fn of(peer: Peer, disk: Arc<Disk>, interrupt: &Interrupt<'_>) -> io::Result<Device> {
        let modelled = matches!(*disk, Disk::Modelled { .. });
        let on_loop = match peer {
            _ if modelled => true,
            Peer::InProcess | Peer::RustFsExt4 => false,
            Peer::Ext4 | Peer::Xfs | Peer::Btrfs => true,
            Peer::Fuse | Peer::Uring | Peer::Fuse2fs => {
                is_root() && Path::new("/dev/loop-control").exists()
            }
        };
        match on_loop {
            true => Ok(Device::Loop(LoopDevice::attach(disk, interrupt)?)),
            false => Ok(Device::Disk(disk)),
        }
    }

    /// Sets the kernel's writeback throttling until the value is dropped. It has no effect on I/O
    /// that bypasses the block layer.
    pub(super) fn set_wbt(&mut self, wbt: Wbt) -> io::Result<()> {
        if let Device::Loop(device) = self {
            device.wbt = wbt::change(&device.path, wbt)?;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Device::Loop(device) => &device.path,
            Device::Disk(disk) => disk.path(),
        }
    }

    /// The disk that stores the bytes.
    pub(super) fn disk(&self) -> &Disk {
        match self {
            Device::Loop(device) => &device.disk,
            Device::Disk(disk) => disk,
        }
    }

    /// The I/O so far; `None` where the kernel does not count it.
    pub(super) fn counters(&self) -> Option<Counters> {
        match self {
            Device::Loop(device) => device.counters(),
            Device::Disk(_) => None,
        }
    }

    /// Writes the pages that the kernel has cached of it.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(self.path())?.sync_all()
    }
}
