//! Images of crashes recovered, by us and by others, and judged: by what the history promises, and
//! by e2fsck.

use crate::crash::Recording;
use crate::disk::{Disk, save};
use crate::history::History;
use crate::image::{check, recover_by_e2fsck};
use crate::kernel::KernelMount;
use crate::scratch::Scratch;
use crate::seed::Rng;
use crate::volume::{options, put};
use ext4::Fs;
use std::io::ErrorKind;

/// What was found wrong.
pub type Check = Result<(), String>;

/// Recovers an image by us, and lets e2fsck judge the result.
///
/// # Errors
/// What was found wrong.
pub fn by_us(image: Vec<u8>, history: &History, at: usize, scratch: &Scratch) -> Check {
    let disk = Disk::from_bytes(image);
    let fs = Fs::mount(disk.queue(), options()).map_err(|e| format!("mount: {e}"))?;
    let checked = history.check(&fs, at);
    // It must also be fit for use.
    let used = put(&fs, "after", b"the crash").and_then(|file| fs.fsync(&file, false));
    let unmounted = fs.unmount();
    checked?;
    used.map_err(|e| format!("after recovery: {e}"))?;
    unmounted.map_err(|e| format!("unmount after recovery: {e}"))?;
    let path = scratch.join("recovered");
    disk.save(&path);
    check(&path).map_err(|e| format!("e2fsck after our recovery: {e}"))
}

/// Crashes once more while we recover; what is left then is recovered.
///
/// # Errors
/// What was found wrong.
pub fn by_us_twice(
    image: Vec<u8>,
    history: &History,
    at: usize,
    scratch: &Scratch,
    rng: &mut Rng,
) -> Check {
    let disk = Disk::from_bytes(image);
    let base = disk.start_recording();
    let fs = Fs::mount(disk.queue(), options()).map_err(|e| format!("mount: {e}"))?;
    let events = disk.take_log();
    fs.crash();
    let mut recording = Recording::new(base, events);
    let again = rng.index(recording.len() + 1);
    let image = recording.image(again, rng);
    by_us(image, history, at, scratch).map_err(|e| {
        format!(
            "second crash at event {again} of {} of recovery: {e}",
            recording.len()
        )
    })
}

/// Recovers an image by e2fsck alone.
///
/// # Errors
/// What was found wrong.
pub fn by_fsck(image: &[u8], history: &History, at: usize, scratch: &Scratch) -> Check {
    let path = scratch.join("by-e2fsck");
    save(image, &path);
    recover_by_e2fsck(&path).map_err(|e| format!("e2fsck -fy: {e}"))?;
    let fs = Fs::mount(Disk::load(&path).queue(), options()).map_err(|e| e.to_string())?;
    let checked = history.check(&fs, at);
    fs.crash();
    checked.map_err(|e| format!("after e2fsck -fy: {e}"))
}

/// Recovers an image by the kernel alone.
///
/// # Errors
/// What was found wrong.
pub fn by_kernel(image: &[u8], history: &History, at: usize, scratch: &Scratch) -> Check {
    let path = scratch.join("by-kernel");
    save(image, &path);
    let mount = KernelMount::try_with(&path, "noatime")?;
    let checked = history.check_with(at, |file| match std::fs::read(mount.join(file)) {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    });
    mount.unmount();
    checked.map_err(|e| format!("after the kernel's recovery: {e}"))?;
    check(&path).map_err(|e| format!("e2fsck after the kernel's recovery: {e}"))
}
