//! Makes files durable in groups while others are copied.
//!
//! ```text
//!   copying threads ──▶ group being filled ──▶ one full group ──▶ syncing thread
//! ```
//!
//! Each group needs one plug, one commit and one flush. At most three groups exist, one in each
//! place. This bounds the number of open files and the dirty data: a thread that fills a group
//! while another full one waits, waits too.

use super::progress::Progress;
use sluicefs::{File, Volume};
use std::mem;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Files in a group at most.
const FILES: usize = 4096;
/// Bytes in a group at most. A group also has at most this part of the memory for caches.
const BYTES: u64 = 64 << 20;
const PART_OF_MEMORY: u64 = 16;

/// Files that are written and may not be durable yet.
#[derive(Default)]
struct Group {
    files: Vec<File>,
    bytes: u64,
}

/// Collects written files into groups and sends full groups to the syncing thread.
struct Groups {
    filling: Mutex<Group>,
    full: SyncSender<Group>,
    /// Bytes in a full group.
    max_bytes: u64,
}

impl Groups {
    fn add(&self, file: File, bytes: u64) {
        let mut group = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        group.files.push(file);
        group.bytes += bytes;
        if group.files.len() >= FILES || group.bytes >= self.max_bytes {
            // The lock is held while this waits for the syncing thread, so that the other threads
            // wait, too.
            self.send(mem::take(&mut *group));
        }
    }

    fn send(&self, group: Group) {
        // The receiver ends early only by a panic, which joining its thread reports.
        let _ = self.full.send(group);
    }
}

/// Runs `work` with a function to which it passes each written file and its size in bytes. When
/// this returns, these files are durable, or their errors are printed. `memory` is the volume's
/// memory for caches, in bytes.
pub fn make_durable_during<T>(
    volume: &Volume,
    memory: u64,
    progress: &Progress,
    work: impl FnOnce(&(dyn Fn(File, u64) + Sync)) -> T,
) -> T {
    let (full, full_groups) = sync_channel::<Group>(1);
    let groups = Groups {
        filling: Mutex::default(),
        full,
        max_bytes: BYTES.min(memory / PART_OF_MEMORY),
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            for group in full_groups {
                sync(volume, &group.files, progress);
            }
        });
        let result = work(&|file, bytes| groups.add(file, bytes));
        let Groups { filling, full, .. } = groups;
        let rest = filling.into_inner();
        let _ = full.send(rest.unwrap_or_else(PoisonError::into_inner));
        // The syncing thread ends when the sender is dropped.
        drop(full);
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
