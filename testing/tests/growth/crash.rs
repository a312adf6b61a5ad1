//! Power failures in the middle of growth.
//!
//! The volume after recovery has the old size, the new size or that of a step, is clean, and has
//! all files that were synced.

use crate::grow;
use std::collections::BTreeSet;
use testkit::disk::Disk;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have};
use testkit::oracle::{Mke2fs, assert_clean, recover_by_e2fsck};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, get, put};

/// Grows a volume on a recorded disk with files beside it, and judges `images` crash images.
fn crash(name: &str, args: &[&str], sizes: &[u64], images: usize) {
    let mut rng = Rng::new(name);
    let disk = Disk::by_mke2fs(&Mke2fs::by_default(8 << 20).args(args));
    disk.edit(|bytes| bytes.resize(*sizes.last().unwrap() as usize, 0));
    let fs = volume::mount_on(&disk);
    put(&fs, "kept", &[9; 4000]).unwrap();
    fs.sync().unwrap();
    disk.start_recording();
    let mut allowed = BTreeSet::from([fs.info().blocks]);
    for (nth, size) in sizes.iter().enumerate() {
        fs.resize(Some(*size), &mut |progress| {
            allowed.insert(progress.blocks);
            // Files in the space of a step, before its commit.
            put(&fs, &format!("new-{nth}-{}", progress.blocks), &[1; 60_000]).unwrap();
        })
        .unwrap();
    }
    let recording = disk.take_recording();
    fs.crash();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let turning: Vec<usize> = (0..=recording.log.len())
        .filter(|at| recording.log.is_turning_point(*at))
        .collect();
    let mut seen = BTreeSet::new();
    for nth in 0..images {
        let at = match nth {
            0 => recording.log.len(),
            1 => 0,
            even if even % 2 == 0 => *rng.pick(&turning),
            _ => rng.index(recording.log.len() + 1),
        };
        let bytes = recording.image(at, &mut rng);
        testkit::disk::save(&bytes, &image);
        if nth % 3 == 0 {
            recover_by_e2fsck(&image).unwrap_or_else(|e| panic!("{name}, at {at}: {e}"));
        }
        let fs = volume::mount(&image).unwrap_or_else(|e| panic!("{name}, at {at}: {e}"));
        let blocks = fs.info().blocks;
        assert!(
            allowed.contains(&blocks),
            "{name}, at {at}: {blocks} of {allowed:?}"
        );
        if nth == 0 {
            let last = allowed.last();
            assert_eq!(
                Some(&blocks),
                last,
                "{name}: a growth that returned is durable"
            );
        }
        seen.insert(blocks);
        assert_eq!(get(&fs, "kept").unwrap(), [9; 4000], "{name}, at {at}");
        // The recovered volume can go on.
        grow(&fs, None).unwrap_or_else(|e| panic!("{name}, at {at}: {e}"));
        put(&fs, "after", &[3; 100_000]).unwrap();
        fs.unmount().unwrap();
        assert_clean(&image, &format!("{name}, crash at {at}"));
    }
    assert!(seen.len() > 1, "{name}: {seen:?} of {allowed:?}");
}

const TOOLS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("e2fsck")];

#[test]
fn a_crash_leaves_the_size_of_a_step() {
    if have("growth crashes", TOOLS) {
        let sizes = [9 << 20, 31 << 20, 60 << 20];
        crash("defaults", &["-b", "1024"], &sizes, 60);
        crash("4 KiB", &["-b", "4096", "-g", "256"], &sizes, 40);
    }
}

#[test]
fn a_crash_at_the_change_to_meta_bg_leaves_a_sound_volume() {
    if have("growth crashes, meta_bg", TOOLS) {
        let sizes = [20 << 20, 60 << 20];
        let none = &["-b", "1024", "-g", "256", "-O", "^resize_inode"];
        crash("no reserve", none, &sizes, 40);
        let small = &["-b", "1024", "-g", "256", "-E", "resize=16384"];
        crash("small reserve", small, &sizes, 60);
    }
}

#[test]
fn a_crash_where_the_volume_gives_up_reserved_blocks_leaves_a_sound_volume() {
    if have("growth crashes, small journal", TOOLS) {
        let sizes = [9 << 20, 31 << 20, 60 << 20];
        let plain = "-b 1024 -g 1024 -J size=1";
        let clusters = "-b 1024 -O bigalloc -C 8192 -g 256 -J size=1";
        for (args, images) in [(plain, 60), (clusters, 40)] {
            let split: Vec<&str> = args.split(' ').collect();
            crash(args, &split, &sizes, images);
        }
    }
}

#[test]
fn a_crash_on_a_volume_without_checksums_leaves_the_size_of_a_step() {
    if have("growth crashes, no checksums", TOOLS) {
        let args = &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"];
        crash("no checksums", args, &[33 << 20], 40);
    }
}

#[test]
fn a_crash_on_a_volume_with_clusters_leaves_the_size_of_a_step() {
    if have("growth crashes, bigalloc", TOOLS) {
        let sizes = [9 << 20, (31 << 20) + (5 << 10), 60 << 20];
        let two = "-b 1024 -O bigalloc -C 2048 -g 1024 -E resize=131072";
        let sixteen = "-b 1024 -O bigalloc -C 16384 -g 256 -E resize=131072";
        let no_reserve = "-b 1024 -O bigalloc,^resize_inode -C 2048 -g 256";
        for (args, images) in [(two, 60), (sixteen, 40), (no_reserve, 60)] {
            let split: Vec<&str> = args.split(' ').collect();
            crash(args, &split, &sizes, images);
        }
    }
}

/// The kernel computes the number of groups before it replays the log.
#[test]
fn the_kernel_reads_the_files_of_new_groups_after_a_crash() {
    if !have(
        "growth, crash and mount by the kernel",
        &[Need::Loop, Need::Tool("mke2fs")],
    ) {
        return;
    }
    let disk = Disk::by_mke2fs(&Mke2fs::new(32 << 20).args(&["-g", "1024"]));
    disk.edit(|bytes| bytes.resize(96 << 20, 0));
    let fs = volume::mount_on(&disk);
    let contents = |nth: u8| vec![nth + 1; 1 << 20];
    grow(&fs, None).unwrap();
    for nth in 0..40 {
        put(&fs, &nth.to_string(), &contents(nth)).unwrap();
    }
    fs.sync().unwrap();
    fs.crash();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    disk.save(&image);
    let kernel = KernelMount::new(&image);
    for nth in 0..40 {
        let found = std::fs::read(kernel.join(nth.to_string()));
        assert!(found.unwrap() == contents(nth), "file {nth}");
    }
    kernel.unmount();
    assert_clean(&image, "after a mount by the kernel");
}
