//! Scenarios of several threads with typical operations.

use super::{Scenario, join, plain, start};
use crate::model::Rule;
use crate::volume::{File, Mounting, Volume};
use ext4::SyncKind;
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::{AtomicU32, Ordering};
use sync::thread::{self, JoinHandle};
use testkit::seed::Rng;
use testkit::volume::any_sync;

const PAGE: usize = 8;

pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "contents",
            about: "two writers with every change of contents, during fsync, fdatasync and sync",
            mounting: any,
            body: contents,
        },
        Scenario {
            name: "shared-sync",
            about: "threads that each write or create and then sync the volume, all at once",
            mounting: any,
            body: shared_sync,
        },
        Scenario {
            name: "small-files",
            about: "files of a few sectors that grow, shrink and are synced",
            mounting: any,
            body: small_files,
        },
        Scenario {
            name: "log-wraps",
            about: "small fsyncs by three threads until the log has wrapped",
            mounting: plain,
            body: log_wraps,
        },
        Scenario {
            name: "names",
            about: "create, rename over, unlink and fsync in one directory",
            mounting: any,
            body: names,
        },
        Scenario {
            name: "reclaim",
            about: "the smallest budget: pages and inodes are reclaimed during writes and reads",
            mounting: little_memory,
            body: reclaim,
        },
        Scenario {
            name: "unmount",
            about: "fsyncs under way, with and without a waiter, when the volume is unmounted",
            mounting: any,
            body: unmount,
        },
        Scenario {
            name: "unmount-callbacks",
            about: "callbacks of an fsync and a sync, and a thread, that all unmount the volume",
            mounting: any,
            body: unmount_callbacks,
        },
        Scenario {
            name: "unmount-writes",
            about: "writes, fsyncs and syncs of three threads when the volume is unmounted",
            mounting: any,
            body: unmount_writes,
        },
        Scenario {
            name: "write-errors",
            about: "writes, fsyncs and syncs of three threads while writes of data fail",
            mounting: any,
            body: write_errors,
        },
    ]
}

/// Intervals so short that the flusher and timed commits run.
fn any(rng: &mut Rng) -> Mounting {
    Mounting {
        commit_interval: Duration::from_millis(*rng.pick(&[50, 500, 5000])),
        background: *rng.pick(&[None, Some(8 << 10), Some(32 << 10)]),
        ..Mounting::default()
    }
}

fn little_memory(rng: &mut Rng) -> Mounting {
    Mounting {
        memory: 1 << 20,
        ..any(rng)
    }
}

/// A random change of a file that the calling thread owns.
fn change(volume: &Volume, file: &File, rng: &mut Rng) {
    let page = rng.index(6);
    match rng.below(10) {
        0..4 => volume.write(file, page * PAGE, PAGE * (1 + rng.index(2))),
        4 => volume.write(file, page * PAGE + rng.index(PAGE), 1 + rng.index(10)),
        5 | 6 => volume.append(file, 1 + rng.index(2 * PAGE)),
        7 => volume.truncate(file, rng.index(6 * PAGE)),
        8 if rng.one_in(2) || !volume.format().has_extents() => {
            volume.punch(file, page * PAGE, PAGE * 2)
        }
        8 => volume.zero(file, page * PAGE, PAGE * 2),
        _ if !volume.format().has_extents() => volume.append(file, 1),
        _ => volume.fallocate(file, page * PAGE, PAGE * 3),
    }
}

fn contents(volume: &Volume, rng: &mut Rng) {
    let files: Vec<File> = volume.prepare(|| {
        let files = ["a", "b"].map(|name| volume.create(name, Rule::Sectors));
        files
            .iter()
            .for_each(|file| volume.write(file, 0, 3 * PAGE));
        volume.sync();
        files.into()
    });
    let mut threads = Vec::new();
    for file in &files {
        let (file, mut rng) = (file.clone(), rng.fork());
        threads.push(start(volume, "writer", move |volume| {
            for _ in 0..3 + rng.below(3) {
                change(volume, &file, &mut rng);
                if rng.one_in(3) {
                    volume.fsync(&file, any_sync(&mut rng));
                }
            }
            volume.read_back(&file);
        }));
    }
    for kind in 0..2 {
        let (files, mut rng) = (files.clone(), rng.fork());
        threads.push(start(volume, "syncer", move |volume| {
            for _ in 0..2 {
                match rng.below(8) {
                    0 => volume.sync(),
                    1 => volume.sync_tree(),
                    2 => volume.fsync_many(&[&files[0], &files[1]], any_sync(&mut rng)),
                    3 => thread::sleep(Duration::from_millis(100 * (1 + rng.below(60)))),
                    _ => volume.fsync(&files[kind], any_sync(&mut rng)),
                }
            }
        }));
    }
    join(threads);
}

