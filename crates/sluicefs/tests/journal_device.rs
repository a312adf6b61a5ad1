//! A volume whose journal is on a device of its own: the device is named, or found.

use block::OpenMode;
use sluicefs::VolumeOptions;
use std::io::ErrorKind;
use testkit::kernel::LoopDevice;
use testkit::needs::{Need, have};
use testkit::oracle::{Mke2fs, assert_clean, journal_path};
use testkit::scratch::Scratch;

#[test]
fn the_library_opens_the_journal_that_is_named_or_found() {
    if !have(
        "external journal",
        &[Need::Tool("mke2fs"), Need::Tool("e2fsck")],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("volume.img");
    let how = Mke2fs::new(24 << 20).features("^metadata_csum");
    let Some(made) = how.make_with_journal(&image, 8 << 20) else {
        return;
    };
    made.unwrap();
    let journal = journal_path(&image);
    let refused = VolumeOptions::new().open(&image).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let volume = VolumeOptions::new().journal(&journal).open(&image).unwrap();
    volume.write("file", "contents").unwrap();
    // Nobody else can use the journal.
    let url = block::DeviceUrl::Path(journal.clone());
    let busy = block::open(&url, OpenMode::ReadWrite)
        .map(drop)
        .unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
    assert!(volume.info().journal_blocks > 0);
    volume.close().unwrap();
    assert_clean(&image, "changed with its journal named");

    let attach = |file| LoopDevice::attach(file);
    let Some(on_loop) = attach(&image) else {
        return;
    };
    // The journal is not attached, or has another number than the volume says.
    VolumeOptions::new().open(on_loop.path()).unwrap_err();
    let Some(journal_on_loop) = attach(&journal) else {
        return;
    };
    let number = rustix::fs::stat(journal_on_loop.path()).unwrap().st_rdev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let hint = major << 8 | minor;
    drop(on_loop);
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[1024 + 0xE4..1024 + 0xE8].copy_from_slice(&hint.to_le_bytes());
    std::fs::write(&image, bytes).unwrap();
    let Some(on_loop) = attach(&image) else {
        return;
    };
    let volume = VolumeOptions::new().open(on_loop.path()).unwrap();
    assert_eq!(volume.read("file").unwrap(), b"contents");
    volume.close().unwrap();
}
