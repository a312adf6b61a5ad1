//! `sluice tree`: prints a directory as a tree.

use crate::human;
use crate::output::Output;
use crate::target::Target;
use anyhow::Result;
use sluicefs::{DirEntry, Volume};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Print the tree of a directory
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice tree disk.img
  sluice tree -d -L 2 disk.img:/usr    directories only, two levels")]
pub struct Args {
    /// Top directory: DEVICE or DEVICE:/path
    target: Target,
    /// Show names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// Show directories only
    #[arg(short = 'd', long)]
    dirs: bool,
    /// Number of levels to show
    #[arg(short = 'L', long, value_name = "LEVELS", default_value_t = 256)]
    level: usize,
}

#[derive(Default)]
struct Totals {
    dirs: u64,
    files: u64,
    bytes: u64,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let volume = self.target.open_read_only()?;
        let mut out = Output::new();
        let mut totals = Totals::default();
        writeln!(out, "{}", self.target.path.display())?;
        let drawn = self.draw(&volume, &self.target.path, "", 1, &mut out, &mut totals);
        self.target.on(drawn)?;
        writeln!(
            out,
            "\n{} directories, {} files, {}",
            human::count(totals.dirs),
            human::count(totals.files),
            human::bytes(totals.bytes)
        )?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the entries of a directory. `self.level` bounds the recursion.
    fn draw(
        &self,
        volume: &Volume,
        dir: &Path,
        indent: &str,
        level: usize,
        out: &mut Output,
        totals: &mut Totals,
    ) -> io::Result<()> {
        let entries: io::Result<Vec<DirEntry>> = volume.read_dir(dir)?.collect();
        let mut entries = entries?;
        entries.retain(|e| {
            (self.all || !e.file_name().as_encoded_bytes().starts_with(b"."))
                && (!self.dirs || e.file_type().is_dir())
        });
        entries.sort_by(|a, b| a.file_name().cmp(b.file_name()));
        let count = entries.len();
        for (i, entry) in entries.into_iter().enumerate() {
            let last = i + 1 == count;
            write!(out, "{indent}{}", if last { "└── " } else { "├── " })?;
            out.name(entry.file_name())?;
            let path = entry.path();
            if entry.file_type().is_symlink() {
                write!(out, " -> ")?;
                out.name(volume.read_link(&path)?.as_os_str())?;
            }
            writeln!(out)?;
            if entry.file_type().is_dir() {
                totals.dirs += 1;
                if level < self.level {
                    let indent = format!("{indent}{}", if last { "    " } else { "│   " });
                    self.draw(volume, &path, &indent, level + 1, out, totals)?;
                }
            } else {
                totals.files += 1;
                if entry.file_type().is_file() {
                    totals.bytes += entry.metadata()?.len();
                }
            }
        }
        Ok(())
    }
}
