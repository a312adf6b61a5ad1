//! Mounting, and starting the threads that serve requests.

use crate::teardown::Teardown;
use anyhow::{Context, Result, bail};
use fusedev::{Claim, MountSpec, Notifier, Server, Session, UnmountMode, unmount};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether this user can mount without fusermount3.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the absolute path of a mount point.
///
/// # Errors
/// `dir` is not a directory.
pub(crate) fn mount_point(dir: &Path) -> Result<PathBuf> {
    let absolute = dir
        .canonicalize()
        .with_context(|| format!("{}: mount point", dir.display()))?;
    if !absolute.is_dir() {
        bail!("{}: the mount point is not a directory", dir.display());
    }
    Ok(absolute)
}

/// Mounts on the directory of `teardown`, with the `claim` if there is one, and serves requests
/// with `threads` threads. `set_notifier` is called before the first request.
///
/// # Errors
/// FUSE is not available; the system does not let this user mount there.
pub(crate) fn start(
    teardown: &Arc<Teardown>,
    server: Arc<impl Server>,
    (spec, claim): (&MountSpec, Option<Claim>),
    threads: usize,
    set_notifier: impl FnOnce(Notifier),
) -> Result<()> {
    let dir = teardown.dir();
    let mounted = match claim {
        Some(claim) => claim.mount(spec, dir),
        None => fusedev::mount(spec, dir),
    };
    mounted
        .and_then(|fd| {
            Session::start(fd, server)
                .and_then(|session| {
                    set_notifier(session.notifier());
                    teardown.serve(move || session.run(threads))
                })
                .inspect_err(|_| {
                    let _ = unmount(dir, UnmountMode::Lazy);
                })
        })
        .with_context(|| format!("{}: mount", dir.display()))
}
