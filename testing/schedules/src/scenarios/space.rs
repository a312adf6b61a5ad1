//! Writers on a volume that is nearly full. An accepted write never fails later, and all space is
//! free again at the end.

use super::{Scenario, join, start};
use crate::volume::{Mounting, Volume};
use ext4::{Error, FallocateMode, Fs, InodeRef, Result};
use std::time::Duration;
use sync::thread;
use testkit::seed::Rng;
use testkit::volume::{any_sync, get, put, remove};

const PAGE: u64 = 4096;
/// Pages of a writer's file at most.
const PAGES: u64 = 24;
/// Blocks that the writers can allocate.
const FREE: u64 = 32;

pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "full",
            about: "writers, punches, truncates and unlinks on a volume with 32 free blocks",
            mounting,
            body,
        },
        Scenario {
            name: "full-removed",
            about: "a write needs the space of a file that was removed, beside other removals",
            mounting,
            body: full_removed,
        },
    ]
}

fn mounting(rng: &mut Rng) -> Mounting {
    Mounting {
        memory: *rng.pick(&[1 << 20, 16 << 20]),
        commit_interval: Duration::from_millis(*rng.pick(&[50, 5000])),
        background: *rng.pick(&[None, Some(8 << 10)]),
        ..Mounting::default()
    }
}

fn body(volume: &Volume, rng: &mut Rng) {
    let before = volume.prepare(|| {
        let fs = volume.fs();
        match volume.format().has_extents() {
            true => fill(fs),
            false => fill_by_writes(fs),
        }
        .expect("space");
        volume.sync();
        fs.statfs().free
    });
    let threads: Vec<_> = (1..=3_u8)
        .map(|number| {
            let mut rng = rng.fork();
            start(volume, "writes", move |volume| {
                if let Err(error) = writer(volume, number, &mut rng) {
                    volume.violation(format!("writer {number}: {error}"));
                }
            })
        })
        .collect();
    join(threads);
    // The flusher may hold a file whose name was removed. It deletes the file at its next turn.
    for _ in 0..20 {
        volume.sync();
        if volume.fs().statfs().free == before {
            return;
        }
        thread::sleep(Duration::from_secs(5));
    }
    let after = volume.fs().statfs().free;
    volume.violation(format!("{after} free blocks, {before} before"));
}

/// After a removal has returned, a write can use the file's space, whichever thread deletes it.
fn full_removed(volume: &Volume, _: &mut Rng) {
    // More than half of the space.
    let large = vec![1; 3 * (FREE * PAGE) as usize];
    volume.prepare(|| {
        let fs = volume.fs();
        put(fs, "large", &large).expect("space");
        fill(fs).expect("space");
        volume.sync();
    });
    let others = ["small1", "small2"].map(|name| {
        start(volume, "removes", move |volume| {
            for _ in 0..6 {
                let fs = volume.fs();
                if let Err(error) = put(fs, name, &[2]).and_then(|_| remove(fs, name)) {
                    volume.violation(format!("a small file: {error}"));
                }
                fs.delete_unlinked();
            }
        })
    });
    for _ in 0..3 {
        let fs = volume.fs();
        if let Err(error) = remove(fs, "large").and_then(|()| put(fs, "large", &large)) {
            volume.violation(format!("after a removal: {error}"));
        }
    }
    join(others);
}

/// Fills the volume up to [`FREE`] blocks.
fn fill(fs: &Fs) -> Result<()> {
    let file = put(fs, "fill", &[])?;
    let mode = FallocateMode::Allocate { keep_size: false };
    let (mut end, mut step) = (0, 1024);
    while step > 0 {
        match fs.fallocate(&file, mode, end * PAGE, step * PAGE) {
            Ok(()) => end += step,
            Err(Error::NoSpace) => step /= 2,
            Err(error) => return Err(error),
        }
    }
    fs.truncate(&file, (end - FREE) * PAGE)
}

/// The same where fallocate is not supported.
fn fill_by_writes(fs: &Fs) -> Result<()> {
    let file = put(fs, "fill", &[])?;
    let (mut end, data) = (0, vec![0; 64 << 10]);
    loop {
        match fs.write(&file, end, &data) {
            Ok(written) => end += written as u64,
            Err(Error::NoSpace) => return fs.truncate(&file, end / PAGE * PAGE - FREE * PAGE),
            Err(error) => return Err(error),
        }
    }
}

/// Changes a file of its own, and deletes it. Errors for lack of space are expected from calls that
/// need space, and from no others.
fn writer(volume: &Volume, number: u8, rng: &mut Rng) -> Result<()> {
    let fs = volume.fs();
    let name = format!("file{number}");
    for _ in 0..2 {
        let file = match put(fs, &name, &[]) {
            Err(Error::NoSpace) => continue,
            other => other?,
        };
        let mut contents = Vec::new();
        for _ in 0..4 {
            change(fs, &file, &mut contents, number, rng)?;
        }
        if get(fs, &name)? != contents {
            volume.violation(format!("{name} has not the bytes that were written"));
        }
        drop(file);
        remove(fs, &name)?;
    }
    Ok(())
}

fn change(fs: &Fs, file: &InodeRef, contents: &mut Vec<u8>, byte: u8, rng: &mut Rng) -> Result<()> {
    let (at, len) = (rng.below(PAGES) * PAGE, (1 + rng.below(8)) * PAGE);
    let range = |contents: &[u8], end| at.min(contents.len() as u64) as usize..end as usize;
    match rng.below(10) {
        0..5 => {
            let written = match fs.write(file, at, &vec![byte; len as usize]) {
                Err(Error::NoSpace) => 0,
                other => other? as u64,
            };
            if written > 0 {
                let end = at + written;
                contents.resize(contents.len().max(end as usize), 0);
                contents[at as usize..end as usize].fill(byte);
            }
        }
        5 => {
            let mode = FallocateMode::Allocate { keep_size: true };
            match fs.fallocate(file, mode, at, len) {
                Err(Error::NoSpace | Error::NotSupported) => {}
                other => other?,
            }
        }
        6 => {
            let end = (at + len).min(contents.len() as u64);
            if at < end {
                match fs.fallocate(file, FallocateMode::PunchHole, at, len) {
                    Err(Error::NoSpace) => return Ok(()),
                    other => other?,
                }
                let range = range(contents, end);
                contents[range].fill(0);
            }
        }
        7 => {
            fs.truncate(file, at)?;
            contents.resize(at as usize, 0);
        }
        8 => fs.fsync(file, any_sync(rng))?,
        _ => fs.sync()?,
    }
    Ok(())
}
