//! `sluice export`: a directory of a volume onto the host.

use crate::signals;
use crate::target::Target;
use crate::transfer::Fidelity;
use crate::transfer::engine::{self, Options, What};
use crate::transfer::host::HostDir;
use crate::transfer::progress::Progress;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Copy a directory of a volume onto this system, with everything that can be preserved
///
/// The counterpart of import. Owners and device files take root; without it, files belong to
/// whoever runs the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice export disk.img ./rootfs             everything on the volume
  sluice export disk.img:/srv/www ./www       one directory")]
pub struct Args {
    /// What to copy: DEVICE or DEVICE:/path
    target: Target,
    /// Directory of this system, made if need be
    dir: PathBuf,
    /// Threads that copy [default: two for each processor]
    #[arg(short = 'j', long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// A summary as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        signals::catch();
        super::import::allow_many_descriptors();
        let volume = self.target.open_read_only()?;
        let source = self.target.on(volume.open_dir(&self.target.path))?;
        std::fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        let sink = HostDir::open(&self.dir, None)?;
        let options = Options {
            fidelity: Fidelity::Full,
            threads: self.threads,
            umask: 0,
        };
        let progress = Progress::start(!self.quiet);
        let space = volume.statfs();
        let copied = progress.during(
            // An upper limit, and exact for a whole volume but for its directories.
            || Some(space.inodes.saturating_sub(space.free_inodes)),
            || {
                engine::copy(
                    source,
                    sink,
                    What::Contents,
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
        super::cp::verdict(&progress)
    }
}
