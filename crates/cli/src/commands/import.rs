//! `sluice import`: a directory of the host into a volume.

use crate::human::parse_bytes;
use crate::target::{self, Target};
use crate::transfer::Fidelity;
use crate::transfer::engine::{self, Options, What};
use crate::transfer::host::{self, HostDir};
use crate::transfer::progress::Progress;
use crate::{commands::mkfs, signals};
use anyhow::{Context, Result, bail};
use sluicefs::{FormatOptions, Volume, VolumeOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy a directory of this system into a volume, with everything that can be preserved
///
/// What is in DIR goes into the root of the volume or into the directory named, beside what is there. Owners, modes,
/// times, extended attributes, ACLs, hard links, holes, symbolic links and device files are preserved. On return all of
/// it is on the device. Ctrl-C leaves a consistent volume with what was copied so far.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice import ./rootfs disk.img                       into the root directory
  sluice import ./www disk.img:/srv/www                 into a directory, made if need be
  sluice import ./rootfs new.img --fresh --size 20GiB   into a new volume")]
pub struct Args {
    /// Directory of this system
    dir: PathBuf,
    /// Where to: DEVICE or DEVICE:/path
    target: Target,
    /// Format the device first
    #[arg(long)]
    fresh: bool,
    /// With --fresh: size of the image file, which is made if it is not there
    #[arg(long, requires = "fresh", value_parser = parse_bytes)]
    size: Option<u64>,
    /// With --fresh: format over what is there
    #[arg(short, long, requires = "fresh")]
    force: bool,
    /// Threads that copy [default: two for each processor]
    #[arg(short = 'j', long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Memory for caches
    #[arg(long, value_parser = parse_bytes, default_value = "1GiB")]
    memory: u64,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// A summary as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        if !self.dir.is_dir() {
            bail!("{}: not a directory", self.dir.display());
        }
        signals::catch();
        allow_many_descriptors();
        let progress = Progress::start(!self.quiet);
        let volume = self.open()?;
        let source = HostDir::open(&self.dir, host::identity(Path::new(&self.target.device)))?;
        let sink = self.target.on(volume.create_dir_all(&self.target.path))?;
        let options = Options {
            fidelity: Fidelity::Full,
            threads: self.threads,
            umask: 0,
        };
        let device = || self.target.device.display().to_string();
        let (copied, closed) = progress.during(
            || host::count_files(&self.dir),
            || {
                let copied =
                    engine::copy(source, sink, What::Contents, &self.dir, options, &progress);
                progress.closing();
                (copied, volume.close())
            },
        );
        progress.finish();
        copied.with_context(device)?;
        self.target.on(closed)?;
        if self.json {
            println!("{:#}", progress.json());
        } else if !self.quiet {
            eprintln!("{}: {}", self.target, progress.summary());
        }
        super::cp::verdict(&progress)
    }

    fn open(&self) -> Result<Volume> {
        let options = VolumeOptions::new().memory(self.memory);
        if !self.fresh {
            return target::open(&self.target.device, options);
        }
        let mut format = FormatOptions::new().force(self.force);
        if let Some(size) = self.size {
            format = format.size(size);
        }
        let made = options.format(&self.target.device, &format);
        made.map_err(|e| {
            let device = self.target.device.display().to_string();
            anyhow::anyhow!(mkfs::explain(&device, &e))
        })
    }
}

/// Directories stay open while something in them is copied: deep trees need more than the usual 1,024.
pub(super) fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(e) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("the limit of open files stays: {e}");
    }
}
