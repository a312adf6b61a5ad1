//! The scratch directory of a comparison.

use std::io;
use std::path::{Path, PathBuf};

/// A directory on the disk. It is removed when the value is dropped.
pub(super) struct Scratch(PathBuf);

/// Subdirectories: the mount points of a peer and of the server of a modelled device.
const MOUNT: &str = "mount";
const MODEL: &str = "model";

impl Scratch {
    /// Makes the directory in `parent`, which must have `needed` bytes of free space.
    pub(super) fn new(parent: &Path, needed: u64) -> io::Result<Scratch> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", parent.display()));
        let space = rustix::fs::statvfs(parent).map_err(|e| named(e.into()))?;
        let free = space.f_bavail * space.f_frsize;
        if free < needed {
            return Err(named(io::Error::other(format!(
                "{} MiB are free, but {} MiB may be needed; choose another disk with --scratch, fewer files or a smaller --size",
                free >> 20,
                needed >> 20
            ))));
        }
        let path = parent.join(format!("sluice-compare-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(named)?;
        let scratch = Scratch(path.canonicalize().map_err(named)?);
        std::fs::create_dir(scratch.mount())?;
        std::fs::create_dir(scratch.model())?;
        Ok(scratch)
    }

    /// The path of the image file.
    pub(super) fn image(&self) -> PathBuf {
        self.0.join("image")
    }

    /// The mount point of a peer.
    pub(super) fn mount(&self) -> PathBuf {
        self.0.join(MOUNT)
    }

    /// The mount point of the server of a modelled device.
    pub(super) fn model(&self) -> PathBuf {
        self.0.join(MODEL)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // remove_dir fails if something is still mounted; nothing is removed recursively then.
        let removed = std::fs::remove_dir(self.mount())
            .and_then(|()| std::fs::remove_dir(self.model()))
            .and_then(|()| std::fs::remove_dir_all(&self.0));
        if let Err(e) = removed {
            eprintln!("sluice: {}: not removed: {e}", self.0.display());
        }
    }
}
