//! Any of the workloads, as a value that can be sent to another process.

use crate::fsmark::{FsMark, Fsync, SyncMethod};
use crate::inodes::Inodes;
use crate::interfere::{Interfere, Reader};
use crate::syncstorm::{Creators, SyncStorm};
use crate::target::Target;
use crate::{Observer, Report, SmallFiles, Stream};
use serde::{Deserialize, Serialize};
use std::io;

/// A workload with its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// The work of fs_mark.
    #[serde(rename = "fsmark")]
    FsMark(FsMark),
    /// Small files are created, looked up, read and removed.
    SmallFiles(SmallFiles),
    /// One large file is written and read.
    Stream(Stream),
    /// A reader is joined by a writer.
    Interfere(Interfere),
    /// Many files are created, found, looked up, scanned and removed.
    Inodes(Inodes),
    /// Many threads sync at once.
    #[serde(rename = "syncstorm")]
    SyncStorm(SyncStorm),
}

impl Workload {
    /// Runs the workload.
    ///
    /// # Errors
    /// Those of the workload.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        match self {
            Workload::FsMark(work) => work.run(target, observe),
            Workload::SmallFiles(work) => work.run(target, observe),
            Workload::Stream(work) => work.run(target, observe),
            Workload::Interfere(work) => work.run(target, observe),
            Workload::Inodes(work) => work.run(target, observe),
            Workload::SyncStorm(work) => work.run(target, observe),
        }
    }

    /// The name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::FsMark(_) => "fsmark",
            Workload::SmallFiles(_) => "small-files",
            Workload::Stream(_) => "stream",
            Workload::Interfere(_) => "interfere",
            Workload::Inodes(_) => "inodes",
            Workload::SyncStorm(_) => "syncstorm",
        }
    }

    /// The unit that its phases count.
    pub fn unit(&self) -> &'static str {
        match self {
            Workload::FsMark(_)
            | Workload::SmallFiles(_)
            | Workload::Inodes(_)
            | Workload::SyncStorm(_) => "files",
            Workload::Stream(_) | Workload::Interfere(_) => "MiB",
        }
    }

    /// A description of one line.
    pub fn describe(&self) -> String {
        let threads = |count: usize| match count {
            1 => "1 thread".to_owned(),
            count => format!("{count} threads"),
        };
        match self {
            Workload::FsMark(w) => format!(
                "{} × {} files × {} bytes{}, sync method {}",
                threads(w.threads),
                w.files,
                w.size,
                match w.loops {
                    1 => String::new(),
                    loops => format!(" × {loops} iterations"),
                },
                w.sync_method
            ),
            Workload::SmallFiles(w) => format!(
                "{} × {} files × {} bytes{}",
                threads(w.threads),
                w.files,
                w.bytes,
                if w.fsync { ", each with fsync" } else { "" }
            ),
            Workload::Inodes(w) => format!(
                "{} × {} files × {} bytes in {}",
                threads(w.threads),
                w.files,
                w.bytes,
                match w.one_directory {
                    true => "one directory".to_owned(),
                    false => format!("directories of {}", w.per_directory),
                }
            ),
            Workload::Stream(w) => format!("one file of {} MiB with its fsync", w.mib),
            Workload::SyncStorm(w) => {
                let during = w.during.as_ref().map_or(String::new(), |work| {
                    format!(
                        "; then during fs_mark: {} × {} files × {} bytes, every {} ms",
                        threads(work.threads),
                        work.files,
                        work.size,
                        work.every.as_millis()
                    )
                });
                format!(
                    "{} syncs at once, {} times, beside {} clean inodes{during}",
                    w.syncs, w.storms, w.inodes
                )
            }
            Workload::Interfere(w) => {
                let writers = match w.writers {
                    1 => "a writer".to_owned(),
                    many => format!("{many} writers"),
                };
                let writer = format!(
                    "{writers} of {} MiB for at most {} s",
                    w.writer_bytes >> 20,
                    w.time.as_secs_f64()
                );
                let files = match w.reader {
                    Reader::None => return writer,
                    Reader::Lookup => format!("{} names", w.names),
                    _ => format!("files of {} MiB", w.reader_bytes >> 20),
                };
                let rate = w
                    .rate
                    .map_or(String::new(), |n| format!(", {n} per second"));
                format!(
                    "{}, {} in {files}{rate}; after {} s {writer}",
                    threads(w.threads),
                    w.reader.describe(),
                    w.alone.as_secs_f64(),
                )
            }
        }
    }

    /// Bytes of file data and, approximately, of metadata that it writes.
    pub fn device_bytes(&self) -> u64 {
        let files = |count: u64, size: u64| count * (size.next_multiple_of(4096) + 1024);
        match self {
            Workload::FsMark(w) => files(w.total(), w.size),
            Workload::SmallFiles(w) => files((w.threads * w.files) as u64, w.bytes as u64),
            Workload::Inodes(w) => files(w.total(), w.bytes as u64),
            Workload::Stream(w) => w.mib << 20,
            Workload::SyncStorm(w) => {
                let created = |work: &Creators| files(2 * work.total(), work.size);
                files(w.inodes, 0) + w.during.as_ref().map_or(0, created)
            }
            Workload::Interfere(w) => w.reader_bytes + w.writer_bytes + files(w.names, 0),
        }
    }

    /// Bytes of a volume that has an inode for each of its files, if it has one for every 16 KiB.
    pub fn volume_bytes(&self) -> u64 {
        match self {
            Workload::Inodes(w) => (w.total() + w.total() / 8) << 14,
            _ => 0,
        }
    }

    /// The same work with one file in `divisor`, for slow file systems. Work that counts no files
    /// stays the same.
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
            Workload::Inodes(w) => w.files = (w.files / divisor).max(1),
            Workload::SyncStorm(w) => {
                w.inodes = (w.inodes / divisor).max(1);
                if let Some(work) = &mut w.during {
                    work.files = (work.files / divisor).max(1);
                }
            }
            Workload::Stream(_) | Workload::Interfere(_) => {}
        }
        smaller
    }

    /// The same work without the removal of the files at its end, if that is optional.
    #[must_use]
    pub fn keeping_files(mut self) -> Workload {
        match &mut self {
            Workload::FsMark(w) => w.keep = true,
            Workload::Interfere(w) => w.keep = true,
            Workload::SyncStorm(w) => w.keep = true,
            Workload::SmallFiles(_) | Workload::Stream(_) | Workload::Inodes(_) => {}
        }
        self
    }

    /// The same work with another way to call fsync. Only fs_mark's has several.
    #[must_use]
    pub fn with_fsync(mut self, fsync: Fsync) -> Workload {
        if let Workload::FsMark(w) = &mut self {
            w.fsync = fsync;
        }
        self
    }

    /// Whether each file is fsynced through the descriptor that wrote it.
    pub fn fsyncs_while_writing(&self) -> bool {
        match self {
            Workload::FsMark(w) => w.sync_method == SyncMethod::FsyncBeforeClose,
            Workload::SmallFiles(w) => w.fsync,
            Workload::Inodes(_) => false,
            Workload::Stream(_) | Workload::Interfere(_) => true,
            Workload::SyncStorm(_) => false,
        }
    }

    /// Whether [`Workload::smaller`] changes it.
    pub fn counts_files(&self) -> bool {
        matches!(
            self,
            Workload::FsMark(_)
                | Workload::SmallFiles(_)
                | Workload::Inodes(_)
                | Workload::SyncStorm(_)
        )
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
            fsync_depth: 128,
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
    fn smaller_work_is_a_part_of_all_iterations() {
        let work = fsmark(1000, 4);
        assert_eq!(total(&work.smaller(1)), 4000);
        assert_eq!(total(&work.smaller(20)), 200);
        assert_eq!(total(&work.smaller(2)), 1000, "at most one iteration");
        assert_eq!(total(&work.smaller(1_000_000)), 1);
    }

    #[test]
    fn a_workload_survives_serialisation() {
        let json = serde_json::to_string(&fsmark(7, 1)).unwrap();
        let work: Workload = serde_json::from_str(&json).unwrap();
        assert_eq!(work.describe(), fsmark(7, 1).describe());
        assert!(!work.fsyncs_while_writing());
    }
}
