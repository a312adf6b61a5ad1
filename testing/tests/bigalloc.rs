//! The engine and the kernel change the files of a `bigalloc` volume in turns. Each finds what the
//! other left: clusters that are mapped in part, by several extents, or beyond the end.

use ext4::FallocateMode;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have};
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::rounds;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, at, contents, put, write_all};

const FILES: usize = 6;
/// The most bytes of a file.
const REACH: u64 = 400_000;

/// A change of a file.
enum Change {
    Write(u64, Vec<u8>),
    Punch(u64, u64),
    Zero(u64, u64),
    /// Allocates without a change of the size.
    Allocate(u64, u64),
    Truncate(u64),
    /// Makes what was written before it durable.
    Sync,
}

fn any_change(rng: &mut Rng) -> Change {
    let offset = rng.below(REACH);
    let len = 1 + rng.below((REACH - offset).min(40_000));
    match rng.below(12) {
        0..5 => Change::Write(offset, rng.bytes(len as usize)),
        5 | 6 => Change::Punch(offset, len),
        7 => Change::Zero(offset, len),
        8 => Change::Allocate(offset, len),
        9 => Change::Truncate(offset),
        _ => Change::Sync,
    }
}

/// The bytes that a file should have.
fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let grow = |bytes: &mut Vec<u8>, end: u64| {
        let end = bytes.len().max(end as usize);
        bytes.resize(end, 0);
    };
    match change {
        Change::Write(offset, data) => {
            grow(bytes, offset + data.len() as u64);
            bytes[*offset as usize..][..data.len()].copy_from_slice(data);
        }
        Change::Punch(offset, len) => {
            let end = bytes.len().min((offset + len) as usize);
            let start = end.min(*offset as usize);
            bytes[start..end].fill(0);
        }
        Change::Zero(offset, len) => {
            grow(bytes, offset + len);
            bytes[*offset as usize..(offset + len) as usize].fill(0);
        }
        Change::Truncate(size) => bytes.resize(*size as usize, 0),
        Change::Allocate(..) | Change::Sync => {}
    }
}

fn by_us(image: &Path, files: &mut [Vec<u8>], changes: usize, rng: &mut Rng) {
    let fs = volume::mount(image).unwrap();
    assert!(!fs.is_read_only());
    for (nth, bytes) in files.iter().enumerate() {
        let file = at(&fs, &format!("f{nth}")).unwrap();
        assert!(
            contents(&fs, &file).unwrap() == *bytes,
            "f{nth} by the kernel"
        );
    }
    for _ in 0..changes {
        let nth = rng.index(FILES);
        let file = at(&fs, &format!("f{nth}")).unwrap();
        let change = any_change(rng);
        let allocate = |mode, offset: &u64, len: &u64| fs.fallocate(&file, mode, *offset, *len);
        match &change {
            Change::Write(offset, data) => write_all(&fs, &file, *offset, data),
            Change::Punch(offset, len) => allocate(FallocateMode::PunchHole, offset, len),
            Change::Zero(offset, len) => {
                allocate(FallocateMode::ZeroRange { keep_size: false }, offset, len)
            }
            Change::Allocate(offset, len) => {
                allocate(FallocateMode::Allocate { keep_size: true }, offset, len)
            }
            Change::Truncate(size) => fs.truncate(&file, *size),
            Change::Sync => fs.fsync(&file, volume::any_sync(rng)),
        }
        .unwrap();
        apply(&mut files[nth], &change);
    }
    match rng.one_in(2) {
        true => fs.unmount().unwrap(),
        // The kernel replays the log.
        false => {
            fs.sync().unwrap();
            fs.crash();
        }
    }
}

fn by_kernel(image: &Path, files: &mut [Vec<u8>], changes: usize, rng: &mut Rng) {
    let kernel = KernelMount::new(image);
    for (nth, bytes) in files.iter().enumerate() {
        let found = std::fs::read(kernel.join(format!("f{nth}"))).unwrap();
        assert!(found == *bytes, "f{nth} by us");
    }
    let keep = FallocateFlags::KEEP_SIZE;
    for _ in 0..changes {
        let nth = rng.index(FILES);
        let file = File::options()
            .read(true)
            .write(true)
            .open(kernel.join(format!("f{nth}")))
            .unwrap();
        let change = any_change(rng);
        match &change {
            Change::Write(offset, data) => file.write_all_at(data, *offset).unwrap(),
            Change::Punch(offset, len) => {
                fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, *offset, *len).unwrap();
            }
            Change::Zero(offset, len) => {
                fallocate(&file, FallocateFlags::ZERO_RANGE, *offset, *len).unwrap();
            }
            Change::Allocate(offset, len) => fallocate(&file, keep, *offset, *len).unwrap(),
            Change::Truncate(size) => file.set_len(*size).unwrap(),
            Change::Sync => file.sync_all().unwrap(),
        }
        apply(&mut files[nth], &change);
    }
    kernel.unmount();
}

