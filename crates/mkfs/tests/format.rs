//! Volumes by `mkfs`: checked by e2fsck, compared with those of mke2fs, filled by the kernel.

use block::{Create, DeviceUrl, OpenMode};
use mkfs::{Error, MkfsOptions, MkfsReport};
use std::collections::BTreeMap;
use std::path::Path;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, run_ok, skipped};
use testkit::oracle::{Mke2fs, assert_clean, journal_path, text};
use testkit::scratch::Scratch;

fn make(path: &Path, size: u64, options: &MkfsOptions) -> Result<MkfsReport, Error> {
    block::create_image(path, size, Create::Overwrite).unwrap();
    let queue = block::open(&DeviceUrl::Path(path.to_owned()), OpenMode::ReadWrite).unwrap();
    mkfs::format(&queue, options)
}

fn features(list: &str) -> MkfsOptions {
    MkfsOptions {
        features: vec![list.to_owned()],
        ..MkfsOptions::default()
    }
}

/// Whether e2fsck can check the volumes.
fn can_check() -> bool {
    have("mkfs", &[Need::Tool("e2fsck")])
}

const MIB: u64 = 1 << 20;

#[test]
fn every_size_is_clean() {
    if !can_check() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("image");
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
    if !can_check() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("image");
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
        "inline_data",
        "inline_data,^metadata_csum",
        "ea_inode",
        "ea_inode,inline_data,^metadata_csum",
        "inline_data,^ext_attr,^extra_isize",
        "bigalloc",
        "bigalloc,^resize_inode,^flex_bg",
        "bigalloc,^metadata_csum,uninit_bg,^has_journal",
        "bigalloc,^metadata_csum,^64bit",
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
    let scratch = Scratch::new();
    let path = scratch.join("image");
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
    if can_check() {
        assert_clean(&path, "options");
    }
    // A million inodes: the inode tables of a flex group fill more than one group.
    let many = MkfsOptions {
        inode_ratio: Some(4096),
        ..MkfsOptions::default()
    };
    make(&path, 8 << 30, &many).unwrap();
    if can_check() {
        assert_clean(&path, "many inodes");
    }
}

#[test]
fn impossible_requests_are_refused_by_name() {
    let scratch = Scratch::new();
    let path = scratch.join("image");
    let error = |size, options: &MkfsOptions| make(&path, size, options).unwrap_err().to_string();
    assert!(error(100 << 10, &MkfsOptions::default()).contains("at least 64 blocks"));
    assert!(error(64 * MIB, &features("casefold")).contains("casefold"));
    let cluster = |features: &MkfsOptions, bytes| {
        let options = MkfsOptions {
            cluster_size: Some(bytes),
            ..features.clone()
        };
        error(64 * MIB, &options)
    };
    let with = features("bigalloc");
    assert!(cluster(&MkfsOptions::default(), 65536).contains("bigalloc"));
    let small = MkfsOptions {
        block_size: 1024,
        ..with.clone()
    };
    assert!(cluster(&small, 1024).contains("cluster size"));
    for bytes in [0, 2048, 12288, 512 * MIB, u64::MAX] {
        assert!(cluster(&with, bytes).contains("cluster size"), "{bytes}");
    }
    assert!(cluster(&with, 256 * MIB).contains("too small"));
    let many = MkfsOptions {
        inodes: Some(100_000),
        ..with
    };
    assert!(error(64 * MIB, &many).contains("so many inodes"));
    assert!(error(64 * MIB, &features("^extent")).contains("extent"));
    let label = MkfsOptions {
        label: "more than sixteen bytes".into(),
        ..MkfsOptions::default()
    };
    assert!(error(64 * MIB, &label).contains("16 bytes"));
}

/// Formats a device full of old data without a discard. None of the old data is left in metadata.
#[test]
fn a_used_device_is_clean_after_mkfs() {
    let scratch = Scratch::new();
    let path = scratch.join("image");
    for list in ["", "^metadata_csum", "^metadata_csum,uninit_bg"] {
        std::fs::write(&path, vec![0xa5; 64 << 20]).unwrap();
        let queue = block::open(&DeviceUrl::Path(path.clone()), OpenMode::ReadWrite).unwrap();
        let options = MkfsOptions {
            discard: false,
            ..features(list)
        };
        mkfs::format(&queue, &options).unwrap();
        drop(queue);
        if can_check() {
            assert_clean(&path, list);
        }
    }
}

