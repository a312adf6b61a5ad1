//! A scenario for each known defect.

use super::{Scenario, join, plain, start};
use crate::model::Rule;
use crate::volume::{Mounting, Volume};
use ext4::SyncKind;
use std::time::Duration;
use sync::thread;
use testkit::seed::Rng;
use testkit::volume::any_sync;

/// Sectors in a page.
const PAGE: usize = 8;

pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "checkpoint-held",
            about: "a block is logged again while the checkpoint writes it home, then overwritten in place",
            mounting: small_set,
            body: checkpoint_held,
        },
        Scenario {
            name: "fsync-twice",
            about: "two threads fsync what one has written",
            mounting: plain,
            body: fsync_twice,
        },
        Scenario {
            name: "rename-over",
            about: "a file that another thread fsyncs is renamed over another",
            mounting: plain,
            body: rename_over,
        },
        Scenario {
            name: "set-len",
            about: "a file grows by set_len during an fsync of it",
            mounting: plain,
            body: set_len,
        },
        Scenario {
            name: "append",
            about: "a file grows by appends during an fsync of it",
            mounting: plain,
            body: append,
        },
        Scenario {
            name: "fallocate",
            about: "a file grows by fallocate during an fsync of it",
            mounting: plain,
            body: fallocate,
        },
        Scenario {
            name: "remove",
            about: "punch, zero range and truncate during an fsync or a sync of the pages that they remove",
            mounting: plain,
            body: remove,
        },
        Scenario {
            name: "set-len-write",
            about: "set_len and then writes, during fsyncs",
            mounting: plain,
            body: set_len_write,
        },
        Scenario {
            name: "seek-data",
            about: "SEEK_DATA during an fsync",
            mounting: plain,
            body: seek_data,
        },
        Scenario {
            name: "emptied",
            about: "a file was emptied and rewritten; the flusher and timed commits follow",
            mounting: soon,
            body: emptied,
        },
    ]
}

fn soon(_: &mut Rng) -> Mounting {
    Mounting {
        commit_interval: Duration::from_millis(500),
        ..Mounting::default()
    }
}

/// So little memory that a few blocks that are not home start a checkpoint.
fn small_set(rng: &mut Rng) -> Mounting {
    Mounting {
        memory: (40 + 2 * rng.below(10)) << 10,
        ..Mounting::default()
    }
}

/// Defect 1. Small fsyncs put data into the log; the checkpoint of a log that is half full releases
/// it.
fn checkpoint_held(volume: &Volume, rng: &mut Rng) {
    let (a, b) = volume.prepare(|| {
        let a = volume.create("a", Rule::Sectors);
        let b = volume.create("b", Rule::Sectors);
        volume.write(&a, 0, 2 * PAGE);
        volume.write(&b, 0, PAGE);
        volume.sync();
        (a, b)
    });
    let rounds = 2 + rng.below(4);
    let overwrites = start(volume, "overwrites", move |volume| {
        for _ in 0..rounds {
            volume.write(&a, 0, PAGE);
            volume.fsync(&a, SyncKind::Fsync);
        }
        // The write is in place, unless the block is held.
        thread::sleep(Duration::from_millis(1));
        volume.write(&a, 0, PAGE);
        volume.fsync(&a, SyncKind::Fdatasync);
    });
    let others = start(volume, "others", move |volume| {
        for _ in 0..rounds {
            volume.write(&b, 0, PAGE);
            volume.fsync(&b, SyncKind::Fsync);
        }
    });
    join([overwrites, others]);
}

/// Defect 2.
fn fsync_twice(volume: &Volume, rng: &mut Rng) {
    let file = volume.prepare(|| {
        let file = volume.create("file", Rule::Sectors);
        volume.write(&file, 0, 2 * PAGE);
        volume.sync();
        file
    });
    let rounds = 1 + rng.below(3) as usize;
    let kind = any_sync(rng);
    for round in 0..rounds {
        volume.write(&file, round * PAGE, PAGE);
        let threads = [(); 2].map(|()| {
            let file = file.clone();
            start(volume, "fsync", move |volume| volume.fsync(&file, kind))
        });
        join(threads);
    }
}

/// Defect 2, in rename.
fn rename_over(volume: &Volume, rng: &mut Rng) {
    let mut file = volume.prepare(|| {
        let file = volume.create("target", Rule::Whole);
        volume.rewrite(&file, 2 * PAGE);
        volume.sync();
        file
    });
    let by_sync = rng.one_in(2);
    for round in 0..1 + rng.below(2) as usize {
        let mut fsync = None;
        let new = format!("new{round}");
        file = volume.replace(&file, "target", &new, (1 + round) * PAGE, |inode| {
            let inode = inode.clone();
            fsync = Some(start(volume, "writeback", move |volume| {
                let result = match by_sync {
                    true => volume.fs().sync(),
                    false => volume.fs().fsync(&inode, SyncKind::Fdatasync),
                };
                if let Err(error) = result {
                    volume.violation(format!("sync: {error}"));
                }
            }));
        });
        join(fsync);
        volume.fsync(&file, SyncKind::Fsync);
    }
}

