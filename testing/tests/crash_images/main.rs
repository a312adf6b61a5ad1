//! Images of power failures are recovered. Workloads run on a recorded disk; in an image each write
//! since the last flush is applied, dropped or torn. Recovery by us, by e2fsck and by the kernel
//! leaves a clean volume with all acknowledged changes. Canaries show that the checks notice a
//! device that ignores flushes, even a single one.
//!
//! docs/CRASH_TESTS.md lists the assertions, and how to replay a failure.

mod contents;
mod crowds;
mod indirect;
mod logged;
mod names;
mod syncs;
mod unjournaled;
mod work;

use ext4::{AsyncCommit, MountOptions, SyncKind};
use mkfs::MkfsOptions;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use testing::history::History;
use testing::recovery;
use testkit::crash::{Promises, Recording};
use testkit::disk::{Disk, save};
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;
use testkit::rounds;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{options, put, try_mount_on};
use testkit::watchdog::Watchdog;
use work::Work;

const SIZE: usize = 24 << 20;
/// Blocks of a journal on a device of its own: the kernel needs 1,024 behind the super blocks.
const EXTERNAL_LOG: u32 = 1032;

/// Images of a crash in a canary. Several, because many images hold all acknowledged changes by
/// chance.
const TRIES: usize = 12;

type Workload = fn(&mut Work) -> ext4::Result<()>;

/// The volume of a workload.
#[derive(Clone, Copy)]
enum Volume {
    /// By our mkfs, with these features.
    Ours(&'static [&'static str]),
    /// By mke2fs: block maps, and a journal without checksums.
    Ext3,
    /// By mke2fs with these arguments: no journal.
    Unjournaled(&'static [&'static str]),
    /// By mke2fs: small files and directories in their inodes.
    Inline,
    /// By mke2fs: clusters of four blocks.
    Clusters,
    /// By mke2fs: a journal on a device of its own.
    External(&'static [&'static str]),
}

impl<const N: usize> From<&'static [&'static str; N]> for Volume {
    fn from(features: &'static [&'static str; N]) -> Volume {
        Volume::Ours(features)
    }
}

impl Volume {
    /// Makes the volume. `None` if this machine cannot; that is printed.
    fn make(self, block_size: u32) -> Option<Disk> {
        let features = match self {
            Volume::Ours(features) => features,
            Volume::External(args) => {
                let build = Mke2fs::by_default(SIZE as u64).args(args);
                let build = build.args(&["-b", &block_size.to_string()]);
                let journal = u64::from(EXTERNAL_LOG * block_size);
                return Disk::by_mke2fs_with_journal(&build, journal);
            }
            Volume::Ext3 => {
                let build = Mke2fs::of_type(SIZE as u64, "ext3");
                return Some(Disk::by_mke2fs(
                    &build.args(&["-b", &block_size.to_string()]),
                ));
            }
            Volume::Unjournaled(args) => {
                let build = Mke2fs::of_type(SIZE as u64, "ext2");
                return Some(Disk::by_mke2fs(&build.args(args)));
            }
            Volume::Inline => {
                let build = Mke2fs::by_default(SIZE as u64).args(&["-O", "inline_data"]);
                return Some(Disk::by_mke2fs(
                    &build.args(&["-b", &block_size.to_string()]),
                ));
            }
            Volume::Clusters => {
                let args = [
                    "-b",
                    &block_size.to_string(),
                    "-C",
                    &(4 * block_size).to_string(),
                ];
                let build = Mke2fs::by_default(2 * SIZE as u64).args(&["-O", "bigalloc"]);
                return Some(Disk::by_mke2fs(&build.args(&args)));
            }
        };
        let disk = Disk::new(SIZE);
        let mkfs = MkfsOptions {
            features: features.iter().map(|f| (*f).to_owned()).collect(),
            block_size,
            ..MkfsOptions::default()
        };
        mkfs::format(&disk.queue(), &mkfs).unwrap();
        Some(disk)
    }
}

/// Options of a workload's volume and mount.
#[derive(Clone, Copy)]
struct Setup {
    volume: Volume,
    async_commit: AsyncCommit,
    block_size: u32,
}