/// The fields of `dumpe2fs -h`, without those that differ between runs.
fn header(path: &Path) -> BTreeMap<String, String> {
    let header = run_ok("dumpe2fs", &["-h", text(path)]);
    let lines = header.lines().filter_map(|line| line.split_once(':'));
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
    if !have(
        "agreement with mke2fs",
        &["mke2fs", "dumpe2fs"].map(Need::Tool),
    ) {
        return;
    }
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
    for size in [8, 64, 130, 1000, 3 * 1024, 40 * 1024] {
        for list in ["64bit", "^flex_bg", "^64bit", "^resize_inode"] {
            make(&ours, size * MIB, &features(list)).unwrap();
            let list = format!("metadata_csum_seed,orphan_file,{list}");
            if Mke2fs::new(size * MIB)
                .features(&list)
                .make(&theirs)
                .is_err()
            {
                skipped("agreement with mke2fs", "it does not know the orphan file");
                return;
            }
            assert_eq!(header(&ours), header(&theirs), "{size} MiB, {list}");
        }
    }
}

/// Asserts that headers agree. mke2fs leaves gaps for the bitmaps and tables of groups that the
/// volume does not have yet, and thus takes more clusters.
fn assert_same_but_gaps(
    mut ours: BTreeMap<String, String>,
    mut theirs: BTreeMap<String, String>,
    what: &str,
) {
    let number = |header: &BTreeMap<String, String>, key: &str| -> u64 {
        header.get(key).expect(key).parse().expect(key)
    };
    let blocks = number(&ours, "Cluster size") / number(&ours, "Block size");
    let mut take = |key: &str| {
        let numbers = (number(&ours, key), number(&theirs, key));
        ours.remove(key);
        theirs.remove(key);
        numbers
    };
    let (free, their_free) = take("Free blocks");
    let (overhead, their_overhead) = take("Overhead clusters");
    assert!(overhead <= their_overhead, "{what}: {overhead} clusters");
    let gaps = their_overhead - overhead;
    assert_eq!(free, their_free + gaps * blocks, "{what}");
    assert_eq!(ours, theirs, "{what}");
}

/// Clusters of 1 to 256 blocks, and sizes that end in the middle of one. All are whole pages, which
/// mke2fs wants.
#[test]
fn agrees_with_mke2fs_on_clusters() {
    if !have(
        "agreement with mke2fs, bigalloc",
        &["mke2fs", "dumpe2fs", "e2fsck"].map(Need::Tool),
    ) {
        return;
    }
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
    let kib = [
        8 << 10,
        30_004,
        64 << 10,
        100_012,
        129 << 10,
        3 << 20,
        40 << 20,
    ];
    let clusters = [
        (4096, None),
        (4096, Some(4096)),
        (4096, Some(8192)),
        (4096, Some(1 << 20)),
        (2048, Some(16 << 10)),
        (1024, None),
        (1024, Some(2048)),
        (1024, Some(64 << 10)),
    ];
    for size in kib {
        for (block_size, cluster_size) in clusters {
            let what = format!("{size} KiB, {block_size}, {cluster_size:?}");
            let options = MkfsOptions {
                block_size,
                cluster_size,
                ..features("bigalloc")
            };
            let made = make(&ours, size << 10, &options);
            let block_size = block_size.to_string();
            let mut how = Mke2fs::by_default(size << 10).args(&["-b", &block_size]);
            if let Some(cluster_size) = cluster_size {
                how = how.args(&["-C", &cluster_size.to_string()]);
            }
            let how = how.features("metadata_csum_seed,orphan_file,bigalloc");
            match how.make(&theirs) {
                Ok(()) => assert_same_but_gaps(header(&ours), header(&theirs), &what),
                Err(said) if said.contains("nvalid filesystem option") => {
                    skipped("agreement with mke2fs", "it does not know the orphan file");
                    return;
                }
                Err(said) => {
                    assert!(made.is_err(), "{what}: {said}");
                    continue;
                }
            }
            assert_clean(&ours, &what);
        }
    }
}

