//! Mounts by the kernel's ext4, on a loop device, unmounted with the value.

use crate::image::text;
use crate::needs::run;
use crate::scratch::Scratch;
use std::path::{Path, PathBuf};

/// A volume that the kernel has mounted.
pub struct KernelMount {
    dir: PathBuf,
    mounted: bool,
    _scratch: Scratch,
}

impl KernelMount {
    /// Mounts for reading and writing; access times are left alone.
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

    /// Mounts with these options, if the kernel does.
    ///
    /// # Errors
    /// The end of its log.
    pub fn try_with(image: &Path, options: &str) -> Result<KernelMount, String> {
        let scratch = Scratch::new();
        let dir = scratch.join("mnt");
        std::fs::create_dir(&dir).expect("a mount point");
        let options = format!("loop,{options}");
        let args = ["-t", "ext4", "-o", &options, text(image), text(&dir)];
        // Others look for a free loop device too, and the losers of the race are told that there is
        // no super block.
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
            _scratch: scratch,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// A path in it.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(path)
    }

    /// Unmounts, and panics where that fails.
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
            // The loop device goes with the last user.
            eprintln!("umount {}: {said}", self.dir.display());
            run("umount", &["-l", text(&self.dir)]);
        }
    }
}

/// Unmounts. A child that another test is just starting has our open files until it runs its
/// program, so a mount may be busy for a moment after its last file was closed.
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
