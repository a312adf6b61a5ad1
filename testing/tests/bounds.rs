//! Volumes that claim much more than they hold: memory stays within the budget, time within what
//! the image warrants. Resident memory is a process's, so the tests take turns.

use ext4::{Fs, MountOptions, Result};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testing::image::{Mke2fs, text};
use testing::log_image::LogWriter;
use testing::needs::{Need, have, run_ok};
use testing::scratch::Scratch;
use testing::volume::{self, mount_with, options};
use testing::watchdog::Watchdog;

const BUDGET: u64 = 32 << 20;
/// What a process has beside the budget: stacks, rings, the allocator's own.
const CONSTANT: u64 = 16 << 20;

static TURN: Mutex<()> = Mutex::new(());

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|l| l.starts_with(field));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}

/// Mounts, lets `then` look at the volume, and says how much memory all of it took.
fn used_by(image: &Path, read_only: bool, then: impl FnOnce(Result<Arc<Fs>>)) -> u64 {
    let _watchdog = Watchdog::new("a volume that claims too much", Duration::from_secs(60));
    std::fs::write("/proc/self/clear_refs", "5").expect("resets the peak");
    // Memory that earlier tests left in the heap is used again: the growth is a lower bound, tens
    // of MiB below the truth.
    let base = status("VmRSS:");
    let options = MountOptions {
        memory: BUDGET,
        read_only,
        ..options()
    };
    then(mount_with(image, options));
    let used = status("VmHWM:").saturating_sub(base);
    eprintln!("{} MiB, budget {} MiB", used >> 20, BUDGET >> 20);
    used
}

fn assert_within(used: u64, what: &str) {
    let most = BUDGET + BUDGET / 5 + CONSTANT;
    assert!(used <= most, "{what}: {} MiB resident", used >> 20);
}

/// A sparse volume of `size` bytes with a journal of `journal` MiB.
fn volume(image: &Path, size: u64, journal: u32) {
    let journal = format!("size={journal}");
    let bits64 = if size > 8 << 30 { "64bit" } else { "^64bit" };
    let mke2fs = Mke2fs::new(size).features(&format!("^metadata_csum,uninit_bg,{bits64}"));
    let mke2fs = mke2fs.args(&[
        "-J",
        &journal,
        "-E",
        "lazy_itable_init=1,assume_storage_prezeroed=1",
    ]);
    mke2fs.make(image).expect("mke2fs");
}

/// Numbers of blocks that are neither the journal's nor the first groups' metadata.
fn homes(log: &LogWriter, from: u64) -> impl Iterator<Item = u64> + use<> {
    let journal = log.journal();
    let (first, last) = (journal[0], *journal.last().expect("a journal"));
    let metadata = 520_000..540_000;
    (from..).filter(move |b| !(first..=last).contains(b) && !metadata.contains(b))
}

#[test]
fn a_sparse_log_takes_no_memory_for_its_copies() {
    let name = "a sparse log";
    if !have(name, &[Need::Tool("mke2fs")]) {
        return;
    }
    let _turn = TURN.lock();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    volume(&image, 4 << 30, 1024);
    let mut log = LogWriter::new(&image);
    let mut homes = homes(&log, 100_000);
    let mut seen = 0;
    while log.left() > 600 {
        let part: Vec<u64> = homes.by_ref().take(508).collect();
        seen += part.len();
        log.descriptor(&part);
    }
    log.finish();
    let on_disk = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&image).unwrap()) * 512;
    eprintln!("{seen} blocks in the log, {} KiB on disk", on_disk >> 10);
    for read_only in [true, false] {
        let used = used_by(&image, read_only, |mounted| {
            let fs = mounted.expect("mounts");
            assert_eq!(fs.info().recovery.replayed, seen as u64);
            fs.unmount().unwrap();
        });
        assert_within(used, name);
    }
}

#[test]
fn revoke_records_take_no_memory_of_their_own() {
    let name = "a log of revoke records";
    if !have(name, &[Need::Tool("mke2fs")]) {
        return;
    }
    let _turn = TURN.lock();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    volume(&image, 1 << 30, 64);
    let mut log = LogWriter::new(&image);
    let mut next = 0;
    let victims: Vec<u64> = homes(&log, 100_000).take(100).collect();
    log.descriptor(&victims);
    while log.left() > 2 {
        let part: Vec<u64> = (next..next + 1020).collect();
        next += 1020;
        log.revoke(&part);
    }
    log.finish();
    for read_only in [true, false] {
        let used = used_by(&image, read_only, |mounted| {
            let fs = mounted.expect("mounts");
            assert_eq!(
                (fs.info().recovery.replayed, fs.info().recovery.revoked),
                (0, 100)
            );
            fs.unmount().unwrap();
        });
        assert_within(used, name);
    }
}

