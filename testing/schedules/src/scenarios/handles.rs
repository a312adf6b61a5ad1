//! Files that are found by handles (number and generation, as NFS does) and by scans, while they
//! are deleted and their numbers are used again.

use super::{Scenario, join, start};
use crate::volume::{Mounting, Volume};
use ext4::{Error, Scanned};
use std::sync::{Arc, Mutex as Unscheduled};
use std::time::Duration;
use testkit::seed::Rng;
use testkit::volume::{contents, put, remove};
use units::Ino;

pub fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "handles",
        about: "files found by number and generation, and scans, beside deletion and reclaim",
        mounting: |rng| Mounting {
            memory: 1 << 20,
            commit_interval: Duration::from_millis(*rng.pick(&[50, 5000])),
            ..Mounting::default()
        },
        body,
    }]
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle {
    ino: Ino,
    generation: u32,
}

/// A file that has existed.
#[derive(Clone, Copy)]
struct Past {
    handle: Handle,
    /// Its contents are this byte.
    byte: u8,
    /// Its unlink has returned.
    unlinked: bool,
}

/// In the order of their creation: the generations differ between two runs of a schedule.
type Files = Arc<Unscheduled<Vec<Past>>>;

fn find(files: &[Past], handle: Handle) -> Option<usize> {
    files.iter().position(|past| past.handle == handle)
}

fn body(volume: &Volume, rng: &mut Rng) {
    let files = Files::default();
    let kept = volume.prepare(|| create(volume, &files, "kept", 255));
    let readers = [rng.fork(), rng.fork()].map(|mut rng| {
        let files = files.clone();
        start(volume, "reader", move |volume| {
            for _ in 0..8 {
                match rng.below(8) {
                    0 => scan(volume, &files, kept),
                    1 | 2 => volume.fs().drop_caches(),
                    _ => open(volume, &files, &mut rng),
                }
            }
        })
    });
    let writers = ["a", "b"].into_iter().zip(1..).map(|(name, writer)| {
        let (files, mut rng) = (files.clone(), rng.fork());
        start(volume, "writer", move |volume| {
            for round in 0..5 {
                let handle = create(volume, &files, name, 10 * writer + round);
                if rng.one_in(3)
                    && let Err(error) = volume.fs().sync()
                {
                    volume.violation(format!("sync: {error}"));
                }
                if let Err(error) = remove(volume.fs(), name) {
                    volume.violation(format!("unlink: {error}"));
                }
                let mut files = files.lock().expect("unscheduled");
                if let Some(at) = find(&files, handle) {
                    files[at].unlinked = true;
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    join(readers.into_iter().chain(writers));
}

/// Creates a file of `byte`. Its data is in the page cache, in a block, or on the device.
fn create(volume: &Volume, files: &Files, name: &str, byte: u8) -> Handle {
    let file = put(volume.fs(), name, &[byte; 300]).expect("a new file");
    let attr = file.attr();
    let handle = Handle {
        ino: attr.ino,
        generation: attr.generation,
    };
    let mut files = files.lock().expect("unscheduled");
    if find(&files, handle).is_some() {
        volume.violation(format!("{name} has the handle of an older file"));
    }
    files.push(Past {
        handle,
        byte,
        unlinked: false,
    });
    handle
}

/// Opens a file by a handle. It is the file that got the handle, or the handle is stale.
fn open(volume: &Volume, files: &Files, rng: &mut Rng) {
    let past = {
        let files = files.lock().expect("unscheduled");
        files[rng.index(files.len())]
    };
    let Handle { ino, generation } = past.handle;
    let inode = match volume.fs().inode(ino) {
        Ok(inode) => inode,
        Err(Error::Stale) if past.byte != 255 => return,
        Err(error) => return volume.violation(format!("inode {ino}: {error}")),
    };
    let attr = inode.attr();
    if attr.generation != generation {
        return;
    }
    if past.unlinked && attr.nlink > 0 {
        return volume.violation(format!("inode {ino} has a link and was unlinked"));
    }
    match contents(volume.fs(), &inode) {
        Ok(found) if found == [past.byte; 300] => {}
        Ok(found) => volume.violation(format!(
            "inode {ino} has {} bytes of {:?}, not of {}",
            found.len(),
            found.first(),
            past.byte
        )),
        Err(error) => volume.violation(format!("read of inode {ino}: {error}")),
    }
}

/// Scans. The file that exists all the time is found once, and no file whose unlink had returned.
fn scan(volume: &Volume, files: &Files, kept: Handle) {
    let before = files.lock().expect("unscheduled").clone();
    let mut found = Vec::new();
    {
        let each = Unscheduled::new(&mut found);
        let mut next = Some(Ino(1));
        while let Some(first) = next {
            next = volume.fs().scan_inodes_from(first, 64, &|scanned| {
                each.lock().expect("unscheduled").push(scanned);
            });
        }
    }
    let mut times = 0;
    for scanned in found {
        let attr = match scanned {
            Scanned::Inode(attr) => attr,
            Scanned::Unreadable { first, error, .. } => {
                volume.violation(format!("scan of inode {first}: {error}"));
                continue;
            }
        };
        let handle = Handle {
            ino: attr.ino,
            generation: attr.generation,
        };
        times += u32::from(handle == kept);
        if find(&before, handle).is_some_and(|at| before[at].unlinked) {
            volume.violation(format!("the scan found the unlinked inode {}", attr.ino));
        }
    }
    if times != 1 {
        volume.violation(format!("the scan found a file {times} times"));
    }
}
