//! `sluice cp`: copies files and trees between the host and volumes, and between volumes.

use crate::signals;
use crate::target::{self, Target};
use crate::transfer::{
    Fidelity, HostDir, Options, Progress, Selection, SinkDir, SourceDir, allow_many_descriptors,
    copy_tree, exit_code, host_file_id, umask,
};
use anyhow::{Context, Result, bail};
use sluicefs::{Volume, VolumeOptions};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy files and directories between this system and volumes, or within a volume
///
/// DEVICE:/path is a path on a volume. All other arguments are paths on this system; write ./a:/b
/// for a file whose name contains `:/`. If the target is a directory, the sources are copied into
/// it and keep their names.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice cp notes.txt disk.img:/home/
  sluice cp -r ./src disk.img:/dst              a tree into the volume
  sluice cp -rp disk.img:/etc ./etc             out of the volume, with owners, times and attributes
  sluice cp -r disk.img:/a disk.img:/b          within the volume
  sluice cp old.img:/data.db new.img:/          from one volume to another")]
pub struct Args {
    /// Paths to copy, and the target
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"])]
    paths: Vec<OsString>,
    /// Copy directories and everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Preserve owner, mode, times, extended attributes, ACLs and hard links
    #[arg(short, long)]
    preserve: bool,
    /// The same as -rp
    #[arg(short, long)]
    archive: bool,
    /// Show a progress bar
    #[arg(long)]
    progress: bool,
    /// Number of threads [default: two for each processor]
    #[arg(short = 'j', long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
}

/// A source or the target.
#[derive(Clone, Debug)]
enum Side {
    Host(PathBuf),
    Volume(Target),
}

impl Side {
    /// Parses an argument. `DEVICE:/path` is on a volume unless the host has a file of that name.
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

/// Open volumes, one for each device.
struct Volumes {
    open: HashMap<OsString, Volume>,
    /// The device of the target, which is opened for writing.
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
        let (to, from) = sides.split_last().context("the target is missing")?;
        let on_volume = |side: &Side| matches!(side, Side::Volume(_));
        if !on_volume(to) && !from.iter().any(on_volume) {
            bail!("none of these paths is on a volume: write DEVICE:/path, or use cp");
        }
        signals::catch();
        allow_many_descriptors();
        let mut volumes = Volumes {
            open: HashMap::new(),
            written: match to {
                Side::Volume(target) => Some(target.device.clone()),
                Side::Host(_) => None,
            },
        };
        let progress = match self.progress {
            true => Progress::with_bar(),
            false => Progress::hidden(),
        };
        let copied = self.copy_all(from, to, &mut volumes, &progress);
        progress.finish();
        let closed = volumes.close();
        copied.and(closed)?;
        exit_code(&progress)
    }

    fn options(&self) -> Options {
        Options {
            fidelity: if self.preserve || self.archive {
                Fidelity::Full
            } else {
                Fidelity::Contents
            },
            threads: self.threads,
            umask: umask(),
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
            let selection = Selection::Entry { name, new_name };
            let at = Place {
                dir: &dir,
                selection,
            };
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

    /// Returns the directory of a source and its name there. Without -r symbolic links are
    /// followed, as by cp.
    fn locate(&self, source: &Side, volumes: &mut Volumes) -> Result<(PathBuf, OsString)> {
        let recursive = self.recursive || self.archive;
        let path = source.path();
        let dir = is_dir(source, volumes)?;
        if dir && !recursive {
            bail!("{}: a directory; -r copies it", source.shown());
        }
        // The canonical path has the name of a path like `.` or `a/..`. Without -r it is that of
        // the target of a link.
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
                "{}: the root has no name; use `sluice export`",
                source.shown()
            ),
        }
    }
}

/// The place of a source.
struct Place<'a> {
    dir: &'a Path,
    selection: Selection,
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
                let image = written.and_then(|device| host_file_id(Path::new(device)));
                let from = HostDir::open(self.dir, image)?;
                self.copy_from(from, sink, options, progress)
            }
            Side::Volume(target) => {
                let volume = volumes.get(target)?;
                let from = target.on(volume.open_dir(self.dir))?;
                self.copy_from(from, sink, options, progress)
            }
        }
    }

    fn copy_from<S: SourceDir, D: SinkDir>(
        self,
        from: S,
        sink: D,
        options: Options,
        progress: &Progress,
    ) -> Result<()> {
        copy_tree(
            from,
            sink,
            self.selection,
            self.dir,
            options,
            progress,
            &|_, _| {},
        )
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

/// Refuses to copy a tree into itself, which would never end.
fn refuse_into_itself(source: &Side, from: &Path, to: &Side, target: &Path) -> Result<()> {
    if let (Side::Volume(a), Side::Volume(b)) = (source, to)
        && a.device == b.device
        && target.starts_with(from)
    {
        bail!("{}: cannot be copied into itself", source.shown());
    }
    Ok(())
}
