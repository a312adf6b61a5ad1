//! Volumes that claim much more than they hold. Memory stays within the budget, and time within a
//! minute.

use ext4::{Fs, MountOptions, Result};
use parking_lot::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use testing::log_image::LogWriter;
use testkit::memory::own_status;
use testkit::needs::have_e2fsprogs;
use testkit::oracle::{Mke2fs, debugfs};
use testkit::scratch::Scratch;
use testkit::volume::{self, mount_with, options};
use testkit::watchdog::Watchdog;
use units::FsBlock;

const BUDGET: u64 = 32 << 20;
/// Memory outside of the budget: stacks, rings, the allocator.
const CONSTANT: u64 = 16 << 20;

static TURN: Mutex<()> = Mutex::new(());

/// A test that bounds the memory of a mount. Tests run one at a time, because resident memory is
/// that of the process.
struct Test {
    name: &'static str,
    scratch: Scratch,
    _turn: MutexGuard<'static, ()>,
}

impl Test {
    /// Waits for other tests. Prints `SKIPPED: …` and returns `None` without e2fsprogs.
    fn new(name: &'static str) -> Option<Test> {
        have_e2fsprogs(name).then(|| Test {
            name,
            scratch: Scratch::new(),
            _turn: TURN.lock(),
        })
    }

    fn image(&self) -> PathBuf {
        self.scratch.join("image")
    }

    /// Mounts the image and calls `then` with the result; asserts bounds on memory and time.
    fn mount(&self, read_only: bool, then: impl FnOnce(Result<Arc<Fs>>)) {
        let _watchdog = Watchdog::new(self.name, Duration::from_secs(60));
        std::fs::write("/proc/self/clear_refs", "5").expect("resets the peak");
        // The heap has memory of earlier tests, so the growth may be tens of MiB too low.
        let base = own_status("VmRSS");
        let options = MountOptions {
            memory: BUDGET,
            read_only,
            ..options()
        };
        then(mount_with(&self.image(), options));
        let used = own_status("VmHWM").saturating_sub(base);
        eprintln!("{} MiB, budget {} MiB", used >> 20, BUDGET >> 20);
        let most = BUDGET + BUDGET / 5 + CONSTANT;
        assert!(used <= most, "{}: {} MiB resident", self.name, used >> 20);
    }
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

/// Numbers of blocks outside of the journal and of the metadata of the first groups.
fn homes(log: &LogWriter, from: u64) -> impl Iterator<Item = FsBlock> + use<> {
    let journal = log.journal();
    let (first, last) = (journal[0], *journal.last().expect("a journal"));
    let metadata = FsBlock(520_000)..FsBlock(540_000);
    (from..)
        .map(FsBlock)
        .filter(move |b| !(first..=last).contains(b) && !metadata.contains(b))
}

#[test]
fn a_sparse_log_takes_no_memory_for_its_copies() {
    let Some(test) = Test::new("a sparse log") else {
        return;
    };
    let image = test.image();
    volume(&image, 4 << 30, 1024);
    let mut log = LogWriter::new(&image);
    let mut homes = homes(&log, 100_000);
    let mut seen = 0;
    while log.left() > 600 {
        let part: Vec<FsBlock> = homes.by_ref().take(508).collect();
        seen += part.len();
        log.descriptor(&part);
    }
    log.finish();
    let on_disk = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&image).unwrap()) * 512;
    eprintln!("{seen} blocks in the log, {} KiB on disk", on_disk >> 10);
    for read_only in [true, false] {
        test.mount(read_only, |mounted| {
            let fs = mounted.expect("mounts");
            assert_eq!(fs.info().recovery.replayed, seen as u64);
            fs.unmount().unwrap();
        });
    }
}

#[test]
fn revoke_records_take_no_memory_of_their_own() {
    let Some(test) = Test::new("a log of revoke records") else {
        return;
    };
    let image = test.image();
    volume(&image, 1 << 30, 64);
    let mut log = LogWriter::new(&image);
    let mut next = 0;
    let victims: Vec<FsBlock> = homes(&log, 100_000).take(100).collect();
    log.descriptor(&victims);
    while log.left() > 2 {
        let part: Vec<FsBlock> = (next..next + 1020).map(FsBlock).collect();
        next += 1020;
        log.revoke(&part);
    }
    log.finish();
    for read_only in [true, false] {
        test.mount(read_only, |mounted| {
            let fs = mounted.expect("mounts");
            assert_eq!(
                (fs.info().recovery.replayed, fs.info().recovery.revoked),
                (0, 100)
            );
            fs.unmount().unwrap();
        });
    }
}

#[test]
fn a_log_beyond_the_budget_is_refused_by_name() {
    let Some(test) = Test::new("a log beyond the budget") else {
        return;
    };
    let image = test.image();
    volume(&image, 20 << 30, 8 << 10);
    let mut log = LogWriter::new(&image);
    let mut homes = homes(&log, 100_000);
    while log.left() > 600 {
        let part: Vec<FsBlock> = homes.by_ref().take(508).collect();
        log.descriptor(&part);
    }
    log.finish();
    test.mount(true, |mounted| {
        let refused = mounted.err().expect("refused").to_string();
        assert!(refused.contains("larger memory budget"), "{refused}");
    });
}

#[test]
fn the_groups_of_a_large_volume_are_charged() {
    let Some(test) = Test::new("the groups of a large volume") else {
        return;
    };
    let image = test.image();
    for (size, fits) in [(2_u64 << 40, true), (8 << 40, false)] {
        volume(&image, size, 4);
        test.mount(true, |mounted| match (mounted, fits) {
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
        std::fs::remove_file(&image).unwrap();
    }
}

/// Changes fields of an inode by debugfs.
fn set_inode(image: &Path, inode: &str, fields: &[(&str, &str)]) {
    for (field, value) in fields {
        debugfs(image, &format!("set_inode_field {inode} {field} {value}"));
    }
}

#[test]
fn a_directory_larger_than_the_volume_is_refused_at_once() {
    let Some(test) = Test::new("a directory larger than the volume") else {
        return;
    };
    let image = test.image();
    volume(&image, 64 << 20, 4);
    debugfs(&image, "mkdir many");
    set_inode(&image, "many", &[("size", "0xfffffff000")]);
    test.mount(true, |mounted| {
        let fs = mounted.expect("mounts");
        let many = volume::at(&fs, "many").unwrap();
        let missed = fs.lookup(&many, b"not there").err().expect("an error");
        assert!(
            missed.to_string().contains("larger than the volume"),
            "{missed}"
        );
        fs.unmount().unwrap();
    });
}

#[test]
fn a_journal_whose_extents_point_to_one_node_is_refused_at_once() {
    let Some(test) = Test::new("extents that point to one node") else {
        return;
    };
    let image = test.image();
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
    let shown = debugfs(&image, "imap <8>");
    let place = shown.split("located at block ").nth(1).expect("imap");
    let (block, offset) = place.split_once(", offset ").expect("imap");
    let offset = offset.split_whitespace().next().expect("imap");
    let offset = offset.trim_start_matches("0x");
    let offset = usize::from_str_radix(offset, 16).expect("an offset");
    let inode = block.trim().parse::<usize>().expect("a block") * 4096 + offset;
    node(5, blocks[4], 4, &mut bytes[inode + 40..inode + 100]);
    std::fs::write(&image, &bytes).unwrap();
    test.mount(true, |mounted| {
        let refused = mounted.err().expect("refused").to_string();
        assert!(refused.contains("too many nodes"), "{refused}");
    });
}
