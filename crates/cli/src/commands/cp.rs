//! `sluice cp`: files and trees in either direction, and within volumes.

use crate::signals;
use crate::target::{self, Target};
use crate::transfer::engine::{self, Options, What};
use crate::transfer::host::{self, HostDir};
use crate::transfer::progress::Progress;
use crate::transfer::{Fidelity, SinkDir, host_xattr};
use anyhow::{Context, Result, bail};
use sluicefs::{Volume, VolumeOptions};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy files and directories between this system and volumes, or within a volume
///
/// DEVICE:/path names something on a volume, everything else something on this system (write ./a:/b
/// for a file that is called so). A target that is a directory receives the sources under their
/// names.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice cp notes.txt disk.img:/home/
  sluice cp -r ./src disk.img:/dst              a tree into the volume
  sluice cp -rp disk.img:/etc ./etc             and out of it, with owners, times and attributes
  sluice cp -r disk.img:/a disk.img:/b          within the volume
  sluice cp old.img:/data.db new.img:/          from one volume to another")]
pub struct Args {
    /// What to copy, and last where to
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"])]
    paths: Vec<OsString>,
    /// Directories and everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Preserve owner, mode, times, extended attributes, ACLs and hard links
    #[arg(short, long)]
    preserve: bool,
    /// As -rp
    #[arg(short, long)]
    archive: bool,
    /// Show a progress bar
    #[arg(long)]
    progress: bool,
    /// Threads that copy [default: two for each processor]
    #[arg(short = 'j', long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
}

/// A side of the copy.
#[derive(Clone, Debug)]
enum Side {
    Host(PathBuf),
    Volume(Target),
}

impl Side {
    /// `DEVICE:/path`, unless a file of the host is called just so.
    fn parse(text: &OsStr) -> Side {
        match target::split(text) {
            Some(_) if Path::new(text).symlink_metadata().is_ok() => Side::Host(text.into()),
            Some(target) => Side::Volume(target),
            None => Side::Host(text.into()),
        }
    }

    fn shown(&self) -> String {
        match self {
            Side::Host(path) => path.display().to_string(),
            Side::Volume(target) => target.to_string(),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Side::Host(path) => path,
            Side::Volume(target) => &target.path,
        }
    }
}

/// Each device is opened once, for writing if it is the target's.
struct Volumes {
    open: HashMap<OsString, Volume>,
    written: Option<OsString>,
}

impl Volumes {
    fn get(&mut self, target: &Target) -> Result<Volume> {
        if let Some(volume) = self.open.get(&target.device) {
            return Ok(volume.clone());
        }
        let read_only = self.written.as_ref() != Some(&target.device);
        let volume = target::open(&target.device, VolumeOptions::new().read_only(read_only))?;
        self.open.insert(target.device.clone(), volume.clone());
        Ok(volume)
    }

    fn close(self) -> Result<()> {
        for (device, volume) in self.open {
            volume.close().map_err(|e| target::named(&device, e))?;
        }
        Ok(())
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let sides: Vec<Side> = self.paths.iter().map(|p| Side::parse(p)).collect();
        let (to, from) = sides.split_last().context("a target is missing")?;
        let on_volume = |side: &Side| matches!(side, Side::Volume(_));
        if !on_volume(to) && !from.iter().any(on_volume) {
            bail!("nothing here is on a volume: write DEVICE:/path, or use cp");
        }
        signals::catch();
        super::import::allow_many_descriptors();
        let mut volumes = Volumes {
            open: HashMap::new(),
            written: match to {
                Side::Volume(target) => Some(target.device.clone()),
                Side::Host(_) => None,
            },
        };
        let progress = Progress::start(self.progress);
        let copied = self.copy_all(from, to, &mut volumes, &progress);
        progress.finish();
        let closed = volumes.close();
        copied.and(closed)?;
        verdict(&progress)
    }

    fn options(&self) -> Options {
        Options {
            fidelity: if self.preserve || self.archive {
                Fidelity::Full
            } else {
                Fidelity::Contents
            },
            threads: self.threads,
            umask: host::umask(),
        }
    }