impl Setup {
    /// Images of a workload in a short test.
    fn images(self) -> usize {
        match self.async_commit {
            // A third form of the same.
            _ if self.block_size < 4096 => 5,
            AsyncCommit::Never => 26,
            AsyncCommit::Always => 13,
            AsyncCommit::Adaptive => 7,
        }
    }
}

/// Runs a workload on a recorded disk. `None` if this machine cannot make the volume.
fn record(work: Workload, setup: Setup, rng: &mut Rng) -> Option<(Recording, Arc<Mutex<History>>)> {
    let disk = setup.volume.make(setup.block_size)?;
    let mount = MountOptions {
        async_commit: setup.async_commit,
        ..options()
    };
    let fs = try_mount_on(&disk, mount).unwrap();
    if setup.async_commit == AsyncCommit::Adaptive {
        // After a few more commits the log changes its form, during the workload.
        for i in 0..12u8 {
            let file = put(&fs, &format!("before{i}"), &[i]).unwrap();
            fs.fsync(&file, SyncKind::Fsync).unwrap();
        }
    }
    disk.start_recording();
    let mut state = Work {
        disk: disk.clone(),
        fs,
        history: Arc::default(),
        rng: rng.fork(),
    };
    work(&mut state).unwrap();
    let recording = disk.take_recording();
    state.fs.crash();
    Some((recording, state.history))
}

/// Positions of crashes, ascending: half of them right before and after flushes (all flushes, if
/// there are few), the others anywhere.
fn positions(recording: &Recording, count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut at: Vec<usize> = recording.log.flushes();
    while at.len() > count / 4 {
        at.swap_remove(rng.index(at.len()));
    }
    at.extend_from_within(..);
    let half = at.len() / 2;
    at[half..].iter_mut().for_each(|after| *after += 1);
    at.resize_with(count, || rng.index(recording.log.len() + 1));
    at.sort_unstable();
    at
}

/// Ends a test of crash images that hangs.
fn watchdog(name: &str) -> Watchdog {
    let seconds = if testkit::long() { 3600 } else { 240 };
    Watchdog::new(name, Duration::from_secs(seconds))
}

/// Keeps an image that a test has failed on, if `SLUICE_KEEP` names a directory.
fn keep(image: &[u8], name: &str, at: usize) {
    if let Some(dir) = std::env::var_os("SLUICE_KEEP") {
        let path = std::path::Path::new(&dir).join(format!("{name}-{at}.img"));
        save(image, &path);
    }
}

fn crash(name: &str, work: Workload, setup: Setup) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let by_kernel = have(
        &format!("{name}, recovered by the kernel"),
        &[Need::Loop, Need::Tool("mount")],
    );
    let _watchdog = watchdog(name);
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let Some((recording, history)) = record(work, setup, &mut rng) else {
        return;
    };
    let history = history.lock();
    let images = rounds(setup.images(), 400);
    let at = positions(&recording, images, &mut rng);
    let count = at.len();
    for (n, at) in at.into_iter().enumerate() {
        let image = recording.image(at, &mut rng);
        let mut result = Ok(());
        if n % 5 == 0 {
            result = recovery::by_fsck(&image, &history, at, &scratch);
        }
        if n % 13 == 7 && by_kernel {
            result = result.and_then(|()| recovery::by_kernel(&image, &history, at, &scratch));
        }
        if n % 4 == 1 {
            let image = image.clone();
            result = result
                .and_then(|()| recovery::by_us_twice(image, &history, at, &scratch, &mut rng));
        }
        let raw = image.clone();
        let result = result.and_then(|()| recovery::by_us(image, &history, at, &scratch));
        if let Err(e) = result {
            keep(&raw, name, at);
            panic!(
                "{name}: crash at event {at} of {}: {e}",
                recording.log.len()
            );
        }
    }
    let (events, flushes) = (recording.log.len(), recording.log.flushes().len());
    eprintln!("{name}: {count} images of {events} events, {flushes} of them flushes: all good");
}

