//! A volume in a file: made by us or by mke2fs, mounted, unmounted, checked.

use block::{DeviceUrl, OpenMode, Queue};
use ext4::{DirEntry, Fs, InodeRef, MkfsOptions, MountOptions, NewInode, Result, mkfs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// A volume, mounted between [`Volume::mount`] and [`Volume::unmount`].
pub struct Volume {
    _dir: TempDir,
    pub image: PathBuf,
}

/// Seeded random numbers (Marsaglia's xorshift64); a failing seed replays.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) % bound as u64) as usize
    }
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}

impl Volume {
    fn empty(bytes: u64) -> Volume {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("volume.img");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        Volume { _dir: dir, image }
    }
    /// Formatted by us.
    pub fn ours(bytes: u64, features: &[&str]) -> Volume {
        let volume = Volume::empty(bytes);
        let options = MkfsOptions {
            features: features.iter().map(|&f| f.to_owned()).collect(),
            ..MkfsOptions::default()
        };
        mkfs(&volume.queue(), &options).unwrap();
        volume
    }
    /// Formatted by mke2fs, with what `tree` has in it.
    pub fn theirs(bytes: u64, args: &[&str], tree: Option<&Path>) -> Volume {
        let volume = Volume::empty(bytes);
        let mut command = Command::new("mke2fs");
        command
            .args(["-q", "-F", "-t", "ext4", "-b", "4096"])
            .args(args);
        if let Some(tree) = tree {
            command.arg("-d").arg(tree);
        }
        run(command.arg(&volume.image));
        volume
    }
    fn queue(&self) -> Arc<Queue> {
        let url: DeviceUrl = self.image.to_str().unwrap().parse().unwrap();
        block::open(&url, OpenMode::ReadWrite).unwrap()
    }
    pub fn mount(&self) -> Arc<Fs> {
        Fs::mount(self.queue(), MountOptions::default()).unwrap()
    }
    pub fn mount_read_only(&self) -> Arc<Fs> {
        let options = MountOptions {
            read_only: true,
            ..MountOptions::default()
        };
        Fs::mount(self.queue(), options).unwrap()
    }
    /// Unmounts and lets e2fsck say that nothing at all is wrong.
    pub fn unmount(&self, fs: Arc<Fs>) {
        fs.unmount().unwrap();
        drop(fs);
        self.check();
    }
    pub fn check(&self) {
        let text = run(Command::new("e2fsck").arg("-fn").arg(&self.image));
        assert!(!text.contains("Fix") && !text.contains("WARNING"), "{text}");
    }
    /// What debugfs prints.
    pub fn debugfs(&self, request: &str) -> String {
        run(Command::new("debugfs")
            .args(["-R", request])
            .arg(&self.image))
    }
}

impl Volume {
    /// The volume block of a file's block.
    pub fn bmap(&self, path: &str, at: u32) -> u64 {
        let text = self.debugfs(&format!("bmap {path} {at}"));
        text.lines()
            .find_map(|line| line.trim().parse().ok())
            .unwrap()
    }
}

/// Runs a command that must succeed; what it says.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// A plain file's attributes.
pub fn file() -> NewInode {
    NewInode {
        mode: 0o644,
        ..NewInode::default()
    }
}

/// Makes a file or directory at `name`.
pub fn touch(fs: &Fs, dir: &InodeRef, name: &str) -> Result<InodeRef> {
    fs.create(dir, name.as_bytes(), file())
}
pub fn mkdir(fs: &Fs, dir: &InodeRef, name: &str) -> Result<InodeRef> {
    let new = NewInode {
        mode: 0o755,
        ..NewInode::default()
    };
    fs.mkdir(dir, name.as_bytes(), new)
}

/// All entries but "." and "..", as (name, inode), read with the buffer of a reader that takes
/// `batch` at a time.
pub fn list(fs: &Fs, dir: &InodeRef, batch: usize) -> Vec<(Vec<u8>, u32)> {
    let mut found = Vec::new();
    let mut pos = 0;
    loop {
        let mut taken = 0;
        fs.read_dir(dir, pos, &mut |entry: DirEntry<'_>| {
            if taken == batch {
                return false;
            }
            taken += 1;
            assert!(entry.next > pos, "positions ascend");
            pos = entry.next;
            found.push((entry.name.to_vec(), entry.ino));
            true
        })
        .unwrap();
        if taken == 0 {
            break;
        }
    }
    assert_eq!(found[0], (b".".to_vec(), dir.ino()));
    assert_eq!(found[1].0, b"..");
    found.drain(..2);
    found
}
