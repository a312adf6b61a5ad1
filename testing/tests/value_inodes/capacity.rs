//! The number of values that an inode can have.

use crate::check;
use ext4::{Error, SetXattrMode};
use std::path::Path;
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;
use testkit::volume::{Image, put};

/// The lengths of the values of each file. The sums of some fill a block.
const LENGTHS: [usize; 6] = [60, 230, 450, 900, 2000, 3900];

/// Counts the values that `set` accepts.
fn count(len: usize, mut set: impl FnMut(&str, &[u8]) -> bool) -> usize {
    let value = vec![7; len];
    let accepted = (0..).take_while(|number| set(&format!("user.{number}"), &value));
    accepted.count()
}

fn by_the_kernel(mount: &Path, len: usize) -> usize {
    let path = mount.join(format!("file{len}"));
    std::fs::write(&path, "contents").unwrap();
    count(len, |name, value| match xattr::set(&path, name, value) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => false,
        Err(error) => panic!("{error}"),
    })
}

#[test]
fn as_many_values_fit_as_in_the_kernel() {
    if !have("value inodes", &[Need::Loop, Need::Tool("mke2fs")]) {
        return;
    }
    for block_size in ["1024", "4096"] {
        let how: &[&str] = &["-O", "ea_inode", "-b", block_size];
        let how = Mke2fs::of_type(32 << 20, "ext4").args(how);
        let theirs = Image::by_mke2fs(&how)
            .with_kernel("rw", |mount| LENGTHS.map(|len| by_the_kernel(mount, len)));
        let image = Image::by_mke2fs(&how);
        let ours = image.with(|fs| {
            LENGTHS.map(|len| {
                let file = put(fs, &format!("file{len}"), b"contents").unwrap();
                count(len, |name, value| {
                    match fs.set_xattr(&file, name.as_bytes(), value, SetXattrMode::Any) {
                        Ok(()) => true,
                        Err(Error::NoSpace) => false,
                        Err(error) => panic!("{error}"),
                    }
                })
            })
        });
        check(&image, "full of attributes");
        assert_eq!(Some(ours), theirs, "blocks of {block_size} bytes");
    }
}
