//! The programs and devices of the machine.

use super::process;
use std::path::Path;
use std::{fs, io};

/// The parameter of the kernel's module that enables FUSE over io_uring.
pub(super) const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Properties of the machine that decide which peers can run.
pub(super) struct Machine {
    pub(super) root: bool,
    pub(super) fuse: bool,
    /// Whether the kernel offers FUSE over io_uring.
    pub(super) fuse_over_uring: bool,
    pub(super) loop_devices: bool,
    /// Whether the driver of rust-fs-ext4 was built.
    pub(super) rival: bool,
    /// Whether a program is installed.
    pub(super) has: fn(&str) -> bool,
}

impl Machine {
    /// The machine of this process.
    pub(super) fn this(rival: Option<&Path>) -> Machine {
        Machine {
            root: process::is_root(),
            fuse: Path::new("/dev/fuse").exists(),
            fuse_over_uring: fs::read_to_string(ENABLE_URING).is_ok_and(|y| y.trim() == "Y"),
            loop_devices: Path::new("/dev/loop-control").exists(),
            rival: rival.is_some_and(Path::is_file),
            has: |name| process::find(name).is_some(),
        }
    }

    /// Returns an error if no file system can be put on a modelled device.
    pub(super) fn check_can_serve(&self, device: &str) -> io::Result<()> {
        let missing = match (self.root, self.fuse, self.loop_devices) {
            (false, ..) => "root is needed for the loop devices over it",
            (_, false, _) => "there is no /dev/fuse to serve it",
            (.., false) => "there are no loop devices",
            (true, true, true) => return Ok(()),
        };
        Err(io::Error::other(format!(
            "{device}: {missing}; `bench fsmark --volume {device}` measures SluiceFS alone"
        )))
    }
}
