//! Mounts by the kernel's ext4, and loop devices.

use crate::needs::{Need, have, run, skipped};
use crate::oracle::{journal_of, text};
use crate::scratch::Scratch;
use std::path::{Path, PathBuf};

/// A volume that the kernel has mounted. Dropping it unmounts.
pub struct KernelMount {
    dir: PathBuf,
    mounted: bool,
    /// The device of a journal in a file of its own.
    _journal: Option<LoopDevice>,
    _scratch: Scratch,
}

impl KernelMount {
    /// Mounts for reading and writing, without updates of access times.
    pub fn new(image: &Path) -> KernelMount {
        KernelMount::with(image, "noatime")
    }

    /// Mounts for reading; the journal is not replayed, so the volume must be clean.
    pub fn read_only(image: &Path) -> KernelMount {
        KernelMount::with(image, "ro")
    }

    /// Mounts with these options.
    pub fn with(image: &Path, options: &str) -> KernelMount {
        KernelMount::try_with(image, options).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Mounts with these options.
    ///
    /// # Errors
    /// The last lines of the kernel's log.
    pub fn try_with(image: &Path, options: &str) -> Result<KernelMount, String> {
        let scratch = Scratch::new();
        let dir = scratch.join("mnt");
        std::fs::create_dir(&dir).expect("a mount point");
        let journal = journal_of(image).and_then(|journal| LoopDevice::attach(&journal));
        let options = match &journal {
            Some(journal) => format!("loop,journal_path={},{options}", text(journal.path())),
            None => format!("loop,{options}"),
        };
        let args = ["-t", "ext4", "-o", &options, text(image), text(&dir)];
        // Two processes may pick the same free loop device. The second one gets an error about a
        // bad super block.
        let mut tries = 0;
        while run("mount", &args).0 != 0 {
            tries += 1;
            if tries == 5 {
                let log = run("dmesg", &[]).1;
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                return Err(format!(
                    "the kernel does not mount it; its log, last first:\n{last:#?}"
                ));
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        Ok(KernelMount {
            dir,
            mounted: true,
            _journal: journal,
            _scratch: scratch,
        })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// A path below the mount point.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(path)
    }

    /// Unmounts; panics on failure.
    pub fn unmount(mut self) {
        self.mounted = false;
        if let Err(said) = umount(&self.dir) {
            panic!("umount {}: {said}", self.dir.display());
        }
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.mounted
            && let Err(said) = umount(&self.dir)
        {
            // The kernel frees the loop device after the last close.
            eprintln!("umount {}: {said}", self.dir.display());
            run("umount", &["-l", text(&self.dir)]);
        }
    }
}

/// A loop device. Dropping it detaches it.
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches a file. Prints `SKIPPED: …` and returns `None` if the machine cannot.
    pub fn attach(file: &Path) -> Option<LoopDevice> {
        LoopDevice::attach_with(file, &[])
    }

    /// [`LoopDevice::attach`] with more arguments of losetup.
    pub fn attach_with(file: &Path, args: &[&str]) -> Option<LoopDevice> {
        if !have("a loop device", &[Need::Loop, Need::Tool("losetup")]) {
            return None;
        }
        let args = [args, &["--find", "--show", text(file)]].concat();
        match run("losetup", &args) {
            (0, name) => Some(LoopDevice(name.trim().into())),
            (_, said) => {
                skipped("a loop device", &said);
                None
            }
        }
    }

    /// The path of the device.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["--detach", text(&self.0)]);
    }
}

/// Unmounts. A child process that another test starts has our open files until it calls `execve`,
/// so a mount may be busy for a moment after its last file was closed.
fn umount(dir: &Path) -> Result<(), String> {
    for _ in 0..20 {
        match run("umount", &[text(dir)]) {
            (0, _) => return Ok(()),
            (_, said) if said.contains("busy") => {}
            (_, said) => return Err(said),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Err("it stays busy".into())
}
