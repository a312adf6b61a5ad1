//! Runs other programs until they end or the comparison is interrupted.

use crate::{Report, Workload};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Time between two checks of a running program.
const TICK: Duration = Duration::from_millis(5);

/// The user's request to stop.
pub(super) struct Interrupt<'a>(&'a dyn Fn() -> bool);

impl<'a> Interrupt<'a> {
    pub(super) fn new(flag: &'a dyn Fn() -> bool) -> Interrupt<'a> {
        Interrupt(flag)
    }

    /// Returns `Interrupted` once the user has asked to stop.
    pub(super) fn check(&self) -> io::Result<()> {
        match (self.0)() {
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }
}

/// Finds a program in `PATH` and in the directories of system programs.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

/// As [`find`], with an error if the program is missing.
pub(super) fn installed(name: &str) -> io::Result<PathBuf> {
    find(name).ok_or_else(|| io::Error::other(format!("{name} is not installed")))
}

/// Runs `name ARGS… LAST`. Returns its standard output; an error has the last line of its standard
/// error.
pub(super) fn run(
    name: &str,
    args: &[&str],
    last: &Path,
    interrupt: &Interrupt<'_>,
) -> io::Result<String> {
    let mut command = Command::new(installed(name)?);
    command.args(args).arg(last);
    output(&mut command, interrupt)
}

/// Runs a program. Returns its standard output; an error has the last line of its standard error.
pub(super) fn output(command: &mut Command, interrupt: &Interrupt<'_>) -> io::Result<String> {
    interrupt.check()?;
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    interrupt.check()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failure(command.get_program(), output.status, &stderr))
}

/// Runs a worker: writes the workload to its standard input and reads the report from its standard
/// output. It inherits the standard error.
pub(super) fn worker(
    command: &mut Command,
    work: &Workload,
    interrupt: &Interrupt<'_>,
) -> io::Result<Report> {
    interrupt.check()?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(serde_json::to_string(work)?.as_bytes())?;
    }
    let mut stdout = child.stdout.take();
    // The report may be larger than the pipe, so a thread reads it while the worker runs.
    let reader = std::thread::spawn(move || {
        let mut json = String::new();
        stdout.as_mut().map(|out| out.read_to_string(&mut json));
        json
    });
    let status = wait(&mut child, interrupt)?;
    let json = reader.join().unwrap_or_default();
    if !status.success() {
        return Err(failure(
            command.get_program(),
            status,
            "see its message above",
        ));
    }
    serde_json::from_str(&json).map_err(|e| io::Error::other(format!("the worker's report: {e}")))
}

/// Waits until a program has ended. Kills it on an interrupt.
pub(super) fn wait(child: &mut Child, interrupt: &Interrupt<'_>) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            interrupt.check()?;
            return Ok(status);
        }
        if let Err(e) = interrupt.check() {
            child.kill()?;
            child.wait()?;
            return Err(e);
        }
        std::thread::sleep(TICK);
    }
}

/// An error with the program's name and the last line of its standard error.
pub(super) fn failure(program: &OsStr, status: ExitStatus, stderr: &str) -> io::Error {
    let name = Path::new(program).file_name().unwrap_or(program);
    let last = stderr.trim().lines().last().unwrap_or("no message");
    io::Error::other(format!("{} failed ({status}): {last}", name.display()))
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
