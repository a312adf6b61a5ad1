//! Volumes for the tests of directories.

use ext4::{DirEntry, Fs, InodeRef, NewInode};
use std::path::Path;
use testkit::oracle::Mke2fs;
use testkit::volume::{Image, new};
pub use testkit::volume::{mkdir, touch};
use units::Ino;

/// A volume by mke2fs, with a copy of `tree`.
pub fn by_mke2fs(bytes: u64, args: &[&str], tree: Option<&Path>) -> Image {
    let mke2fs = Mke2fs::new(bytes).args(args);
    Image::by_mke2fs(&match tree {
        Some(tree) => mke2fs.tree(tree),
        None => mke2fs,
    })
}

/// The volume block of a file's block.
pub fn bmap(image: &Image, path: &str, at: u32) -> u64 {
    let text = image.debugfs(&format!("bmap {path} {at}"));
    text.lines()
        .find_map(|line| line.trim().parse().ok())
        .unwrap()
}

/// Attributes of a plain file.
pub fn file() -> NewInode {
    new(0o644)
}

/// Lists a directory without "." and "..", in calls that take `batch` entries each.
pub fn list(fs: &Fs, dir: &InodeRef, batch: usize) -> Vec<(Vec<u8>, Ino)> {
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
