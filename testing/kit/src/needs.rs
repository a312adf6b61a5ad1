//! Requirements of a test on the machine. A test that is skipped prints so: it must not look like
//! one that passed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A requirement that the machine may lack.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// A program in `PATH` or a system directory.
    Tool(&'static str),
    /// The user root.
    Root,
    /// Root and loop devices, for mounts by the kernel.
    Loop,
    /// `/dev/fuse`.
    Fuse,
}

/// Finds a program in `PATH` or a system directory.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether mke2fs, debugfs and e2fsck are installed; prints `SKIPPED: …` if not.
pub fn have_e2fsprogs(test: &str) -> bool {
    have(test, &["mke2fs", "debugfs", "e2fsck"].map(Need::Tool))
}

impl Need {
    fn missing(self) -> Option<String> {
        match self {
            Need::Tool(name) => tool(name).is_none().then(|| format!("the program {name}")),
            Need::Root => (!is_root()).then(|| "root".to_owned()),
            Need::Loop => {
                let is_there = is_root() && Path::new("/dev/loop-control").exists();
                (!is_there).then(|| "root and loop devices".to_owned())
            }
            Need::Fuse => (!Path::new("/dev/fuse").exists()).then(|| "/dev/fuse".to_owned()),
        }
    }
}

/// Returns whether all of `needs` are met; prints `SKIPPED: …` if not.
pub fn have(test: &str, needs: &[Need]) -> bool {
    let missing: Vec<String> = needs.iter().filter_map(|n| n.missing()).collect();
    if !missing.is_empty() {
        skipped(test, &format!("{} not found", missing.join(", ")));
    }
    missing.is_empty()
}

/// Prints that a test has checked nothing. The test harness does not capture the line.
pub fn skipped(test: &str, why: &str) {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr().lock(),
        "SKIPPED: {test}: {why}; nothing was checked"
    );
}

fn output(program: &str, args: &[&str]) -> Output {
    let path = tool(program).unwrap_or_else(|| panic!("{program} is not installed"));
    let output = Command::new(path).args(args).output();
    output.unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// Runs a program; returns its exit code (-1 after a signal) and its output.
pub fn run(program: &str, args: &[&str]) -> (i32, String) {
    let output = output(program, args);
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Runs a program that must succeed; returns its output.
pub fn run_ok(program: &str, args: &[&str]) -> String {
    let (code, text) = run(program, args);
    assert_eq!(code, 0, "{program} {} failed:\n{text}", args.join(" "));
    text
}

/// Runs a program that must succeed; returns its standard output.
pub fn stdout(program: &str, args: &[&str]) -> String {
    let output = output(program, args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {} failed:\n{text}{errors}",
        args.join(" ")
    );
    text
}
