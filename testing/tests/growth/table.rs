//! The table of combinations of features and sizes.

use crate::{assert_grown, grow};
use ext4::Fs;
use std::path::Path;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, skipped};
use testkit::oracle::{Mke2fs, assert_clean, text};
use testkit::scratch::Scratch;
use testkit::volume::{self, get, put};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

struct Row {
    name: &'static str,
    /// The type of mke2fs; `sluice` stands for our mkfs, whose arguments are features.
    kind: &'static str,
    args: &'static [&'static str],
    /// The size by mke2fs, and the sizes to which the volume grows.
    sizes: &'static [u64],
}

const fn row(
    name: &'static str,
    kind: &'static str,
    args: &'static [&'static str],
    sizes: &'static [u64],
) -> Row {
    Row {
        name,
        kind,
        args,
        sizes,
    }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("defaults", "ext4", &["-b", "4096"], &[64 * MIB, 65 * MIB, 100 * MIB, 3 * GIB]),
    row("to 100 GiB", "ext4", &["-b", "4096"], &[16 * MIB, 100 * GIB]),
    row("to 100 GiB, 1 KiB", "ext4", &["-b", "1024"], &[16 * MIB, 100 * GIB]),
    row("1 KiB, in steps", "ext4", &["-b", "1024"], &[16 * MIB, 17 * MIB, 40 * MIB, 41 * MIB, 900 * MIB]),
    row("2 KiB", "ext4", &["-b", "2048"], &[20 * MIB, 333 * MIB, 5 * GIB]),
    row("no reserve", "ext4", &["-b", "4096", "-O", "^resize_inode"], &[64 * MIB, 30 * GIB]),
    row("no reserve, 1 KiB", "ext4", &["-b", "1024", "-O", "^resize_inode"], &[16 * MIB, 600 * MIB, 3 * GIB]),
    row("small reserve", "ext4", &["-b", "1024", "-E", "resize=200000"], &[16 * MIB, 100 * MIB, GIB, 4 * GIB]),
    row("small journal", "ext4", &[], &[32_760 * KIB, 600 * MIB, 3 * GIB]),
    row("small journal, 1 KiB", "ext4", &["-b", "1024", "-J", "size=1"], &[20 * MIB, 21 * MIB, 40 * MIB, 300 * MIB, 4 * GIB]),
    row("small journal, small groups", "ext4", &["-b", "1024", "-g", "1024", "-J", "size=1"], &[20 * MIB, 50 * MIB, 400 * MIB]),
    row("small journal, no flex_bg", "ext4", &["-b", "1024", "-O", "^flex_bg", "-J", "size=1"], &[50 * MIB, 300 * MIB]),
    row("small journal, no checksums", "ext4", &["-b", "1024", "-O", "^metadata_csum,uninit_bg", "-J", "size=1"], &[50 * MIB, 300 * MIB]),
    row("small journal, fast commits", "ext4", &["-b", "1024", "-O", "fast_commit", "-J", "size=1"], &[50 * MIB, 300 * MIB]),
    row("small journal, bigalloc", "ext4", &["-b", "1024", "-O", "bigalloc", "-C", "8192", "-g", "1024", "-J", "size=1"], &[40 * MIB, 300 * MIB, 2 * GIB]),
    row("small journal, large clusters", "ext4", &["-b", "1024", "-O", "bigalloc", "-C", "65536", "-g", "512", "-J", "size=1"], &[100 * MIB, 300 * MIB, 2 * GIB]),
    row("meta_bg", "ext4", &["-b", "1024", "-O", "meta_bg,^resize_inode"], &[16 * MIB, 300 * MIB, 2 * GIB]),
    row("meta_bg, 4 KiB", "ext4", &["-b", "4096", "-O", "meta_bg,^resize_inode"], &[64 * MIB, 40 * GIB]),
    row("sparse_super2", "ext4", &["-b", "1024", "-O", "sparse_super2"], &[32 * MIB, 700 * MIB]),
    row("64bit off", "ext4", &["-b", "4096", "-O", "^64bit"], &[64 * MIB, 20 * GIB]),
    row("64bit off, 1 KiB", "ext4", &["-b", "1024", "-O", "^64bit"], &[16 * MIB, 300 * MIB, 2 * GIB]),
    row("uninit_bg", "ext4", &["-b", "1024", "-O", "^metadata_csum,uninit_bg"], &[16 * MIB, 500 * MIB]),
    row("no checksums", "ext4", &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"], &[16 * MIB, 500 * MIB]),
    row("no flex_bg", "ext4", &["-b", "1024", "-O", "^flex_bg"], &[16 * MIB, 500 * MIB]),
    row("large flex groups", "ext4", &["-b", "1024", "-G", "256"], &[16 * MIB, 900 * MIB]),
    row("no sparse_super", "ext4", &["-b", "4096", "-O", "^sparse_super,^resize_inode"], &[200 * MIB, 2 * GIB]),
    row("small groups", "ext4", &["-b", "4096", "-g", "1024"], &[16 * MIB, 300 * MIB]),
    row("no journal", "ext4", &["-b", "4096", "-O", "^has_journal"], &[64 * MIB, 2 * GIB]),
    row("ext3", "ext3", &["-b", "1024"], &[16 * MIB, 300 * MIB]),
    row("ext3, 4 KiB", "ext3", &["-b", "4096"], &[64 * MIB, GIB]),
    row("ext2", "ext2", &["-b", "1024"], &[16 * MIB, 300 * MIB]),
    row("bigalloc", "ext4", &["-b", "4096", "-O", "bigalloc"], &[64 * MIB, 65 * MIB, 3 * GIB, 100 * GIB]),
    row("bigalloc, clusters of 2", "ext4", &["-b", "1024", "-O", "bigalloc", "-C", "2048"], &[16 * MIB, 19 * MIB, 40 * MIB + 5 * KIB, 900 * MIB]),
    row("bigalloc, clusters of 2, 4 KiB", "ext4", &["-b", "4096", "-O", "bigalloc", "-C", "8192"], &[64 * MIB, 777 * MIB + 4 * KIB, 5 * GIB]),
    row("bigalloc, clusters of 64", "ext4", &["-b", "1024", "-O", "bigalloc", "-C", "65536"], &[40 * MIB, 41 * MIB + 60 * KIB, 700 * MIB + 92 * KIB, 3 * GIB]),
    row("bigalloc, clusters of 64, 4 KiB", "ext4", &["-b", "4096", "-O", "bigalloc", "-C", "262144"], &[64 * MIB, 99 * MIB + 200 * KIB, 9 * GIB, 100 * GIB]),
    row("bigalloc, small groups", "ext4", &["-b", "4096", "-O", "bigalloc", "-C", "65536", "-g", "512"], &[64 * MIB, 200 * MIB, 3 * GIB]),
    row("bigalloc, small reserve", "ext4", &["-b", "1024", "-O", "bigalloc", "-C", "2048", "-g", "2048", "-E", "resize=65536"], &[16 * MIB, 50 * MIB, 300 * MIB]),
    row("bigalloc, no reserve", "ext4", &["-b", "1024", "-O", "bigalloc,^resize_inode", "-C", "2048", "-g", "1024"], &[20 * MIB, 60 * MIB, 300 * MIB]),
    row("bigalloc, no reserve, 4 KiB", "ext4", &["-b", "4096", "-O", "bigalloc,^resize_inode", "-C", "65536", "-g", "256"], &[64 * MIB, 2 * GIB, 5 * GIB]),
    row("bigalloc, meta_bg", "ext4", &["-b", "1024", "-O", "bigalloc,meta_bg,^resize_inode", "-C", "4096", "-g", "1024"], &[32 * MIB, 100 * MIB, 900 * MIB]),
    row("bigalloc, meta_bg, 4 KiB", "ext4", &["-b", "4096", "-O", "bigalloc,meta_bg,^resize_inode", "-C", "16384", "-g", "1024"], &[32 * MIB, 100 * MIB, 3 * GIB]),
    row("bigalloc, no flex_bg", "ext4", &["-b", "1024", "-O", "bigalloc,^flex_bg", "-C", "4096", "-g", "1024"], &[32 * MIB, 333 * MIB]),
    row("bigalloc, uninit_bg", "ext4", &["-b", "1024", "-O", "bigalloc,^metadata_csum,uninit_bg", "-C", "16384", "-g", "1024"], &[32 * MIB, 500 * MIB]),
    row("bigalloc, no checksums", "ext4", &["-b", "1024", "-O", "bigalloc,^metadata_csum,^uninit_bg", "-C", "2048"], &[16 * MIB, 500 * MIB]),
    row("bigalloc, no journal, no 64bit", "ext4", &["-b", "4096", "-O", "bigalloc,^has_journal,^64bit", "-C", "16384", "-g", "4096"], &[64 * MIB, 3 * GIB]),
    row("our bigalloc", "sluice", &["bigalloc"], &[64 * MIB, 99 * MIB + 72 * KIB, 3 * GIB]),
    row("ext2, no reserve", "ext2", &["-b", "1024", "-O", "^resize_inode"], &[16 * MIB, 400 * MIB]),
];

fn run(row: &Row) {
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let how = Mke2fs::of_type(row.sizes[0], row.kind).args(row.args);
    if row.kind == "sluice" {
        volume::mkfs(&image, row.sizes[0], row.args);
    } else if let Err(said) = how.make(&image) {
        return skipped(row.name, &said);
    }
    let fs = volume::mount(&image).unwrap();
    put(&fs, "before", &[7; 5000]).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    for &size in &row.sizes[1..] {
        let name = format!("{} to {} MiB", row.name, size >> 20);
        // Half of the volumes grow to the size of their device.
        let device_first = size % (3 * MIB) == 0;
        if device_first {
            let file = std::fs::File::options().write(true).open(&image).unwrap();
            file.set_len(size).unwrap();
        }
        let fs = volume::mount(&image).unwrap();
        let before = fs.statfs();
        grow(&fs, (!device_first).then_some(size)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let after = fs.statfs();
        assert!(
            after.blocks > before.blocks && after.free > before.free,
            "{name}"
        );
        fill_some(&fs, &name);
        fs.unmount().unwrap();
        drop(fs);
        assert_eq!(std::fs::metadata(&image).unwrap().len(), size, "{name}");
        assert_grown(&image, &name);
        // The next mount reads the counts that the resize has published.
        let fs = volume::mount(&image).unwrap();
        assert_eq!(fs.statfs().blocks, after.blocks, "{name}");
        assert_eq!(fs.statfs().inodes, after.inodes, "{name}");
        assert_eq!(get(&fs, "before").unwrap(), [7; 5000], "{name}");
        fs.unmount().unwrap();
        drop(fs);
    }
    assert_backups(&image, row);
    if have(row.name, &[Need::Loop]) {
        fill_by_kernel(&image, row.name);
        // We change what the kernel has changed.
        let fs = volume::mount(&image).unwrap();
        assert_eq!(get(&fs, "before").unwrap(), [7; 5000], "{}", row.name);
        put(&fs, "after the kernel", &[8; 300_000]).unwrap();
        volume::remove(&fs, "by-kernel-0/file").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert_clean(&image, row.name);
    }
}

/// The copies of the super block and of the descriptors describe the grown volume: e2fsck finds the
/// places of all bitmaps and tables by them.
fn assert_backups(image: &Path, row: &Row) {
    let fs = volume::mount(image).unwrap();
    let info = fs.info();
    fs.unmount().unwrap();
    drop(fs);
    let has_backup = info.groups > 1 && !row.args.iter().any(|arg| arg.contains("sparse_super2"));
    if !has_backup {
        return;
    }
    let (_, primary) = testkit::needs::run("dumpe2fs", &[text(image)]);
    let count = |said: &str, name: &str| -> Option<u64> {
        let line = said.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    let first = count(&primary, "First block:").unwrap();
    let per_group = count(&primary, "Blocks per group:").unwrap();
    let has_meta_bg = info.features.iter().any(|feature| feature == "meta_bg");
    if has_meta_bg && first == 0 && info.block_size == 1024 {
        // e2fsprogs looks for the copies of these volumes, also its own, one block too far.
        return;
    }
    let groups: Vec<u64> = [1, 3, 9, 27, 81, 243, 729]
        .into_iter()
        .filter(|group| *group < u64::from(info.groups))
        .collect();
    // Under meta_bg a copy of all descriptors is only with those of the first groups.
    let last = match has_meta_bg {
        true => groups[0],
        false => *groups.last().unwrap(),
    };
    for group in [groups[0], last] {
        let place = format!("superblock={}", first + group * per_group);
        let size = format!("blocksize={}", info.block_size);
        let args = ["-o", &place, "-o", &size, text(image)];
        // Its exit code is that of a volume that was opened by a copy.
        let (_, said) = testkit::needs::run("dumpe2fs", &args);
        assert_eq!(
            count(&said, "Block count:"),
            Some(info.blocks),
            "{}: {place}",
            row.name
        );
        assert_eq!(
            count(&said, "Inode count:"),
            Some(info.inodes.into()),
            "{}: {place}",
            row.name
        );
        // Each group's table, by the descriptors of this copy.
        let tables = |said: &str| -> Vec<String> {
            let lines = said.lines().filter(|line| line.contains("Inode table at"));
            lines.map(|line| line.trim().to_owned()).collect()
        };
        assert!(tables(&said) == tables(&primary), "{}: {place}", row.name);
    }
}

/// Writes more than the last size had free, if that is not much, and some files.
fn fill_some(fs: &Fs, name: &str) {
    for nth in 0..40 {
        let path = format!("dir-{nth}/file");
        volume::mkdir_all(fs, &format!("dir-{nth}")).unwrap();
        put(fs, &path, &vec![nth as u8; 70_000]).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// The kernel mounts the volume and uses its space.
fn fill_by_kernel(image: &Path, name: &str) {
    let kernel = match KernelMount::try_with(image, "noatime") {
        Ok(kernel) => kernel,
        Err(said) => panic!("{name}: the kernel refuses it: {said}"),
    };
    assert_eq!(std::fs::read(kernel.join("before")).unwrap(), [7; 5000]);
    let chunk = vec![0x5a; 1 << 20];
    for nth in 0..48 {
        let dir = kernel.join(format!("by-kernel-{nth}"));
        std::fs::create_dir(&dir).unwrap();
        if std::fs::write(dir.join("file"), &chunk).is_err() {
            break;
        }
    }
    kernel.unmount();
    assert_clean(image, name);
}

#[test]
fn volumes_of_many_features_grow() {
    if !have(
        "growth",
        &[
            Need::Tool("mke2fs"),
            Need::Tool("e2fsck"),
            Need::Tool("resize2fs"),
        ],
    ) {
        return;
    }
    let only = std::env::var("SLUICE_GROWTH").ok();
    for row in ROWS {
        if only.as_ref().is_none_or(|only| row.name.contains(only)) {
            println!("{}", row.name);
            run(row);
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let how = Mke2fs::new(64 * MIB).features("^64bit");
    if let Err(said) = how.make(&image) {
        return skipped("refusals", &said);
    }
    let fs = volume::mount(&image).unwrap();
    let said = |size| grow(&fs, Some(size)).unwrap_err().to_string();
    assert!(said(32 * MIB).contains("resize2fs"), "{}", said(32 * MIB));
    assert!(said(17 << 40).contains("64bit"), "{}", said(17 << 40));
    // Nothing to do is no error, and extends nothing.
    assert_eq!(grow(&fs, Some(64 * MIB)).unwrap(), 16384);
    assert_eq!(grow(&fs, None).unwrap(), 16384);
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 64 * MIB);
}
