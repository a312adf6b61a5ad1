//! One large file, written from end to end and read back cold.

use crate::target::Create;
use crate::{Observer, Report, Target, measure};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Bytes of one call.
const CALL: u64 = 1 << 20;

/// The workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// Size of the file in MiB.
    pub mib: u64,
}

impl Stream {
    /// Runs it, in calls of 1 MiB. Phases, counted in MiB: `write` (with its fsync), `read` (cold);
    /// the report's top is about the first.
    ///
    /// # Errors
    /// The file system's.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        let directory = target.directory(Path::new("stream"))?;
        let mut buf = vec![0xa5; CALL as usize];
        measure("stream", target, observe, |run| {
            let file = run.phase("write", self.mib, |progress| {
                let file = directory.create("file", Create::New)?;
                let mut ticker = progress.ticker();
                for i in 0..self.mib {
                    file.write_all_at(&buf, i * CALL)?;
                    ticker.tick();
                }
                file.sync_all()?;
                Ok(file)
            })?;
            run.durable(1, self.mib * CALL);
            file.drop_cache()?;
            drop(file);
            run.phase("read", self.mib, |progress| {
                let file = directory.open("file")?;
                let mut ticker = progress.ticker();
                let mut at = 0;
                while at < self.mib * CALL {
                    match file.read_at(&mut buf, at)? {
                        0 => return Err(io::Error::other("the file is shorter than written")),
                        n => at += n as u64,
                    }
                    ticker.tick();
                }
                Ok(())
            })?;
            directory.unlink("file")
        })
    }
}
