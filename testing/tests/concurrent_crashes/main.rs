//! Crash images of histories of several threads, concurrent with the flusher, timed commits and
//! checkpoints, on a device whose requests overlap and take unequally long. docs/CRASH_TESTS.md
//! lists the assertions.
//!
//! The changes of one file are sequential, because the history needs their order. fsyncs of it by
//! other threads, writeback, commits and checkpoints are concurrent. The log is small, so that it
//! wraps around several times.

mod files;
mod scenarios;

use ext4::{AsyncCommit, Fs, MountOptions};
use files::Shared;
use mkfs::MkfsOptions;
use std::sync::Arc;
use std::time::Duration;
use testing::history::History;
use testing::recovery;
use testkit::crash::{Log, Promises, Recording};
use testkit::disk::{Delays, Disk, save};
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;
use testkit::rounds;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::watchdog::Watchdog;

/// Images of one recording.
const IMAGES: usize = 40;
/// Images in one of which the checks must fail on a broken device.
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
    /// Bytes of a block.
    block_size: u32,
    format: Format,
    /// Delays of the device and the commit interval; `None`: random.
    timing: Option<(Delays, Duration)>,
}

#[derive(Clone, Copy)]
enum Format {
    /// That of our mkfs.
    Ours,
    /// By mke2fs: block maps, and a journal without checksums.
    Ext3,
    /// By mke2fs, ext4 with these features besides the defaults.
    Ext4With(&'static str),
    /// The same with `bigalloc` and clusters of this many bytes.
    Clusters(&'static str),
}

impl Scenario {
    /// A small volume with the smallest log: 1,024 blocks.
    const fn new(workload: Workload) -> Scenario {
        Scenario {
            workload,
            size: 16 << 20,
            log: 4 << 20,
            block_size: 4096,
            format: Format::Ours,
            timing: None,
        }
    }

    /// The same on a volume that mke2fs makes with these features.
    const fn with_features(self, features: &'static str) -> Scenario {
        Scenario {
            format: Format::Ext4With(features),
            ..self
        }
    }

    /// The same with clusters of so many bytes, on a volume with space for as many.
    const fn with_clusters(self, bytes: &'static str) -> Scenario {
        Scenario {
            format: Format::Clusters(bytes),
            size: self.size * 2,
            ..self
        }
    }

    /// The same with smaller blocks. The log has as many.
    const fn blocks_of(self, block_size: u32) -> Scenario {
        Scenario {
            block_size,
            log: self.log * block_size as u64 / 4096,
            ..self
        }
    }

    /// The same on ext3.
    const fn on_ext3(self) -> Scenario {
        Scenario {
            format: Format::Ext3,
            ..self
        }
    }

    fn volume(&self) -> Vec<u8> {
        let by_mke2fs = |build: Mke2fs| {
            let (block_size, journal) = (self.block_size.to_string(), self.log >> 20);
            let journal = format!("size={journal}");
            Disk::by_mke2fs(&build.args(&["-b", &block_size, "-J", &journal])).bytes()
        };
        match self.format {
            Format::Ours => {
                let disk = Disk::new(self.size);
                let mkfs = MkfsOptions {
                    journal_bytes: Some(self.log),
                    block_size: self.block_size,
                    ..MkfsOptions::default()
                };
                mkfs::format(&disk.queue(), &mkfs).unwrap();
                disk.bytes()
            }
            Format::Ext3 => by_mke2fs(Mke2fs::of_type(self.size as u64, "ext3")),
            Format::Ext4With(features) => {
                by_mke2fs(Mke2fs::by_default(self.size as u64).args(&["-O", features]))
            }
            Format::Clusters(bytes) => {
                let build = Mke2fs::by_default(self.size as u64);
                by_mke2fs(build.args(&["-O", "bigalloc", "-C", bytes]))
            }
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

/// Nothing is slow, so that changes often happen right after a write has completed.
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

/// Home writes are slow, and a checkpoint has more blocks than it writes at once. Many blocks are
/// logged again before the checkpoint writes them.
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

/// Records one history.
fn record(scenario: Scenario, rng: &mut Rng) -> (Recording, History) {
    let (mut delays, mut options) = (delays(rng), mount_options(rng));
    if let Some(given) = scenario.timing {
        (delays, options.commit_interval) = given;
    }
    let disk = Disk::with_delays(scenario.volume(), delays, rng.fork());
    let fs = Fs::mount(disk.queue(), options).unwrap();
    disk.start_recording();
    let shared = Shared::new(disk.clone(), fs.clone());
    (scenario.workload)(&shared, rng).unwrap();
    let mut recording = disk.take_recording();
    let (history, end) = shared.into_history();
    recording.log.truncate(end);
    fs.crash();
    (recording, history)
}

/// Positions of crashes, ascending: half of them right after the end of a flush or an FUA write,
/// the others anywhere.
fn positions(log: &Log, count: usize, rng: &mut Rng) -> Vec<usize> {
    let turns: Vec<usize> = (0..log.len())
        .filter(|&at| log.is_turning_point(at))
        .collect();
    let mut at: Vec<usize> = (0..count)
        .map(|n| match n % 2 {
            0 if !turns.is_empty() => rng.pick(&turns) + rng.index(3),
            _ => rng.index(log.len() + 1),
        })
        .map(|at| at.min(log.len()))
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
    let limit = if testkit::long() { 7200 } else { 240 };
    let _watchdog = Watchdog::new(name, Duration::from_secs(limit));
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let (mut images, mut events, mut flushes) = (0, 0, 0);
    for _ in 0..rounds(2, 100) {
        let (recording, history) = record(scenario, &mut rng);
        events += recording.log.len();
        flushes += recording.log.flushes().len();
        for (n, at) in positions(&recording.log, IMAGES, &mut rng)
            .into_iter()
            .enumerate()
        {
            let image = recording.image(at, &mut rng);
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
                let (of, before) = (recording.log.len(), recording.log.describe(at, 40));
                panic!("{name}, image {images}: crash at event {at} of {of}: {e}\n{before}");
            }
            images += 1;
        }
    }
    eprintln!("{name}: {images} images of {events} events, {flushes} flushes: all good");
}

/// A canary: on a device that ignores flushes and FUA the checks must fail.
fn canary(name: &str, scenario: Scenario) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let _watchdog = Watchdog::new(name, Duration::from_secs(240));
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let (recording, history) = record(scenario, &mut rng);
    let noticed = (0..CANARY_IMAGES).any(|_| {
        let at = recording.log.len() - rng.index(recording.log.len() / 4 + 1);
        let image = recording.image_if(Promises::NoneKept, at, &mut rng);
        recovery::by_us(image, &history, at, &scratch).is_err()
    });
    assert!(
        noticed,
        "{name}: the checks do not notice that flushes are ignored"
    );
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
    mixed_changes_of_blocks_of_1_kib: Scenario::new(scenarios::mixed).blocks_of(1024);
    overwrites_through_the_log_of_1_kib: Scenario::new(scenarios::overwrites).blocks_of(1024);
    growing_beside_fsync_by_blocks_of_2_kib: Scenario::new(scenarios::growth).blocks_of(2048);
    resizing_once_beside_fsync_by_blocks_of_1_kib: RESIZE.blocks_of(1024);
    mixed_changes_on_ext3: Scenario::new(scenarios::mixed).on_ext3();
    overwrites_through_the_log_on_ext3: Scenario::new(scenarios::overwrites).on_ext3();
    logging_beside_long_checkpoints_on_ext3: LONG_CHECKPOINTS.on_ext3();
    growing_beside_fsync_on_ext3_of_1_kib: Scenario::new(scenarios::growth).blocks_of(1024).on_ext3();
    replacing_by_rename_on_ext3: Scenario::new(scenarios::replace).on_ext3();
    mixed_changes_on_ext3_of_1_kib: Scenario::new(scenarios::mixed).blocks_of(1024).on_ext3();
    small_files_in_inodes: Scenario::new(scenarios::small).with_features("inline_data");
    mixed_changes_with_clusters: Scenario::new(scenarios::mixed).with_clusters("16384");
    mixed_changes_with_clusters_of_64_blocks: Scenario::new(scenarios::mixed).blocks_of(1024).with_clusters("65536");
    overwrites_through_the_log_with_clusters: Scenario::new(scenarios::overwrites).with_clusters("16384");
    growing_beside_fsync_with_clusters: Scenario::new(scenarios::growth).with_clusters("65536");
    replacing_by_rename_with_clusters: Scenario::new(scenarios::replace).with_clusters("8192");
    mixed_changes_with_inline_data: Scenario::new(scenarios::mixed).with_features("inline_data");
}

/// The engine behind a scenario.
pub(crate) type Engine = Arc<Fs>;
