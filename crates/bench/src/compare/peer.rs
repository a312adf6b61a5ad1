//! The file systems that can be compared, and their requirements.

use super::machine::{ENABLE_URING, Machine};
use crate::fsmark::Fsync;
use serde::{Deserialize, Serialize};

/// A file system in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// SluiceFS in the worker's process.
    #[serde(rename = "sluice")]
    InProcess,
    /// SluiceFS through FUSE, over `/dev/fuse`.
    Fuse,
    /// SluiceFS through FUSE, over io_uring.
    Uring,
    /// The kernel's ext4.
    Ext4,
    /// The kernel's XFS.
    Xfs,
    /// The kernel's btrfs.
    Btrfs,
    /// The FUSE server of e2fsprogs.
    Fuse2fs,
    /// The crate rust-fs-ext4 in the process of its driver.
    RustFsExt4,
}

impl Peer {
    /// All peers, SluiceFS first.
    pub const ALL: [Peer; 8] = [
        Peer::InProcess,
        Peer::Fuse,
        Peer::Uring,
        Peer::Ext4,
        Peer::Xfs,
        Peer::Btrfs,
        Peer::Fuse2fs,
        Peer::RustFsExt4,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::InProcess => "SluiceFS in process",
            Peer::Fuse => "SluiceFS through FUSE",
            Peer::Uring => "SluiceFS over io_uring",
            Peer::Ext4 => "kernel ext4",
            Peer::Xfs => "kernel XFS",
            Peer::Btrfs => "kernel btrfs",
            Peer::Fuse2fs => "fuse2fs",
            Peer::RustFsExt4 => "rust-fs-ext4 in process",
        }
    }

    /// The name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Peer::InProcess => "sluice",
            Peer::Fuse => "fuse",
            Peer::Uring => "uring",
            Peer::Ext4 => "ext4",
            Peer::Xfs => "xfs",
            Peer::Btrfs => "btrfs",
            Peer::Fuse2fs => "fuse2fs",
            Peer::RustFsExt4 => "rust-fs-ext4",
        }
    }

    /// The name of its row with a way to call fsync.
    pub(super) fn row_name(self, fsync: Fsync) -> String {
        match fsync {
            Fsync::Blocking => self.name().to_owned(),
            _ => format!("{}, {fsync} fsync", self.name()),
        }
    }

    /// Whether it is SluiceFS.
    pub fn is_ours(self) -> bool {
        matches!(self, Peer::InProcess | Peer::Fuse | Peer::Uring)
    }

    /// Whether the workload can call fsync in this way.
    pub(super) fn has(self, fsync: Fsync) -> bool {
        match fsync {
            Fsync::Blocking => true,
            // fuse2fs ignores the workload's fsync; rust-fs-ext4 has no such call.
            Fsync::Async => !matches!(self, Peer::Fuse2fs | Peer::RustFsExt4),
            Fsync::Bulk => self == Peer::InProcess,
        }
    }

    /// Slow file systems get one file in this many.
    pub(super) fn one_file_in(self) -> u64 {
        match self {
            Peer::Fuse2fs => 20,
            Peer::RustFsExt4 => 100,
            _ => 1,
        }
    }

    /// The program that formats it.
    pub(super) fn mkfs(self) -> &'static str {
        match self {
            Peer::InProcess | Peer::Fuse | Peer::Uring => "sluice",
            Peer::Ext4 | Peer::Fuse2fs | Peer::RustFsExt4 => "mkfs.ext4",
            Peer::Xfs => "mkfs.xfs",
            Peer::Btrfs => "mkfs.btrfs",
        }
    }

    /// Arguments for: quiet, overwrite anything, do not discard. A discard takes time and makes
    /// holes in an image that was written before.
    pub(super) fn mkfs_args(self) -> &'static [&'static str] {
        match self {
            Peer::InProcess | Peer::Fuse | Peer::Uring => &["mkfs", "--force", "--no-discard"],
            Peer::Ext4 | Peer::Fuse2fs | Peer::RustFsExt4 => {
                &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"]
            }
            Peer::Xfs => &["-q", "-f", "-K"],
            Peer::Btrfs => &["-q", "-f", "-K"],
        }
    }

    /// The option of `sluice mount` that selects how requests travel.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Peer::Uring => "transport=uring",
            _ => "transport=dev",
        }
    }

    /// Type and options for mount(8).
    pub(super) fn kernel_mount(self) -> Option<(&'static str, &'static str)> {
        match self {
            // Otherwise the kernel zeroes the inode tables while the workload runs.
            Peer::Ext4 => Some(("ext4", "noatime,noinit_itable")),
            Peer::Xfs => Some(("xfs", "noatime")),
            // The others discard only on request.
            Peer::Btrfs => Some(("btrfs", "noatime,nodiscard")),
            _ => None,
        }
    }

    /// Why it cannot run on this machine; `None` if it can.
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
            Peer::Uring if !machine.fuse_over_uring => Some(format!(
                "FUSE over io_uring is not enabled (Linux 6.14, Y in {ENABLE_URING})"
            )),
            Peer::Fuse | Peer::Uring if machine.root => fuse(),
            Peer::Fuse | Peer::Uring => fuse().or_else(|| tool("fusermount3", "fuse3")),
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

impl std::str::FromStr for Peer {
    type Err = String;
    fn from_str(text: &str) -> Result<Peer, String> {
        let found = Peer::ALL.into_iter().find(|peer| peer.key() == text);
        found.ok_or_else(|| {
            let keys = Peer::ALL.map(Peer::key);
            format!("file systems are: {}", keys.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed() {
        for peer in Peer::ALL {
            assert_eq!(peer.key().parse(), Ok(peer));
            assert_eq!(serde_json::to_value(peer).unwrap(), peer.key());
        }
        assert!("zfs".parse::<Peer>().unwrap_err().contains("btrfs"));
    }

    #[test]
    fn missing_requirements_are_named() {
        let bare = Machine {
            root: false,
            fuse: false,
            fuse_over_uring: false,
            loop_devices: false,
            rival: false,
            has: |_| false,
        };
        let full = Machine {
            root: true,
            fuse: true,
            fuse_over_uring: true,
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
