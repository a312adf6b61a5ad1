//! Any of the workloads, as a value that can be handed to another process.

use crate::fsmark::{Fsync, SyncMethod};
use crate::{FsMark, Observer, Report, SmallFiles, Stream, Target};
use serde::{Deserialize, Serialize};
use std::io;

/// A workload with its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// fs_mark's work.
    #[serde(rename = "fsmark")]
    FsMark(FsMark),
    /// Small files made, looked up, read, removed.
    SmallFiles(SmallFiles),
    /// One large file.
    Stream(Stream),
}

impl Workload {
    /// Runs it.
    ///
    /// # Errors
    /// Those of the workload.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        match self {
            Workload::FsMark(work) => work.run(target, observe),
            Workload::SmallFiles(work) => work.run(target, observe),
            Workload::Stream(work) => work.run(target, observe),
        }
    }

    /// As on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::FsMark(_) => "fsmark",
            Workload::SmallFiles(_) => "small-files",
            Workload::Stream(_) => "stream",
        }
    }

    /// What its phases count.
    pub fn unit(&self) -> &'static str {
        match self {
            Workload::FsMark(_) | Workload::SmallFiles(_) => "files",
            Workload::Stream(_) => "MiB",
        }
    }

    /// What is done, in a line.
    pub fn describe(&self) -> String {
        match self {
            Workload::FsMark(w) => format!(
                "{} threads × {} files × {} bytes{}, sync method {}",
                w.threads,
                w.files,
                w.size,
                match w.loops {
                    1 => String::new(),
                    loops => format!(" × {loops} iterations"),
                },
                w.sync_method
            ),
            Workload::SmallFiles(w) => format!(
                "{} threads × {} files × {} bytes{}",
                w.threads,
                w.files,
                w.bytes,
                if w.fsync { ", each with fsync" } else { "" }
            ),
            Workload::Stream(w) => format!("one file of {} MiB with its fsync", w.mib),
        }
    }

    /// Bytes of file data and, roughly, of metadata that it puts on the device.
    pub fn device_bytes(&self) -> u64 {
        let files = |count: u64, size: u64| count * (size.next_multiple_of(4096) + 1024);
        match self {
            Workload::FsMark(w) => files(w.total(), w.size),
            Workload::SmallFiles(w) => files((w.threads * w.files) as u64, w.bytes as u64),
            Workload::Stream(w) => w.mib << 20,
        }
    }

    /// The same work with one file in `divisor`, for file systems that would take all day. A stream
    /// stays as it is.
    #[must_use]
    pub fn smaller(&self, divisor: u64) -> Workload {
        let mut smaller = self.clone();
        match &mut smaller {
            _ if divisor <= 1 => {}
            Workload::FsMark(w) => {
                w.files = (w.files * w.loops / divisor).clamp(1, w.files);
                w.loops = 1;
            }
            Workload::SmallFiles(w) => w.files = (w.files / divisor as usize).max(1),
            Workload::Stream(_) => {}
        }
        smaller
    }

    /// Leaves the files where they are, if the workload removes them at its end and can do without.
    #[must_use]
    pub fn keeping_files(mut self) -> Workload {
        if let Workload::FsMark(w) = &mut self {
            w.keep = true;
        }
        self
    }

    /// The same work with another way to call fsync, if it is fs_mark's.
    #[must_use]
    pub fn with_fsync(mut self, fsync: Fsync) -> Workload {
        if let Workload::FsMark(w) = &mut self {
            w.fsync = fsync;
        }
        self
    }

    /// Whether each file is fsynced by whoever writes it, so that no sync is needed at the end.
    pub fn fsyncs_while_writing(&self) -> bool {
        match self {
            Workload::FsMark(w) => w.sync_method == SyncMethod::FsyncBeforeClose,
            Workload::SmallFiles(w) => w.fsync,
            Workload::Stream(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsmark::Subdirectories;

    fn fsmark(files: u64, loops: u64) -> Workload {
        Workload::FsMark(FsMark {
            directories: vec!["0".into()],
            subdirectories: Subdirectories::None,
            files,
            size: 4096,
            sync_method: SyncMethod::PostFsync,
            fsync: Fsync::Blocking,
            loops,
            threads: 1,
            write_size: 4096,
            keep: false,
        })
    }

    fn total(work: &Workload) -> u64 {
        match work {
            Workload::FsMark(w) => w.total(),
            _ => unreachable!("only fsmark here"),
        }
    }

    #[test]
    fn slow_ones_get_their_part_of_all_iterations() {
        let work = fsmark(1000, 4);
        assert_eq!(total(&work.smaller(1)), 4000);
        assert_eq!(total(&work.smaller(20)), 200);
        assert_eq!(total(&work.smaller(2)), 1000, "not more than an iteration");
        assert_eq!(total(&work.smaller(1_000_000)), 1);
    }

    #[test]
    fn another_process_gets_the_same_work() {
        let json = serde_json::to_string(&fsmark(7, 1)).unwrap();
        let work: Workload = serde_json::from_str(&json).unwrap();
        assert_eq!(work.describe(), fsmark(7, 1).describe());
        assert!(!work.fsyncs_while_writing());
    }
}
