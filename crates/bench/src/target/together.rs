//! Several targets as one.

use super::{Directory, FsyncQueue, OpenFile, Target};
use crate::{Device, threads};
use std::io;
use std::path::Path;

/// Targets that a workload uses concurrently. Counters are summed; sync runs on all of them at the
/// same time.
pub struct Together<'a>(pub &'a [&'a dyn Target]);

impl Target for Together<'_> {
    fn name(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|target| target.name()).collect();
        names.join(", ")
    }
    /// On the first target.
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        self.0[0].directory(path)
    }
    fn sync(&self) -> io::Result<()> {
        threads::each(self.0, |target| target.sync()).map(drop)
    }
    /// Files of the first target.
    fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()> {
        self.0[0].sync_files(files)
    }
    fn fsync_queue(&self, depth: usize) -> io::Result<Box<dyn FsyncQueue>> {
        self.0[0].fsync_queue(depth)
    }
    /// The maximum.
    fn used_percent(&self) -> io::Result<f64> {
        let mut used = 0.0;
        for target in self.0 {
            used = target.used_percent()?.max(used);
        }
        Ok(used)
    }
    /// `None` unless it is known for all targets.
    fn device(&self) -> Option<Device> {
        let mut sum = Device::default();
        for target in self.0 {
            sum = sum.plus(&target.device()?);
        }
        Some(sum)
    }
    fn drop_caches(&self) {
        self.0.iter().for_each(|target| target.drop_caches());
    }
}