    fn copy_all(
        &self,
        from: &[Side],
        to: &Side,
        volumes: &mut Volumes,
        progress: &Progress,
    ) -> Result<()> {
        let options = self.options();
        let into = is_dir(to, volumes)?;
        if from.len() > 1 && !into {
            bail!("{}: not a directory", to.shown());
        }
        for source in from {
            let (dir, name) = self.locate(source, volumes)?;
            let (to_dir, new_name) = match (into, to.path().file_name()) {
                (true, _) => (to.path().to_path_buf(), name.clone()),
                (false, Some(new_name)) => (parent_of(to.path()), new_name.to_owned()),
                (false, None) => bail!("{}: no such directory", to.shown()),
            };
            refuse_into_itself(source, &dir.join(&name), to, &to_dir.join(&new_name))?;
            let what = What::Entry(name, new_name);
            let at = Place { dir: &dir, what };
            match to {
                Side::Host(_) => {
                    let sink = HostDir::open(&to_dir, None)?;
                    at.copy(source, sink, volumes, options, progress)?;
                }
                Side::Volume(target) => {
                    let volume = volumes.get(target)?;
                    let sink = target.on(volume.open_dir(&to_dir))?;
                    at.copy(source, sink, volumes, options, progress)?;
                }
            }
        }
        Ok(())
    }

    /// The directory of a source and its name in it. Without -r symbolic links are followed, as cp
    /// does.
    fn locate(&self, source: &Side, volumes: &mut Volumes) -> Result<(PathBuf, OsString)> {
        let recursive = self.recursive || self.archive;
        let path = source.path();
        let dir = is_dir(source, volumes)?;
        if dir && !recursive {
            bail!("{}: a directory; -r copies it", source.shown());
        }
        // A path like `.` or `a/..` gets its name, and without -r a link its file, by being made
        // canonical.
        let canonical = !recursive || path.file_name().is_none();
        let path = match source {
            Side::Host(path) if canonical => path
                .canonicalize()
                .with_context(|| path.display().to_string())?,
            Side::Volume(target) if canonical => {
                let volume = volumes.get(target)?;
                target.on(volume.canonicalize(&target.path))?
            }
            _ => path.to_path_buf(),
        };
        match path.file_name() {
            Some(name) => Ok((parent_of(&path), name.to_owned())),
            None => bail!(
                "{}: the root has no name to copy it under; use `sluice export`",
                source.shown()
            ),
        }
    }
}

/// One source, found.
struct Place<'a> {
    dir: &'a Path,
    what: What,
}

impl Place<'_> {
    fn copy<D: SinkDir>(
        self,
        source: &Side,
        sink: D,
        volumes: &mut Volumes,
        options: Options,
        progress: &Progress,
    ) -> Result<()> {
        match source {
            Side::Host(_) => {
                let written = volumes.written.as_ref();
                let image = written.and_then(|device| host::identity(Path::new(device)));
                let from = HostDir::open(self.dir, image)?;
                engine::copy(
                    from,
                    sink,
                    self.what,
                    self.dir,
                    options,
                    progress,
                    &|_, _| {},
                )
            }
            Side::Volume(target) => {
                let volume = volumes.get(target)?;
                let from = target.on(volume.open_dir(self.dir))?;
                engine::copy(
                    from,
                    sink,
                    self.what,
                    self.dir,
                    options,
                    progress,
                    &|_, _| {},
                )
            }
        }
    }
}

fn is_dir(side: &Side, volumes: &mut Volumes) -> Result<bool> {
    Ok(match side {
        Side::Host(path) => path.is_dir(),
        Side::Volume(target) => {
            let volume = volumes.get(target)?;
            volume.metadata(&target.path).is_ok_and(|m| m.is_dir())
        }
    })
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_path_buf(),
        None => PathBuf::from("/"),
    }
}

/// A tree copied into itself would never end.
fn refuse_into_itself(source: &Side, from: &Path, to: &Side, target: &Path) -> Result<()> {
    if let (Side::Volume(a), Side::Volume(b)) = (source, to)
        && a.device == b.device
        && target.starts_with(from)
    {
        bail!("{}: cannot be copied into itself", source.shown());
    }
    Ok(())
}

/// What the command ends with when errors of single files have been told already.
pub(super) fn verdict(progress: &Progress) -> Result<ExitCode> {
    let refused = host_xattr::refused();
    if refused > 0 {
        eprintln!(
            "sluice: {refused} extended attributes were not taken by the target (not supported there, or root only)"
        );
    }
    match progress.errors() {
        0 => Ok(ExitCode::SUCCESS),
        1 => bail!("one file could not be copied"),
        n => bail!("{n} files could not be copied"),
    }
}
