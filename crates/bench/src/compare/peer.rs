//! Who can take part, and what that takes.

use super::process;
use std::io;
use std::path::Path;

/// One of those that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// SluiceFS in the worker's process.
    InProcess,
    /// SluiceFS, mounted through FUSE.
    Fuse,
    /// The kernel's ext4.
    Ext4,
    /// The kernel's XFS.
    Xfs,
    /// The kernel's btrfs.
    Btrfs,
    /// e2fsprogs' server for FUSE.
    Fuse2fs,
    /// The nearest other ext4 in Rust, in a process of its own.
    RustFsExt4,
}

impl Peer {
    /// All, ours first.
    pub const ALL: [Peer; 7] = [
        Peer::InProcess,
        Peer::Fuse,
        Peer::Ext4,
        Peer::Xfs,
        Peer::Btrfs,
        Peer::Fuse2fs,
        Peer::RustFsExt4,
    ];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::InProcess => "SluiceFS in process",
            Peer::Fuse => "SluiceFS through FUSE",
            Peer::Ext4 => "kernel ext4",
            Peer::Xfs => "kernel XFS",
            Peer::Btrfs => "kernel btrfs",
            Peer::Fuse2fs => "fuse2fs",
            Peer::RustFsExt4 => "rust-fs-ext4 in process",
        }
    }

    /// For the command line.
    pub fn key(self) -> &'static str {
        match self {
            Peer::InProcess => "sluice",
            Peer::Fuse => "fuse",
            Peer::Ext4 => "ext4",
            Peer::Xfs => "xfs",
            Peer::Btrfs => "btrfs",
            Peer::Fuse2fs => "fuse2fs",
            Peer::RustFsExt4 => "rust-fs-ext4",
        }
    }

    /// What part of the files it is given, since it would take all day for all of them.
    pub(super) fn one_file_in(self) -> u64 {
        match self {
            Peer::Fuse2fs => 20,
            Peer::RustFsExt4 => 100,
            _ => 1,
        }
    }

    /// The program that formats for it.
    pub(super) fn mkfs(self) -> &'static str {
        match self {
            Peer::InProcess | Peer::Fuse => "sluice",
            Peer::Ext4 | Peer::Fuse2fs | Peer::RustFsExt4 => "mkfs.ext4",
            Peer::Xfs => "mkfs.xfs",
            Peer::Btrfs => "mkfs.btrfs",
        }
    }

    /// Quiet, over anything, and without discarding, which would only take time on a new sparse
    /// file and make holes in one that was written.
    pub(super) fn mkfs_args(self) -> &'static [&'static str] {
        match self {
            Peer::InProcess | Peer::Fuse => &["mkfs", "--force", "--no-discard"],
            Peer::Ext4 | Peer::Fuse2fs | Peer::RustFsExt4 => {
                &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"]
            }
            Peer::Xfs => &["-q", "-f", "-K"],
            Peer::Btrfs => &["-q", "-f", "-K"],
        }
    }

    /// Type and options for mount(8).
    pub(super) fn kernel_mount(self) -> Option<(&'static str, &'static str)> {
        match self {
            // The kernel would write the inode tables' zeroes beside the workload.
            Peer::Ext4 => Some(("ext4", "noatime,noinit_itable")),
            Peer::Xfs => Some(("xfs", "noatime")),
            // The others discard only when they are told to.
            Peer::Btrfs => Some(("btrfs", "noatime,nodiscard")),
            _ => None,
        }
    }

    /// Why it cannot take part on this machine, if it cannot.
    pub(super) fn missing(self, machine: &Machine) -> Option<String> {
        let tool = |name: &'static str, package: &str| match (machine.has)(name) {
            true => None,
            false => Some(format!("{name} is not installed (package {package})")),
        };
        let fuse = || (!machine.fuse).then(|| "there is no /dev/fuse".to_owned());
        let kernel = |mkfs, package| match (machine.root, machine.loop_devices) {
            (false, _) => Some("root is needed for loop devices and mounts".to_owned()),
            (true, false) => Some("there are no loop devices".to_owned()),
            (true, true) => tool(mkfs, package),
        };
        match self {
            Peer::InProcess => None,
            Peer::Fuse if machine.root => fuse(),
            Peer::Fuse => fuse().or_else(|| tool("fusermount3", "fuse3")),
            Peer::Ext4 => kernel(self.mkfs(), "e2fsprogs"),
            Peer::Xfs => kernel(self.mkfs(), "xfsprogs"),
            Peer::Btrfs => kernel(self.mkfs(), "btrfs-progs"),
            Peer::Fuse2fs => fuse()
                .or_else(|| tool("fuse2fs", "fuse2fs"))
                .or_else(|| tool(self.mkfs(), "e2fsprogs")),
            Peer::RustFsExt4 if machine.rival => tool(self.mkfs(), "e2fsprogs"),
            Peer::RustFsExt4 => {
                let how = "`cargo build --release` in rivals/rust-fs-ext4, then --rival PATH";
                Some(format!(
                    "its driver was not built: ./x bench does that, or {how}"
                ))
            }
        }
    }
}

