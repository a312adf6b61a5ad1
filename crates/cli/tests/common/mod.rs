//! A scratch directory and the programs that are run in it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory that goes when the test does.
pub struct Scratch(tempfile::TempDir);

/// What a program said, with its exit code.
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
        Scratch(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `sluice` with these arguments, in the directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(args).current_dir(self.0.path());
        command.env("TZ", "UTC").stdin(Stdio::null());
        command
    }

    pub fn try_run(&self, args: &[&str]) -> Said {
        Said::from(self.command(args).output().unwrap())
    }

    /// Runs `sluice`, which must succeed: its standard output.
    pub fn run(&self, args: &[&str]) -> String {
        let said = self.try_run(args);
        assert_eq!(said.code, Some(0), "sluice {args:?}: {said:?}");
        said.out
    }

    /// Runs `sluice`, which must fail with this code: its standard error.
    pub fn fail(&self, code: i32, args: &[&str]) -> String {
        let said = self.try_run(args);
        assert_eq!(said.code, Some(code), "sluice {args:?}: {said:?}");
        said.err
    }

    /// A new volume called `disk.img`.
    pub fn volume(&self) -> &'static str {
        self.run(&["mkfs", "disk.img", "--size", "512MiB"]);
        "disk.img"
    }

    /// Another program of the system, which must succeed: its standard output.
    pub fn other(&self, program: &str, args: &[&str]) -> String {
        let path = format!(
            "{}:/sbin:/usr/sbin",
            std::env::var("PATH").unwrap_or_default()
        );
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.0.path())
            .env("PATH", path);
        let said = Said::from(
            command
                .output()
                .unwrap_or_else(|e| panic!("{program}: {e}")),
        );
        assert_eq!(said.code, Some(0), "{program} {args:?}: {said:?}");
        said.out
    }

    /// e2fsck has nothing to say.
    pub fn check(&self, image: &str) {
        self.other("e2fsck", &["-fn", image]);
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Every entry beneath a directory: type and mode, owner, size, links, times and what is in it.
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
