//! Volumes by our mkfs and with our files: e2fsck finds nothing, the kernel reads and changes them,
//! and we read them again. Volumes that were not unmounted: the kernel and e2fsck recover ours, and
//! we recover the kernel's.

use ext4::{FallocateMode, Fs, NewInode, SetXattrMode, SyncKind};
use mkfs::MkfsOptions;
use std::fs;
use std::os::unix::fs::FileExt;
use testing::snapshot::{Compare, Snapshot};
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, run_ok};
use testkit::oracle::{self, Mke2fs, assert_clean, recover_by_e2fsck};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, mkfs_with, mount, new, put};

const NEEDS: &[Need] = &[Need::Loop, Need::Tool("e2fsck")];

fn fill(fs: &Fs, rng: &mut Rng, files: usize) -> ext4::Result<()> {
    for dir in 0..4 {
        volume::mkdir_all(fs, &format!("tree/d{dir}/a/b/c/d/e/f/g"))?;
        for i in 0..files / 4 {
            let len = rng.index(9000);
            put(fs, &format!("tree/d{dir}/f{i}"), &rng.bytes(len))?;
        }
    }
    let many = volume::mkdir_all(fs, "many")?;
    for i in 0..files * 5 {
        fs.create(
            &many,
            format!("{i}-{}", "y".repeat(i % 50)).as_bytes(),
            new(0o100_600),
        )?;
    }
    let keep_size = false;
    let holes = put(fs, "holes", &rng.bytes(10_000))?;
    for i in 0..600 {
        volume::write_all(fs, &holes, i * 12_288, &rng.bytes(4096))?;
    }
    fs.fallocate(&holes, FallocateMode::PunchHole, 100_000, 500_000)?;
    fs.truncate(&holes, 3 << 30)?;
    let allocated = put(fs, "allocated", b"")?;
    fs.fallocate(
        &allocated,
        FallocateMode::Allocate { keep_size },
        0,
        3 << 20,
    )?;
    volume::write_all(fs, &allocated, 1_000_000, &rng.bytes(5000))?;
    put(fs, "big", &rng.bytes(12 << 20))?;
    let names = volume::mkdir_all(fs, "names")?;
    let one = put(fs, "names/one", b"linked")?;
    for i in 0..20 {
        fs.link(&one, &names, format!("l{i}").as_bytes())?;
    }
    fs.symlink(&names, b"fast", b"a", new(0o120_777))?;
    let block_size = fs.statfs().block_size as usize;
    let target = vec![b's'; block_size - 96];
    fs.symlink(&names, b"slow", &target, new(0o120_777))?;
    for (name, mode, rdev) in [
        ("fifo", 0o010_644, 0),
        ("socket", 0o140_755, 0),
        ("char", 0o020_600, 0x0501),
        ("block", 0o060_600, 0x1234_5678),
    ] {
        let device = NewInode { rdev, ..new(mode) };
        fs.create(&names, name.as_bytes(), device)?;
    }
    let lengths = [0, 10, 90, 500, block_size / 8 * 7];
    for (i, len) in lengths.into_iter().enumerate() {
        let file = put(fs, &format!("names/x{i}"), b"x")?;
        fs.set_xattr(&file, b"user.value", &rng.bytes(len), SetXattrMode::Create)?;
        fs.set_xattr(&file, b"security.x", b"s", SetXattrMode::Any)?;
    }
    let mut acl = 2u32.to_le_bytes().to_vec();
    // An ACL in Linux's format of attributes: user, a named user, group, mask, other.
    for (tag, perm, id) in [
        (1u16, 7u16, u32::MAX),
        (2, 6, 1000),
        (4, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let dir = volume::mkdir_all(fs, "names/acl")?;
    fs.set_xattr(&dir, b"system.posix_acl_default", &acl, SetXattrMode::Any)?;
    fs.set_xattr(&dir, b"system.posix_acl_access", &acl, SetXattrMode::Any)?;
    put(fs, "names/acl/inherits", b"x")?;
    volume::mkdir_all(fs, "names/acl/inherits-too")?;
    Ok(())
}

/// Makes a volume whose options are the defaults but for these.
fn ours_then_kernels(what: &str, size: u64, features: &[&str], files: usize) {
    let options = MkfsOptions {
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        ..MkfsOptions::default()
    };
    ours_by(&options, what, size, files);
}

fn ours_by(options: &MkfsOptions, what: &str, size: u64, files: usize) {
    let test = format!("interop_us_to_kernel, {what}");
    if !have(&test, NEEDS) {
        return;
    }
    let mut rng = Rng::new(&test);
    let scratch = Scratch::new();
    let image = scratch.join("image");
    mkfs_with(&image, size, options);
    assert_clean(&image, "after our mkfs");
    let fs = mount(&image).unwrap();
    fill(&fs, &mut rng, files).unwrap();
    fs.sync().unwrap();
    let ours = Snapshot::of_volume(&fs).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_clean(&image, "after we filled it");

    let kernel = KernelMount::new(&image);
    let theirs = Snapshot::of_kernel(kernel.path());
    ours.assert_same(&theirs, Compare::Everything, "we / the kernel");
    kernels_turn(&kernel, &mut rng, files);
    let theirs = Snapshot::of_kernel(kernel.path());
    kernel.unmount();
    assert_clean(&image, "after the kernel's changes");

    let fs = mount(&image).unwrap();
    let ours = Snapshot::of_volume(&fs).unwrap();
    // With delayed allocation the kernel's numbers of blocks differ from those on disk.
    theirs.assert_same(&ours, Compare::Semantics, "the kernel / we");
    fs.unmount().unwrap();
}

fn kernels_turn(kernel: &KernelMount, rng: &mut Rng, files: usize) {
    let read_write = |name: &str| {
        fs::OpenOptions::new()
            .write(true)
            .open(kernel.join(name))
            .unwrap()
    };
    read_write("holes")
        .write_all_at(&rng.bytes(100_000), 300_000)
        .unwrap();
    read_write("allocated").set_len(1_002_000).unwrap();
    read_write("big")
        .write_all_at(&rng.bytes(50_000), 7_777_777)
        .unwrap();
    for i in 0..files {
        fs::write(kernel.join(format!("many/kernel-{i}")), rng.bytes(i)).unwrap();
        let name = format!("many/{}-{}", i * 2, "y".repeat((i * 2) % 50));
        fs::remove_file(kernel.join(name)).unwrap();
    }
    for i in 0..files / 8 {
        let to = kernel.join(format!("names/acl/moved{i}"));
        fs::rename(kernel.join(format!("tree/d1/f{i}")), to).unwrap();
    }
    fs::remove_dir_all(kernel.join("tree/d2")).unwrap();
    xattr::set(kernel.join("names/x1"), "user.kernel", &rng.bytes(600)).unwrap();
    xattr::remove(kernel.join("names/x4"), "user.value").unwrap();
    fs::remove_file(kernel.join("names/slow")).unwrap();
}

#[test]
fn small_volume() {
    ours_then_kernels("64 MiB", 64 << 20, &[], 200);
}

#[test]
fn ordinary_volume() {
    ours_then_kernels("1 GiB", 1 << 30, &[], 1500);
}

#[test]
fn large_sparse_volume() {
    ours_then_kernels("3 TiB", 3 << 40, &[], 400);
}

#[test]
fn blocks_of_1_and_2_kib() {
    for (block_size, features, size) in [
        (1024, "", 96 << 20),
        (
            1024,
            "^metadata_csum,^64bit,^flex_bg,^orphan_file",
            300 << 20,
        ),
        (2048, "", 5 << 30),
        (
            2048,
            "^resize_inode,large_dir,metadata_csum_seed",
            300 << 20,
        ),
    ] {
        let options = MkfsOptions {
            block_size,
            features: vec![features.to_owned()],
            ..MkfsOptions::default()
        };
        let what = format!("blocks of {block_size} bytes, {features}");
        ours_by(&options, &what, size, 400);
    }
}

#[test]
fn without_checksums_and_wide_descriptors() {
    ours_then_kernels(
        "plain",
        256 << 20,
        &["^metadata_csum,^64bit,^flex_bg,^orphan_file"],
        400,
    );
}

#[test]
fn without_resize_inode_with_large_directories() {
    ours_then_kernels(
        "other",
        256 << 20,
        &["^resize_inode,large_dir,metadata_csum_seed,orphan_file"],
        400,
    );
}

/// Asserts that the fsynced files are there.
fn assert_synced_there(root: &std::path::Path, files: &[(String, Vec<u8>)]) {
    for (name, data) in files {
        let found = fs::read(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(&found == data, "{name}: other bytes than had been fsynced");
    }
}

#[test]
fn the_kernels_unclean_volume_is_recovered_by_us() {
    let test = "the kernel's unclean volume";
    if !have(test, NEEDS) {
        return;
    }
    let mut rng = Rng::new(test);
    for (block_size, features) in [
        ("4096", "none"),
        ("4096", "orphan_file"),
        ("4096", "^metadata_csum"),
        ("4096", "^64bit"),
        ("1024", "none"),
        ("1024", "^metadata_csum,^64bit"),
        ("2048", "orphan_file"),
    ] {
        let scratch = Scratch::new();
        let (image, copy) = (scratch.join("image"), scratch.join("copy"));
        let build = Mke2fs::by_default(96 << 20).args(&["-b", block_size]);
        let build = if features == "none" {
            build
        } else {
            build.features(features)
        };
        if let Err(said) = build.make(&image) {
            testkit::needs::skipped(test, &said);
            continue;
        }
        // The kernel must not commit while the image is copied.
        let kernel = KernelMount::with(&image, "commit=300");
        let mut synced = Vec::new();
        let dir = kernel.join("dir");
        fs::create_dir(&dir).unwrap();
        for i in 0..300usize {
            let (name, len) = (format!("dir/f{i}"), rng.index(20_000));
            let data = rng.bytes(len);
            fs::write(kernel.join(&name), &data).unwrap();
            synced.push((name, data));
        }
        for i in (0..300).step_by(7) {
            fs::remove_file(kernel.join(format!("dir/f{i}"))).unwrap();
        }
        synced.retain(|(name, _)| name[5..].parse::<u32>().unwrap() % 7 != 0);
        // An open file without a name: an orphan.
        let orphan = fs::File::create(kernel.join("orphan")).unwrap();
        orphan.write_all_at(&rng.bytes(500_000), 0).unwrap();
        fs::remove_file(kernel.join("orphan")).unwrap();
        run_ok("sync", &["-f", kernel.path().to_str().unwrap()]);
        for i in 0..50 {
            fs::write(kernel.join(format!("unsynced{i}")), b"may be lost").unwrap();
        }
        oracle::copy(&image, &copy);
        drop(orphan);
        kernel.unmount();

        let fs = mount(&copy).unwrap();
        let info = fs.info();
        assert!(
            info.recovery.replayed > 0,
            "{features}: there was a log: {info:?}"
        );
        assert_eq!(info.orphans.deleted, 1, "{features}: there was an orphan");
        for (name, data) in &synced {
            let found = volume::get(&fs, name).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(
                &found == data,
                "{features}, {name}: other bytes than were synced"
            );
        }
        fs.unmount().unwrap();
        drop(fs);
        assert_clean(
            &copy,
            &format!("{features}: after we recovered the kernel's volume"),
        );
    }
}

#[test]
fn our_unclean_volume_is_recovered_by_the_kernel_and_by_e2fsck() {
    let test = "our unclean volume";
    if !have(test, NEEDS) {
        return;
    }
    let mut rng = Rng::new(test);
    for (block_size, features) in [
        (4096, ""),
        (4096, "orphan_file"),
        (4096, "^orphan_file"),
        (4096, "^metadata_csum"),
        (4096, "^64bit"),
        (1024, ""),
        (1024, "^metadata_csum,^64bit,^orphan_file"),
        (2048, ""),
    ] {
        let scratch = Scratch::new();
        let (image, copy) = (scratch.join("image"), scratch.join("copy"));
        let options = MkfsOptions {
            block_size,
            features: vec![features.to_owned()],
            ..MkfsOptions::default()
        };
        mkfs_with(&image, 96 << 20, &options);
        let fs = mount(&image).unwrap();
        volume::mkdir_all(&fs, "dir").unwrap();
        let mut synced = Vec::new();
        for i in 0..300usize {
            let (name, len) = (format!("dir/f{i}"), rng.index(20_000));
            let data = rng.bytes(len);
            let file = put(&fs, &name, &data).unwrap();
            if i % 3 == 0 {
                let kind = match i % 2 {
                    0 => SyncKind::Fdatasync,
                    _ => SyncKind::Fsync,
                };
                fs.fsync(&file, kind).unwrap();
                synced.push((name, data));
            }
        }
        let orphan = put(&fs, "orphan", &rng.bytes(500_000)).unwrap();
        volume::remove(&fs, "orphan").unwrap();
        let last = put(&fs, "last", b"last").unwrap();
        fs.fsync(&last, SyncKind::Fsync).unwrap();
        synced.push(("last".into(), b"last".to_vec()));
        for i in 0..50 {
            put(&fs, &format!("unsynced{i}"), b"may be lost").unwrap();
        }
        fs.crash();
        drop((orphan, last));
        drop(fs);
        oracle::copy(&image, &copy);

        if let Err(said) = recover_by_e2fsck(&copy) {
            panic!("{features:?}: e2fsck had more to do than replay:\n{said}");
        }
        let kernel = KernelMount::read_only(&copy);
        assert_synced_there(kernel.path(), &synced);
        kernel.unmount();

        let kernel = KernelMount::new(&image);
        assert_synced_there(kernel.path(), &synced);
        kernel.unmount();
        assert_clean(
            &image,
            &format!("{features:?}: after the kernel recovered our volume"),
        );
    }
}