/// A canary: the checks must fail on a device that ignores flushes, and on one that ignores a
/// single flush, as if the engine had left it out. With asynchronous commits most changes become
/// durable by FUA, and flushes are few.
fn canary(name: &str, work: Workload, setup: Setup) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let _watchdog = Watchdog::new(name, Duration::from_secs(240));
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let Some((recording, history)) = record(work, setup, &mut rng) else {
        return;
    };
    let history = history.lock();
    let (end, flushes) = (recording.log.len(), recording.log.flushes());
    let mut noticed = |promises, at| {
        let image = recording.image_if(promises, at, &mut rng);
        recovery::by_us(image, &history, at, &scratch).is_err()
    };
    let always_flushed = setup.async_commit == AsyncCommit::Never;
    let lies = match always_flushed {
        true => Promises::FlushesIgnored,
        false => Promises::NoneKept,
    };
    assert!(
        (0..TRIES).any(|_| noticed(lies, end)),
        "{name}: the checks do not notice that flushes are ignored"
    );
    if !always_flushed {
        return;
    }
    // The power fails before the next flush, which would cover the same writes.
    let next = flushes.iter().copied().skip(1).chain([end]);
    let mut left_out = flushes.iter().copied().zip(next);
    assert!(
        left_out.any(|(flush, next)| {
            let promises = Promises::OneFlushIgnored(flush);
            (0..TRIES).any(|_| noticed(promises, next))
        }),
        "{name}: the checks do not notice that one flush is ignored"
    );
}

macro_rules! workloads {
    (@form $form:ident, $async_commit:expr; $($workload:tt)*) => {
        mod $form {
            use super::*;

            workloads!(@each crash, $form, $async_commit, 4096; $($workload)*);

            mod canary {
                use super::*;

                workloads!(@each canary, $form, $async_commit, 4096; $($workload)*);
            }
        }
    };
    (@each $check:ident, $form:ident, $async_commit:expr, $block_size:expr;
     $($name:ident: $work:expr, $volume:expr;)*) => {
        $(#[test]
        fn $name() {
            let setup = Setup {
                volume: Volume::from($volume),
                async_commit: $async_commit,
                block_size: $block_size,
            };
            $check(concat!(stringify!($form), "-", stringify!($name)), $work, setup);
        })*
    };
    ($($workload:tt)*) => {
        workloads!(@form ordered, AsyncCommit::Never; $($workload)*);
        workloads!(@form async_commit, AsyncCommit::Always; $($workload)*);
        workloads!(@form adaptive, AsyncCommit::Adaptive; $($workload)*);

        mod blocks_of_1_kib {
            use super::*;

            workloads!(@each crash, blocks_of_1_kib, AsyncCommit::Adaptive, 1024; $($workload)*);
        }

        mod blocks_of_2_kib {
            use super::*;

            workloads!(@each crash, blocks_of_2_kib, AsyncCommit::Never, 2048; $($workload)*);
        }
    };
}

workloads! {
    creating: Work::create_fsync, &[];
    overwriting: Work::overwrite_fsync, &[];
    appending: Work::append, &["^metadata_csum"];
    truncating: Work::truncate, &[];
    rewriting: Work::rewrite, &[];
    preallocating: Work::preallocate, &[];
    reusing_freed_blocks: Work::reuse, &[];
    replacing: Work::rename_over, &[];
    replacing_without_fsync: Work::rename_over_without_fsync, &[];
    unlinking: Work::unlink, &[];
    unlinking_with_orphan_list: Work::unlink, &["^orphan_file"];
    linking_unnamed_files: Work::unnamed, &[];
    linking_unnamed_files_with_orphan_list: Work::unnamed, &["^orphan_file"];
    making_trees: Work::trees, &[];
    wrapping_around: Work::wrap_around, &[];
    wrapping_around_without_checksums: Work::wrap_around, &["^metadata_csum,^64bit"];
    syncing_later: Work::fsyncs_later, &[];
    syncing_in_bulk: Work::fsyncs_in_bulk, &[];
    syncing_in_bulk_without_checksums: Work::fsyncs_in_bulk, &["^metadata_csum"];
    syncing_subtrees: Work::subtrees, &[];
    threads_at_once: Work::at_once, &[];
    threads_syncing_in_every_way: Work::every_way_at_once, &[];
    data_through_the_log: Work::logged_data, &[];
    data_through_the_log_without_checksums: Work::logged_data, &["^metadata_csum,^64bit"];
    overwriting_what_is_in_the_log: Work::overwritten_by_the_flusher, &[];
    reusing_what_is_in_the_log: Work::freed_from_the_log, &[];
}

