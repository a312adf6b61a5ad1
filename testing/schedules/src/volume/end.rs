//! The end of a run: the checks after an unmount, and after crashes.

use super::{Inner, Mounting, Violations, Volume};
use crate::base::Format;
use crate::device::{Disk, Store};
use crate::model::Model;
use check::{Finding, Severity};
use ext4::{Error, Fs, InodeDamage, Timestamp};
use ext4_format::features::IncompatFeatures;
use std::sync::Arc;
use testkit::volume as calls;

impl Volume {
    /// Unmounts, mounts again, and checks all files. Returns the device and the model for crashes.
    pub fn end(self) -> Ended {
        let names = self.model(|m, _| m.names());
        let before = times(&self.0.fs, &names);
        self.expect("unmount", self.0.fs.unmount());
        self.model(|m, at| m.acknowledge(m.mark_all(), at));
        let inner = Arc::into_inner(self.0).expect("all threads of the scenario have ended");
        let Inner {
            disk,
            fs,
            model,
            violations,
            format,
            device,
            prepared,
        } = inner;
        drop(fs);
        if let Some(thread) = device.into_inner().expect("unscheduled") {
            disk.stop(thread);
        }
        let model = model.into_inner().expect("unscheduled");
        let read = |fs: &Fs, name: &str| read(fs, name);
        let contents = || {
            with_mounted(disk.contents(), |fs| {
                model.check(|name| read(fs, name))?;
                match (times(fs, &names), before) {
                    (after, before) if after == before => Ok(()),
                    (after, before) => Err(format!("times {after:?}, not {before:?}")),
                }
            })
        };
        if let Err(what) = checked(disk.contents(), End::Unmount).and_then(|()| contents()) {
            let mut violations = violations.lock().expect("unscheduled");
            violations.push(format!("after a clean unmount: {what}"));
        }
        Ended {
            prepared: prepared.into_inner().expect("unscheduled"),
            format,
            disk,
            model,
            violations,
        }
    }
}

/// A run whose volume is unmounted.
pub struct Ended {
    /// Events before the explored part.
    prepared: usize,
    format: Format,
    disk: Disk,
    model: Model,
    violations: Violations,
}

impl Ended {
    /// Crashes at random positions after the preparations, mostly right after an acknowledgement,
    /// and checks the files. Each image is passed to `also`.
    pub fn crash(&self, times: usize, rng: &mut testkit::seed::Rng, mut also: impl FnMut(&Store)) {
        let (from, end) = (self.prepared, self.disk.position());
        let mut acks = self.model.acks();
        acks.retain(|&at| at >= from);
        acks.sort_unstable();
        for _ in 0..times {
            let at = match (rng.below(3), acks.last()) {
                (0, Some(&last)) => last,
                (1, Some(_)) => *rng.pick(&acks),
                _ => from + rng.index(end - from + 1),
            };
            let image = self.disk.crash(at, rng);
            also(&image);
            let check = |fs: &Fs, read: fn(&Fs, &str) -> _| {
                self.model.check_crash(at, |name| read(fs, name))
            };
            let result = image
                .check_groups()
                .and_then(|()| match self.format.has_journal() {
                    true => with_mounted(image, |fs| check(fs, read)),
                    false => with_mounted_unclean(image, |fs| check(fs, read_unclean)),
                });
            if let Err(what) = result {
                let what = format!("after a crash at event {at} of {end}: {what}");
                self.violations.lock().expect("unscheduled").push(what);
                return;
            }
        }
    }

    /// The contents of the device.
    pub fn contents(&self) -> Store {
        self.disk.contents()
    }
}

fn read(fs: &Fs, name: &str) -> Result<Option<Vec<u8>>, String> {
    match calls::get(fs, name) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The same after a crash without a journal, which may leave the name of a removed file.
fn read_unclean(fs: &Fs, name: &str) -> Result<Option<Vec<u8>>, String> {
    match calls::at(fs, name) {
        Err(Error::CorruptInode {
            damage: InodeDamage::NamedButDeleted,
            ..
        }) => Ok(None),
        _ => read(fs, name),
    }
}

/// The times of files, as far as they exist.
fn times(fs: &Fs, names: &[String]) -> Vec<Option<[Timestamp; 3]>> {
    let of = |name: &String| {
        let attr = calls::at(fs, name).ok()?.attr();
        Some([attr.atime, attr.mtime, attr.ctime])
    };
    names.iter().map(of).collect()
}

/// The end of the run that made an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Unmount,
    Crash,
}

/// A crash while a volume grows leaves old copies of the super block, as with the kernel.
fn is_old_backup(finding: &Finding) -> bool {
    finding.message.starts_with("backup of the super block")
}

/// Checks a volume that was unmounted, after a crash and a recovery if `end` says so.
fn checked(store: Store, end: End) -> Result<(), String> {
    let may_have_old_backups = end == End::Crash && store.has_grown()?;
    let superblock = store.superblock()?;
    if superblock.incompat().contains(IncompatFeatures::RECOVER) {
        return Err("needs_recovery is set: an unlinked inode or a change was left".into());
    }
    let disk = Disk::new(store);
    let device = disk.start();
    let report = check::check(&disk.queue(), &check::Options::default(), &mut ());
    disk.stop(device);
    let report = report.map_err(|error| format!("check: {error}"))?;
    let mut findings = report.findings.iter();
    match findings.find(|finding| {
        finding.severity == Severity::Problem && !(may_have_old_backups && is_old_backup(finding))
    }) {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}

/// Mounts the image of a crash without a journal, which is mounted read-only, and calls.
fn with_mounted_unclean(
    store: Store,
    call: impl FnOnce(&Fs) -> Result<(), String>,
) -> Result<(), String> {
    let disk = Disk::new(store);
    let device = disk.start();
    let result = mount(&disk).and_then(|fs| call(&fs));
    disk.stop(device);
    result
}

/// Mounts, calls, unmounts, and checks the volume.
fn with_mounted(store: Store, call: impl FnOnce(&Fs) -> Result<(), String>) -> Result<(), String> {
    let disk = Disk::new(store);
    let device = disk.start();
    let result = mount(&disk).and_then(|fs| {
        let result = call(&fs);
        let unmounted = fs.unmount().map_err(|error| format!("unmount: {error}"));
        result.and(unmounted)
    });
    disk.stop(device);
    result.and_then(|()| checked(disk.contents(), End::Crash))
}

fn mount(disk: &Disk) -> Result<Arc<Fs>, String> {
    Fs::mount(disk.queue(), Mounting::default().options())
        .map_err(|error| format!("mount: {error}"))
}
