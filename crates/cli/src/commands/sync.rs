//! `sluice sync`: what sync(2) cannot reach.

use anyhow::Result;
use fuse::SyncScope;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make everything on a mounted volume durable
///
/// On return all that was written before is on the device. sync(1) and syncfs(2) reach a block
/// device that root has mounted (Linux 6.18), not the mount of an image; fsync(2) reaches both.
/// With --tree only what lies below DIR is written: other programs' data is not waited for.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice sync /mnt                    everything on the volume that is mounted on /mnt
  sluice sync --tree /mnt/project     what lies below a directory
  cp -r src /mnt/dst && sluice sync --tree /mnt/dst")]
pub struct Args {
    /// Directories on mounted volumes
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Only what lies below each DIR
    #[arg(short, long)]
    tree: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let scope = match self.tree {
            true => SyncScope::Tree,
            false => SyncScope::Volume,
        };
        let mut code = ExitCode::SUCCESS;
        for dir in &self.dirs {
            if let Err(error) = fuse::sync(dir, scope) {
                eprintln!("sluice: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}
