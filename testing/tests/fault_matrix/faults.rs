//! Which request fails.

use block::{Class, Op};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testing::disk::Disk;

const EIO: i32 = 5;

/// The requests among which one is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes of file contents.
    Data,
    /// Writes into the log, and of the journal's super block.
    Journal,
    /// Writes of metadata to its home, and of the super block at unmount.
    Checkpoint,
    /// Flushes.
    Flush,
}

pub const KINDS: [Kind; 4] = [Kind::Data, Kind::Journal, Kind::Checkpoint, Kind::Flush];

impl Kind {
    fn of(op: Op, class: Class) -> Option<Kind> {
        match (op, class) {
            (Op::Read, _) => None,
            (Op::Flush, _) => Some(Kind::Flush),
            (Op::Write, Class::Data) => Some(Kind::Data),
            (Op::Write, Class::Journal) => Some(Kind::Journal),
            (Op::Write, Class::Metadata) => Some(Kind::Checkpoint),
        }
    }
}

/// The request of that kind with this number fails, and where the fault lasts so do those that
/// follow.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub at: u64,
    pub lasts: bool,
}

impl Fault {
    pub fn inject(self, disk: &Disk) {
        let seen = AtomicU64::new(0);
        disk.inject(move |op, class, _, _| {
            if Kind::of(op, class) != Some(self.kind) {
                return None;
            }
            let n = seen.fetch_add(1, Ordering::SeqCst);
            (n == self.at || (self.lasts && n > self.at)).then_some(EIO)
        });
    }
}

/// Requests so far, by kind in the order of [`KINDS`].
#[derive(Clone, Default)]
pub struct Counts(Arc<[AtomicU64; 4]>);

impl Counts {
    /// Lets nothing fail.
    pub fn inject(&self, disk: &Disk) {
        let counts = self.clone();
        disk.inject(move |op, class, _, _| {
            if let Some(i) = KINDS.iter().position(|&k| Kind::of(op, class) == Some(k)) {
                counts.0[i].fetch_add(1, Ordering::SeqCst);
            }
            None
        });
    }

    pub fn of(&self, kind: Kind) -> u64 {
        let i = KINDS.iter().position(|&k| k == kind);
        i.map_or(0, |i| self.0[i].load(Ordering::SeqCst))
    }
}
