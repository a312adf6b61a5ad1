//! I/O counters of the device of a mounted file system: the kernel's, or those of the volume if
//! `sluice mount` serves it from an image file.

use crate::Device;
use rustix::fs::{major, minor};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The extended attribute of a mount's root directory that holds the counters of `sluice mount`.
const SLUICE_STATS: &str = "user.sluicefs.stats";

/// Where the counters are read.
pub(crate) enum Source {
    /// `stat` of a block device in sysfs, and the info file of the kernel's jbd2.
    Block { stat: PathBuf, journal: PathBuf },
    /// The root directory of a mount by `sluice mount`.
    Sluice { root: PathBuf },
}

/// Counters since the device appeared. They never decrease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    read_ios: u64,
    read_bytes: u64,
    write_ios: u64,
    write_bytes: u64,
    merged: u64,
    flushes: u64,
    commits: Option<u64>,
}

impl Source {
    /// The counters of the device that holds an open directory, if there are any.
    pub(crate) fn of(dir: &File) -> Option<Source> {
        let dev = dir.metadata().ok()?.dev();
        Source::block(dev).or_else(|| {
            // btrfs and FUSE have device numbers of their own. The mount table names the device.
            let mount = Mount::of(dir)?;
            let beneath = std::fs::metadata(&mount.device).ok();
            let block = beneath
                .filter(|m| m.file_type().is_block_device())
                .and_then(|m| Source::block(m.rdev()));
            block.or(Some(Source::Sluice { root: mount.root }))
        })
    }

    /// The counters of a block device by its number.
    pub(crate) fn block(dev: u64) -> Option<Source> {
        let sysfs = PathBuf::from(format!("/sys/dev/block/{}:{}", major(dev), minor(dev)));
        let name = std::fs::canonicalize(&sysfs).ok()?;
        let name = name.file_name()?.to_str()?.to_owned();
        let stat = sysfs.join("stat");
        stat.is_file().then(|| Source::Block {
            stat,
            journal: PathBuf::from(format!("/proc/fs/jbd2/{name}-8/info")),
        })
    }

    /// The counters now.
    pub(crate) fn read(&self) -> Option<Counters> {
        match self {
            Source::Block { stat, journal } => {
                let mut counters = parse_block_stat(&std::fs::read_to_string(stat).ok()?)?;
                let info = std::fs::read_to_string(journal).ok();
                counters.commits = info.and_then(|text| parse_jbd2_info(&text));
                Some(counters)
            }
            Source::Sluice { root } => {
                let mut buf = vec![0; 16 << 10];
                let len = rustix::fs::getxattr(root, SLUICE_STATS, &mut buf[..]).ok()?;
                parse_sluice_stats(&buf[..len])
            }
        }
    }
}

impl Source {
    /// The latency target of the kernel's writeback throttling in microseconds; 0 if it is off.
    pub(crate) fn wbt_lat_usec(&self) -> Option<u64> {
        let Source::Block { stat, .. } = self else {
            return None;
        };
        // A partition has the queue of its disk.
        let device = std::fs::canonicalize(stat.parent()?).ok()?;
        let queue = [device.join("queue"), device.parent()?.join("queue")];
        let read = |queue: &PathBuf| std::fs::read_to_string(queue.join("wbt_lat_usec")).ok();
        queue.iter().find_map(read)?.trim().parse().ok()
    }
}

impl Counters {
    /// The difference from `before`.
    pub(crate) fn since(&self, before: &Counters) -> Device {
        Device {
            read_ios: self.read_ios.saturating_sub(before.read_ios),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_ios: self.write_ios.saturating_sub(before.write_ios),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            merged: self.merged.saturating_sub(before.merged),
            flushes: self.flushes.saturating_sub(before.flushes),
            commits: self
                .commits
                .zip(before.commits)
                .map(|(now, then)| now - then),
            write_sizes: Vec::new(),
        }
    }
}

/// The fields of Documentation/block/stat.rst: reads, merged, sectors, ms, writes, merged, sectors,
/// ms, in flight, ms, ms, four of discards, flushes, ms.
fn parse_block_stat(text: &str) -> Option<Counters> {
    let fields: Vec<u64> = text
        .split_whitespace()
        .map(|f| f.parse().ok())
        .collect::<Option<_>>()?;
    let at = |i: usize| fields.get(i).copied();
    Some(Counters {
        read_ios: at(0)?,
        read_bytes: at(2)? * 512,
        merged: at(5)?,
        write_ios: at(4)?,
        write_bytes: at(6)? * 512,
        flushes: at(15).unwrap_or(0),
        commits: None,
    })
}

