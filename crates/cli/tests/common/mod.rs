//! A temporary directory, and the programs that run in it.
#![allow(dead_code)]

pub mod exposition;
pub mod pty;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testkit::needs::tool;
use testkit::oracle;

/// A temporary directory in which programs run.
pub struct Scratch(testkit::scratch::Scratch);

/// The exit code and the output of a program.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(testkit::scratch::Scratch::new())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A command that runs `sluice` in the directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(args).current_dir(self.0.path());
        if args.first() == Some(&"mount") {
            command.args(["-o", &testkit::transport::option()]);
        }
        command.env("TZ", "UTC").stdin(Stdio::null());
        command
    }

    pub fn try_run(&self, args: &[&str]) -> Said {
        Said::from(self.command(args).output().unwrap())
    }

    /// Runs `sluice`, which must succeed; returns its standard output.
    pub fn run(&self, args: &[&str]) -> String {
        let said = self.try_run(args);
        assert_eq!(said.code, Some(0), "sluice {args:?}: {said:?}");
        said.out
    }

    /// Runs `sluice`, which must fail with this code; returns its standard error.
    pub fn fail(&self, code: i32, args: &[&str]) -> String {
        let said = self.try_run(args);
        assert_eq!(said.code, Some(code), "sluice {args:?}: {said:?}");
        said.err
    }

    /// Makes a volume called `disk.img`.
    pub fn volume(&self) -> &'static str {
        self.run(&["mkfs", "disk.img", "--size", "512MiB"]);
        "disk.img"
    }

    /// Runs another program, which must succeed; returns its standard output.
    pub fn other(&self, program: &str, args: &[&str]) -> String {
        let path = tool(program).unwrap_or_else(|| panic!("{program} is not installed"));
        let mut command = Command::new(path);
        command.args(args).current_dir(self.0.path());
        let said = Said::from(command.output().unwrap());
        assert_eq!(said.code, Some(0), "{program} {args:?}: {said:?}");
        said.out
    }

    /// Asserts that e2fsck finds the volume clean.
    pub fn check(&self, image: &str) {
        oracle::assert_clean(&self.path(image), "after sluice");
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
}

pub fn is_root() -> bool {
    testkit::needs::is_root()
}

/// Lists the tree below a directory: type and mode, owner, size, links, times and contents.
pub fn listing(top: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut lines = Vec::new();
    let mut dirs = vec![top.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let size = if meta.is_dir() { 0 } else { meta.len() };
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            let what = if meta.is_file() {
                format!(
                    "{:x?}",
                    std::fs::read(&path)
                        .unwrap()
                        .iter()
                        .map(|&b| u64::from(b))
                        .sum::<u64>()
                )
            } else if meta.is_symlink() {
                std::fs::read_link(&path).unwrap().display().to_string()
            } else {
                String::new()
            };
            lines.push(format!(
                "{} {:o} {}:{} {size} {links} {:x} {}.{:09} {what}",
                path.strip_prefix(top).unwrap().display(),
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.rdev(),
                meta.mtime(),
                meta.mtime_nsec(),
            ));
            if meta.is_dir() {
                dirs.push(path);
            }
        }
    }
    lines.sort();
    lines
}