/// Runs `grow` and fsyncs of the file concurrently, and fsyncs it at the end. The size on disk must
/// be the size in memory.
fn grow_beside_fsync(
    volume: &Volume,
    rng: &mut Rng,
    grow: fn(&Volume, &crate::volume::File, usize),
) {
    let file = volume.prepare(|| {
        let file = volume.create("file", Rule::Sectors);
        volume.write(&file, 0, PAGE);
        file
    });
    let kind = any_sync(rng);
    let rounds = 1 + rng.below(2) as usize;
    let fsync = {
        let file = file.clone();
        start(volume, "fsync", move |volume| {
            for _ in 0..rounds {
                volume.fsync(&file, kind);
            }
        })
    };
    for round in 1..=rounds {
        grow(volume, &file, round);
    }
    join([fsync]);
    volume.fsync(&file, SyncKind::Fsync);
}

/// Defect 3.
fn set_len(volume: &Volume, rng: &mut Rng) {
    grow_beside_fsync(volume, rng, |volume, file, round| {
        volume.truncate(file, round * 16 * PAGE);
    });
}

/// Defect 3.
fn append(volume: &Volume, rng: &mut Rng) {
    grow_beside_fsync(volume, rng, |volume, file, _| volume.append(file, PAGE));
}

/// Defect 3.
fn fallocate(volume: &Volume, rng: &mut Rng) {
    grow_beside_fsync(volume, rng, |volume, file, round| {
        volume.fallocate(file, 0, round * 16 * PAGE);
    });
}

/// Dirty pages are removed. An fsync that does not find them must cover their removal.
fn remove(volume: &Volume, rng: &mut Rng) {
    let file = volume.prepare(|| {
        let file = volume.create("file", Rule::Sectors);
        volume.write(&file, 0, 4 * PAGE);
        volume.sync();
        volume.write(&file, PAGE, (2 + rng.index(4)) * PAGE);
        file
    });
    let (by_sync, kind) = (rng.one_in(3), any_sync(rng));
    let fsync = {
        let file = file.clone();
        start(volume, "fsync", move |volume| match by_sync {
            true => volume.sync(),
            false => volume.fsync(&file, kind),
        })
    };
    let at = (1 + rng.index(3)) * PAGE;
    match rng.below(3) {
        0 => volume.punch(&file, at, 2 * PAGE),
        1 => volume.zero(&file, at, 2 * PAGE),
        _ => volume.truncate(&file, at),
    }
    join([fsync]);
}

/// A size is set, and pages are dirtied while an fsync writes others.
fn set_len_write(volume: &Volume, rng: &mut Rng) {
    let file = volume.prepare(|| {
        let file = volume.create("file", Rule::Sectors);
        volume.write(&file, 0, PAGE);
        volume.truncate(&file, 16 * PAGE);
        file
    });
    let kind = any_sync(rng);
    let fsync = {
        let file = file.clone();
        start(volume, "fsync", move |volume| volume.fsync(&file, kind))
    };
    for _ in 0..2 {
        volume.write(&file, rng.index(12) * PAGE, PAGE);
    }
    join([fsync]);
}

/// Defect 5.
fn seek_data(volume: &Volume, rng: &mut Rng) {
    let at = (1 + rng.below(4) as usize) * PAGE;
    let file = volume.prepare(|| {
        let file = volume.create("file", Rule::Sectors);
        volume.sync();
        volume.write(&file, at, PAGE);
        file
    });
    let writes = {
        let file = file.clone();
        start(volume, "fsync", move |volume| {
            volume.fsync(&file, SyncKind::Fdatasync)
        })
    };
    for _ in 0..3 {
        volume.seek_data(&file, 0, at);
    }
    join([writes]);
    volume.seek_data(&file, 0, at);
}

/// Defect 8.
fn emptied(volume: &Volume, rng: &mut Rng) {
    let file = volume.prepare(|| {
        let file = volume.create("config", Rule::Whole);
        volume.rewrite(&file, PAGE);
        volume.sync();
        volume.rewrite(&file, 2 * PAGE);
        file
    });
    let (release, sync) = (rng.one_in(2), rng.one_in(2));
    let closes = {
        let file = file.clone();
        start(volume, "close", move |volume| {
            if release {
                volume.fs().release(&file.inode);
            }
        })
    };
    let syncs = start(volume, "sync", move |volume| {
        if sync {
            volume.sync();
        }
    });
    // The flusher and the journal thread run too.
    for _ in 0..1 + rng.below(3) {
        thread::sleep(Duration::from_millis(300 * (1 + rng.below(3))));
    }
    join([closes, syncs]);
}
