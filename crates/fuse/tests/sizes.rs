//! The largest file, through a mount and on the kernel's ext4.

mod common;

use common::{Image, can_mount};
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::{Errno, pwrite};
use std::fs::File;
use std::path::Path;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;
use testkit::volume;

/// The outcome of a call, and the size of the file after it.
type Outcome = (Result<usize, Errno>, u64);

/// Writes, truncates and allocates around a size of `largest` bytes.
fn calls_around(largest: u64, dir: &Path) -> Vec<Outcome> {
    let file = File::create(dir.join("file")).expect("create");
    let mut outcomes = Vec::new();
    for end in [largest - 1, largest, largest + 1] {
        let mut record = |outcome| {
            outcomes.push((outcome, file.metadata().expect("stat").len()));
            file.set_len(0).expect("truncate");
        };
        record(ftruncate(&file, end).map(|()| 0));
        record(pwrite(&file, b"ab", end - 2));
        record(pwrite(&file, b"ab", end));
        record(pwrite(&file, &[1; 10_000], end - 5000));
        record(fallocate(&file, FallocateFlags::empty(), end - 4096, 4096).map(|()| 0));
        record(fallocate(&file, FallocateFlags::KEEP_SIZE, end, 4096).map(|()| 0));
    }
    outcomes
}

#[test]
fn calls_beyond_the_largest_file_get_efbig() {
    if !can_mount() || !have("the kernel's ext4", &[Need::Loop]) {
        return;
    }
    let block_map = |bytes: u64| {
        let pointers = bytes / 4;
        (12 + pointers + pointers.pow(2) + pointers.pow(3)) * bytes
    };
    for (kind, block, largest) in [
        ("ext4", "4096", ((1 << 32) - 1) * 4096),
        ("ext4", "1024", ((1 << 32) - 1) * 1024),
        ("ext3", "1024", block_map(1024)),
        // The sectors of the file and of its indirect blocks are counted in 32 bits.
        ("ext3", "4096", 2_196_873_666_560),
    ] {
        let build = Mke2fs::of_type(64 << 20, kind).args(&["-b", block]);
        let mounted = Image::of(&build).mount("");
        let ours = calls_around(largest, mounted.dir());
        mounted.unmount();
        assert_eq!(ours[1], (Ok(2), largest - 1), "{kind}, {block}");
        assert_eq!(ours[7], (Ok(2), largest), "{kind}, {block}");
        assert_eq!(ours[8], (Err(Errno::FBIG), 0), "{kind}, {block}");
        let image = volume::Image::by_mke2fs(&build);
        let kernel = KernelMount::new(&image.path());
        assert_eq!(
            ours,
            calls_around(largest, kernel.path()),
            "{kind}, {block}"
        );
        kernel.unmount();
    }
}
