//! Volumes with features that are not supported: mounting names the feature. The volume is sound,
//! so the message does not suggest e2fsck.

use block::{DeviceUrl, OpenMode};
use ext4::{Fs, MountOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use testkit::scratch::Scratch;

/// Makes a volume with `features`; `false` if this mke2fs cannot.
fn make(path: &Path, features: &str) -> bool {
    let _ = std::fs::remove_file(path);
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", features])
        .arg(path)
        .arg("64M")
        .output();
    made.is_ok_and(|output| output.status.success())
}

fn mount(path: &Path, read_only: bool) -> ext4::Result<Arc<Fs>> {
    let queue = block::open(&DeviceUrl::Path(path.to_owned()), OpenMode::ReadWrite).unwrap();
    let options = MountOptions {
        read_only,
        ..MountOptions::default()
    };
    Fs::mount(queue, options)
}

#[test]
fn an_unsupported_feature_is_named() {
    let dir = Scratch::new();
    let path = dir.join("image");
    for (features, message) in [
        (
            "inline_data",
            "inline_data is not supported yet (feature of this volume)",
        ),
        (
            "bigalloc",
            "bigalloc is not supported yet (feature of this volume)",
        ),
        (
            "bigalloc,inline_data",
            "inline_data, bigalloc are not supported yet (features of this volume)",
        ),
        (
            "meta_bg,^resize_inode",
            "meta_bg is not supported yet (feature of this volume)",
        ),
    ] {
        if !make(&path, features) {
            continue;
        }
        for read_only in [false, true] {
            let error = mount(&path, read_only).err().expect(features);
            assert_eq!(error.to_string(), message);
            assert_eq!(error.errno(), rustix::io::Errno::OPNOTSUPP.raw_os_error());
        }
    }
}

#[test]
fn a_feature_that_is_not_supported_for_writing_makes_the_mount_read_only() {
    let dir = Scratch::new();
    let path = dir.join("image");
    if !make(&path, "quota") {
        return;
    }

    let fs = mount(&path, false).unwrap();

    assert_eq!(
        fs.info().read_only_reason.as_deref(),
        Some("quota is not supported for writing yet (feature of this volume)")
    );
}
