//! Fast commits by the kernel: images of a mounted volume, recovered by us and by the kernel.
//!
//! A fast commit has all changes of files up to the fsync. So the recovered volume has the tree
//! that the kernel showed when the fsync returned. That holds for both recoveries.

mod hostile;

use ext4::{Fs, MountOptions};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testing::snapshot::{Compare, Snapshot};
use testkit::disk::Disk;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, run_ok, skipped};
use testkit::oracle::{self, Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume;

const NEEDS: &[Need] = &[Need::Loop, Need::Tool("mke2fs"), Need::Tool("e2fsck")];

/// An image of the mounted volume, and the tree at that moment.
struct Moment {
    image: PathBuf,
    tree: Snapshot,
}

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Writes a file and fsyncs it, and with it all changes before.
fn store(path: PathBuf, bytes: &[u8]) {
    fs::write(&path, bytes).unwrap();
    sync(&path);
}

/// Allocates or punches. A file with a block map has no unwritten blocks.
fn allocate(file: &File, flags: rustix::fs::FallocateFlags, at: u64, len: u64) {
    match rustix::fs::fallocate(file, flags, at, len) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(e) => panic!("{e}"),
    }
}

/// Makes the tree of the full commit.
fn prepare(root: &Path, rng: &mut Rng) {
    for dir in ["old", "old/empty", "old/moved", "many"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    for i in 0..24 {
        let len = 1 + rng.index(40_000);
        fs::write(root.join(format!("old/f{i}")), rng.bytes(len)).unwrap();
    }
    fs::write(root.join("old/xattr"), b"x").unwrap();
    xattr::set(root.join("old/xattr"), "user.value", b"kept").unwrap();
    for i in 0..60 {
        let name = format!("many/{i:03}-{}", "n".repeat(40));
        fs::write(root.join(name), b"").unwrap();
    }
}

/// A step of the workload. It ends with an fsync.
fn step(root: &Path, rng: &mut Rng, nth: usize) {
    let old = |i: usize| root.join(format!("old/f{i}"));
    let file = |name: &str| root.join(format!("{name}-{nth}"));
    let open = |path: &Path| OpenOptions::new().write(true).open(path).unwrap();
    match nth {
        // New files, and one that is written twice.
        0 => {
            for i in 0..12 {
                let len = rng.index(30_000);
                store(file(&format!("new{i}")), &rng.bytes(len));
            }
            store(file("new3"), &rng.bytes(50_000));
        }
        // Changes in place, at the end, and in a hole.
        1 => {
            let change = |i, at, len| {
                let file = open(&old(i));
                file.write_all_at(&vec![7; len], at).unwrap();
                file.sync_all().unwrap();
            };
            change(0, 0, 100);
            change(1, 40_000, 60_000);
            change(2, 10 << 20, 5000);
        }
        // Shorter, longer, punched.
        2 => {
            let file = open(&old(3));
            file.set_len(5000).unwrap();
            file.sync_all().unwrap();
            let file = open(&old(4));
            file.set_len(0).unwrap();
            file.write_all_at(&rng.bytes(9000), 4096).unwrap();
            file.set_len(1 << 20).unwrap();
            file.sync_all().unwrap();
            let file = open(&old(1));
            use rustix::fs::FallocateFlags as F;
            allocate(&file, F::PUNCH_HOLE | F::KEEP_SIZE, 8192, 24_576);
            file.sync_all().unwrap();
        }
        // Unwritten blocks.
        3 => {
            let path = file("allocated");
            let file = File::create(&path).unwrap();
            allocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20);
            file.write_all_at(&rng.bytes(10_000), 200_000).unwrap();
            file.sync_all().unwrap();
            file.write_all_at(&rng.bytes(300_000), 100_000).unwrap();
            file.sync_all().unwrap();
        }
        // Names: renamed, put over another, linked, removed.
        4 => {
            fs::rename(old(5), file("renamed")).unwrap();
            fs::rename(old(6), old(7)).unwrap();
            fs::hard_link(old(8), file("link")).unwrap();
            fs::hard_link(old(8), root.join("old/moved/link")).unwrap();
            fs::remove_file(old(9)).unwrap();
            fs::remove_file(old(8)).unwrap();
            sync(&old(7));
        }
        // Attributes.
        5 => {
            fs::set_permissions(old(10), fs::Permissions::from_mode(0o640)).unwrap();
            std::os::unix::fs::chown(old(11), Some(70_000), Some(80_000)).unwrap();
            File::open(old(12))
                .unwrap()
                .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1 << 33, 5))
                .unwrap();
            fs::write(root.join("old/xattr"), b"changed").unwrap();
            for i in 10..13 {
                sync(&old(i));
            }
            sync(&root.join("old/xattr"));
        }
        // Removed and created again, with the same names.
        6 => {
            for i in 13..18 {
                fs::remove_file(old(i)).unwrap();
                store(old(i), &rng.bytes(3000 * i));
            }
        }
        // Directories fill up, so that blocks are added and split.
        7 => {
            for i in 0..400 {
                let name = format!("many/later-{i:03}-{}", "n".repeat(60));
                fs::write(root.join(name), b"").unwrap();
            }
            store(file("after"), b"");
        }
        // An extent tree with nodes.
        8 => {
            let file = File::create(file("fragmented")).unwrap();
            for i in 0..600 {
                file.write_all_at(&[(i % 251) as u8 + 1; 4096], i * 8192)
                    .unwrap();
            }
            file.sync_all().unwrap();
            let file = open(&old(18));
            for i in 0..600 {
                file.write_all_at(&[(i % 251) as u8 + 1; 1024], i * 9000)
                    .unwrap();
            }
            file.sync_all().unwrap();
        }
        // Directories, and inodes without blocks.
        9 => {
            fs::create_dir(file("dir")).unwrap();
            fs::create_dir(file("dir").join("below")).unwrap();
            store(file("dir").join("below/file"), &rng.bytes(5000));
            fs::create_dir(file("gone")).unwrap();
            fs::remove_dir(file("gone")).unwrap();
            fs::remove_dir(root.join("old/empty")).unwrap();
            symlink("a target", file("symlink")).unwrap();
            run_ok("mkfifo", &[oracle::text(&file("fifo"))]);
            let device = file("device");
            run_ok("mknod", &[oracle::text(&device), "c", "260", "5000"]);
            store(file("dir").join("file"), b"small");
        }
        // Short-lived files.
        _ => {
            for i in 0..20 {
                store(file(&format!("short{i}")), &rng.bytes(8000));
                if i % 3 == 0 {
                    fs::remove_file(file(&format!("short{i}"))).unwrap();
                }
            }
            sync(&file("short1"));
        }
    }
}

