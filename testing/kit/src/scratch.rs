//! Temporary directories.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary directory on a disk: `TMPDIR` or `/var/tmp`, because `/tmp` is often memory.
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory.
    pub fn new() -> Scratch {
        let base = std::env::var_os("TMPDIR").map_or(PathBuf::from("/var/tmp"), PathBuf::from);
        Scratch::new_in(&base).expect("a scratch directory")
    }

    /// Creates a directory in `base`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new_in(base: &Path) -> std::io::Result<Scratch> {
        let mut builder = tempfile::Builder::new();
        builder
            .prefix("sluicefs-test.")
            .tempdir_in(base)
            .map(Scratch)
    }

    /// The path of `name` in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}
