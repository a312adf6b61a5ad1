//! `sluice mount-helper`: mounts and unmounts one directory for a `sluice mount` in a sandbox.
//! `sluice mount` starts it.

use anyhow::{Context, Result};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Mount and unmount for a server in a sandbox
#[derive(clap::Args)]
pub struct Args {
    /// Mount point
    dir: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        fuse::serve_as_helper(&socket, &self.dir).context("reading requests of the mount")?;
        Ok(ExitCode::SUCCESS)
    }
}
