//! Recovery of crash images by us, by e2fsck and by the kernel. The history and e2fsck check the
//! result.

use crate::history::History;
use ext4::{Fs, SyncKind};
use std::io::ErrorKind;
use testkit::disk::{Disk, save};
use testkit::kernel::KernelMount;
use testkit::oracle::{check, recover_by_e2fsck};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{options, put};

/// The result of a check; the error describes the defect.
pub type Check = Result<(), String>;

/// Recovers an image by us; the history and e2fsck check the result.
///
/// # Errors
/// A description of the defect.
pub fn by_us(image: Vec<u8>, history: &History, at: usize, scratch: &Scratch) -> Check {
    let disk = Disk::from_bytes(image);
    let fs = Fs::mount(disk.queue(), options()).map_err(|e| format!("mount: {e}"))?;
    let checked = history.check(&fs, at);
    // The volume must also accept changes.
    let used = put(&fs, "after", b"the crash").and_then(|file| fs.fsync(&file, SyncKind::Fsync));
    let unmounted = fs.unmount();
    checked?;
    used.map_err(|e| format!("after recovery: {e}"))?;
    unmounted.map_err(|e| format!("unmount after recovery: {e}"))?;
    let path = scratch.join("recovered");
    disk.save(&path);
    check(&path).map_err(|e| format!("e2fsck after our recovery: {e}"))
}

/// Recovers an image by us, with a second crash during the first recovery.
///
/// # Errors
/// A description of the defect.
pub fn by_us_twice(
    image: Vec<u8>,
    history: &History,
    at: usize,
    scratch: &Scratch,
    rng: &mut Rng,
) -> Check {
    let disk = Disk::from_bytes(image);
    disk.start_recording();
    let fs = Fs::mount(disk.queue(), options()).map_err(|e| format!("mount: {e}"))?;
    let recording = disk.take_recording();
    fs.crash();
    let again = rng.index(recording.log.len() + 1);
    let image = recording.image(again, rng);
    by_us(image, history, at, scratch).map_err(|e| {
        format!(
            "second crash at event {again} of {} of recovery: {e}",
            recording.log.len()
        )
    })
}

/// Recovers an image by e2fsck alone.
///
/// # Errors
/// A description of the defect.
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
/// A description of the defect.
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
