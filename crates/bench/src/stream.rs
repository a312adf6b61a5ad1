//! Writes one large file sequentially and reads it back without its pages in the cache.

use crate::measure::measure;
use crate::target::{Create, Target};
use crate::{Observer, Report};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Bytes of one read or write.
const CALL: u64 = 1 << 20;

/// The workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// Size of the file in MiB.
    pub mib: u64,
}

impl Stream {
    /// Runs the workload. Phases, counted in MiB: `write` (with its fsync), `read` (not cached).
    /// The totals of the report cover the first.
    ///
    /// # Errors
    /// Those of the file system.
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