macro_rules! workloads_of_ext3 {
    ($($name:ident: $work:expr;)*) => {
        workloads! { @form block_maps, AsyncCommit::Never; $($name: $work, Volume::Ext3;)* }

        mod block_maps_of_1_kib {
            use super::*;

            workloads! { @each crash, block_maps_of_1_kib, AsyncCommit::Adaptive, 1024;
                $($name: $work, Volume::Ext3;)*
            }
        }
    };
}

// Features of ext4 make no difference here.
workloads_of_ext3! {
    creating: Work::create_fsync;
    overwriting: Work::overwrite_fsync;
    appending: Work::append;
    truncating: Work::truncate;
    rewriting: Work::rewrite;
    zeroing: Work::preallocate;
    reusing_freed_blocks: Work::reuse;
    reusing_indirect_blocks: Work::indirect_blocks;
    replacing: Work::rename_over;
    replacing_without_fsync: Work::rename_over_without_fsync;
    unlinking: Work::unlink;
    linking_unnamed_files: Work::unnamed;
    making_trees: Work::trees;
    wrapping_around: Work::wrap_around;
    syncing_later: Work::fsyncs_later;
    syncing_in_bulk: Work::fsyncs_in_bulk;
    syncing_subtrees: Work::subtrees;
    threads_at_once: Work::at_once;
    threads_syncing_in_every_way: Work::every_way_at_once;
    data_through_the_log: Work::logged_data;
    overwriting_what_is_in_the_log: Work::overwritten_by_the_flusher;
    reusing_what_is_in_the_log: Work::freed_from_the_log;
}

workloads! { @form inline_data, AsyncCommit::Adaptive;
    creating: Work::create_fsync, Volume::Inline;
    appending: Work::append, Volume::Inline;
    truncating: Work::truncate, Volume::Inline;
    rewriting: Work::rewrite, Volume::Inline;
    replacing: Work::rename_over, Volume::Inline;
    unlinking: Work::unlink, Volume::Inline;
    linking_unnamed_files: Work::unnamed, Volume::Inline;
    making_trees: Work::trees, Volume::Inline;
    syncing_in_bulk: Work::fsyncs_in_bulk, Volume::Inline;
    threads_at_once: Work::at_once, Volume::Inline;
    growing_out_of_inodes: Work::out_of_inodes, Volume::Inline;
}

macro_rules! workloads_of_clusters {
    ($($name:ident: $work:expr;)*) => {
        workloads! { @form clusters, AsyncCommit::Adaptive; $($name: $work, Volume::Clusters;)* }

        mod clusters_of_1_kib_blocks {
            use super::*;

            workloads! { @each crash, clusters_of_1_kib_blocks, AsyncCommit::Never, 1024;
                $($name: $work, Volume::Clusters;)*
            }
        }
    };
}

// Workloads that allocate and free.
workloads_of_clusters! {
    creating: Work::create_fsync;
    overwriting: Work::overwrite_fsync;
    appending: Work::append;
    truncating: Work::truncate;
    rewriting: Work::rewrite;
    preallocating: Work::preallocate;
    reusing_freed_blocks: Work::reuse;
    replacing_without_fsync: Work::rename_over_without_fsync;
    unlinking: Work::unlink;
    making_trees: Work::trees;
    wrapping_around: Work::wrap_around;
    syncing_in_bulk: Work::fsyncs_in_bulk;
    threads_at_once: Work::at_once;
    data_through_the_log: Work::logged_data;
    overwriting_what_is_in_the_log: Work::overwritten_by_the_flusher;
    reusing_what_is_in_the_log: Work::freed_from_the_log;
}

// After the macro that it uses.
mod external;
