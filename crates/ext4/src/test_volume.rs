//! Volumes and files for the unit tests.

use crate::{Fs, InodeRef, MountOptions, NewInode};
use block::Queue;
use std::sync::Arc;
use std::time::Duration;

/// Mounts a volume. Only the test writes pages and commits.
pub(crate) fn mount(queue: Arc<Queue>) -> Arc<Fs> {
    let mut options = MountOptions {
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    };
    options.tunables.dirty_writeback = Duration::ZERO;
    Fs::mount(queue, options).expect("the test has made the volume")
}

/// Creates a file in the root directory.
pub(crate) fn create(fs: &Arc<Fs>, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().expect("the volume has a root directory");
    let created = fs.create(&root, name.as_bytes(), new);
    created.expect("the name is new")
}
