//! Directories that go away with the value.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory on a real disk (`TMPDIR`, or `/var/tmp`: `/tmp` is often memory).
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes one.
    pub fn new() -> Scratch {
        let base = std::env::var_os("TMPDIR").map_or(PathBuf::from("/var/tmp"), PathBuf::from);
        let dir = tempfile::Builder::new()
            .prefix("sluicefs-test.")
            .tempdir_in(base)
            .expect("a scratch directory");
        Scratch(dir)
    }

    /// Path of `name` in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}
