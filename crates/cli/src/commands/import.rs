//! `sluice import`: copies a directory of the host, or a tar archive, into a volume.

use crate::human::parse_bytes;
use crate::signals;
use crate::target::{self, Target};
use crate::transfer::{
    Fidelity, HostDir, OnWritten, Options, Progress, Selection, allow_many_descriptors, copy_tree,
    count_host_files, exit_code, host_file_id, make_durable_during, unpack,
};
use anyhow::{Context, Result};
use sluicefs::{Dir, File, FormatOptions, Volume, VolumeOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy a directory of this system, or a tar archive, into a volume, with all metadata
///
/// The contents of SOURCE are copied into the root of the volume, or into the given directory.
/// Existing files there stay. Owners, modes, times, extended attributes, ACLs, hard links, holes,
/// symbolic links and device files are preserved. When the command returns, everything is on the
/// device. After Ctrl-C the volume is consistent and has the files that were copied before.
///
/// An archive can be ustar, GNU or PAX. ACLs in an archive are ignored. Owners are taken by number,
/// not by name. Entries that would leave the directory (by `..` or through a symbolic link) are
/// refused.
///
/// With --durable, files become durable in groups while others are copied, and survive a crash
/// during the import. The progress bar shows their number. A group has up to 4,096 files or 64 MiB
/// and needs one commit of the journal.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice import ./rootfs disk.img                       into the root directory
  sluice import ./www disk.img:/srv/www                 into a directory, created if it is missing
  sluice import ./rootfs new.img --fresh --size 20GiB   into a new volume
  sluice import --durable layer.tar disk.img:/layers/1  an archive
  zstd -dc layer.tar.zst | sluice import - disk.img     an archive from standard input")]
pub struct Args {
    /// Directory of this system, tar archive, or - for an archive from standard input
    source: PathBuf,
    /// Target: DEVICE or DEVICE:/path
    target: Target,
    /// Make files durable in groups during the import, not only at the end
    #[arg(long)]
    durable: bool,
    /// Format the device first
    #[arg(long)]
    fresh: bool,
    /// With --fresh: size of the image file, which is created if it is missing
    #[arg(long, requires = "fresh", value_parser = parse_bytes)]
    size: Option<u64>,
    /// With --fresh: overwrite existing data
    #[arg(short, long, requires = "fresh")]
    force: bool,
    /// Number of threads that copy a directory [default: two for each processor]
    #[arg(short = 'j', long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Memory for caches
    #[arg(long, value_parser = parse_bytes, default_value = "1GiB")]
    memory: u64,
    /// Print no progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

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
        let progress = match self.quiet {
            true => Progress::hidden(),
            false => Progress::with_bar(),
        };
        let volume = self.open()?;
        let into = self.target.on(volume.create_dir_all(&self.target.path))?;
        let device = || self.target.device.display().to_string();
        let (copied, closed) = progress.during(
            || self.source.is_dir().then(|| count_host_files(&self.source)),
            || {
                let copied = if self.durable {
                    make_durable_during(&volume, self.memory, &progress, |written| {
                        self.copy(source, into, &progress, written)
                    })
                } else {
                    self.copy(source, into, &progress, &|_, _| {})
                };
                progress.copied();
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
        exit_code(&progress)
    }

    fn open_source(&self) -> Result<Source> {
        let path = &self.source;
        if path == Path::new("-") {
            return Ok(Source::Stdin);
        }
        if path.is_dir() {
            let image = host_file_id(Path::new(&self.target.device));
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
        written: OnWritten<'_, File>,
    ) -> Result<()> {
        let unpacked = match source {
            Source::Dir(source) => {
                let options = Options {
                    fidelity: Fidelity::Full,
                    threads: self.threads,
                    umask: 0,
                };
                let all = Selection::Contents;
                return copy_tree(source, into, all, &self.source, options, progress, written);
            }
            Source::Archive(file) => unpack(file, into, progress, written),
            Source::Stdin => unpack(std::io::stdin().lock(), into, progress, written),
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
        options
            .format(&self.target.device, &format)
            .map_err(|e| target::explain_format(&self.target.device, e))
    }
}
