//! Recovery of crash images by us, by e2fsck and by the kernel. The history and e2fsck check the
//! result.

use crate::history::History;
use ext4::{Error, FileType, Fs, InodeRef, SyncKind};
use std::io::ErrorKind;
use std::path::Path;
use testkit::disk::Disk;
use testkit::kernel::KernelMount;
use testkit::oracle::{check, e2fsck, recover_by_e2fsck};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{at as at_path, contents, get, list, options, put, try_mount_on};

/// The result of a check; the error describes the defect.
pub type Check = Result<(), String>;

/// Recovers an image by us; the history and e2fsck check the result.
///
/// # Errors
/// A description of the defect.
pub fn by_us(image: Vec<u8>, history: &History, at: usize, scratch: &Scratch) -> Check {
    let disk = Disk::of_image(image);
    let fs = try_mount_on(&disk, options()).map_err(|e| format!("mount: {e}"))?;
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
    let disk = Disk::of_image(image);
    disk.start_recording();
    let fs = try_mount_on(&disk, options()).map_err(|e| format!("mount: {e}"))?;
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
    Disk::of_image(image.to_vec()).save(&path);
    recover_by_e2fsck(&path).map_err(|e| format!("e2fsck -fy: {e}"))?;
    let fs = try_mount_on(&Disk::load(&path), options()).map_err(|e| e.to_string())?;
    let checked = history.check(&fs, at);
    fs.crash();
    checked.map_err(|e| format!("after e2fsck -fy: {e}"))
}

/// Repairs an image of a volume without a journal by e2fsck. Then the volume is read by us, and by
/// the kernel if that is possible. Returns the number of files that have lost their name.
///
/// # Errors
/// A description of the defect.
pub fn by_repair(
    image: &[u8],
    history: &History,
    at: usize,
    scratch: &Scratch,
    reader: Reader,
) -> Result<usize, String> {
    let path = scratch.join("repaired");
    Disk::of_image(image.to_vec()).save(&path);
    let (code, said) = e2fsck(&path, "-fy");
    if !matches!(code, 0 | 1) {
        return Err(format!("e2fsck -fy, exit {code}:\n{said}"));
    }
    check(&path).map_err(|e| format!("e2fsck -fn after e2fsck -fy: {e}"))?;
    let checked = match reader {
        Reader::Us => {
            let fs = try_mount_on(&Disk::load(&path), options()).map_err(|e| e.to_string())?;
            let mut unnamed = Vec::new();
            at_path(&fs, "lost+found")
                .and_then(|dir| add_files(&fs, &dir, &mut unnamed))
                .map_err(|e| format!("lost+found: {e}"))?;
            let read = |file: &str| match get(&fs, file) {
                Ok(found) => Ok(Some(found)),
                Err(Error::NotFound) => Ok(None),
                Err(e) => Err(e.to_string()),
            };
            let is_lost = |contents: &[u8]| unnamed.iter().any(|found| found == contents);
            let checked = history.check_repaired(at, read, is_lost);
            fs.unmount().map_err(|e| format!("unmount: {e}"))?;
            checked
        }
        Reader::Kernel => {
            let mount = KernelMount::read_only(&path);
            let mut unnamed = Vec::new();
            add_kernel_files(&mount.join("lost+found"), &mut unnamed)
                .map_err(|e| format!("lost+found: {e}"))?;
            let is_lost = |contents: &[u8]| unnamed.iter().any(|found| found == contents);
            let checked = history.check_repaired(at, |file| read_file(&mount.join(file)), is_lost);
            mount.unmount();
            checked
        }
    };
    checked.map_err(|e| format!("after e2fsck -fy: {e}\n{said}"))
}

/// The reader of a repaired volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The engine.
    Us,
    /// Linux.
    Kernel,
}

/// Adds the contents of all files below a directory.
fn add_files(fs: &Fs, dir: &InodeRef, found: &mut Vec<Vec<u8>>) -> ext4::Result<()> {
    for (name, _, kind) in list(fs, dir)? {
        let inode = fs.lookup(dir, &name)?;
        match kind {
            FileType::Directory => add_files(fs, &inode, found)?,
            FileType::Regular => found.push(contents(fs, &inode)?),
            _ => {}
        }
    }
    Ok(())
}

fn add_kernel_files(dir: &Path, found: &mut Vec<Vec<u8>>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            add_kernel_files(&path, found)?;
        } else if kind.is_file() {
            found.push(std::fs::read(path)?);
        }
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::read(path) {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}

/// Recovers an image by the kernel alone.
///
/// # Errors
/// A description of the defect.
pub fn by_kernel(image: &[u8], history: &History, at: usize, scratch: &Scratch) -> Check {
    let path = scratch.join("by-kernel");
    Disk::of_image(image.to_vec()).save(&path);
    let mount = KernelMount::try_with(&path, "noatime")?;
    let checked = history.check_with(at, |file| read_file(&mount.join(file)));
    mount.unmount();
    checked.map_err(|e| format!("after the kernel's recovery: {e}"))?;
    check(&path).map_err(|e| format!("e2fsck after the kernel's recovery: {e}"))
}
