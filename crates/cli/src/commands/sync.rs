//! `sluice sync`: makes a mounted volume, or a tree on it, durable.

use anyhow::Result;
use fuse::SyncScope;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make everything on a mounted volume durable
///
/// When the command returns, all data written before is on the device. sync(1) and syncfs(2) reach
/// a block device that root has mounted (Linux 6.18), but not the mount of an image. fsync(2)
/// reaches both. With --tree only the files below DIR are written, and the command does not wait
/// for the data of others.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice sync /mnt                    the volume that is mounted on /mnt
  sluice sync --tree /mnt/project     a directory and everything below it
  cp -r src /mnt/dst && sluice sync --tree /mnt/dst")]
pub struct Args {
    /// Directories on mounted volumes
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Only each DIR and everything below it
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
