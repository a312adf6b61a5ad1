//! A volume in an image that e2fsck can look at.

use block::{DeviceUrl, OpenMode, Queue};
use ext4::{Error, Fs, InodeRef, MkfsOptions, MountOptions, NewInode, mkfs};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use writeback::Tunables;

pub const PAGE: usize = 4096;

/// An image with a volume on it.
pub struct Image(tempfile::NamedTempFile);

impl Image {
    pub fn new(bytes: u64) -> Image {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let image = Image(file);
        mkfs(&image.queue(), &MkfsOptions::default()).unwrap();
        image
    }

    fn queue(&self) -> Arc<Queue> {
        let url = DeviceUrl::Path(self.0.path().to_owned());
        block::open(&url, OpenMode::ReadWrite).unwrap()
    }

    /// Nothing is written or committed but by who asks for it.
    pub fn mount(&self) -> Arc<Fs> {
        let never = Duration::from_secs(3600);
        let options = MountOptions {
            commit_interval: never,
            tunables: Tunables {
                dirty_expire: never,
                dirty_writeback: never,
                ..Default::default()
            },
            ..MountOptions::default()
        };
        Fs::mount(self.queue(), options).unwrap()
    }

    /// With the flusher and commits at work.
    pub fn mount_busy(&self) -> Arc<Fs> {
        let options = MountOptions {
            commit_interval: Duration::from_millis(50),
            tunables: Tunables {
                dirty_expire: Duration::from_millis(20),
                dirty_writeback: Duration::from_millis(20),
                ..Default::default()
            },
            ..MountOptions::default()
        };
        Fs::mount(self.queue(), options).unwrap()
    }

    /// Unmounts, and lets e2fsck check the volume.
    pub fn unmount(&self, fs: Arc<Fs>) {
        fs.unmount().unwrap();
        drop(fs);
        let check = Command::new("e2fsck")
            .args(["-fn", self.0.path().to_str().unwrap()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success(), "{said}");
    }
}

pub fn create(fs: &Fs, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().unwrap(), name.as_bytes(), new)
        .unwrap()
}

pub fn mkdir(fs: &Fs, dir: &InodeRef, name: &str) -> Result<InodeRef, Error> {
    let new = NewInode {
        mode: 0o755,
        ..NewInode::default()
    };
    fs.mkdir(dir, name.as_bytes(), new)
}

pub fn open(fs: &Fs, name: &str) -> InodeRef {
    fs.lookup(&fs.root().unwrap(), name.as_bytes()).unwrap()
}

/// A page of a file, which tells it from others.
pub fn page(salt: u64, index: u64) -> Vec<u8> {
    let word = (salt << 40 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(PAGE / 8)
}

/// Writes page `index` of a file; whether it was accepted as a whole.
pub fn put_page(fs: &Fs, file: &InodeRef, salt: u64, index: u64) -> bool {
    match fs.write(file, index * PAGE as u64, &page(salt, index)) {
        Ok(n) => n == PAGE,
        Err(Error::NoSpace) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Checks that page `index` holds what [`put_page`] put there.
pub fn check_page(fs: &Fs, file: &InodeRef, salt: u64, index: u64) {
    let mut data = vec![0; PAGE];
    let n = fs.read(file, index * PAGE as u64, &mut data).unwrap();
    assert!(
        n == PAGE && data == page(salt, index),
        "page {index} of file {salt}"
    );
}

/// Writes pages from `from` on until the volume is full; the page behind the last one.
pub fn fill(fs: &Fs, file: &InodeRef, salt: u64, from: u64) -> u64 {
    let mut index = from;
    while put_page(fs, file, salt, index) {
        index += 1;
    }
    index
}
