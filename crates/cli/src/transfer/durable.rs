//! Files made durable in groups, while others are copied.
//!
//! ```text
//!   copying threads ──▶ gathering ──(enough)──▶ one full group ──▶ syncing thread: one plug, one commit, one flush
//! ```
//!
//! At most three groups exist, one in each place, so that what is open and dirty is bounded: who
//! fills a group while one waits already, waits too.

use super::progress::Progress;
use sluicefs::{File, Volume};
use std::mem;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Files in a group.
const FILES: usize = 4096;
/// Bytes in a group at most, and the part of the memory for caches.
const BYTES: u64 = 64 << 20;
const PART_OF_MEMORY: u64 = 16;

/// Files that were written and are not known to be durable.
#[derive(Default)]
struct Group {
    files: Vec<File>,
    bytes: u64,
}

/// Takes what is written to a volume, and has it made durable.
struct Unsynced {
    gathering: Mutex<Group>,
    full: SyncSender<Group>,
    /// Bytes that make a group full.
    enough: u64,
}

impl Unsynced {
    fn add(&self, file: File, bytes: u64) {
        let mut group = self
            .gathering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        group.files.push(file);
        group.bytes += bytes;
        if group.files.len() >= FILES || group.bytes >= self.enough {
            // Held while it waits for room, so that others wait, too.
            self.send(mem::take(&mut *group));
        }
    }

    fn send(&self, group: Group) {
        // The other side ends only by a panic, which comes up when it is joined.
        let _ = self.full.send(group);
    }
}

/// Runs `work`; all files that it gives away are durable when this returns, or their errors were
/// told. `memory` is what the volume has for caches.
pub fn during<T>(
    volume: &Volume,
    memory: u64,
    progress: &Progress,
    work: impl FnOnce(&(dyn Fn(File, u64) + Sync)) -> T,
) -> T {
    let (full, groups) = sync_channel::<Group>(1);
    let unsynced = Unsynced {
        gathering: Mutex::default(),
        full,
        enough: BYTES.min(memory / PART_OF_MEMORY),
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            for group in groups {
                sync(volume, &group.files, progress);
            }
        });
        let result = work(&|file, bytes| unsynced.add(file, bytes));
        let rest = unsynced.gathering.into_inner();
        // Both the rest and the news that nothing follows.
        let _ = unsynced
            .full
            .send(rest.unwrap_or_else(PoisonError::into_inner));
        drop(unsynced.full);
        result
    })
}

fn sync(volume: &Volume, files: &[File], progress: &Progress) {
    let mut durable = 0;
    for (result, file) in volume.sync_files(files).into_iter().zip(files) {
        match result {
            Ok(()) => durable += 1,
            Err(e) => progress.failed(&file.path(), &e),
        }
    }
    if durable > 0 {
        progress.add_durable(durable);
    }
}
