//! Volumes with the features that make a difference here.

use ext4::{Fs, InodeRef};
use testkit::oracle::Mke2fs;
use testkit::volume::{Image, at};

/// Features that make a difference here.
pub const KINDS: [&str; 4] = [
    "",
    "^orphan_file,^metadata_csum,^64bit",
    "^orphan_file",
    "^metadata_csum_seed",
];

/// Size of the volumes.
pub const SIZE: u64 = 160 << 20;

/// A volume by mke2fs with its ext4 defaults, plus or minus `features`.
pub fn by_mke2fs(features: &str) -> Image {
    let features = ["has_journal", features].join(",");
    let features = features.trim_end_matches(',');
    Image::by_mke2fs(&Mke2fs::new(SIZE).features(features))
}

/// The inode of a path.
pub fn find(fs: &Fs, path: &str) -> InodeRef {
    at(fs, path).unwrap()
}