const STEPS: usize = 11;

/// Makes images after each step of the workload, of a volume with these arguments of mke2fs.
fn moments(scratch: &Scratch, args: &[&str], rng: &mut Rng) -> Result<Vec<Moment>, String> {
    let image = scratch.join("image");
    let how = Mke2fs::by_default(64 << 20).features("fast_commit");
    how.args(args).make(&image)?;
    let kernel = KernelMount::with(&image, "noatime,commit=300");
    prepare(kernel.path(), rng);
    run_ok("sync", &["-f", oracle::text(kernel.path())]);
    let mut moments = Vec::new();
    for nth in 0..STEPS {
        step(kernel.path(), rng, nth);
        let copy = scratch.join(&format!("moment{nth}"));
        oracle::copy(&image, &copy);
        moments.push(Moment {
            image: copy,
            tree: Snapshot::of_kernel(kernel.path()),
        });
    }
    kernel.unmount();
    Ok(moments)
}

fn read_only(image: &Path) -> Arc<Fs> {
    let options = MountOptions {
        read_only: true,
        ..volume::options()
    };
    volume::mount_with(image, options).unwrap()
}

/// A directory's times are those of the replay.
fn assert_same(tree: &Snapshot, seen: &Snapshot, what: &str) {
    tree.assert_same(seen, Compare::Semantics, what);
}

