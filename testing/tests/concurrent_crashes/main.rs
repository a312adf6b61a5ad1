//! Crash images of histories that several threads make at once, beside the flusher, timed commits
//! and checkpoints, on a device whose requests overlap and take unequally long. docs/CRASH_TESTS.md
//! says what is asserted.
//!
//! The changes of one file are made one after another (the history needs their order); fsyncs of it
//! by other threads, writeback, commits and checkpoints run beside them. The log is small, so that
//! it wraps around several times.

mod files;
mod scenarios;

use ext4::{AsyncCommit, Fs, MkfsOptions, MountOptions};
use files::Shared;
use std::sync::Arc;
use std::time::Duration;
use testing::disk::{Disk, save};
use testing::history::History;
use testing::needs::{Need, have};
use testing::overlap::{Delays, Overlap, Timeline};
use testing::scratch::Scratch;
use testing::seed::Rng;
use testing::watchdog::Watchdog;
use testing::{recovery, rounds};

/// Images of one recording.
const IMAGES: usize = 40;
/// Images in which a canary must be noticed.
const CANARY_IMAGES: usize = 60;

/// A workload: runs its threads and returns when they have ended.
type Workload = fn(&Shared, &mut Rng) -> ext4::Result<()>;

/// A workload, and the volume that it runs on.
#[derive(Clone, Copy)]
struct Scenario {
    workload: Workload,
    /// Bytes of the volume.
    size: usize,
    /// Bytes of its log.
    log: u64,
    /// Delays of the device and the commit interval, where they are not left to chance.
    timing: Option<(Delays, Duration)>,
}

impl Scenario {
    /// A small volume with the smallest log: 1,024 blocks.
    const fn new(workload: Workload) -> Scenario {
        Scenario {
            workload,
            size: 16 << 20,
            log: 4 << 20,
            timing: None,
        }
    }
}

/// Data is slow, so that it is in flight when a timed commit begins.
const REWRITE: Scenario = Scenario {
    timing: Some((
        Delays {
            data_us: 60_000,
            journal_us: 50,
            home_us: 50,
            flush_us: 50,
        },
        scenarios::REWRITE_INTERVAL,
    )),
    ..Scenario::new(scenarios::rewrite)
};

/// Nothing is slow, so that a change often meets the moment at which data has just landed.
const RESIZE: Scenario = Scenario {
    timing: Some((
        Delays {
            data_us: 0,
            journal_us: 0,
            home_us: 0,
            flush_us: 0,
        },
        Duration::from_millis(100),
    )),
    ..Scenario::new(scenarios::resize)
};

/// Blocks go home slowly, and a checkpoint has more of them than it writes at once, so that many
/// are logged anew between its beginning and their turn.
const LONG_CHECKPOINTS: Scenario = Scenario {
    size: 20 << 20,
    log: 8 << 20,
    timing: Some((
        Delays {
            data_us: 30,
            journal_us: 30,
            home_us: 600,
            flush_us: 30,
        },
        Duration::from_millis(100),
    )),
    ..Scenario::new(scenarios::relog)
};

fn delays(rng: &mut Rng) -> Delays {
    *rng.pick(&[
        Delays {
            data_us: 300,
            journal_us: 30,
            home_us: 600,
            flush_us: 200,
        },
        Delays {
            data_us: 1500,
            journal_us: 50,
            home_us: 50,
            flush_us: 50,
        },
        Delays {
            data_us: 20,
            journal_us: 400,
            home_us: 2000,
            flush_us: 20,
        },
    ])
}

fn mount_options(rng: &mut Rng) -> MountOptions {
    let mut options = MountOptions {
        memory: 32 << 20,
        commit_interval: Duration::from_millis(*rng.pick(&[5, 20, 100])),
        async_commit: *rng.pick(&[
            AsyncCommit::Never,
            AsyncCommit::Adaptive,
            AsyncCommit::Always,
        ]),
        ..MountOptions::default()
    };
    options.tunables.dirty_writeback = Duration::from_millis(*rng.pick(&[10, 40]));
    options.tunables.dirty_expire = Duration::from_millis(*rng.pick(&[1, 30]));
    options
}

