//! `sluice export`: copies a directory of a volume to the host.

use crate::signals;
use crate::target::Target;
use crate::transfer::{
    Fidelity, HostDir, Options, Progress, Selection, allow_many_descriptors, copy_tree, exit_code,
};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Copy a directory of a volume to this system, with all metadata
///
/// This is the reverse of import. Preserving owners and device files requires root. Without it, the
/// files belong to the user who runs the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice export disk.img ./rootfs             everything on the volume
  sluice export disk.img:/srv/www ./www       one directory")]
pub struct Args {
    /// Source: DEVICE or DEVICE:/path
    target: Target,
    /// Directory of this system, created if it is missing
    dir: PathBuf,
    /// Number of threads [default: two for each processor]
    #[arg(short = 'j', long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print no progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        signals::catch();
        allow_many_descriptors();
        let volume = self.target.open_read_only()?;
        let source = self.target.on(volume.open_dir(&self.target.path))?;
        std::fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        let sink = HostDir::open(&self.dir, None)?;
        let options = Options {
            fidelity: Fidelity::Full,
            threads: self.threads,
            umask: 0,
        };
        let progress = match self.quiet {
            true => Progress::hidden(),
            false => Progress::with_bar(),
        };
        let space = volume.statfs();
        let copied = progress.during(
            // An upper bound: the inodes in use, which include directories.
            || Some(space.inodes.saturating_sub(space.free_inodes)),
            || {
                copy_tree(
                    source,
                    sink,
                    Selection::Contents,
                    &self.target.path,
                    options,
                    &progress,
                    &|_, _| {},
                )
            },
        );
        progress.finish();
        copied.with_context(|| self.target.to_string())?;
        if self.json {
            println!("{:#}", progress.json());
        } else if !self.quiet {
            eprintln!("{}: {}", self.dir.display(), progress.summary());
        }
        exit_code(&progress)
    }
}
