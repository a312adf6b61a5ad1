//! The memory budget holds during writes of ten times as much, and while hundred thousands of files
//! are created and deleted. All of it is one test, because resident memory is that of the process.

use ext4::{Fs, MountOptions, SyncKind};
use std::sync::Arc;
use std::time::Duration;
use testkit::memory::own_status;
use testkit::needs::{Need, have};
use testkit::oracle::assert_clean;
use testkit::scratch::Scratch;
use testkit::volume::{mkfs, mount_with, new, options, put};
use testkit::watchdog::Watchdog;

const BUDGET: u64 = 128 << 20;
/// Memory of a process outside of the budget: stacks, rings, the allocator.
const CONSTANT: u64 = 16 << 20;

fn resident() -> u64 {
    own_status("VmRSS")
}

/// Resident memory without caches and without the memory that the budget counts (changes of
/// metadata that are not home yet).
fn uncounted(fs: &Fs) -> u64 {
    fs.drop_caches();
    resident().saturating_sub(fs.budget().used())
}

fn peak() -> u64 {
    own_status("VmHWM")
}

fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn assert_within(base: u64, what: &str) {
    let used = peak().saturating_sub(base);
    eprintln!(
        "{what}: {} MiB over the start, budget {} MiB",
        used >> 20,
        BUDGET >> 20
    );
    let most = BUDGET + BUDGET / 5 + CONSTANT;
    assert!(used <= most, "{what}: {} MiB resident", used >> 20);
}

fn stream(fs: &Fs) {
    let chunk = vec![0xa5; 1 << 20];
    let file = put(fs, "stream", b"").unwrap();
    for i in 0..(10 * BUDGET) >> 20 {
        fs.write(&file, i << 20, &chunk).unwrap();
    }
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    let mut buf = vec![0; 1 << 20];
    for i in 0..(10 * BUDGET) >> 20 {
        assert_eq!(fs.read(&file, i << 20, &mut buf).unwrap(), buf.len());
        assert!(buf.iter().all(|&b| b == 0xa5));
    }
}

fn come_and_go(fs: &Fs, files: usize) {
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"dir", new(0o040_755)).unwrap();
    let name = |i: usize| format!("file-{i:07}");
    for i in 0..files {
        let file = fs.create(&dir, name(i).as_bytes(), new(0o100_644)).unwrap();
        if i % 4 == 0 {
            fs.write(&file, 0, b"some bytes").unwrap();
        }
    }
    for i in 0..files {
        fs.lookup(&dir, name(i).as_bytes()).unwrap();
    }
    for i in 0..files {
        fs.unlink(&dir, name(i).as_bytes()).unwrap();
    }
    fs.rmdir(&root, b"dir").unwrap();
    fs.sync().unwrap();
}

#[test]
fn the_budget_holds() {
    let _watchdog = Watchdog::new(
        "memory",
        Duration::from_secs(if testkit::long() { 1800 } else { 200 }),
    );
    let scratch = Scratch::new();
    let image = scratch.join("image");
    // There is an inode for every 16 KiB, so a million files need 16 GiB.
    mkfs(
        &image,
        if testkit::long() { 32 << 30 } else { 4 << 30 },
        &[],
    );
    let options = MountOptions {
        memory: BUDGET,
        ..options()
    };
    let fs: Arc<Fs> = mount_with(&image, options).unwrap();
    put(&fs, "warm", &[1; 100_000]).unwrap();
    fs.sync().unwrap();
    reset_peak();
    let base = resident();
    stream(&fs);
    assert_within(base, "writing and reading ten times the budget");

    let files = testkit::rounds(50_000, 1_000_000);
    come_and_go(&fs, files);
    let first = uncounted(&fs);
    come_and_go(&fs, files);
    come_and_go(&fs, files / 2);
    assert_within(base, "files that come and go");
    let second = uncounted(&fs);
    let growth = second.saturating_sub(first);
    eprintln!(
        "resident and not counted after one round {} MiB, after three {} MiB",
        first >> 20,
        second >> 20
    );
    assert!(growth < 12 << 20, "{} MiB of growth", growth >> 20);
    assert!(fs.budget().used() <= BUDGET);
    fs.unmount().unwrap();
    drop(fs);
    if have("memory", &[Need::Tool("e2fsck")]) {
        assert_clean(&image, "after the budget was tested");
    }
}
