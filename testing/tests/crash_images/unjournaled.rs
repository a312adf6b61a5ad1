//! Crash images of volumes without a journal. A synced file that has not changed since survives;
//! e2fsck repairs the rest (docs/FSYNC.md).

use crate::work::Work;
use crate::{Setup, TRIES, Volume, Workload, keep, positions, record, watchdog};
use ext4::{AsyncCommit, Fs};
use std::time::Duration;
use testing::recovery::{self, Reader};
use testkit::crash::Promises;
use testkit::needs::{Need, have};
use testkit::rounds;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{options, put, remove};
use testkit::watchdog::Watchdog;

/// Histories of a canary.
const HISTORIES: usize = 8;

fn setup(args: &'static [&'static str]) -> Setup {
    Setup {
        volume: Volume::Unjournaled(args),
        async_commit: AsyncCommit::Never,
        block_size: 4096,
    }
}

fn crash(name: &str, work: Workload, args: &'static [&'static str]) {
    if !have(name, &[Need::Tool("e2fsck"), Need::Tool("mke2fs")]) {
        return;
    }
    let by_kernel = have(
        &format!("{name}, read by the kernel"),
        &[Need::Loop, Need::Tool("mount")],
    );
    let _watchdog = watchdog(name);
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let (recording, history) = record(work, setup(args), &mut rng).unwrap();
    let history = history.lock();
    let mut lost = 0;
    let at = positions(&recording, rounds(16, 400), &mut rng);
    for (n, &at) in at.iter().enumerate() {
        let image = recording.image(at, &mut rng);
        let reader = match by_kernel && n % 5 == 3 {
            true => Reader::Kernel,
            false => Reader::Us,
        };
        match recovery::by_repair(&image, &history, at, &scratch, reader) {
            Ok(names) => lost += names,
            Err(e) => {
                keep(&image, name, at);
                panic!(
                    "{name}: crash at event {at} of {}, {reader:?}: {e}",
                    recording.log.len()
                );
            }
        }
    }
    eprintln!(
        "{name}: {} images, {lost} synced files in lost+found",
        at.len()
    );
}

/// The checks notice a device that ignores flushes.
fn canary(name: &str, work: Workload, args: &'static [&'static str]) {
    if !have(name, &[Need::Tool("e2fsck"), Need::Tool("mke2fs")]) {
        return;
    }
    let _watchdog = Watchdog::new(name, Duration::from_secs(240));
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    // After some histories e2fsck repairs nearly everything that the device loses.
    let noticed = (0..HISTORIES).any(|_| {
        let (recording, history) = record(work, setup(args), &mut rng).unwrap();
        let (history, events) = (history.lock(), recording.log.len());
        (0..2 * TRIES).any(|_| {
            let at = events - rng.index(events / 2);
            let image = recording.image_if(Promises::FlushesIgnored, at, &mut rng);
            recovery::by_repair(&image, &history, at, &scratch, Reader::Us).is_err()
        })
    });
    assert!(
        noticed,
        "{name}: the checks do not notice that flushes are ignored"
    );
}

/// A commit makes inodes available that were freed last.
#[test]
fn the_last_inodes_are_used_again() {
    if !have("the last inodes", &[Need::Tool("mke2fs")]) {
        return;
    }
    let disk = Volume::Unjournaled(&["-N", "32"]).make(4096).unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let mut files = 0;
    while put(&fs, &format!("file{files}"), b"").is_ok() {
        files += 1;
    }
    assert!((10..32).contains(&files));
    for round in 0..3 {
        for file in 0..files {
            remove(&fs, &format!("file{file}")).unwrap();
        }
        for file in 0..files {
            put(&fs, &format!("file{file}"), b"").unwrap_or_else(|e| panic!("{round} {file}: {e}"));
        }
    }
    fs.unmount().unwrap();
}

macro_rules! workloads {
    ($form:ident, $args:expr; $($name:ident: $work:expr;)*) => {
        mod $form {
            use super::*;

            $(#[test]
            fn $name() {
                let name = concat!("unjournaled-", stringify!($form), "-", stringify!($name));
                crash(name, $work, $args);
            })*

            mod canary {
                use super::*;

                $(#[test]
                fn $name() {
                    let name = concat!("canary-", stringify!($form), "-", stringify!($name));
                    canary(name, $work, $args);
                })*
            }
        }
    };
    ($($each:tt)*) => {
        workloads!(ext2, &[]; $($each)*);
        workloads!(ext2_of_1_kib, &["-b", "1024"]; $($each)*);
        workloads!(extents, &["-O", "extent,64bit,flex_bg,metadata_csum,dir_index"]; $($each)*);
    };
}

workloads! {
    creating: Work::create_fsync;
    overwriting: Work::overwrite_fsync;
    appending: Work::append;
    truncating: Work::truncate;
    rewriting: Work::rewrite;
    zeroing: Work::preallocate;
    reusing_freed_blocks: Work::reuse;
    reusing_indirect_blocks: Work::indirect_blocks;
    replacing: Work::rename_over;
    unlinking: Work::unlink;
    linking_unnamed_files: Work::unnamed;
    making_trees: Work::trees;
    filling_directories: Work::wrap_around;
    syncing_later: Work::fsyncs_later;
    syncing_in_bulk: Work::fsyncs_in_bulk;
    syncing_subtrees: Work::subtrees;
    threads_at_once: Work::at_once;
    threads_syncing_in_every_way: Work::every_way_at_once;
    small_files: Work::logged_data;
}

workloads! { inline_data, &["-O", "extent,64bit,metadata_csum,dir_index,inline_data"];
    growing_out_of_inodes: Work::out_of_inodes;
    unlinking: Work::unlink;
    making_trees: Work::trees;
    threads_at_once: Work::at_once;
}
