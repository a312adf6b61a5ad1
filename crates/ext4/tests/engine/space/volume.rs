//! Files whose pages name the file, on volumes that fill up.

use ext4::{Error, Fs, InodeRef};

pub const PAGE: usize = 4096;

pub fn create(fs: &Fs, name: &str) -> InodeRef {
    testkit::volume::put(fs, name, b"").unwrap()
}

pub fn open(fs: &Fs, name: &str) -> InodeRef {
    testkit::volume::at(fs, name).unwrap()
}

/// The contents of a page. They differ from those of all other pages and files.
pub fn page(salt: u64, index: u64) -> Vec<u8> {
    let word = (salt << 40 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(PAGE / 8)
}

/// Writes page `index` of a file; returns `false` if the volume is full.
pub fn put_page(fs: &Fs, file: &InodeRef, salt: u64, index: u64) -> bool {
    match fs.write(file, index * PAGE as u64, &page(salt, index)) {
        Ok(n) => n == PAGE,
        Err(Error::NoSpace) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Asserts that page `index` holds the contents that [`put_page`] wrote.
pub fn check_page(fs: &Fs, file: &InodeRef, salt: u64, index: u64) {
    let mut data = vec![0; PAGE];
    let n = fs.read(file, index * PAGE as u64, &mut data).unwrap();
    assert!(
        n == PAGE && data == page(salt, index),
        "page {index} of file {salt}"
    );
}

/// Writes pages from `from` on until the volume is full; returns the index after the last one.
pub fn fill(fs: &Fs, file: &InodeRef, salt: u64, from: u64) -> u64 {
    let mut index = from;
    while put_page(fs, file, salt, index) {
        index += 1;
    }
    index
}
