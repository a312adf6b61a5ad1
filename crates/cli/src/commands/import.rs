//! `sluice import`: a directory of the host, or a tar archive, into a volume.

use crate::human::parse_bytes;
use crate::target::{self, Target};
use crate::transfer::engine::{self, Options, What, Written};
use crate::transfer::host::{self, HostDir};
use crate::transfer::progress::Progress;
use crate::transfer::{Fidelity, archive, durable};
use crate::{commands::mkfs, signals};
use anyhow::{Context, Result};
use sluicefs::{Dir, File, FormatOptions, Volume, VolumeOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy a directory of this system, or a tar archive, into a volume, with everything that can be
/// preserved
///
/// What is in SOURCE goes into the root of the volume or into the directory named, beside what is
/// there. Owners, modes, times, extended attributes, ACLs, hard links, holes, symbolic links and
/// device files are preserved. On return all of it is on the device. Ctrl-C leaves a consistent
/// volume with what was copied so far.
///
/// An archive is ustar, GNU or PAX (ACLs in it are not read), owners go by their numbers. What
/// would lead out of the directory (`..`, a way through a symbolic link) is refused.
///
/// With --durable the files become durable in groups while others are copied: what is said to be
/// durable survives a crash in the middle of the import, whole. A group is up to 4,096 files or 64
/// MiB and takes one commit of the journal.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice import ./rootfs disk.img                       into the root directory
  sluice import ./www disk.img:/srv/www                 into a directory, made if need be
  sluice import ./rootfs new.img --fresh --size 20GiB   into a new volume
  sluice import --durable layer.tar disk.img:/layers/1  an archive
  zstd -dc layer.tar.zst | sluice import - disk.img     an archive from standard input")]
pub struct Args {
    /// Directory of this system, tar archive, or - for an archive from standard input
    source: PathBuf,
    /// Where to: DEVICE or DEVICE:/path
    target: Target,
    /// Make files durable in groups as it goes, and not only at the end
    #[arg(long)]
    durable: bool,
    /// Format the device first
    #[arg(long)]
    fresh: bool,
    /// With --fresh: size of the image file, which is made if it is not there
    #[arg(long, requires = "fresh", value_parser = parse_bytes)]
    size: Option<u64>,
    /// With --fresh: format over what is there
    #[arg(short, long, requires = "fresh")]
    force: bool,
    /// Threads that copy a directory [default: two for each processor]
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

/// What is imported.
enum Source {
    Dir(HostDir),
    Archive(std::fs::File),
    Stdin,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let source = self.open_source()?;
        signals::catch();
        allow_many_descriptors();
        let progress = Progress::start(!self.quiet);
        let volume = self.open()?;
        let into = self.target.on(volume.create_dir_all(&self.target.path))?;
        let device = || self.target.device.display().to_string();
        let (copied, closed) = progress.during(
            || {
                self.source
                    .is_dir()
                    .then(|| host::count_files(&self.source))
            },
            || {
                let copied = if self.durable {
                    durable::during(&volume, self.memory, &progress, |written| {
                        self.copy(source, into, &progress, written)
                    })
                } else {
                    self.copy(source, into, &progress, &|_, _| {})
                };
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

    fn open_source(&self) -> Result<Source> {
        let path = &self.source;
        if path == Path::new("-") {
            return Ok(Source::Stdin);
        }
        if path.is_dir() {
            let image = host::identity(Path::new(&self.target.device));
            return Ok(Source::Dir(HostDir::open(path, image)?));
        }
        let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        Ok(Source::Archive(file))
    }

    fn copy(
        &self,
        source: Source,
        into: Dir,
        progress: &Progress,
        written: Written<'_, File>,
    ) -> Result<()> {
        let unpacked = match source {
            Source::Dir(source) => {
                let options = Options {
                    fidelity: Fidelity::Full,
                    threads: self.threads,
                    umask: 0,
                };
                let what = What::Contents;
                return engine::copy(source, into, what, &self.source, options, progress, written);
            }
            Source::Archive(file) => archive::unpack(file, into, progress, written),
            Source::Stdin => archive::unpack(std::io::stdin().lock(), into, progress, written),
        };
        unpacked.with_context(|| self.source.display().to_string())
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

/// Directories stay open while something in them is copied: deep trees need more than the usual
/// 1,024.
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
