//! `sluice dump`: lists the files that changed since a time, for backups.

use super::find::{Listed, Report};
use crate::output::Output;
use crate::target::Target;
use crate::walk::{Files, Next, Walk};
use crate::{human, moment};
use anyhow::{Context, Result};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The clock of inode times may be behind that of this process by a tick of the kernel's timer, at
/// most 10 ms. The time of the next backup begins earlier by this.
const OVERLAP: Duration = Duration::from_secs(1);

/// List the files that changed since a time, for backups
///
/// Prints the path of each file, directory and other inode that was changed at TIME or later:
/// created, written, renamed, linked, or given other attributes. That is the inode's change time
/// (ctime), which programs cannot set. All names of a changed file are printed. A removed file has
/// no inode; the directory that contained it is printed.
///
/// Paths begin with ./ and are relative to the start, sorted, and a directory is before its
/// entries. All inode tables are read, in large requests; names are read only if an inode changed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice dump disk.img --changed-since 24h
  sluice dump disk.img --changed-since '2026-11-20 14:02' -0 | tar -C /mnt --no-recursion --null -T - -cf new.tar
  sluice dump disk.img:/home --changed-since-file stamp -0 | rsync -0 --files-from=- /mnt/home host:home
  sluice dump disk.img --changed-since \"$(cat next)\" --json >dump.json && jq -r .next dump.json >next

TIME is a local time (2026-11-20, \"2026-11-20 14:02:06\"), a time with its zone (2026-11-20T14:02:06Z, +01:00), seconds \
since 1970 (@1700000000), or a time ago: 90min, 36h, 7d, 2w.")]
pub struct Args {
    /// DEVICE, DEVICE:/path, or a directory of a mounted volume
    target: Target,
    /// Files changed at this time or later
    #[arg(long, value_name = "TIME", value_parser = since, required_unless_present = "changed_since_file")]
    changed_since: Option<SystemTime>,
    /// Files changed since the contents of this file of the host were
    #[arg(long, value_name = "FILE", conflicts_with = "changed_since")]
    changed_since_file: Option<PathBuf>,
    /// End each path with a zero byte instead of a newline
    #[arg(short = '0', long, conflicts_with = "json")]
    print0: bool,
    /// Print one JSON object: the files with their attributes, and the TIME of the next dump
    #[arg(long)]
    json: bool,
}

fn since(text: &str) -> Result<SystemTime, String> {
    moment::parse(text, SystemTime::now())
}

/// The JSON output.
#[derive(Serialize)]
struct Dump {
    /// The time of `--changed-since`.
    since: String,
    /// The time for the next dump, which then has all later changes.
    next: String,
    files: Vec<Listed>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let since = self.since()?;
        let next = SystemTime::now() - OVERLAP;
        let (files, start) = Files::open(&self.target)?;
        // An error for a start that does not exist, also if nothing has changed.
        self.target.on(files.start(&start))?;
        let mut out = Output::new();
        let mut report = Report::default();
        let mut dump = Dump {
            since: human::rfc3339(since),
            next: human::rfc3339(next),
            files: Vec::new(),
        };
        let changed = Walk::of_inodes(files, |meta| meta.changed() >= since);
        let (walk, unreadable) = self.target.on(changed)?;
        for error in unreadable {
            report.print(&self.target, error);
        }
        let mut errors = Vec::new();
        let mut failed = Vec::new();
        let walked = walk.run(&start, &mut |error| errors.push(error), &mut |found| {
            if walk.has_inode(found.ino) {
                match self.json {
                    true => match Listed::new(found) {
                        Ok(listed) => dump.files.push(listed),
                        Err(error) => failed.push(error),
                    },
                    false => self.print(&mut out, found.below_start())?,
                }
            }
            Ok(match walk.is_empty() {
                true => Next::Skip,
                false => Next::Below,
            })
        });
        for error in errors.into_iter().chain(failed) {
            report.print(&self.target, error);
        }
        self.target.on(walked)?;
        if self.json {
            out.json(&dump)?;
        }
        out.flush()?;
        Ok(report.code())
    }

    fn since(&self) -> Result<SystemTime> {
        match (&self.changed_since_file, self.changed_since) {
            (Some(file), _) => {
                let modified = std::fs::metadata(file).and_then(|meta| meta.modified());
                modified.with_context(|| file.display().to_string())
            }
            (None, time) => time.context("--changed-since is required"),
        }
    }

    fn print(&self, out: &mut Output, below: &Path) -> std::io::Result<()> {
        let path = match below.as_os_str().is_empty() {
            true => OsStr::new(".").to_owned(),
            false => Path::new(".").join(below).into_os_string(),
        };
        if self.print0 {
            out.write_all(path.as_bytes())?;
            return out.write_all(b"\0");
        }
        out.name(&path)?;
        writeln!(out)
    }
}
