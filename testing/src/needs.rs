//! What a test needs of the machine. A missing need is said loudly: a test that checks nothing must
//! not look like one that passed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Something the machine may lack.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// A program on the path or in the system's own directories.
    Tool(&'static str),
    /// The super user.
    Root,
    /// Mounts by the kernel: root and loop devices.
    Loop,
    /// FUSE.
    Fuse,
}

/// Finds a program, also where ordinary users have no path to it.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Need {
    fn missing(self) -> Option<String> {
        match self {
            Need::Tool(name) => tool(name).is_none().then(|| format!("the program {name}")),
            Need::Root => (!is_root()).then(|| "root".to_owned()),
            Need::Loop => {
                let there = is_root() && Path::new("/dev/loop-control").exists();
                (!there).then(|| "root and loop devices".to_owned())
            }
            Need::Fuse => (!Path::new("/dev/fuse").exists()).then(|| "/dev/fuse".to_owned()),
        }
    }
}

/// Whether everything is there; prints `SKIPPED: …` if not.
pub fn have(test: &str, needs: &[Need]) -> bool {
    let missing: Vec<String> = needs.iter().filter_map(|n| n.missing()).collect();
    if !missing.is_empty() {
        skipped(test, &format!("{} not found", missing.join(", ")));
    }
    missing.is_empty()
}

/// Says that a test has checked nothing, past the capture of the test harness.
pub fn skipped(test: &str, why: &str) {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr().lock(),
        "SKIPPED: {test}: {why}; nothing was checked"
    );
}

/// Runs a program: its exit code (-1 where a signal ended it) and all it printed.
pub fn run(program: &str, args: &[&str]) -> (i32, String) {
    let path = tool(program).unwrap_or_else(|| panic!("{program} is not installed"));
    let output = Command::new(path)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Runs a program that must succeed; what it printed.
pub fn run_ok(program: &str, args: &[&str]) -> String {
    let (code, text) = run(program, args);
    assert_eq!(code, 0, "{program} {} failed:\n{text}", args.join(" "));
    text
}
