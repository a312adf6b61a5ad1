//! Several targets as one.

use super::{Directory, OpenFile, Target};
use crate::{Device, threads};
use std::io;
use std::path::Path;

/// Targets that a workload uses side by side: counters are their sum, sync is all of them at the
/// same time.
pub struct Together<'a>(pub &'a [&'a dyn Target]);

impl Target for Together<'_> {
    fn name(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|target| target.name()).collect();
        names.join(", ")
    }
    /// On the first of them.
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        self.0[0].directory(path)
    }
    fn sync(&self) -> io::Result<()> {
        threads::each(self.0, |target| target.sync()).map(drop)
    }
    /// Files of the first of them.
    fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()> {
        self.0[0].sync_files(files)
    }
    /// The fullest one's.
    fn used_percent(&self) -> io::Result<f64> {
        let mut used = 0.0;
        for target in self.0 {
            used = target.used_percent()?.max(used);
        }
        Ok(used)
    }
    /// Where it is known of all.
    fn device(&self) -> Option<Device> {
        let mut sum = Device::default();
        for target in self.0 {
            sum = sum.plus(&target.device()?);
        }
        Some(sum)
    }
}
