//! `sluice ls`: lists directories.

use crate::human;
use crate::output::Output;
use crate::target::Target;
use anyhow::Result;
use serde::Serialize;
use sluicefs::{Metadata, Volume};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List files on a volume
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice ls disk.img                    the root directory
  sluice ls -l disk.img:/etc            with modes, owners, sizes and times
  sluice ls -laR --json disk.img:/home  everything below, for a program")]
pub struct Args {
    /// Files and directories: DEVICE or DEVICE:/path
    #[arg(required = true)]
    targets: Vec<Target>,
    /// Show modes, links, owners, sizes and times
    #[arg(short)]
    long: bool,
    /// Show names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// List subdirectories, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

/// A file in the JSON output.
#[derive(Serialize)]
struct Listed {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    ino: u64,
    mode: String,
    nlink: u64,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut out = Output::new();
        let mut listed = Vec::new();
        for target in &self.targets {
            let volume = target.open_read_only()?;
            if self.targets.len() > 1 && !self.json {
                writeln!(out, "{target}:")?;
            }
            target.on(self.target(&volume, &target.path, &mut out, &mut listed))?;
        }
        if self.json {
            out.json(&listed)?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    fn target(
        &self,
        volume: &Volume,
        path: &Path,
        out: &mut Output,
        listed: &mut Vec<Listed>,
    ) -> io::Result<()> {
        if !volume.metadata(path)?.is_dir() {
            let meta = volume.symlink_metadata(path)?;
            let one = vec![(path.as_os_str().to_owned(), meta)];
            return self.entries(volume, Path::new("/"), &one, out, listed);
        }
        // A stack: the next directory to list is the last one.
        let mut dirs = vec![path.to_path_buf()];
        let mut first = true;
        while let Some(dir) = dirs.pop() {
            if self.recursive && !self.json {
                writeln!(out, "{}{}:", if first { "" } else { "\n" }, dir.display())?;
            }
            first = false;
            let entries = self.read(volume, &dir)?;
            self.entries(volume, &dir, &entries, out, listed)?;
            if self.recursive {
                let below = entries.iter().filter(|(_, meta)| meta.is_dir());
                dirs.extend(below.rev().map(|(name, _)| dir.join(name)));
            }
        }
        Ok(())
    }

    /// The entries of a directory, sorted by name.
    fn read(&self, volume: &Volume, dir: &Path) -> io::Result<Vec<(OsString, Metadata)>> {
        let mut entries = Vec::new();
        for entry in volume.read_dir(dir)? {
            let entry = entry?;
            if self.all || !entry.file_name().as_encoded_bytes().starts_with(b".") {
                let meta = entry.metadata()?;
                entries.push((entry.into_file_name(), meta));
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn entries(
        &self,
        volume: &Volume,
        dir: &Path,
        entries: &[(OsString, Metadata)],
        out: &mut Output,
        listed: &mut Vec<Listed>,
    ) -> io::Result<()> {
        if self.json {
            for (name, meta) in entries {
                listed.push(Listed::new(volume, &dir.join(name), meta)?);
            }
        } else if self.long {
            long(volume, dir, entries, out)?;
        } else {
            for (name, _) in entries {
                out.name(name)?;
                writeln!(out)?;
            }
        }
        Ok(())
    }
}

impl Listed {
    fn new(volume: &Volume, path: &Path, meta: &Metadata) -> io::Result<Listed> {
        let target = match meta.is_symlink() {
            true => Some(volume.read_link(path)?.display().to_string()),
            false => None,
        };
        Ok(Listed {
            path: path.display().to_string(),
            kind: meta.file_type().name(),
            ino: meta.ino(),
            mode: format!("{:04o}", meta.mode() & 0o7777),
            nlink: meta.nlink(),
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.len(),
            mtime: human::rfc3339(meta.modified()),
            target,
        })
    }
}

/// As `ls -l -n`. Owners are numbers, because user names are those of another system.
fn long(
    volume: &Volume,
    dir: &Path,
    entries: &[(OsString, Metadata)],
    out: &mut Output,
) -> io::Result<()> {
    let rows: Vec<[String; 4]> = entries
        .iter()
        .map(|(_, meta)| {
            let size = match meta.rdev() {
                Some(number) => format!("{}, {}", number.major, number.minor),
                None => meta.len().to_string(),
            };
            [
                meta.nlink().to_string(),
                meta.uid().to_string(),
                meta.gid().to_string(),
                size,
            ]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|r| r[column].len()).max().unwrap_or(0);
    let [links, uid, gid, size] = [width(0), width(1), width(2), width(3)];
    for ((name, meta), row) in entries.iter().zip(&rows) {
        write!(
            out,
            "{} {:>links$} {:>uid$} {:>gid$} {:>size$} {} ",
            human::mode(meta.file_type(), meta.mode()),
            row[0],
            row[1],
            row[2],
            row[3],
            human::local_minute(meta.modified())
        )?;
        out.name(name)?;
        if meta.is_symlink() {
            let target: PathBuf = volume.read_link(dir.join(name))?;
            write!(out, " -> ")?;
            out.name(target.as_os_str())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