#[test]
fn a_log_beyond_the_budget_is_refused_by_name() {
    let name = "a log beyond the budget";
    if !have(name, &[Need::Tool("mke2fs")]) {
        return;
    }
    let _turn = TURN.lock();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    volume(&image, 20 << 30, 8 << 10);
    let mut log = LogWriter::new(&image);
    let mut homes = homes(&log, 100_000);
    while log.left() > 600 {
        let part: Vec<u64> = homes.by_ref().take(508).collect();
        log.descriptor(&part);
    }
    log.finish();
    let used = used_by(&image, true, |mounted| {
        let refused = mounted.err().expect("refused").to_string();
        assert!(refused.contains("larger memory budget"), "{refused}");
    });
    assert_within(used, name);
}

#[test]
fn the_groups_of_a_large_volume_count() {
    let name = "the groups of a large volume";
    if !have(name, &[Need::Tool("mke2fs")]) {
        return;
    }
    let _turn = TURN.lock();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    for (size, fits) in [(2_u64 << 40, true), (8 << 40, false)] {
        volume(&image, size, 4);
        let used = used_by(&image, true, |mounted| match (mounted, fits) {
            (Ok(fs), true) => {
                assert!(fs.budget().used() > 4 << 20, "16,384 groups are charged");
                fs.unmount().unwrap();
            }
            (Err(refused), false) => {
                let refused = refused.to_string();
                assert!(refused.contains("65536 groups"), "{refused}");
            }
            (mounted, _) => panic!("{size} bytes: mounted is {}", mounted.is_ok()),
        });
        assert_within(used, name);
        std::fs::remove_file(&image).unwrap();
    }
}

/// Changes fields of an inode by debugfs.
fn set_inode(image: &Path, inode: &str, fields: &[(&str, &str)]) {
    for (field, value) in fields {
        let command = format!("set_inode_field {inode} {field} {value}");
        run_ok("debugfs", &["-w", "-R", &command, text(image)]);
    }
}

#[test]
fn a_directory_larger_than_the_volume_is_refused_at_once() {
    let name = "a directory larger than the volume";
    if !have(name, &[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return;
    }
    let _turn = TURN.lock();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    volume(&image, 64 << 20, 4);
    run_ok("debugfs", &["-w", "-R", "mkdir many", text(&image)]);
    set_inode(&image, "many", &[("size", "0xfffffff000")]);
    let used = used_by(&image, true, |mounted| {
        let fs = mounted.expect("mounts");
        let many = volume::at(&fs, "many").unwrap();
        let missed = fs.lookup(&many, b"not there").err().expect("an error");
        assert!(
            missed.to_string().contains("larger than the volume"),
            "{missed}"
        );
        fs.unmount().unwrap();
    });
    assert_within(used, name);
}

#[test]
fn a_journal_whose_extents_point_to_one_node_is_refused_at_once() {
    let name = "extents that point to one node";
    if !have(name, &[Need::Tool("mke2fs")]) {
        return;
    }
    let _turn = TURN.lock();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    volume(&image, 64 << 20, 4);
    // Four levels of 340 children each, all of them the same block of the next level; the leaf is
    // empty.
    let blocks = [9000, 9001, 9002, 9003, 9004];
    let node = |depth: u16, child: u64, entries: usize, bytes: &mut [u8]| {
        bytes.fill(0);
        let max = (bytes.len() - 12) / 12;
        let header = [0xf30a, entries as u16, max as u16, depth, 0, 0];
        for (i, word) in header.iter().enumerate() {
            bytes[i * 2..i * 2 + 2].copy_from_slice(&word.to_le_bytes());
        }
        for i in 0..entries {
            let at = 12 + i * 12;
            bytes[at..at + 4].copy_from_slice(&(i as u32).to_le_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&(child as u32).to_le_bytes());
        }
    };
    let mut bytes = std::fs::read(&image).unwrap();
    for (depth, &block) in blocks.iter().enumerate() {
        let at = block as usize * 4096;
        let child = depth.checked_sub(1).map_or(0, |below| blocks[below]);
        let entries = if depth == 0 { 0 } else { 340 };
        node(depth as u16, child, entries, &mut bytes[at..at + 4096]);
    }
    let shown = run_ok("debugfs", &["-R", "imap <8>", text(&image)]);
    let place = shown.split("located at block ").nth(1).expect("imap");
    let (block, offset) = place.split_once(", offset ").expect("imap");
    let offset = offset.split_whitespace().next().expect("imap");
    let offset = offset.trim_start_matches("0x");
    let offset = usize::from_str_radix(offset, 16).expect("an offset");
    let inode = block.trim().parse::<usize>().expect("a block") * 4096 + offset;
    node(5, blocks[4], 4, &mut bytes[inode + 40..inode + 100]);
    std::fs::write(&image, &bytes).unwrap();
    let used = used_by(&image, true, |mounted| {
        let refused = mounted.err().expect("refused").to_string();
        assert!(refused.contains("too many nodes"), "{refused}");
    });
    assert_within(used, name);
}