/// "123 transactions (120 requested), each up to 65536 blocks".
fn parse_jbd2_info(text: &str) -> Option<u64> {
    let (count, rest) = text.split_once(' ')?;
    let counted = rest.starts_with("transactions");
    counted.then(|| count.parse().ok()).flatten()
}

fn parse_sluice_stats(json: &[u8]) -> Option<Counters> {
    let stats: serde_json::Value = serde_json::from_slice(json).ok()?;
    let n = |name: &str| stats.get(name)?.as_u64();
    Some(Counters {
        read_ios: n("device_read_ios")?,
        read_bytes: n("device_read_bytes")?,
        write_ios: n("device_write_ios")?,
        write_bytes: n("device_write_bytes")?,
        merged: n("device_merged")?,
        flushes: n("device_flushes")?,
        commits: n("journal_commits"),
    })
}

/// A line of the mount table.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The root directory of the mount.
    pub(crate) root: PathBuf,
    kind: String,
    device: PathBuf,
}

impl Mount {
    /// The mount that an open directory is on.
    pub(crate) fn of(dir: &File) -> Option<Mount> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).ok()?;
        let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        Mount::in_table(&table, &path)
    }

    /// Whether `sluice mount` serves the mount.
    pub(crate) fn is_sluice(&self) -> bool {
        self.kind.starts_with("fuse") && self.kind.contains("sluice")
    }

    fn in_table(table: &str, path: &Path) -> Option<Mount> {
        // 36 35 0:52 / /mnt rw,noatime shared:1 - btrfs /dev/loop0 rw
        // A later line covers an earlier one.
        let mounts = table.lines().filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let mount = Mount {
                root: PathBuf::from(unescape(before.split(' ').nth(4)?)),
                kind: after.next()?.to_owned(),
                device: PathBuf::from(unescape(after.next()?)),
            };
            path.starts_with(&mount.root).then_some(mount)
        });
        mounts.max_by_key(|mount| mount.root.components().count())
    }
}

/// Replaces the octal escapes of the mount table: space, tab and backslash.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_stat_has_sectors_and_flushes() {
        let text = " 10 1 80 5 200 30 1600 9 0 7 14 0 0 0 0 4 2\n";
        let c = parse_block_stat(text).unwrap();
        assert_eq!((c.read_ios, c.read_bytes), (10, 80 * 512));
        assert_eq!(
            (c.write_ios, c.merged, c.write_bytes),
            (200, 30, 1600 * 512)
        );
        assert_eq!(c.flushes, 4);
        // Before Linux 5.5 there was no count of flushes.
        let old = parse_block_stat("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.write_ios, old.flushes), (5, 0));
        assert!(parse_block_stat("1 2 3").is_none());
    }

    #[test]
    fn journal_commits() {
        let text = "17 transactions (3 requested), each up to 65536 blocks\naverage:\n";
        assert_eq!(parse_jbd2_info(text), Some(17));
        assert_eq!(parse_jbd2_info("no journal"), None);
    }

    #[test]
    fn a_path_is_on_the_innermost_and_latest_mount() {
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     2 1 0:40 / /a\\040b rw - btrfs /dev/loop0 rw\n\
                     3 1 0:41 / /a\\040b rw shared:2 - fuse.sluicefs /disk.img rw\n";
        let at = |path: &str| Mount::in_table(table, Path::new(path)).unwrap();
        assert_eq!(at("/a b/c").device, Path::new("/disk.img"));
        assert_eq!(at("/a bc").device, Path::new("/dev/sda1"));
        assert!(at("/a b").is_sluice() && !at("/").is_sluice());
    }

    #[test]
    fn counters_of_a_sluice_mount() {
        let json = br#"{"device_read_ios":1,"device_read_bytes":2,"device_write_ios":3,"device_write_bytes":4,
            "device_merged":5,"device_flushes":6,"journal_commits":7}"#;
        let c = parse_sluice_stats(json).unwrap();
        assert_eq!((c.write_ios, c.flushes, c.commits), (3, 6, Some(7)));
        assert!(parse_sluice_stats(b"{}").is_none());
    }

    #[test]
    fn counters_of_this_directory_do_not_decrease() {
        // There may be none on this machine.
        if let Some(source) = Source::of(&File::open(".").unwrap()) {
            let first = source.read();
            let again = source.read();
            if let (Some(first), Some(again)) = (first, again) {
                assert!(again.write_ios >= first.write_ios);
            }
        }
        assert!(Source::block(0).is_none());
    }
}
