//! One large file, written from end to end and read back cold.

use crate::{Report, Target};
use std::io;

/// The workload.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Size of the file in MiB.
    pub mib: u64,
}

impl Stream {
    /// Runs it, in calls of 1 MiB. Phases, counted in MiB: `write` (with its fsync), `read` (cold).
    ///
    /// # Errors
    /// The file system's.
    pub fn run(&self, target: &dyn Target) -> io::Result<Report> {
        let directory = target.directory("stream")?;
        let mut buf = vec![0xa5; 1 << 20];
        let mut report = Report::new(target);
        report.time("write", self.mib, || {
            directory.write_stream("file", &buf, self.mib)?;
            directory.sync_file("file")
        })?;
        target.forget("stream", "file")?;
        report.time("read", self.mib, || {
            let read = directory.read_stream("file", &mut buf)?;
            if read == self.mib << 20 {
                Ok(())
            } else {
                Err(io::Error::other("the file is shorter than it was written"))
            }
        })?;
        report.device = target.device();
        Ok(report)
    }
}
