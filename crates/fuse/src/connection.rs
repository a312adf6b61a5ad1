//! Mounting, and starting the threads that serve requests.

use crate::teardown::Teardown;
use anyhow::{Context, Result, bail};
use fusedev::{
    Claim, MountSpec, Notifier, Server, Serving, Session, TransportMonitor, UnmountMode, unmount,
};
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

/// Mounts on the directory of `teardown`, with the `claim` if there is one, and serves requests.
/// `connected` is called before the first request.
///
/// # Errors
/// FUSE or the chosen transport is not available; the system does not let this user mount there.
pub(crate) fn start(
    teardown: &Arc<Teardown>,
    server: Arc<impl Server>,
    (spec, claim): (&MountSpec, Option<Claim>),
    serving: Serving,
    connected: impl FnOnce(Notifier, TransportMonitor),
) -> Result<()> {
    let dir = teardown.dir();
    let mounted = match claim {
        Some(claim) => claim.mount(spec, dir),
        None => fusedev::mount(spec, dir),
    };
    mounted
        .and_then(|fd| {
            Session::start(fd, server, serving)
                .and_then(|session| {
                    teardown.mounted();
                    connected(session.notifier(), session.monitor());
                    teardown.serve(move || session.run())
                })
                .inspect_err(|_| {
                    let _ = unmount(dir, UnmountMode::Lazy);
                })
        })
        .with_context(|| format!("{}: mount", dir.display()))
}