/// What decides who can take part.
pub(super) struct Machine {
    pub root: bool,
    pub fuse: bool,
    pub loop_devices: bool,
    /// Whether the driver of rust-fs-ext4 was built.
    pub rival: bool,
    /// Whether a program is installed.
    pub has: fn(&str) -> bool,
}

impl Machine {
    /// This one.
    pub(super) fn this(rival: Option<&Path>) -> Machine {
        Machine {
            root: is_root(),
            fuse: Path::new("/dev/fuse").exists(),
            loop_devices: Path::new("/dev/loop-control").exists(),
            rival: rival.is_some_and(Path::is_file),
            has: |name| process::find(name).is_some(),
        }
    }
}

impl Machine {
    /// An error where nobody could be put on a modelled device.
    pub(super) fn check_can_serve(&self, device: &str) -> io::Result<()> {
        let missing = match (self.root, self.fuse, self.loop_devices) {
            (false, ..) => "root is needed for the loop devices over it",
            (_, false, _) => "there is no /dev/fuse to serve it by",
            (.., false) => "there are no loop devices to put over it",
            (true, true, true) => return Ok(()),
        };
        Err(io::Error::other(format!(
            "{device}: {missing}; without, `bench fsmark --volume {device}` measures SluiceFS alone"
        )))
    }
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl std::str::FromStr for Peer {
    type Err = String;
    fn from_str(text: &str) -> Result<Peer, String> {
        let found = Peer::ALL.into_iter().find(|peer| peer.key() == text);
        found.ok_or_else(|| {
            let keys = Peer::ALL.map(Peer::key);
            format!("there are {}", keys.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for peer in Peer::ALL {
            assert_eq!(peer.key().parse(), Ok(peer));
        }
        assert!("zfs".parse::<Peer>().unwrap_err().contains("btrfs"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let bare = Machine {
            root: false,
            fuse: false,
            loop_devices: false,
            rival: false,
            has: |_| false,
        };
        let full = Machine {
            root: true,
            fuse: true,
            loop_devices: true,
            rival: true,
            has: |_| true,
        };
        for peer in Peer::ALL {
            assert_eq!(peer.missing(&full), None, "{}", peer.name());
            let alone = peer.missing(&bare).is_none();
            assert_eq!(alone, peer == Peer::InProcess, "{}", peer.name());
        }
        let why = |peer: Peer, machine: &Machine| peer.missing(machine).unwrap();
        assert!(why(Peer::Ext4, &bare).contains("root"));
        assert!(why(Peer::RustFsExt4, &bare).contains("rivals/rust-fs-ext4"));
        let without_tools = Machine {
            has: |_| false,
            ..full
        };
        assert!(why(Peer::Xfs, &without_tools).contains("xfsprogs"));
        assert_eq!(
            Peer::Fuse.missing(&without_tools),
            None,
            "root needs no helper"
        );
    }
}
