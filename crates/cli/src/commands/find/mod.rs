//! `sluice find`: lists the files that pass tests.

mod exec;
mod expression;
mod filter;
mod format;
mod number;
mod options;

use crate::human;
use crate::output::Output;
use crate::target::Target;
use crate::walk::{Files, Found, Needs, Next, Walk};
use anyhow::{Result, bail};
use exec::Program;
use expression::{Expression, is_token};
use filter::Filter;
use format::Format;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Find files on a volume
///
/// Prints the start and everything below it that passes all tests, sorted by path. Tests and
/// directives of --printf have the meaning that they have in find(1). Tests are joined by --or, and
/// negated by ! or --not; ( and ) make groups. The expressions -prune and -delete do not exist.
/// Symbolic links are not followed. Owners are numbers.
///
/// If a test or the output needs attributes, a search of a whole volume reads all inode tables
/// first, in large requests. That takes up to 250 bytes of memory for each file of the volume. A
/// search below a directory reads the attributes of one directory after another.
///
/// In a directory of a mounted volume the server of the mount is asked, past the permissions of
/// files. Only root and the user who mounted the volume may do so.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice find disk.img                                  all paths
  sluice find disk.img:/home --name '*.log' --size +1M  large logs
  sluice find disk.img --type f --mtime -1 --print0     changed in the last day, for xargs -0
  sluice find /mnt --newer /var/stamp                   on a mounted volume
  sluice find disk.img --links +1 --printf '%i %p\\n'    files with several names
  sluice find disk.img --type f ! --name '*.gz' \\( --size +1M --or --mtime +365 \\)
  sluice find disk.img --name '*.conf' --exec sh -c 'sluice cat disk.img:\"$1\" | wc -l' sh {} \\;

Directives of --printf: %p path, %P path below the start, %f name, %h directory, %d depth,
  %s bytes, %b blocks of 512 bytes, %k blocks of 1 KiB, %i inode, %n links, %y type, %l target of a
  symbolic link, %m mode in octal, %M mode as of ls, %U %u owner, %G %g group, %T@ %A@ %C@ %B@ times
  of change, access, inode change and birth in seconds since 1970, %T+ … local times, %% percent.
  Escapes: \\n \\t \\r \\0 \\NNN \\\\.")]
pub struct Args {
    // Before the targets, which it reads, too: a value is there only until its field has it.
    #[command(flatten)]
    expression: Expression,
    /// Where to start: DEVICE, DEVICE:/path, or a directory of a mounted volume; also !, ( and ) of
    /// the tests
    #[arg(required = true)]
    targets: Vec<Target>,
    /// Skip files at less than this depth; the start has 0
    #[arg(long, value_name = "LEVELS", default_value_t = 0)]
    mindepth: usize,
    /// Descend to this depth only
    #[arg(long, value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    maxdepth: usize,
    /// End each path with a zero byte instead of a newline
    #[arg(short = '0', long, conflicts_with_all = ["printf", "json"])]
    print0: bool,
    /// Print each file in this format (see below)
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    printf: Option<Format>,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
    /// Run PROGRAM for each file instead of printing it, up to an argument ;. {} is the path on the
    /// volume. The exit code is 1 if a program fails
    #[arg(
        long,
        value_names = ["PROGRAM", "ARG"],
        num_args = 1..,
        allow_hyphen_values = true,
        value_terminator = ";",
        conflicts_with_all = ["print0", "printf", "json"]
    )]
    exec: Option<Vec<OsString>>,
}

