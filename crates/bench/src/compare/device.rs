//! Loop devices over image files, as long as the value lives.

use super::image::Image;
use super::process::{Interrupt, output, run};
use crate::target::counters::{Counters, Source};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A loop device with direct I/O.
pub(super) struct LoopDevice {
    path: PathBuf,
    image: Arc<Image>,
}

impl LoopDevice {
    /// Attaches a free one.
    pub(super) fn attach(image: Arc<Image>, interrupt: &Interrupt<'_>) -> io::Result<LoopDevice> {
        let args = ["--direct-io=on", "--find", "--show"];
        let said = run("losetup", &args, image.path(), interrupt)?;
        let device = LoopDevice {
            path: PathBuf::from(said.trim()),
            image,
        };
        let name = device.path.file_name().unwrap_or_default();
        let dio = Path::new("/sys/block").join(name).join("loop/dio");
        if std::fs::read_to_string(&dio).is_ok_and(|on| on.trim() == "0") {
            let what = "the scratch directory's file system has no direct I/O; name a real disk with --scratch";
            return Err(io::Error::other(what));
        }
        Ok(device)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is over.
    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    /// What has reached it so far.
    pub(super) fn counters(&self) -> Option<Counters> {
        let number = std::fs::metadata(&self.path).ok()?.rdev();
        Source::block(number)?.read()
    }

    /// Writes what the kernel has cached of it.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let mut command = Command::new("losetup");
        command.arg("--detach").arg(&self.path);
        if let Err(e) = output(&mut command, &Interrupt::new(&|| false)) {
            eprintln!("sluice: {}: left behind: {e}", self.path.display());
        }
    }
}
