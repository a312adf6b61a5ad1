//! Images to test on, made by mke2fs or by us, and the oracles: e2fsck, debugfs, the kernel.

use block::{DeviceUrl, OpenMode};
use ext4::{Fs, Ino, InodeRef, MkfsOptions, MountOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// Features that make a difference here.
pub const KINDS: [&str; 4] = [
    "",
    "^orphan_file,^metadata_csum,^64bit",
    "^orphan_file",
    "^metadata_csum_seed",
];

pub struct Image {
    dir: tempfile::TempDir,
    pub path: PathBuf,
}

fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

impl Image {
    fn empty(mib: u64) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(mib << 20)
            .unwrap();
        Image { dir, path }
    }

    /// A volume by mke2fs with its ext4 defaults, plus or minus `features` (`-O`).
    pub fn mke2fs(mib: u64, features: &str) -> Image {
        let image = Image::empty(mib);
        let features = ["has_journal", features].join(",");
        let features = features.trim_end_matches(',');
        image.sh(
            "mke2fs",
            &["-q", "-t", "ext4", "-b", "4096", "-O", features],
        );
        image
    }

    /// A volume by us.
    pub fn ours(mib: u64) -> Image {
        let image = Image::empty(mib);
        let queue = block::open(&image.url(), OpenMode::ReadWrite).unwrap();
        ext4::mkfs(&queue, &MkfsOptions::default()).unwrap();
        image
    }

    fn url(&self) -> DeviceUrl {
        DeviceUrl::Path(self.path.clone())
    }

    /// Runs a program on the image, which must succeed.
    pub fn sh(&self, program: &str, args: &[&str]) -> String {
        let path = self.path.to_str().unwrap();
        let output = run(program, &[args, &[path]].concat());
        assert!(
            output.status.success(),
            "{program} {args:?}: {}",
            text(&output)
        );
        text(&output)
    }

    pub fn debugfs(&self, request: &str) -> String {
        self.sh("debugfs", &["-w", "-R", request])
    }

    pub fn mount(&self) -> Arc<Fs> {
        let queue = block::open(&self.url(), OpenMode::ReadWrite).unwrap();
        Fs::mount(queue, MountOptions::default()).unwrap()
    }

    /// Mounts, and unmounts afterwards.
    pub fn with<R>(&self, work: impl FnOnce(&Arc<Fs>) -> R) -> R {
        let fs = self.mount();
        let result = work(&fs);
        fs.unmount().unwrap();
        result
    }

    /// Asks e2fsck, which must find nothing.
    pub fn fsck(&self) {
        let output = run("e2fsck", &["-fn", self.path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Mounts it in the kernel; `None` where that is not possible.
    pub fn kernel<R>(&self, work: impl FnOnce(&Path) -> R) -> Option<R> {
        let point = self.dir.path().join("mnt");
        std::fs::create_dir_all(&point).unwrap();
        let (image, at) = (self.path.to_str().unwrap(), point.to_str().unwrap());
        if !run("mount", &["-t", "ext4", "-o", "loop", image, at])
            .status
            .success()
        {
            eprintln!("no kernel mount here: needs root and loop devices");
            return None;
        }
        let guard = Unmount(at);
        let result = work(&point);
        drop(guard);
        Some(result)
    }

    /// A copy as it is now: what a crash would leave.
    pub fn copy(&self) -> Image {
        let copy = Image::empty(0);
        std::fs::copy(&self.path, &copy.path).unwrap();
        copy
    }
}

struct Unmount<'a>(&'a str);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        // A child that another test is just starting has our open files until it runs its program.
        let mut output = run("umount", &[self.0]);
        for _ in 0..20 {
            if output.status.success() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            output = run("umount", &[self.0]);
        }
        assert!(
            output.status.success() || std::thread::panicking(),
            "{}",
            text(&output)
        );
    }
}

/// Output of a program that must succeed.
pub fn output(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        text(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The inode of a name in the root directory, found without the code under test's neighbours.
pub fn find(fs: &Arc<Fs>, name: &str) -> InodeRef {
    fs.lookup(&fs.root().unwrap(), name.as_bytes()).unwrap()
}

/// A number for messages.
pub fn number(inode: &InodeRef) -> Ino {
    Ino(inode.ino())
}
