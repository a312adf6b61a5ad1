//! Volumes made by `mkfs`, judged by e2fsck, compared with mke2fs's, and filled by the kernel where
//! that is possible.

use block::{Create, DeviceUrl, OpenMode};
use ext4::mkfs::MkfsReport;
use ext4::{Error, MkfsOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn make(path: &Path, size: u64, options: &MkfsOptions) -> Result<MkfsReport, Error> {
    block::create_image(path, size, Create::Overwrite).unwrap();
    let queue = block::open(&DeviceUrl::Path(path.to_owned()), OpenMode::ReadWrite).unwrap();
    ext4::mkfs(&queue, options)
}

fn features(list: &str) -> MkfsOptions {
    MkfsOptions {
        features: vec![list.to_owned()],
        ..MkfsOptions::default()
    }
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("-V").output().is_ok()
}

fn assert_clean(path: &Path, what: &str) {
    let output = Command::new("e2fsck")
        .arg("-fn")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {text}");
}

const MIB: u64 = 1 << 20;

#[test]
fn every_size_is_clean() {
    if !has("e2fsck") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let sizes = [
        1,
        2,
        3,
        7,
        8,
        9,
        16,
        33,
        64,
        100,
        127,
        128,
        129,
        130,
        131,
        200,
        511,
        512,
        1024,
        2100,
        33 * 1024,
    ];
    for size in sizes {
        let report = make(&path, size * MIB, &MkfsOptions::default()).unwrap();
        assert_eq!(report.journal_blocks > 0, size >= 8);
        assert_clean(&path, &format!("{size} MiB"));
    }
    // Not a whole number of blocks.
    make(&path, 70 * MIB + 1536, &MkfsOptions::default()).unwrap();
    assert_clean(&path, "odd");
}

#[test]
fn every_feature_and_block_size_is_clean() {
    if !has("e2fsck") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for list in [
        "^64bit",
        "^metadata_csum",
        "^metadata_csum,uninit_bg",
        "^metadata_csum_seed",
        "^orphan_file",
        "^flex_bg",
        "^resize_inode",
        "^has_journal",
        "^huge_file",
        "^dir_index",
        "^resize_inode,^sparse_super",
        "^resize_inode,^large_file",
        "^extra_isize",
        "^dir_nlink",
        "^ext_attr",
        "large_dir",
        "^64bit,^metadata_csum,^flex_bg,^resize_inode,^orphan_file",
    ] {
        for block_size in [1024, 2048, 4096] {
            for size in [20, 300] {
                let options = MkfsOptions {
                    block_size,
                    ..features(list)
                };
                make(&path, size * MIB, &options).unwrap();
                assert_clean(&path, &format!("{list}, {block_size}, {size} MiB"));
            }
        }
    }
}

#[test]
fn options_are_honoured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = MkfsOptions {
        inodes: Some(200_000),
        label: "sixteen bytes ok".into(),
        uuid: Some([7; 16]),
        reserved_percent: 0,
        journal_bytes: Some(5 * MIB),
        root_owner: (1000, 100_000),
        ..MkfsOptions::default()
    };
    let report = make(&path, 1024 * MIB, &options).unwrap();
    assert_eq!((report.uuid, report.journal_blocks), ([7; 16], 1280));
    assert!((200_000..202_000).contains(&report.inodes));
    if has("e2fsck") {
        assert_clean(&path, "options");
    }
    // A million inodes: the inode tables of a flex group fill more than one group.
    let many = MkfsOptions {
        inode_ratio: Some(4096),
        ..MkfsOptions::default()
    };
    make(&path, 8 << 30, &many).unwrap();
    if has("e2fsck") {
        assert_clean(&path, "many inodes");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let error = |size, options: &MkfsOptions| make(&path, size, options).unwrap_err().to_string();
    assert!(error(100 << 10, &MkfsOptions::default()).contains("at least 64 blocks"));
    assert!(error(64 * MIB, &features("bigalloc")).contains("bigalloc"));
    assert!(error(64 * MIB, &features("^extent")).contains("extent"));
    let label = MkfsOptions {
        label: "more than sixteen bytes".into(),
        ..MkfsOptions::default()
    };
    assert!(error(64 * MIB, &label).contains("16 bytes"));
}

/// Formatting over an old volume whose blocks are full of other things, without discarding, leaves
/// nothing of it behind.
#[test]
fn old_content_does_not_show() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for list in ["", "^metadata_csum", "^metadata_csum,uninit_bg"] {
        std::fs::write(&path, vec![0xa5; 64 << 20]).unwrap();
        let queue = block::open(&DeviceUrl::Path(path.clone()), OpenMode::ReadWrite).unwrap();
        let options = MkfsOptions {
            discard: false,
            ..features(list)
        };
        ext4::mkfs(&queue, &options).unwrap();
        drop(queue);
        if has("e2fsck") {
            assert_clean(&path, list);
        }
    }
}

/// What `dumpe2fs -h` says, but for what differs from run to run.
fn header(path: &Path) -> BTreeMap<String, String> {
    let output = Command::new("dumpe2fs")
        .arg("-h")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let varies = |key: &str| {
        [
            "UUID", "Seed", "hecksum", "created", "write", "checked", "writes",
        ]
        .iter()
        .any(|word| key.contains(word))
    };
    lines
        .filter(|(key, _)| !varies(key))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

#[test]
fn agrees_with_mke2fs() {
    if !has("mke2fs") || !has("dumpe2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    for size in [8, 64, 130, 1000, 3 * 1024, 40 * 1024] {
        for list in ["64bit", "^flex_bg", "^64bit", "^resize_inode"] {
            make(&ours, size * MIB, &features(list)).unwrap();
            std::fs::File::create(&theirs)
                .unwrap()
                .set_len(size * MIB)
                .unwrap();
            let list = format!("metadata_csum_seed,orphan_file,{list}");
            let made = Command::new("mke2fs")
                .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", &list])
                .arg(&theirs)
                .status();
            if !made.unwrap().success() {
                // Older than the orphan file.
                return;
            }
            assert_eq!(header(&ours), header(&theirs), "{size} MiB, {list}");
        }
    }
}

#[test]
fn a_sparse_tebibyte_takes_less_than_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let start = std::time::Instant::now();
    make(&path, 1 << 40, &MkfsOptions::default()).unwrap();
    // Usually 40 ms; the machine may be busy.
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    use std::os::unix::fs::MetadataExt;
    let kept = std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(kept < 64 << 20, "{kept} bytes");
}

/// The kernel mounts our volumes and fills them to the last block. Needs root and loop devices.
#[test]
fn the_kernel_can_fill_them() {
    if !rustix::process::geteuid().is_root() || !has("e2fsck") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, mount) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&mount).unwrap();
    for list in [
        "",
        "^64bit",
        "^flex_bg",
        "^metadata_csum,uninit_bg",
        "^metadata_csum",
    ] {
        make(&path, 200 * MIB, &features(list)).unwrap();
        let mounted = Command::new("mount")
            .args(["-o", "loop"])
            .arg(&path)
            .arg(&mount)
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            return;
        }
        for dir in 0..20 {
            let dir = mount.join(dir.to_string());
            std::fs::create_dir(&dir).unwrap();
            for file in 0..50 {
                std::fs::write(dir.join(file.to_string()), vec![file; 5000]).unwrap();
            }
        }
        let written = std::fs::write(mount.join("rest"), vec![1; 200 << 20]);
        let _ = Command::new("umount").arg(&mount).status();
        assert!(written.is_err(), "{list}: the volume has no end");
        assert_clean(&path, list);
    }
}
