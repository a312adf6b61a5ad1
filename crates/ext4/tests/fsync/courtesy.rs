//! Much beside somebody who has little.

use crate::volume::{Disk, all, cost, get, put};
use block::Op;
use ext4::{Fs, InodeRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use writeback::Clock;

/// A clock that goes only when it is told to.
#[derive(Default)]
struct Stopped(AtomicU64);

impl Stopped {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for Stopped {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
    fn realtime(&self) -> (i64, u32) {
        (1_700_000_000, 0)
    }
}

/// 12 MiB.
fn many(fs: &Arc<Fs>, name: &str) -> Vec<InodeRef> {
    (0..3000)
        .map(|i| put(fs, &format!("{name}{i}"), &[i as u8; 4096]))
        .collect()
}

#[test]
fn a_large_sync_goes_in_steps_while_small_ones_are_about() {
    let disk = Disk::new();
    let clock = Arc::new(Stopped::default());
    let fs = disk.mount_with(|options| options.clock = clock.clone());
    let flushes = |name| {
        let files = many(&fs, name);
        let (cost, results) = cost(&fs, || fs.fsync_many(&all(&files)));
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(cost.commits, 1);
        cost.flushes
    };
    assert_eq!(flushes("alone"), 1);
    fs.fsync(&put(&fs, "large", &vec![1; 8 << 20]), false)
        .unwrap();
    assert_eq!(flushes("beside large"), 1);
    fs.fsync(&put(&fs, "small", b"x"), false).unwrap();
    let beside = flushes("beside");
    assert!(
        (3..=6).contains(&beside),
        "steps of 1, 2, 4 and more MiB: {beside}"
    );
    clock.advance(Duration::from_secs(1));
    assert_eq!(flushes("alone again"), 1);
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "beside2999"), [(2999 % 256) as u8; 4096]);
}

#[test]
fn a_flush_that_fails_between_steps_is_told_to_all() {
    let disk = Disk::new();
    let fs = disk.mount_with(|options| options.clock = Arc::new(Stopped::default()));
    fs.fsync(&put(&fs, "small", b"x"), false).unwrap();
    let files = many(&fs, "f");
    let mut failed = false;
    disk.inject(move |op, _, _| {
        let first = op == Op::Flush && !failed;
        failed |= first;
        first.then_some(5)
    });
    let results = fs.fsync_many(&all(&files));
    disk.heal();
    assert!(results.iter().all(Result::is_err));
}
