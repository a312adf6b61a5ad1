//! Files that are renamed, replaced and unlinked during bulk fsyncs and syncs of a tree.

use super::{Scenario, join, start};
use crate::model::Rule;
use crate::volume::{File, Mounting, Volume};
use ext4::{Fs, InodeRef, Result};
use std::mem::replace;
use std::sync::{Arc, Mutex as Unscheduled};
use std::time::Duration;
use testkit::seed::Rng;
use testkit::volume::{any_sync, at, mkdir_all, parent, remove};

const PAGE: usize = 8;

pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "fsync-many",
            about: "bulk fsyncs of files that are written, renamed, replaced and unlinked",
            mounting,
            body: fsync_many,
        },
        Scenario {
            name: "sync-tree",
            about: "syncs of a tree while files and directories move within it, out and back",
            mounting,
            body: sync_tree,
        },
    ]
}

fn mounting(rng: &mut Rng) -> Mounting {
    Mounting {
        commit_interval: Duration::from_millis(*rng.pick(&[50, 5000])),
        background: *rng.pick(&[None, Some(8 << 10)]),
        ..Mounting::default()
    }
}

fn fsync_many(volume: &Volume, rng: &mut Rng) {
    let (replaced, moved, unlinked) = volume.prepare(|| {
        mkdir_all(volume.fs(), "d").expect("a new directory");
        let files = (
            volume.create("replaced", Rule::Whole),
            volume.create("moved0", Rule::Sectors),
            volume.create("unlinked", Rule::Sectors),
        );
        volume.rewrite(&files.0, PAGE);
        volume.write(&files.1, 0, PAGE);
        volume.sync();
        files
    });
    let ids = [replaced.id, moved.id, unlinked.id];
    // The inode of the first one changes. No point of the schedule is between that change in the
    // model and here, nor under this lock.
    let inodes = [&replaced, &moved, &unlinked].map(|file| Arc::new(file.inode.clone()));
    let inodes = Arc::new(Unscheduled::new(inodes));
    let syncs = [rng.fork(), rng.fork()].map(|mut rng| {
        let inodes = inodes.clone();
        start(volume, "syncs", move |volume| {
            for _ in 0..3 {
                let kind = any_sync(&mut rng);
                let now = || inodes.lock().expect("unscheduled").clone();
                let now = || now().iter().map(|inode| (**inode).clone()).collect();
                volume.fsync_many_of(&ids, now, kind);
            }
        })
    });
    let mut fork = rng.fork();
    let moves = start(volume, "moves", move |volume| {
        let names = ["moved0", "moved1", "d/moved2"];
        let mut now = 0;
        for _ in 0..4 {
            let to = (now + 1 + fork.index(2)) % names.len();
            volume.rename(names[now], names[to]);
            now = to;
            if fork.one_in(2) {
                volume.write(&moved, fork.index(2) * PAGE, PAGE);
            }
        }
    });
    let mut fork = rng.fork();
    let replaces = start(volume, "replaces", move |volume| {
        let mut file = replaced;
        for round in 0..2 {
            let (sectors, new) = ((1 + fork.index(3)) * PAGE, format!("new{round}"));
            let File { id, inode } = volume.replace(&file, "replaced", &new, sectors, |_| {});
            let inode = Arc::new(inode);
            let before = inodes
                .lock()
                .map(|mut now| replace(&mut now[0], inode.clone()));
            drop(before);
            let inode = (*inode).clone();
            file = File { id, inode };
        }
    });
    volume.write(&unlinked, 0, 2 * PAGE);
    volume.unlink(&unlinked, "unlinked");
    volume.write(&unlinked, PAGE, PAGE);
    join(syncs.into_iter().chain([moves, replaces]));
}

/// The files below `d` all the time of a sync of `d` are durable, wherever below `d`.
fn sync_tree(volume: &Volume, rng: &mut Rng) {
    let (one, two) = volume.prepare(|| {
        for dir in ["d/b/x/y/a", "e"] {
            mkdir_all(volume.fs(), dir).expect("a new directory");
        }
        let files = ["d/b/x/y/a/1", "d/b/2"].map(|name| volume.create(name, Rule::Sectors));
        volume.sync();
        files.into()
    });
    let inode = two.inode.clone();
    let syncs = start(volume, "syncs", move |volume| {
        for _ in 0..3 {
            volume.write(&one, 0, PAGE);
            volume.write(&two, 0, PAGE);
            volume.sync_below("d");
        }
    });
    let mut fork = rng.fork();
    let changes = match rng.one_in(3) {
        true => start(volume, "links", move |volume| {
            links(volume, &inode, &mut fork);
        }),
        false => start(volume, "moves", move |volume| moves(volume, &mut fork)),
    };
    join([syncs, changes]);
}

/// Gives a file a second name beside `d` now and then. Meanwhile it may move within `d`.
fn links(volume: &Volume, file: &InodeRef, rng: &mut Rng) {
    let fs = volume.fs();
    let (mut name, mut other) = ("d/b/2", "d/2");
    for _ in 0..8 {
        let linked = at(fs, "e").and_then(|e| fs.link(file, &e, b"2"));
        for _ in 0..rng.below(3) {
            volume.rename(name, other);
            (name, other) = (other, name);
        }
        if let Err(error) = linked.and_then(|()| remove(fs, "e/2")) {
            volume.violation(format!("link: {error}"));
        }
    }
}

fn remove_dir(fs: &Fs, path: &str) -> Result<()> {
    let (dir, name) = parent(fs, path)?;
    fs.rmdir(&dir, name)
}

/// Moves `a` between `b` and `d`, and `b` out of `d` and back. Sometimes `a` is replaced: the file
/// moves, and its old directory is removed.
fn moves(volume: &Volume, rng: &mut Rng) {
    let (mut a_in_b, mut b) = (true, "d/b");
    let a = |inside: bool, b: &str| match inside {
        true => format!("{b}/x/y/a"),
        false => "d/a".to_owned(),
    };
    for _ in 0..8 {
        let what = rng.below(4);
        let (from, to) = (a(a_in_b, b), a(!a_in_b, b));
        if what == 3 {
            let made = mkdir_all(volume.fs(), &to);
            volume.rename(&format!("{from}/1"), &format!("{to}/1"));
            let removed = remove_dir(volume.fs(), &from);
            if let Err(error) = made.and(removed) {
                volume.violation(format!("a directory: {error}"));
            }
        } else if what > 0 {
            volume.rename(&from, &to);
        }
        a_in_b ^= what > 0;
        if what < 2 {
            let to = if b == "d/b" { "e/b" } else { "d/b" };
            volume.rename(b, to);
            b = to;
        }
    }
}
