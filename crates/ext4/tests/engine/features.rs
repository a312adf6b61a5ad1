//! Volumes with features that are not supported: mounting names the feature. The volume is sound,
//! so the message does not suggest e2fsck.

use block::{DeviceUrl, OpenMode};
use ext4::{Fs, MountOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use testkit::kernel::LoopDevice;
use testkit::oracle::Mke2fs;
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

/// Sets a bit of the super block's incompatible features that no implementation knows.
fn set_unknown_feature(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path);
    let file = file.unwrap();
    let mut bits = [0; 4];
    file.read_exact_at(&mut bits, 1024 + 0x60).unwrap();
    let bits = u32::from_le_bytes(bits) | 1 << 27;
    file.write_all_at(&bits.to_le_bytes(), 1024 + 0x60).unwrap();
}

#[test]
fn an_unknown_feature_is_named() {
    let dir = Scratch::new();
    let path = dir.join("image");
    // Without checksums, so that only the feature is wrong.
    if !make(&path, "^metadata_csum") {
        return;
    }
    set_unknown_feature(&path);
    for read_only in [false, true] {
        let error = mount(&path, read_only).err().expect("an error");
        assert_eq!(
            error.to_string(),
            "FEATURE_I27 is not supported yet (feature of this volume)"
        );
        assert_eq!(error.errno(), rustix::io::Errno::OPNOTSUPP.raw_os_error());
    }
}

#[test]
fn a_feature_that_is_not_supported_for_writing_makes_the_mount_read_only() {
    let dir = Scratch::new();
    let path = dir.join("image");
    for (features, names) in [
        ("quota", "quota is"),
        ("project,quota", "quota, project are"),
    ] {
        if !make(&path, features) {
            continue;
        }
        let fs = mount(&path, false).unwrap();
        let noun = match names.ends_with("are") {
            true => "features",
            false => "feature",
        };
        assert_eq!(
            fs.info().read_only_reason,
            Some(format!(
                "{names} not supported for writing yet ({noun} of this volume)"
            ))
        );
        fs.unmount().unwrap();
    }
}

#[test]
fn a_volume_without_a_journal_that_was_not_unmounted_is_read_only() {
    let dir = Scratch::new();
    let path = dir.join("image");
    if !make(&path, "^has_journal") {
        return;
    }
    let fs = mount(&path, false).unwrap();
    assert!(!fs.is_read_only());
    fs.crash();
    drop(fs);
    let fs = mount(&path, false).unwrap();
    let reason = fs.info().read_only_reason.expect("a reason");
    assert!(reason.contains("run e2fsck"), "{reason}");
    fs.unmount().unwrap();
}

#[test]
fn larger_blocks_are_refused_by_name() {
    let dir = Scratch::new();
    let path = dir.join("image");
    for size in [8, 16, 32, 64] {
        let bytes = (size << 10).to_string();
        // mke2fs warns that this machine cannot mount them, and -F makes it go on.
        let made = Mke2fs::by_default(256 << 20)
            .args(&["-b", &bytes])
            .make(&path);
        if made.is_err() {
            continue;
        }
        for read_only in [false, true] {
            let error = mount(&path, read_only).err().expect("it is refused");
            let expected = format!(
                "unsupported: {} has blocks of {size} KiB; blocks of 1, 2 and 4 KiB are supported",
                path.display()
            );
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.errno(), rustix::io::Errno::OPNOTSUPP.raw_os_error());
        }
    }
}

#[test]
fn blocks_that_are_smaller_than_a_sector_are_refused_by_name() {
    let dir = Scratch::new();
    let path = dir.join("image");
    if Mke2fs::by_default(100 << 20).make(&path).is_err() {
        return;
    }
    let Some(disk) = LoopDevice::attach_with(&path, &["--sector-size", "4096"]) else {
        return;
    };
    let queue = testkit::volume::open(disk.path());
    let error = Fs::mount(queue, MountOptions::default()).err();
    let error = error.expect("it is refused").to_string();
    let expected = format!("{} has sectors of 4096 bytes", disk.path().display());
    assert!(error.contains(&expected), "{error}");
    // The same bytes in an image are a volume like any other.
    drop(disk);
    mount(&path, false).unwrap().unmount().unwrap();
}
