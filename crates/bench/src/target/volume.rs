//! A volume in this process.

use super::counters::Source;
use super::{Create, Directory, OpenFile, PendingSync, Reading, Target};
use crate::{Device, SizeClass, Throttle};
use rustix::fs::Advice;
use sluicefs::{Dir, File, SizeHistogram, Volume, VolumeOptions, VolumeStats};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A volume in this process.
pub struct VolumeTarget {
    state: Mutex<State>,
    options: Option<VolumeOptions>,
}

struct State {
    /// `None` only after a failed attempt to open the volume again.
    volume: Option<Volume>,
    /// The counters at the start. Those of the device continue when the volume is opened again.
    before: VolumeStats,
    /// Transactions of volumes that were unmounted since.
    commits: u64,
}

impl VolumeTarget {
    /// Runs on `volume`.
    pub fn new(volume: Volume) -> VolumeTarget {
        let before = volume.stats();
        VolumeTarget {
            state: Mutex::new(State {
                volume: Some(volume),
                before,
                commits: 0,
            }),
            options: None,
        }
    }

    /// Lets [`Target::make_cold`] open the volume again with these options.
    #[must_use]
    pub fn opened_with(mut self, options: VolumeOptions) -> VolumeTarget {
        self.options = Some(options);
        self
    }

    /// Returns the volume.
    ///
    /// # Panics
    /// If [`Target::make_cold`] has failed to open the volume again.
    pub fn into_volume(self) -> Volume {
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.volume.expect("the volume is open")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volume(&self) -> io::Result<Volume> {
        self.state().volume()
    }
}

impl State {
    fn volume(&self) -> io::Result<Volume> {
        let lost = || io::Error::other("the volume could not be opened again");
        self.volume.clone().ok_or_else(lost)
    }

    fn device(&self) -> Option<Device> {
        let now = self.volume.as_ref()?.stats();
        let d = now.device - self.before.device;
        Some(Device {
            write_ios: d.write_ios,
            write_bytes: d.write_bytes,
            merged: d.merged,
            flushes: d.flushes,
            read_ios: d.read_ios,
            read_bytes: d.read_bytes,
            commits: Some(self.commits + now.journal.commits - self.before.journal.commits),
            write_sizes: size_classes(d.write_sizes),
        })
    }
}

impl Target for VolumeTarget {
    fn name(&self) -> String {
        let state = self.state();
        let device = state.volume.as_ref().map_or("", |volume| volume.device());
        format!("SluiceFS in process on {device}")
    }
    fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        let volume = self.volume()?;
        volume.create_dir_all(path)?;
        Ok(Box::new(volume.open_dir(path)?))
    }
    fn sync(&self) -> io::Result<()> {
        self.volume()?.sync()
    }
    fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()> {
        let files: Option<Vec<&File>> = files.iter().map(|f| f.on_volume()).collect();
        let foreign = || io::Error::from(io::ErrorKind::Unsupported);
        let files = files.ok_or_else(foreign)?;
        self.volume()?.sync_files(&files).into_iter().collect()
    }
    fn used_percent(&self) -> io::Result<f64> {
        let s = self.volume()?.statfs();
        Ok(100.0 * (1.0 - s.available as f64 / s.blocks.max(1) as f64))
    }
    fn device(&self) -> Option<Device> {
        self.state().device()
    }
    fn cached_inodes(&self) -> Option<u64> {
        Some(self.volume().ok()?.stats().cached_inodes)
    }
    fn throttle(&self) -> Option<Throttle> {
        let throttle = self.state().volume.as_ref()?.stats().throttle;
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
        let volume = self.volume().ok()?;
        let device = std::fs::metadata(volume.device()).ok()?;
        Source::block(device.rdev())?.wbt_lat_usec()
    }
    fn make_cold(&self) -> io::Result<String> {
        let unknown = || io::Error::from(io::ErrorKind::Unsupported);
        let options = self.options.as_ref().ok_or_else(unknown)?;
        // The lock is held all the time: a clone of the volume would keep it open.
        let mut state = self.state();
        let volume = state.volume.take().ok_or_else(unknown)?;
        let queue = Arc::clone(volume.fs().queue());
        let name = volume.device().to_owned();
        state.commits += volume.stats().journal.commits;
        volume.close()?;
        let dropped = drop_pages(Path::new(&name)).is_ok();
        let volume = options.mount(queue)?;
        state.volume = Some(volume);
        let reopened = "the volume was unmounted and opened again";
        Ok(match dropped {
            true => format!("{reopened}, and the host's cached pages of it were dropped"),
            false => reopened.to_owned(),
        })
    }
    fn has_bulkstat(&self) -> bool {
        true
    }
    /// By [`Volume::inodes`], which has threads of its own.
    fn bulkstat(&self, _threads: usize) -> io::Result<u64> {
        let volume = self.volume()?;
        // Several counters, so that the threads of the scan rarely share one.
        let counters: [Counter; 32] = Default::default();
        let failed = Mutex::new(None);
        volume.inodes(|found| match found {
            Ok(inode) => {
                let counter = (inode.ino() >> 8) as usize % counters.len();
                counters[counter].0.fetch_add(1, Relaxed);
                ControlFlow::Continue(())
            }
            Err(unreadable) => {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(unreadable.error);
                ControlFlow::Break(())
            }
        });
        match failed.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => Ok(counters.iter().map(|counter| counter.0.load(Relaxed)).sum()),
        }
    }
}

/// A counter in cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Drops the host's cached pages of an image or a block device.
fn drop_pages(device: &Path) -> io::Result<()> {
    let device = std::fs::File::open(device)?;
    device.sync_all()?;
    Ok(rustix::fs::fadvise(device, 0, None, Advice::DontNeed)?)
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
    fn open_uncached(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let mut options = File::options();
        Ok(Box::new(
            options.read(true).direct_reads(true).open(self, name)?,
        ))
    }
    fn stat(&self, name: &str) -> io::Result<()> {
        self.symlink_metadata(name).map(|_| ())
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        self.remove_file(name)
    }
    fn remove_subdirectory(&self, name: &str) -> io::Result<()> {
        self.remove_dir(name)
    }
    fn read_directory(
        &self,
        name: &str,
        reading: Reading,
        each: &mut dyn FnMut(),
    ) -> io::Result<()> {
        for entry in self.read_dir(name)? {
            let entry = entry?;
            if reading == Reading::Attributes {
                entry.metadata()?;
            }
            each();
        }
        Ok(())
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
