//! Other programs: run to their end, or until we are interrupted.

use crate::{Report, Workload};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Between two looks at a program that runs.
const TICK: Duration = Duration::from_millis(5);

/// Whether we are to stop.
pub(super) struct Interrupt<'a>(&'a dyn Fn() -> bool);

impl<'a> Interrupt<'a> {
    pub(super) fn new(flag: &'a dyn Fn() -> bool) -> Interrupt<'a> {
        Interrupt(flag)
    }

    /// An error once we are.
    pub(super) fn check(&self) -> io::Result<()> {
        match (self.0)() {
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }
}

/// Finds a program, also where ordinary users have no path to it.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

/// Where a program is.
pub(super) fn installed(name: &str) -> io::Result<PathBuf> {
    find(name).ok_or_else(|| io::Error::other(format!("{name} is not installed")))
}

/// Runs `name ARGS… LAST`, which must succeed: its standard output. What it says otherwise is in
/// the error.
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

/// Runs a program that must succeed: its standard output.
pub(super) fn output(command: &mut Command, interrupt: &Interrupt<'_>) -> io::Result<String> {
    interrupt.check()?;
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    interrupt.check()?;
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failure(command.get_program(), output.status, &said))
}

/// Runs a worker, which is given its workload and answers with its report. Its standard error is
/// ours.
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
    // The report may be larger than a pipe: somebody has to read while we wait.
    let reader = std::thread::spawn(move || {
        let mut json = String::new();
        stdout.as_mut().map(|out| out.read_to_string(&mut json));
        json
    });
    let status = wait(&mut child, interrupt)?;
    let json = reader.join().unwrap_or_default();
    if !status.success() {
        return Err(failure(command.get_program(), status, "it says so above"));
    }
    serde_json::from_str(&json).map_err(|e| io::Error::other(format!("the worker's report: {e}")))
}

/// Waits for a program's end; kills it when we are interrupted.
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

/// An error that says which program failed and what it said last.
pub(super) fn failure(program: &OsStr, status: ExitStatus, said: &str) -> io::Error {
    let name = Path::new(program).file_name().unwrap_or(program);
    let last = said.trim().lines().last().unwrap_or("it said nothing");
    io::Error::other(format!("{} failed ({status}): {last}", name.display()))
}
