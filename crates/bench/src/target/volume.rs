//! A volume in this process.

use super::counters::Source;
use super::{Create, Directory, OpenFile, PendingSync, Target};
use crate::{Device, SizeClass, Throttle};
use sluicefs::{Dir, File, SizeHistogram, Volume, VolumeStats};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A volume in this process.
pub struct VolumeTarget {
    volume: Volume,
    before: VolumeStats,
}

impl VolumeTarget {
    /// Runs on `volume`.
    pub fn new(volume: Volume) -> VolumeTarget {
        let before = volume.stats();
        VolumeTarget { volume, before }
    }

    /// Returns the volume.
    pub fn into_volume(self) -> Volume {
        self.volume
    }
}

impl Target for VolumeTarget {
    fn name(&self) -> String {
        format!("SluiceFS in process on {}", self.volume.device())
    }
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        self.volume.create_dir_all(path)?;
        Ok(Box::new(self.volume.open_dir(path)?))
    }
    fn sync(&self) -> io::Result<()> {
        self.volume.sync()
    }
    fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()> {
        let files: Option<Vec<&File>> = files.iter().map(|f| f.on_volume()).collect();
        let foreign = || io::Error::from(io::ErrorKind::Unsupported);
        let files = files.ok_or_else(foreign)?;
        self.volume.sync_files(&files).into_iter().collect()
    }
    fn used_percent(&self) -> io::Result<f64> {
        let s = self.volume.statfs();
        Ok(100.0 * (1.0 - s.available as f64 / s.blocks.max(1) as f64))
    }
    fn device(&self) -> Option<Device> {
        let now = self.volume.stats();
        let d = now.device - self.before.device;
        Some(Device {
            write_ios: d.write_ios,
            write_bytes: d.write_bytes,
            merged: d.merged,
            flushes: d.flushes,
            read_ios: d.read_ios,
            read_bytes: d.read_bytes,
            commits: Some(now.journal.commits - self.before.journal.commits),
            write_sizes: size_classes(d.write_sizes),
        })
    }
    fn throttle(&self) -> Option<Throttle> {
        let throttle = self.volume.stats().throttle;
        throttle.target?;
        Some(Throttle {
            limit: throttle.limit,
            step: throttle.step.into(),
            cause: throttle.cause.name().to_owned(),
            cache_debt: throttle.debt,
            rate: throttle.rate,
            lost: throttle.lost,
        })
    }
    fn wbt_lat_usec(&self) -> Option<u64> {
        let device = std::fs::metadata(self.volume.device()).ok()?;
        Source::block(device.rdev())?.wbt_lat_usec()
    }
}

fn size_classes(histogram: SizeHistogram) -> Vec<SizeClass> {
    let classes = histogram.classes().filter(|class| class.1 > 0);
    classes
        .map(|(least_bytes, requests)| SizeClass {
            least_bytes,
            requests,
        })
        .collect()
}

impl Directory for Dir {
    fn make_subdirectory(&self, name: &str) -> io::Result<()> {
        match self.create_dir(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map(|_| ()),
        }
    }
    fn create(&self, name: &str, create: Create) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(match create {
            Create::New => self.create_new_file(name)?,
            Create::Truncate => self.create_file(name)?,
            Create::Keep => File::options()
                .read(true)
                .write(true)
                .create(true)
                .open(self, name)?,
        }))
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(self.open_file(name)?))
    }
    fn stat(&self, name: &str) -> io::Result<()> {
        self.symlink_metadata(name).map(|_| ())
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        self.remove_file(name)
    }
}

impl OpenFile for File {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        File::write_all_at(self, data, offset)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, buf, offset)
    }
    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
    fn sync_all_async(&self) -> io::Result<PendingSync> {
        let pending = File::sync_all_async(self);
        Ok(Box::new(|| pending.wait()))
    }
    fn on_volume(&self) -> Option<&File> {
        Some(self)
    }
    fn drop_cache(&self) -> io::Result<()> {
        File::drop_cache(self);
        Ok(())
    }
}