/// With `inline_data` the first sectors are in the inode, and a growing file moves to a block.
fn small_files(volume: &Volume, rng: &mut Rng) {
    let files: Vec<File> = volume.prepare(|| {
        let files = ["a", "b"].map(|name| volume.create(name, Rule::Sectors));
        files.iter().for_each(|file| volume.write(file, 0, 1));
        volume.sync();
        files.into()
    });
    let writers = files.iter().map(|file| {
        let (file, mut rng) = (file.clone(), rng.fork());
        start(volume, "writer", move |volume| {
            for _ in 0..5 {
                match rng.below(6) {
                    0 => volume.truncate(&file, rng.index(6)),
                    1 => volume.punch(&file, rng.index(3), 1),
                    2 => volume.append(&file, 1),
                    _ => volume.write(&file, rng.index(4), 1),
                }
                if rng.one_in(3) {
                    volume.fsync(&file, any_sync(&mut rng));
                }
            }
            volume.read_back(&file);
        })
    });
    let writers: Vec<_> = writers.collect();
    let (files, mut fork) = (files.clone(), rng.fork());
    let syncs = start(volume, "syncs", move |volume| {
        for _ in 0..3 {
            match fork.below(3) {
                0 => volume.sync(),
                1 => volume.fs().drop_caches(),
                _ => volume.fsync(fork.pick(&files), any_sync(&mut fork)),
            }
        }
    });
    join(writers.into_iter().chain([syncs]));
}

/// Each sync must cover what its caller has changed before, whether it leads, shares the sync of
/// another caller, or finds the volume clean.
fn shared_sync(volume: &Volume, rng: &mut Rng) {
    let files = three_files(volume);
    let thread = |(number, file): (usize, File), mut rng: Rng| {
        start(volume, "syncer", move |volume| {
            for round in 0..3 {
                match rng.below(4) {
                    0 => drop(volume.create(&format!("new{number}-{round}"), Rule::Sectors)),
                    1 => volume.truncate(&file, rng.index(4) * PAGE),
                    _ => volume.write(&file, rng.index(2) * PAGE, PAGE),
                }
                match rng.below(4) {
                    0 => volume.fsync(&file, any_sync(&mut rng)),
                    1 => volume.sync_later(),
                    _ => volume.sync(),
                }
            }
        })
    };
    let files = files.into_iter().enumerate();
    let threads: Vec<_> = files.map(|file| thread(file, rng.fork())).collect();
    join(threads);
}

/// Files of two pages each, which are durable.
fn three_files(volume: &Volume) -> Vec<File> {
    volume.prepare(|| {
        let files = ["a", "b", "c"].map(|name| volume.create(name, Rule::Sectors));
        files
            .iter()
            .for_each(|file| volume.write(file, 0, 2 * PAGE));
        volume.sync();
        files.into()
    })
}

fn log_wraps(volume: &Volume, rng: &mut Rng) {
    let files = three_files(volume);
    let thread = |file: File, mut rng: Rng| {
        start(volume, "writer", move |volume| {
            for _ in 0..8 {
                volume.write(&file, rng.index(3) * PAGE, PAGE);
                volume.fsync(
                    &file,
                    match rng.one_in(3) {
                        true => SyncKind::Fdatasync,
                        false => SyncKind::Fsync,
                    },
                );
                if rng.one_in(8) {
                    volume.truncate(&file, rng.index(3) * PAGE);
                }
            }
        })
    };
    let threads: Vec<_> = files.into_iter().map(|f| thread(f, rng.fork())).collect();
    join(threads);
}

fn names(volume: &Volume, rng: &mut Rng) {
    let target = volume.prepare(|| {
        let target = volume.create("target", Rule::Whole);
        volume.rewrite(&target, PAGE);
        volume.sync();
        target
    });
    let mut fork = rng.fork();
    let replaces = start(volume, "replaces", move |volume| {
        let mut file = target;
        for round in 0..3 {
            let sectors = (1 + fork.index(3)) * PAGE;
            let new = format!("new{round}");
            let fsync = fork.one_in(3);
            file = volume.replace(&file, "target", &new, sectors, |inode| {
                if fsync && let Err(error) = volume.fs().fsync(inode, SyncKind::Fsync) {
                    volume.violation(format!("fsync: {error}"));
                }
            });
            if fork.one_in(2) {
                volume.fsync(&file, SyncKind::Fsync);
            }
        }
    });
    let mut fork = rng.fork();
    let creates = start(volume, "creates", move |volume| {
        for round in 0..3 {
            let name = format!("file{round}");
            let file = volume.create(&name, Rule::Sectors);
            volume.write(&file, 0, (1 + fork.index(2)) * PAGE);
            match fork.below(3) {
                0 => volume.fsync(&file, SyncKind::Fsync),
                1 => volume.unlink(&file, &name),
                _ => {}
            }
        }
    });
    let mut fork = rng.fork();
    let syncs = start(volume, "syncs", move |volume| {
        for _ in 0..2 {
            match fork.below(3) {
                0 => volume.sync(),
                1 => volume.sync_tree(),
                _ => thread::sleep(Duration::from_millis(100 * (1 + fork.below(60)))),
            }
        }
    });
    join([replaces, creates, syncs]);
}