/// A file in the JSON output.
#[derive(Serialize)]
pub struct Listed {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    ino: u64,
    mode: String,
    nlink: u64,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    mtime: String,
    atime: String,
    ctime: String,
    crtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut out = Output::new();
        let mut report = Report::default();
        let mut listed = Listing::default();
        let program = self.exec.as_deref().map(Program::new);
        let mut targets = self
            .targets
            .iter()
            .filter(|target| !is_token(target))
            .peekable();
        if targets.peek().is_none() {
            bail!("name a volume: DEVICE, DEVICE:/path, or a directory of a mounted volume");
        }
        for target in targets {
            let (files, start) = Files::open(target)?;
            let filter = target.on(Filter::new(&self.expression, &files))?;
            let walk = target.on(Walk::new(files, &start, self.needs(&filter)))?;
            let mut errors = Vec::new();
            let walked = walk.run(&start, &mut |error| errors.push(error), &mut |found| {
                if found.depth >= self.mindepth {
                    let shown = filter
                        .passes(found)
                        .and_then(|passes| Ok((passes, self.line(found, passes)?)));
                    match (shown, &program) {
                        (Ok((true, _)), Some(program)) => {
                            out.flush()?;
                            if let Err(error) = program.run(found.path) {
                                report.print(target, error)
                            }
                        }
                        (Ok((true, line)), None) => listed.put(&mut out, &self, found, line)?,
                        (Ok((false, _)), _) => {}
                        (Err(error), _) => report.print(target, error),
                    }
                }
                Ok(match found.depth < self.maxdepth {
                    true => Next::Below,
                    false => Next::Skip,
                })
            });
            for error in errors {
                report.print(target, error);
            }
            target.on(walked)?;
        }
        listed.end(&mut out, self.json)?;
        out.flush()?;
        Ok(report.code())
    }

    fn needs(&self, filter: &Filter<'_>) -> Needs {
        let printed = self.printf.as_ref().is_some_and(Format::needs_attributes);
        match self.json || printed || filter.needs_attributes() {
            true => Needs::Attributes,
            false => Needs::Names,
        }
    }

    /// The output for a file that passes.
    fn line(&self, found: &Found<'_>, passes: bool) -> io::Result<Line> {
        Ok(match (&self.printf, passes) {
            (_, false) => Line::Path,
            (Some(format), _) => Line::Formatted(format.text(found)?),
            (None, _) if self.json => Line::Listed(Box::new(Listed::new(found)?)),
            (None, _) => Line::Path,
        })
    }
}

enum Line {
    Path,
    Formatted(Vec<u8>),
    Listed(Box<Listed>),
}

/// Files printed so far.
#[derive(Default)]
struct Listing(u64);

impl Listing {
    fn put(
        &mut self,
        out: &mut Output,
        args: &Args,
        found: &Found<'_>,
        line: Line,
    ) -> io::Result<()> {
        self.0 += 1;
        match line {
            Line::Path if args.print0 => {
                out.write_all(found.path.as_os_str().as_bytes())?;
                out.write_all(b"\0")
            }
            Line::Path => {
                out.name(found.path.as_os_str())?;
                writeln!(out)
            }
            Line::Formatted(bytes) => out.write_all(&bytes),
            Line::Listed(listed) => {
                out.write_all(if self.0 == 1 { b"[\n" } else { b",\n" })?;
                serde_json::to_writer(out, &listed).map_err(io::Error::from)
            }
        }
    }

    fn end(&self, out: &mut Output, json: bool) -> io::Result<()> {
        match (json, self.0) {
            (false, _) => Ok(()),
            (true, 0) => writeln!(out, "[]"),
            (true, _) => writeln!(out, "\n]"),
        }
    }
}

/// Errors of single files and directories. The exit code is 1 if there are any.
#[derive(Default)]
pub struct Report(u64);

impl Report {
    pub fn print(&mut self, target: &Target, error: io::Error) {
        self.0 += 1;
        eprintln!("sluice: {:#}", crate::target::named(&target.device, error));
    }

    pub fn code(&self) -> ExitCode {
        match self.0 {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

impl Listed {
    /// The attributes of a file.
    ///
    /// # Errors
    /// Damage and errors of the device.
    pub fn new(found: &Found<'_>) -> io::Result<Listed> {
        let meta = found.metadata()?;
        let text = |path: &Path| path.display().to_string();
        Ok(Listed {
            path: text(found.path),
            kind: meta.file_type().name(),
            ino: meta.ino(),
            mode: format!("{:04o}", meta.mode() & 0o7777),
            nlink: meta.nlink(),
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.len(),
            blocks: meta.blocks(),
            mtime: human::rfc3339(meta.modified()),
            atime: human::rfc3339(meta.accessed()),
            ctime: human::rfc3339(meta.changed()),
            crtime: human::rfc3339(meta.created()),
            target: found.link_target()?.as_deref().map(text),
        })
    }
}
