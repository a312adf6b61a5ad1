//! Other mounts of a file system, in this mount namespace and in others.

use super::mount_table::mount_points;
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A mount of the file system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    dir: PathBuf,
    /// A process in another mount namespace, and its name.
    process: Option<(u32, String)>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = self.dir.display();
        match &self.process {
            None => write!(f, "still mounted on {dir}; `umount {dir}` unmounts it"),
            Some((pid, name)) => write!(
                f,
                "still mounted on {dir} in the mount namespace of process {pid} ({name}); \
                 `nsenter -t {pid} -m umount {dir}` unmounts it"
            ),
        }
    }
}

/// Lists the mounts of the file system with the device number `number` ("0:52"), as far as this
/// user may see them.
pub(super) fn of(number: &str) -> Vec<Holder> {
    let mut holders = Vec::new();
    let mut seen = HashSet::new();
    if let Ok(own) = fs::read_link("/proc/self/ns/mnt") {
        seen.insert(own);
    }
    let mut add = |table: &str, process: Option<(u32, String)>| {
        holders.extend(mount_points(table, number).map(|dir| Holder {
            dir,
            process: process.clone(),
        }));
    };
    if let Ok(table) = fs::read_to_string("/proc/self/mountinfo") {
        add(&table, None);
    }
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/mnt")) else {
            continue;
        };
        if !seen.insert(namespace) {
            continue;
        }
        let Ok(table) = fs::read_to_string(format!("/proc/{pid}/mountinfo")) else {
            continue;
        };
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        add(&table, Some((pid, name.trim_end().to_owned())));
    }
    holders
}
