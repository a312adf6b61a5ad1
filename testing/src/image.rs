//! Volumes made by mke2fs and by us, and e2fsck as the judge of both.

use crate::needs::{run, run_ok};
use std::path::Path;

/// How mke2fs is to make a volume.
#[derive(Clone, Debug)]
pub struct Mke2fs {
    size: u64,
    args: Vec<String>,
}

impl Mke2fs {
    /// ext4 with 4 KiB blocks and the defaults of the program.
    pub fn new(size: u64) -> Mke2fs {
        Mke2fs {
            size,
            args: ["-t", "ext4", "-b", "4096"].map(str::to_owned).into(),
        }
    }

    /// Features to add ("name") or to leave out ("^name"), as `-O` takes them.
    pub fn features(self, features: &str) -> Mke2fs {
        self.args(&["-O", features])
    }

    /// Any arguments.
    pub fn args(mut self, args: &[&str]) -> Mke2fs {
        self.args.extend(args.iter().map(|s| (*s).to_owned()));
        self
    }

    /// Makes it; what the program said where it cannot (an older version that lacks a feature,
    /// say).
    pub fn make(&self, path: &Path) -> Result<(), String> {
        let file = std::fs::File::create(path).map_err(|e| e.to_string())?;
        file.set_len(self.size).map_err(|e| e.to_string())?;
        let mut args: Vec<&str> = vec!["-q", "-F"];
        args.extend(self.args.iter().map(String::as_str));
        args.push(text(path));
        match run("mke2fs", &args) {
            (0, _) => Ok(()),
            (_, said) => Err(said),
        }
    }
}

/// A path that the tests made, as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are text")
}

/// The volume is clean by e2fsck's judgement.
///
/// # Panics
/// With all that e2fsck said where it is not.
pub fn assert_clean(path: &Path, when: &str) {
    if let Err(said) = check(path) {
        let kept = keep_for_inspection(path);
        panic!("e2fsck -fn, {when} (image kept: {kept}):\n{said}");
    }
}

/// `Err` with what `e2fsck -fn` said, unless the volume is clean and needs no recovery.
pub fn check(path: &Path) -> Result<(), String> {
    match run("e2fsck", &["-fn", text(path)]) {
        (0, said) if !said.contains("skipping journal recovery") => Ok(()),
        (code, said) => Err(format!("exit {code}\n{said}")),
    }
}

/// Moves a failed image out of its scratch directory where `SLUICE_KEEP` names a directory.
fn keep_for_inspection(path: &Path) -> String {
    let Some(dir) = std::env::var_os("SLUICE_KEEP") else {
        return "no; set SLUICE_KEEP to a directory".into();
    };
    let to = Path::new(&dir).join(format!("failed-{}.img", std::process::id()));
    match run("cp", &["--sparse=always", text(path), text(&to)]) {
        (0, _) => to.display().to_string(),
        (_, e) => e,
    }
}

/// Lets `e2fsck -fy` recover the volume: it may replay the journal and finish orphans, and nothing
/// else.
///
/// # Errors
/// What it said, where it repaired more than that.
pub fn recover_by_e2fsck(path: &Path) -> Result<(), String> {
    let (code, said) = run("e2fsck", &["-fy", text(path)]);
    let expected = |line: &str| {
        let harmless = [
            "e2fsck ",
            "recovering journal",
            "Clearing orphaned inode",
            "Truncating orphaned inode",
            "Processing orphaned inode",
            "Setting free ",
            "Pass ",
            "Superblock needs_recovery",
            "FILE SYSTEM WAS MODIFIED",
            "Free blocks count wrong (",
            "Free inodes count wrong (",
            "Fix? yes",
            // Version 1.47 says this of the kernel's orphan files too, after it has released the
            // orphans itself.
            "Orphan file (inode ",
            "Feature orphan_present is set but orphan file is clean",
            "Clear? yes",
            // No damage: the engine keeps a level of an extent tree while pages wait that may need
            // it.
            "extent tree (at level 1) could be shorter.  Optimize? yes",
        ];
        line.trim().is_empty()
            || harmless.iter().any(|h| line.contains(h))
            || (line.contains(" files (") && line.contains(" blocks"))
    };
    let surprises: Vec<&str> = said.lines().filter(|l| !expected(l)).collect();
    if code > 1 || !surprises.is_empty() {
        return Err(format!("exit {code}\n{said}"));
    }
    check(path)
}

/// A copy of an image, holes kept.
pub fn copy(from: &Path, to: &Path) {
    run_ok("cp", &["--sparse=always", text(from), text(to)]);
}