fn reclaim(volume: &Volume, rng: &mut Rng) {
    let files: Vec<File> = volume.prepare(|| {
        let files = ["a", "b"].map(|name| volume.create(name, Rule::Sectors));
        files
            .iter()
            .for_each(|file| volume.write(file, 0, 24 * PAGE));
        volume.sync();
        files.into()
    });
    let mut threads = Vec::new();
    for file in files {
        let mut rng = rng.fork();
        threads.push(start(volume, "writer", move |volume| {
            for _ in 0..4 {
                volume.write(&file, rng.index(24) * PAGE, 4 * PAGE);
                match rng.below(3) {
                    0 => volume.fsync(&file, SyncKind::Fdatasync),
                    _ => volume.read_back(&file),
                }
            }
        }));
    }
    let drops = start(volume, "drops", |volume| {
        for _ in 0..3 {
            volume.fs().drop_caches();
            thread::yield_now();
        }
    });
    join(threads.into_iter().chain([drops]));
}

fn unmount(volume: &Volume, rng: &mut Rng) {
    let files: Vec<File> = volume.prepare(|| {
        let files = ["a", "b"].map(|name| volume.create(name, Rule::Sectors));
        volume.sync();
        files.into()
    });
    for file in &files {
        volume.write(file, 0, (1 + rng.index(4)) * PAGE);
    }
    let target = ext4::SyncTarget {
        inode: files[0].inode.clone(),
        kind: any_sync(rng),
    };
    volume.fs().fsync_later(target, |_| {});
    let mut threads: Vec<_> = files
        .iter()
        .map(|file| {
            let file = file.clone();
            start(volume, "fsync", move |volume| {
                volume.fsync(&file, SyncKind::Fsync)
            })
        })
        .collect();
    if rng.one_in(2) {
        threads.push(start(volume, "sync", |volume| volume.sync()));
    }
    // All data is written by then, by the threads or by the unmount.
    if let Err(error) = volume.fs().unmount() {
        volume.violation(format!("unmount: {error}"));
    }
    join(threads);
}

/// Callbacks run on threads of the queue, for which an unmount waits.
fn unmount_callbacks(volume: &Volume, rng: &mut Rng) {
    let files = three_files(volume);
    files.iter().for_each(|file| volume.write(file, 0, PAGE));
    let left = Arc::new(AtomicU32::new(2));
    let callback = || {
        let (fs, left) = (Arc::downgrade(volume.fs()), left.clone());
        move |result: ext4::Result<()>| {
            let unmounted = fs.upgrade().map(|fs| fs.unmount());
            assert!(result.is_ok() && matches!(unmounted, Some(Ok(()))));
            left.fetch_sub(1, Ordering::AcqRel);
        }
    };
    let target = ext4::SyncTarget {
        inode: files[0].inode.clone(),
        kind: any_sync(rng),
    };
    drop(files);
    volume.fs().fsync_later(target, callback());
    volume.fs().sync_later(callback());
    volume.unmount_beside_changes();
    while left.load(Ordering::Acquire) > 0 {
        thread::sleep(Duration::from_millis(1));
    }
}

/// An fsync or sync that succeeds has made durable what was written before, also beside failed
/// writes, which another fsync may have made. Everything is written once the device works again.
fn write_errors(volume: &Volume, rng: &mut Rng) {
    let files = three_files(volume);
    volume.with_failing_device(|| {
        let writers = files.iter().map(|file| sync_often(volume, file, rng));
        let writers: Vec<_> = writers.collect();
        let (files, mut rng) = (files.clone(), rng.fork());
        let other = start(volume, "other", move |volume| {
            for _ in 0..6 {
                let file = rng.pick(&files);
                sync_somehow(volume, file, &mut rng);
            }
        });
        join(writers.into_iter().chain([other]));
    });
}

/// An fsync or sync that succeeds has made durable what its thread had written, also beside an
/// unmount and after it.
fn unmount_writes(volume: &Volume, rng: &mut Rng) {
    let files = three_files(volume);
    let threads: Vec<_> = files.iter().map(|f| sync_often(volume, f, rng)).collect();
    for _ in 0..rng.below(200) {
        thread::yield_now();
    }
    volume.unmount_beside_changes();
    join(threads);
}

/// A thread that writes to a file, and makes it durable in any way. Both may fail.
fn sync_often(volume: &Volume, file: &File, rng: &mut Rng) -> JoinHandle<()> {
    let (file, mut rng) = (file.clone(), rng.fork());
    start(volume, "writer", move |volume| {
        for _ in 0..4 {
            volume.try_write(&file, rng.index(3) * PAGE, PAGE);
            sync_somehow(volume, &file, &mut rng);
        }
    })
}

fn sync_somehow(volume: &Volume, file: &File, rng: &mut Rng) {
    match rng.below(4) {
        0 => volume.try_sync(file, |fs, _| fs.sync()),
        1 => volume.try_sync(file, |fs, inode| fs.sync_tree(inode)),
        _ => {
            let kind = any_sync(rng);
            volume.try_sync(file, |fs, inode| fs.fsync(inode, kind));
        }
    }
}