/// Asserts that both count the same space, in blocks.
fn same_space(image: &Path) {
    let fs = volume::mount(image).unwrap();
    let ours = fs.statfs();
    fs.unmount().unwrap();
    drop(fs);
    let kernel = KernelMount::read_only(image);
    let theirs = rustix::fs::statvfs(kernel.path()).unwrap();
    kernel.unmount();
    assert_eq!((ours.blocks, ours.free), (theirs.f_blocks, theirs.f_bfree));
}

fn turns(args: &[&str]) {
    let what = format!("bigalloc in turns, {}", args.join(" "));
    if !have(
        &what,
        &[Need::Loop, Need::Tool("mke2fs"), Need::Tool("e2fsck")],
    ) {
        return;
    }
    let mut rng = Rng::new(&what);
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let build = Mke2fs::by_default(64 << 20).args(&["-O", "bigalloc"]);
    build.args(args).make(&image).unwrap();
    let mut files = vec![Vec::new(); FILES];
    let fs = volume::mount(&image).unwrap();
    for nth in 0..FILES {
        put(&fs, &format!("f{nth}"), b"").unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    for round in 0..rounds(5, 60) {
        by_us(&image, &mut files, 120, &mut rng);
        by_kernel(&image, &mut files, 120, &mut rng);
        assert_clean(&image, &format!("{what}: round {round}"));
        same_space(&image);
        let report = check::check(&volume::open(&image), &check::Options::default(), &mut ());
        let report = report.unwrap();
        assert!(report.is_clean(), "{what}: round {round}: {report:#?}");
    }
}

#[test]
fn the_kernel_and_we_change_files_in_turns() {
    turns(&["-b", "4096", "-C", "16384"]);
    turns(&["-b", "4096", "-C", "262144"]);
}

#[test]
fn the_kernel_and_we_change_files_of_small_blocks_in_turns() {
    turns(&["-b", "1024", "-C", "4096"]);
    turns(&["-b", "1024", "-C", "65536", "-O", "bigalloc,^metadata_csum"]);
}

/// Whether e2fsck finds something after extent `nth` of a file was moved by `blocks`, and what our
/// check finds.
fn after_moving(
    image: &Path,
    (name, nth): (&str, u64),
    blocks: impl Fn(u32) -> u32,
) -> (bool, String) {
    let place = testkit::oracle::debugfs(image, &format!("imap {name}"));
    let (_, place) = place.split_once("located at block ").unwrap();
    let (block, offset) = place.split_once(", offset 0x").unwrap();
    let block: u64 = block.trim().parse().unwrap();
    let offset = u64::from_str_radix(offset.trim(), 16).unwrap();
    // The root of the tree has a header of 12 bytes, and 8 bytes before the block of an extent.
    let at = block * 4096 + offset + 40 + 12 * (1 + nth) + 8;
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut start = [0; 4];
    file.read_exact_at(&mut start, at).unwrap();
    let moved = blocks(u32::from_le_bytes(start));
    file.write_all_at(&moved.to_le_bytes(), at).unwrap();
    let report = check::check(&volume::open(image), &check::Options::default(), &mut ());
    let found = testkit::oracle::check(image).is_err();
    file.write_all_at(&start, at).unwrap();
    let findings = report.unwrap().findings;
    let messages: Vec<String> = findings.into_iter().map(|f| f.message).collect();
    (found, messages.join("\n"))
}

/// A block that is not at its place in its cluster, and files, or distant parts of one, that share
/// a cluster but no block.
#[test]
fn the_check_finds_what_e2fsck_finds() {
    let needs = [
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
        Need::Tool("debugfs"),
    ];
    if !have("bigalloc, check", &needs) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let args = ["-b", "4096", "-O", "bigalloc,^metadata_csum", "-C", "65536"];
    Mke2fs::by_default(64 << 20)
        .args(&args)
        .make(&image)
        .unwrap();
    let fs = volume::mount(&image).unwrap();
    put(&fs, "first", &[1; 4096]).unwrap();
    let second = put(&fs, "second", b"").unwrap();
    write_all(&fs, &second, 3 * 4096, &[2; 4096]).unwrap();
    let third = put(&fs, "third", &[3; 4096]).unwrap();
    write_all(&fs, &third, 20 * 4096, &[3; 4096]).unwrap();
    drop((second, third));
    fs.unmount().unwrap();
    drop(fs);
    let first = std::cell::Cell::new(0);
    let look = |start| {
        first.set(start);
        start
    };
    let clean = (false, String::new());
    assert_eq!(after_moving(&image, ("first", 0), look), clean);
    let (found, ours) = after_moving(&image, ("first", 0), |start| start + 1);
    assert!(
        found && ours.contains("outside of its cluster's place"),
        "{ours}"
    );
    let (found, ours) = after_moving(&image, ("second", 0), |_| first.get() + 3);
    assert!(found && ours.contains("several owners"), "{ours}");
    assert_eq!(after_moving(&image, ("second", 0), |start| start), clean);
    assert_eq!(after_moving(&image, ("third", 0), look), clean);
    // e2fsck takes it for the same cluster of the file.
    let (_, ours) = after_moving(&image, ("third", 1), |_| first.get() + 4);
    assert!(ours.contains("several owners"), "{ours}");
}