/// One history, recorded.
fn record(scenario: Scenario, rng: &mut Rng) -> (Timeline, History) {
    let formatted = Disk::new(scenario.size);
    let mkfs = MkfsOptions {
        journal_bytes: Some(scenario.log),
        ..MkfsOptions::default()
    };
    ext4::mkfs(&formatted.queue(), &mkfs).unwrap();
    let (mut delays, mut options) = (delays(rng), mount_options(rng));
    if let Some(given) = scenario.timing {
        (delays, options.commit_interval) = given;
    }
    let disk = Overlap::new(formatted.bytes(), delays, rng.fork());
    let fs = Fs::mount(disk.queue(), options).unwrap();
    let base = disk.start_recording();
    let shared = Shared::new(disk.clone(), fs.clone());
    (scenario.workload)(&shared, rng).unwrap();
    let timeline = disk.take_timeline(base);
    let (history, end) = shared.into_history();
    let timeline = timeline.up_to(end);
    fs.crash();
    (timeline, history)
}

/// Positions of crashes, ascending: half of them where something has just become durable, the
/// others anywhere.
fn positions(timeline: &Timeline, count: usize, rng: &mut Rng) -> Vec<usize> {
    let turns: Vec<usize> = (0..timeline.len())
        .filter(|&at| timeline.is_turning_point(at))
        .collect();
    let mut at: Vec<usize> = (0..count)
        .map(|n| match n % 2 {
            0 if !turns.is_empty() => rng.pick(&turns) + rng.index(3),
            _ => rng.index(timeline.len() + 1),
        })
        .map(|at| at.min(timeline.len()))
        .collect();
    at.sort_unstable();
    at
}

fn crash(name: &str, scenario: Scenario) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let by_kernel = have(
        &format!("{name}, recovered by the kernel"),
        &[Need::Loop, Need::Tool("mount")],
    );
    let limit = if testing::long() { 7200 } else { 240 };
    let _watchdog = Watchdog::new(name, Duration::from_secs(limit));
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let (mut images, mut moments, mut flushes) = (0, 0, 0);
    for _ in 0..rounds(2, 100) {
        let (timeline, history) = record(scenario, &mut rng);
        moments += timeline.len();
        flushes += timeline.flushes();
        for (n, at) in positions(&timeline, IMAGES, &mut rng)
            .into_iter()
            .enumerate()
        {
            let image = timeline.image(at, true, &mut rng);
            let mut result = Ok(());
            if n % 16 == 5 {
                result = recovery::by_fsck(&image, &history, at, &scratch);
            }
            if n % 32 == 11 && by_kernel {
                result = result.and_then(|()| recovery::by_kernel(&image, &history, at, &scratch));
            }
            let result = result.and_then(|()| {
                let image = image.clone();
                recovery::by_us(image, &history, at, &scratch)
            });
            if let Err(e) = result {
                if let Some(dir) = std::env::var_os("SLUICE_KEEP") {
                    let path = std::path::Path::new(&dir).join(format!("{name}-{at}.img"));
                    save(&image, &path);
                }
                let (of, before) = (timeline.len(), timeline.describe(at, 40));
                panic!("{name}, image {images}: crash at moment {at} of {of}: {e}\n{before}");
            }
            images += 1;
        }
    }
    eprintln!("{name}: {images} images of {moments} moments, {flushes} flushes: all good");
}

/// On a device that ignores flushes and FUA something acknowledged is lost; a check that does not
/// see that sees nothing.
fn canary(name: &str, scenario: Scenario) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let _watchdog = Watchdog::new(name, Duration::from_secs(240));
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let (timeline, history) = record(scenario, &mut rng);
    let noticed = (0..CANARY_IMAGES).any(|_| {
        let at = timeline.len() - rng.index(timeline.len() / 4 + 1);
        let image = timeline.image(at, false, &mut rng);
        recovery::by_us(image, &history, at, &scratch).is_err()
    });
    assert!(noticed, "{name}: flushes were ignored and nobody noticed");
}

macro_rules! scenarios {
    ($($name:ident: $scenario:expr;)*) => {
        $(#[test]
        fn $name() {
            crash(stringify!($name), $scenario);
        })*

        mod canary {
            use super::*;

            $(#[test]
            fn $name() {
                canary(stringify!($name), $scenario);
            })*
        }
    };
}

scenarios! {
    mixed_changes: Scenario::new(scenarios::mixed);
    overwrites_through_the_log: Scenario::new(scenarios::overwrites);
    logging_beside_long_checkpoints: LONG_CHECKPOINTS;
    growing_beside_fsync: Scenario::new(scenarios::growth);
    resizing_once_beside_fsync: RESIZE;
    replacing_by_rename: Scenario::new(scenarios::replace);
    rewriting_beside_timed_commits: REWRITE;
}

/// The engine behind a scenario.
pub(crate) type Engine = Arc<Fs>;
