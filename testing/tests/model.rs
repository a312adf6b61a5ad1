//! Random operations against a model: one thread with remounts and crashes, then several threads.
//! At the end e2fsck and the kernel check the volume.

use ext4::Fs;
use mkfs::MkfsOptions;
use std::sync::Arc;
use std::time::Duration;
use testing::random_ops::Pair;
use testing::snapshot;
use testing::snapshot::{Compare, Snapshot};
use testkit::disk::Disk;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have};
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::rounds;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, options};
use testkit::watchdog::Watchdog;

fn format(size: usize, block_size: u32) -> Disk {
    let disk = Disk::new(size);
    let options = MkfsOptions {
        block_size,
        ..MkfsOptions::default()
    };
    mkfs::format(&disk.queue(), &options).expect("mkfs");
    disk
}

fn mount(disk: &Disk) -> Arc<Fs> {
    Fs::mount(disk.queue(), options()).expect("mount")
}

/// Asserts that e2fsck finds nothing and that the kernel reads the same tree.
fn check_volume(disk: &Disk, ours: &snapshot::Snapshot, pairs: &[Pair]) {
    if !have("model", &[Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("model.img");
    disk.save(&image);
    assert_clean(&image, "after random operations");
    if !have("model, by the kernel", &[Need::Loop]) {
        return;
    }
    let kernel = KernelMount::read_only(&image);
    let theirs = Snapshot::of_kernel(kernel.path());
    ours.assert_same(&theirs, Compare::Everything, "we / the kernel");
    for pair in pairs {
        let theirs = Snapshot::of_kernel(&kernel.join(&pair.root));
        let model = pair.model.snapshot();
        model.assert_same(&theirs, Compare::Semantics, "model / kernel");
    }
    kernel.unmount();
}

#[test]
fn one_thread_with_remounts_and_crashes() {
    one_thread(
        "model, one thread",
        format(1 << 30, 4096),
        rounds(12_000, 200_000),
    );
}

#[test]
fn one_thread_with_blocks_of_1_kib() {
    let disk = format(1 << 30, 1024);
    one_thread("model, one thread, 1 KiB", disk, rounds(8_000, 200_000));
}

#[test]
fn one_thread_with_blocks_of_2_kib() {
    let disk = format(1 << 30, 2048);
    one_thread("model, one thread, 2 KiB", disk, rounds(5_000, 200_000));
}

#[test]
fn one_thread_on_ext3() {
    if have("model, ext3", &[Need::Tool("mke2fs")]) {
        let disk = Disk::by_mke2fs(&Mke2fs::of_type(512 << 20, "ext3"));
        one_thread("model, ext3", disk, rounds(6000, 200_000));
    }
}

#[test]
fn one_thread_on_ext3_with_blocks_of_1_kib() {
    if have("model, ext3, 1 KiB", &[Need::Tool("mke2fs")]) {
        let build = Mke2fs::of_type(512 << 20, "ext3").args(&["-b", "1024"]);
        let disk = Disk::by_mke2fs(&build);
        one_thread("model, ext3, 1 KiB", disk, rounds(5000, 200_000));
    }
}

#[test]
fn one_thread_on_ext2() {
    if have("model, ext2", &[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        let disk = Disk::by_mke2fs(&Mke2fs::of_type(512 << 20, "ext2"));
        one_thread("model, ext2", disk, rounds(6000, 200_000));
    }
}

#[test]
fn one_thread_with_inline_data() {
    let builds: [&[&str]; 4] = [
        &["-O", "inline_data"],
        &["-O", "inline_data,^metadata_csum,^has_journal", "-I", "512"],
        &["-O", "inline_data,^dir_index", "-b", "1024", "-I", "1024"],
        &["-O", "inline_data,^extents,^64bit", "-b", "2048"],
    ];
    for args in builds {
        let what = format!("model, {}", args.join(" "));
        if have(&what, &[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
            let disk = Disk::by_mke2fs(&Mke2fs::by_default(256 << 20).args(args));
            let pair = |fs: &Fs, rng| Pair::new(fs, "model", rng).of_small_files();
            run_one_thread(&what, disk, rounds(5_000, 200_000), pair);
        }
    }
}

#[test]
fn one_thread_with_clusters() {
    let builds: [(u64, &[&str]); 6] = [
        (256, &["-C", "8192"]),
        (512, &["-C", "65536"]),
        (4096, &["-C", "1048576"]),
        (256, &["-C", "8192", "-b", "1024"]),
        (512, &["-C", "65536", "-b", "1024", "-I", "128"]),
        (
            256,
            &["-C", "16384", "-b", "2048", "-O", "bigalloc,^has_journal"],
        ),
    ];
    for (mib, args) in builds {
        let what = format!("model, bigalloc, {}", args.join(" "));
        if have(&what, &[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
            let build = Mke2fs::by_default(mib << 20);
            let disk = Disk::by_mke2fs(&build.args(&["-O", "bigalloc"]).args(args));
            one_thread(&what, disk, rounds(3_000, 200_000));
        }
    }
}

/// Mounts a volume again whose process has ended. One without a journal is repaired first.
fn recover(disk: Disk) -> (Disk, Arc<Fs>) {
    let fs = mount(&disk);
    if !fs.is_read_only() {
        return (disk, fs);
    }
    fs.unmount().expect("unmount");
    drop(fs);
    let scratch = Scratch::new();
    let image = scratch.join("model.img");
    disk.save(&image);
    testkit::oracle::repair(&image, "-fy");
    let disk = Disk::from_bytes(std::fs::read(&image).expect("the image"));
    let fs = mount(&disk);
    assert!(!fs.is_read_only());
    (disk, fs)
}

fn one_thread(what: &str, disk: Disk, steps: usize) {
    run_one_thread(what, disk, steps, |fs, rng| Pair::new(fs, "model", rng));
}

fn run_one_thread(what: &str, mut disk: Disk, steps: usize, pair: impl FnOnce(&Fs, Rng) -> Pair) {
    let mut rng = Rng::new(what);
    let _watchdog = Watchdog::new(what, Duration::from_secs(60 + steps as u64 / 50));
    let mut fs = mount(&disk);
    let mut pair = pair(&fs, rng.fork());
    for step in 0..steps {
        pair.step(&fs);
        match rng.below(400) {
            0 => fs.sync().expect("sync"),
            1 => fs.drop_caches(),
            2 | 3 => {
                fs.sync().expect("sync");
                fs.drop_caches();
            }
            4 => {
                pair.close_all();
                pair.compare(&fs);
                fs.unmount().expect("unmount");
                drop(fs);
                fs = mount(&disk);
                pair.compare(&fs);
            }
            5 => {
                // All changes are on disk; the volume is not unmounted.
                fs.sync().expect("sync");
                if rng.one_in(2) {
                    pair.close_all();
                }
                fs.crash();
                pair.close_all();
                drop(fs);
                (disk, fs) = recover(disk);
                pair.compare(&fs);
            }
            6 => pair.compare(&fs),
            _ => {}
        }
        if step % 4000 == 3999 {
            pair.population = if pair.population == 60 { 250 } else { 60 };
        }
    }
    pair.close_all();
    pair.compare(&fs);
    fs.unmount().expect("unmount");
    drop(fs);
    let fs = mount(&disk);
    pair.compare(&fs);
    let ours = Snapshot::of_volume(&fs).expect("our view");
    fs.unmount().expect("unmount");
    drop(fs);
    check_volume(&disk, &ours, &[pair]);
}

#[test]
fn several_threads_each_with_a_model_and_one_shared_directory() {
    several_threads("model, several threads", rounds(5_000, 60_000), 4096);
}

#[test]
fn several_threads_with_blocks_of_1_kib() {
    several_threads("model, several threads, 1 KiB", rounds(3_000, 60_000), 1024);
}

#[test]
fn several_threads_with_clusters() {
    if have("model, several threads, bigalloc", &[Need::Tool("mke2fs")]) {
        let args = ["-b", "4096", "-O", "bigalloc", "-C", "32768"];
        let disk = Disk::by_mke2fs(&Mke2fs::by_default(1 << 30).args(&args));
        several_threads_on(
            "model, several threads, bigalloc",
            rounds(3_000, 60_000),
            disk,
        );
    }
}

#[test]
fn several_threads_with_blocks_of_2_kib() {
    several_threads("model, several threads, 2 KiB", rounds(2_000, 60_000), 2048);
}

fn several_threads(test: &str, steps: usize, block_size: u32) {
    several_threads_on(test, steps, format(1 << 30, block_size));
}

fn several_threads_on(test: &str, steps: usize, disk: Disk) {
    let mut rng = Rng::new(test);
    let _watchdog = Watchdog::new(test, Duration::from_secs(60 + steps as u64 / 20));
    let mut fs = mount(&disk);
    volume::mkdir_all(&fs, "shared").expect("mkdir");
    let mut pairs: Vec<Pair> = (0..4)
        .map(|i| Pair::new(&fs, &format!("m{i}"), rng.fork()))
        .collect();
    for round in 0..3 {
        std::thread::scope(|scope| {
            for (i, pair) in pairs.iter_mut().enumerate() {
                let (fs, mut rng) = (&fs, rng.fork());
                scope.spawn(move || {
                    for step in 0..steps / 3 {
                        pair.step(fs);
                        if step % 8 == 0 {
                            disturb(fs, &mut rng);
                        }
                        if i == 0 && step % 300 == 0 {
                            fs.sync().expect("sync");
                            fs.drop_caches();
                        }
                    }
                });
            }
        });
        pairs.iter_mut().for_each(Pair::close_all);
        pairs.iter().for_each(|pair| pair.compare(&fs));
        if round % 2 == 0 {
            fs.unmount().expect("unmount");
        } else {
            fs.sync().expect("sync");
            fs.crash();
        }
        drop(fs);
        fs = mount(&disk);
        pairs.iter().for_each(|pair| pair.compare(&fs));
    }
    let ours = Snapshot::of_volume(&fs).expect("our view");
    fs.unmount().expect("unmount");
    drop(fs);
    check_volume(&disk, &ours, &pairs);
}

/// Runs operations in a shared directory. They may fail because of other threads.
fn disturb(fs: &Fs, rng: &mut Rng) {
    let shared = volume::at(fs, "shared").expect("the shared directory");
    let name = |rng: &mut Rng| format!("s{}", rng.below(30)).into_bytes();
    let (a, b) = (name(rng), name(rng));
    let _ = match rng.below(7) {
        0 | 1 => fs.create(&shared, &a, volume::new(0o100_644)).map(|_| ()),
        2 => fs.mkdir(&shared, &a, volume::new(0o040_755)).map(|_| ()),
        3 => fs.unlink(&shared, &a),
        4 => fs.rmdir(&shared, &a),
        5 => fs.rename(&shared, &a, &shared, &b, ext4::RenameFlags::Replace),
        _ => fs.lookup(&shared, &a).and_then(|file| {
            let data = rng.bytes(5000);
            fs.write(&file, rng.below(20_000), &data).map(|_| ())
        }),
    };
}
