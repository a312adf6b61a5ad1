//! e2fsprogs as the oracle: mke2fs makes volumes, e2fsck checks them, debugfs shows and changes
//! them.

use crate::kernel::LoopDevice;
use crate::needs::{run, run_ok, stdout};
use std::path::{Path, PathBuf};

/// Arguments of mke2fs.
#[derive(Clone, Debug)]
pub struct Mke2fs {
    size: u64,
    args: Vec<String>,
}

impl Mke2fs {
    /// ext4 with 4 KiB blocks and the program's defaults, `size` bytes large.
    pub fn new(size: u64) -> Mke2fs {
        Mke2fs::by_default(size).args(&["-b", "4096"])
    }

    /// ext4 with all of the program's defaults: a volume of less than 512 MiB has blocks of 1 KiB.
    pub fn by_default(size: u64) -> Mke2fs {
        Mke2fs {
            size,
            args: ["-t", "ext4"].map(str::to_owned).into(),
        }
    }

    /// A file system of another type (`ext2`, `ext3`) with 4 KiB blocks.
    pub fn of_type(size: u64, kind: &str) -> Mke2fs {
        Mke2fs {
            size,
            args: ["-t", kind, "-b", "4096"].map(str::to_owned).into(),
        }
    }

    /// Adds features (`name`) or leaves them out (`^name`), as `-O` does.
    pub fn features(self, features: &str) -> Mke2fs {
        self.args(&["-O", features])
    }

    /// Adds arguments.
    pub fn args(mut self, args: &[&str]) -> Mke2fs {
        self.args.extend(args.iter().map(|s| (*s).to_owned()));
        self
    }

    /// Copies the tree at `path` into the volume.
    pub fn tree(self, path: &Path) -> Mke2fs {
        self.args(&["-d", text(path)])
    }

    /// Makes the volume.
    ///
    /// # Errors
    /// The program's output. An old version may lack a feature.
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

    /// Makes the volume with a journal on a device of its own ([`journal_path`]). Prints `SKIPPED:
    /// …` and returns `None` if the machine has no loop devices, which mke2fs needs.
    pub fn make_with_journal(&self, path: &Path, journal_size: u64) -> Option<Result<(), String>> {
        let journal = journal_path(path);
        let mut pairs = self.args.windows(2).rev();
        let block_size = pairs.find(|pair| pair[0] == "-b").map(|pair| &pair[1]);
        let block_size = block_size.map_or("4096", String::as_str);
        let mut device = Mke2fs {
            size: journal_size,
            args: Vec::new(),
        };
        device = device.args(&["-O", "journal_dev", "-b", block_size]);
        if let Err(said) = device.make(&journal) {
            return Some(Err(said));
        }
        let attached = LoopDevice::attach(&journal)?;
        let option = format!("device={}", text(attached.path()));
        let made = self.clone().args(&["-J", &option]).make(path);
        // The file has the bytes of the loop device afterwards.
        let synced = std::fs::File::open(attached.path()).and_then(|device| device.sync_all());
        Some(made.and(synced.map_err(|e| e.to_string())))
    }
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are text")
}

/// The file with the journal of the volume in the file at `path`, if the journal is on a device of
/// its own.
pub fn journal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

/// [`journal_path`], if there is such a file.
pub fn journal_of(path: &Path) -> Option<PathBuf> {
    Some(journal_path(path)).filter(|journal| journal.is_file())
}

/// Runs e2fsck with `flags`; returns its exit code and its output.
pub fn e2fsck(path: &Path, flags: &str) -> (i32, String) {
    match journal_of(path) {
        Some(journal) => run("e2fsck", &[flags, "-j", text(&journal), text(path)]),
        None => run("e2fsck", &[flags, text(path)]),
    }
}

/// Asserts that e2fsck finds the volume clean.
///
/// # Panics
/// With the output of e2fsck if the volume is not clean.
pub fn assert_clean(path: &Path, when: &str) {
    if let Err(said) = check(path) {
        let kept = keep_for_inspection(path);
        panic!("e2fsck -fn, {when} (image kept: {kept}):\n{said}");
    }
}

/// The complaint of e2fsck that a journal device has another number now.
const JOURNAL_HINT: &str = "Superblock hint for external superblock";

/// Checks with `e2fsck -fn` that the volume is clean and needs no recovery.
///
/// # Errors
/// The output of e2fsck.
pub fn check(path: &Path) -> Result<(), String> {
    let (code, said) = e2fsck(path, "-fn");
    // Some findings, as a resize inode that is not valid, leave the exit code 0.
    let complaints = ["skipping journal recovery", "? no", "WARNING"];
    // The number of a loop device that had the journal and is not in use any more, and sound extent
    // trees that have more levels or nodes than they need.
    let harmless = [JOURNAL_HINT, "Optimize? no"];
    let is_finding = |line: &&str| !harmless.iter().any(|known| line.contains(known));
    let mut lines = said.lines().filter(is_finding);
    if code == 0 && !lines.any(|line| complaints.iter().any(|c| line.contains(c))) {
        return Ok(());
    }
    Err(format!("exit {code}\n{said}"))
}

/// Repairs the volume by e2fsck with `flags`; returns its output.
///
/// # Panics
/// If damage remains.
pub fn repair(path: &Path, flags: &str) -> String {
    let (code, said) = e2fsck(path, flags);
    assert!(matches!(code, 0 | 1), "e2fsck {flags}, exit {code}: {said}");
    said
}

/// Runs one request of debugfs; returns its standard output.
pub fn debugfs(path: &Path, request: &str) -> String {
    stdout("debugfs", &["-w", "-R", request, text(path)])
}

/// Runs requests of debugfs, one in each line; returns its standard output.
pub fn debugfs_script(path: &Path, requests: &str) -> String {
    let script = path.with_extension("debugfs");
    std::fs::write(&script, requests).expect("a script");
    stdout("debugfs", &["-w", "-f", text(&script), text(path)])
}

/// Copies an image that failed into the directory that `SLUICE_KEEP` names.
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

/// Recovers the volume by `e2fsck -fy`, which may replay the journal and finish orphans.
///
/// # Errors
/// The output of e2fsck if it repaired more than that.
pub fn recover_by_e2fsck(path: &Path) -> Result<(), String> {
    let (code, said) = e2fsck(path, "-fy");
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
            // Version 1.47 prints these after it has released the orphans of an orphan file, the
            // kernel's too.
            JOURNAL_HINT,
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

/// Copies an image, and its journal if that is in a file of its own; holes stay holes.
pub fn copy(from: &Path, to: &Path) {
    if let Some(journal) = journal_of(from) {
        run_ok(
            "cp",
            &["--sparse=always", text(&journal), text(&journal_path(to))],
        );
    }
    run_ok("cp", &["--sparse=always", text(from), text(to)]);
}