fn recovered_by_us_and_the_kernel(what: &str, args: &[&str]) {
    let test = format!("fast_commits, {what}");
    if !have(&test, NEEDS) {
        return;
    }
    let mut rng = Rng::new(&test);
    let scratch = Scratch::new();
    let moments = match moments(&scratch, args, &mut rng) {
        Ok(moments) => moments,
        Err(said) => return skipped(&test, &said),
    };
    let mut replayed = 0;
    for (nth, moment) in moments.iter().enumerate() {
        let Moment { image, tree } = moment;
        let what = format!("{what}, step {nth}");
        let before = fs::read(image).unwrap();
        let ours = read_only(image);
        let changes = ours.info().recovery.fast_changes;
        replayed += u64::from(changes > 0);
        let seen = Snapshot::of_volume(&ours).unwrap();
        assert_same(
            tree,
            &seen,
            &format!("{what}: the kernel's tree / read-only"),
        );
        ours.unmount().unwrap();
        drop(ours);
        assert!(fs::read(image).unwrap() == before, "{what}: it was changed");

        let ours = volume::mount(image).unwrap();
        assert_eq!(ours.info().recovery.fast_changes, changes);
        let seen = Snapshot::of_volume(&ours).unwrap();
        assert_same(
            tree,
            &seen,
            &format!("{what}: the kernel's tree / recovered"),
        );
        volume::put(&ours, "ours", b"written without fast commits").unwrap();
        ours.sync().unwrap();
        volume::remove(&ours, "ours").unwrap();
        ours.unmount().unwrap();
        drop(ours);
        assert_clean(image, &what);
        let kernel = KernelMount::read_only(image);
        let theirs = Snapshot::of_kernel(kernel.path());
        assert_same(
            tree,
            &theirs,
            &format!("{what}: the kernel's tree / after us"),
        );
        kernel.unmount();
    }
    assert!(
        replayed > STEPS as u64 / 2,
        "{what}: {replayed} had fast commits"
    );
}

#[test]
fn default_volume() {
    recovered_by_us_and_the_kernel("1 KiB blocks", &[]);
}

#[test]
fn large_blocks() {
    recovered_by_us_and_the_kernel("4 KiB blocks", &["-b", "4096"]);
}

#[test]
fn contents_in_inodes() {
    recovered_by_us_and_the_kernel("inline_data", &["-b", "4096", "-O", "inline_data"]);
}

#[test]
fn block_maps() {
    let args = &["-b", "1024", "-O", "^extent,^64bit,^metadata_csum"];
    recovered_by_us_and_the_kernel("block maps", args);
}

/// A recovery that is interrupted at any moment starts again, or has all of the changes.
#[test]
fn a_crash_during_the_replay_loses_nothing() {
    let test = "fast_commits, crashes";
    if !have(test, NEEDS) {
        return;
    }
    let mut rng = Rng::new(test);
    let scratch = Scratch::new();
    let moments = match moments(&scratch, &["-b", "4096"], &mut rng) {
        Ok(moments) => moments,
        Err(said) => return skipped(test, &said),
    };
    let image = scratch.join("crashed");
    let mut again = 0;
    for (nth, Moment { image: first, tree }) in moments.iter().enumerate() {
        let disk = Disk::load(first);
        disk.start_recording();
        let ours = Fs::mount(disk.queue(), volume::options()).unwrap();
        let changes = ours.info().recovery.fast_changes;
        let recording = disk.take_recording();
        ours.crash();
        let turns: Vec<usize> = (0..=recording.log.len())
            .filter(|at| recording.log.is_turning_point(*at))
            .collect();
        for round in 0..8 {
            let at = match round % 2 {
                0 => *rng.pick(&turns),
                _ => rng.index(recording.log.len() + 1),
            };
            testkit::disk::save(&recording.image(at, &mut rng), &image);
            let what = format!("step {nth}, crash at {at} of {}", recording.log.len());
            let ours = volume::mount(&image).unwrap_or_else(|e| panic!("{what}: {e}"));
            let left = ours.info().recovery.fast_changes;
            assert!(left == 0 || left == changes, "{what}: {left} of {changes}");
            again += u64::from(left > 0);
            let seen = Snapshot::of_volume(&ours).unwrap();
            assert_same(tree, &seen, &what);
            ours.unmount().unwrap();
            drop(ours);
            assert_clean(&image, &what);
        }
    }
    assert!(again > 0, "no crash came before the end of the replay");
}