/// The journal, and the volume that uses it. e2fsck checks the volume with the journal.
#[test]
fn journal_devices_agree_with_mke2fs() {
    let tools = ["mke2fs", "dumpe2fs", "e2fsck"].map(Need::Tool);
    if !have("journal devices", &tools) {
        return;
    }
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
    for block_size in [1024, 2048, 4096] {
        let what = format!("blocks of {block_size}");
        let device = MkfsOptions {
            block_size,
            ..features("journal_dev")
        };
        let options = MkfsOptions {
            block_size,
            ..features("^metadata_csum_seed,^orphan_file")
        };
        make(&journal_path(&ours), 8 * MIB, &device).unwrap();
        block::create_image(&ours, 64 * MIB, Create::Overwrite).unwrap();
        let size = block_size.to_string();
        let how = Mke2fs::by_default(64 * MIB).args(&["-b", &size]);
        let Some(made) = how.make_with_journal(&theirs, 8 * MIB) else {
            return;
        };
        made.unwrap();
        let open = |path: &Path| {
            let url = DeviceUrl::Path(path.to_owned());
            block::open(&url, OpenMode::ReadWrite).unwrap()
        };
        let journal = open(&journal_path(&ours));
        let report = mkfs::format_with_journal(&open(&ours), &journal, &options).unwrap();
        assert_eq!(report.journal_blocks, (8 << 20) / block_size, "{what}");
        assert_clean(&ours, &what);
        let [our_volume, their_volume] = [&ours, &theirs].map(|path| {
            let mut fields = header(path);
            // An image file has no number.
            fields.remove("Journal device");
            fields
        });
        assert_eq!(our_volume, their_volume, "{what}");
        let [our_log, their_log] = [&ours, &theirs].map(|path| {
            let mut fields = header(&journal_path(path));
            fields.remove("Journal users").expect("a user");
            fields
        });
        assert_eq!(our_log, their_log, "{what}");

        // Nobody takes it a second time, or with other blocks.
        let again = |options: &MkfsOptions| {
            let other = scratch.join("other");
            block::create_image(&other, 64 * MIB, Create::Overwrite).unwrap();
            let refused = mkfs::format_with_journal(&open(&other), &journal, options);
            refused.unwrap_err().to_string()
        };
        let said = again(&options);
        assert!(said.contains("the journal of a volume already"), "{said}");
        let larger = MkfsOptions {
            block_size: if block_size == 4096 { 1024 } else { 4096 },
            ..options.clone()
        };
        let said = again(&larger);
        assert!(said.contains("its blocks have"), "{said}");
    }
    let error = |size, list: &str| make(&ours, size, &features(list)).unwrap_err().to_string();
    assert!(error(2 * MIB, "journal_dev").contains("1024 blocks"));
    assert!(error(8 * MIB, "journal_dev,64bit").contains("no other feature"));
}

#[test]
fn a_sparse_tebibyte_takes_less_than_a_second() {
    let scratch = Scratch::new();
    let path = scratch.join("image");
    let start = std::time::Instant::now();
    make(&path, 1 << 40, &MkfsOptions::default()).unwrap();
    // Usually 40 ms; the machine may be busy.
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    use std::os::unix::fs::MetadataExt;
    let kept = std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(kept < 64 << 20, "{kept} bytes");
}

/// The kernel mounts our volumes and fills them to the last block.
#[test]
fn the_kernel_can_fill_them() {
    if !have("mounts by the kernel", &[Need::Loop]) || !can_check() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("image");
    for list in [
        "",
        "^64bit",
        "^flex_bg",
        "^metadata_csum,uninit_bg",
        "^metadata_csum",
        "inline_data",
        "bigalloc",
    ] {
        make(&path, 200 * MIB, &features(list)).unwrap();
        let mount = match KernelMount::try_with(&path, "rw") {
            Ok(mount) => mount,
            Err(error) => return skipped("mounts by the kernel", &error),
        };
        for dir in 0..20 {
            let dir = mount.join(dir.to_string());
            std::fs::create_dir(&dir).unwrap();
            for file in 0..50 {
                std::fs::write(dir.join(file.to_string()), vec![file; 5000]).unwrap();
            }
        }
        let written = std::fs::write(mount.join("rest"), vec![1; 200 << 20]);
        mount.unmount();
        assert!(written.is_err(), "{list}: the volume has no end");
        assert_clean(&path, list);
    }
}
