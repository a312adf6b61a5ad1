//! The blocks of the log belong to no file.

use ext4::Error;
use testkit::needs::have_e2fsprogs;
use testkit::oracle::Mke2fs;
use testkit::volume::{Image, get, put, remove};

/// The removal of a damaged file must not free a block of the log: the next file would get it, and
/// lose its contents to the log.
#[test]
fn a_file_that_maps_the_log_does_not_free_it() {
    if !have_e2fsprogs("a_file_that_maps_the_log_does_not_free_it") {
        return;
    }
    let image = Image::by_mke2fs(&Mke2fs::new(64 << 20).features("^metadata_csum"));
    let block = image.debugfs("bmap <8> 100");
    let block = block.trim();
    image.with(|fs| drop(put(fs, "damaged", b"contents").unwrap()));
    // The start of the only extent in the inode.
    image.debugfs(&format!("set_inode_field damaged block[5] {block}"));
    let fs = image.mount();
    let read = get(&fs, "damaged");
    assert!(matches!(read, Err(Error::CorruptInode { .. })), "{read:?}");
    remove(&fs, "damaged").unwrap();
    fs.sync().unwrap();
    fs.unmount().unwrap();
    let state = image.debugfs(&format!("testb {block}"));
    assert!(state.contains("marked in use"), "{state}");
}
