//! Who else has a file system mounted: other places of this mount namespace, and other namespaces.

use super::unescape;
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A place where it is mounted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    dir: PathBuf,
    /// A process of another mount namespace, and its name.
    process: Option<(u32, String)>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = self.dir.display();
        match &self.process {
            None => write!(f, "still mounted on {dir}; `umount {dir}` takes it away"),
            Some((pid, name)) => write!(
                f,
                "still mounted on {dir} in the mount namespace of process {pid} ({name}); \
                 `nsenter -t {pid} -m umount {dir}` takes it away"
            ),
        }
    }
}

/// Where the file system with the number `number` ("0:52") is mounted, as far as this user may see.
pub(super) fn of(number: &str) -> Vec<Holder> {
    let mut holders = Vec::new();
    let mut seen = HashSet::new();
    if let Ok(own) = fs::read_link("/proc/self/ns/mnt") {
        seen.insert(own);
    }
    let mut add = |table: &str, process: Option<(u32, String)>| {
        holders.extend(places(table, number).map(|dir| Holder {
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

/// The mount points of `number` in a mount table.
fn places<'a>(table: &'a str, number: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    table.lines().filter_map(move |line| {
        // 36 35 0:52 / /mnt rw,nosuid shared:1 - fuse.sluicefs /disk.img rw,user_id=0
        let mut fields = line.split(' ').skip(2);
        let found = fields.next()? == number;
        if !found {
            return None;
        }
        fields.nth(1).map(unescape)
    })
}
