//! The fault: the request that fails.

use block::{Class, Op};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::disk::Disk;

const EIO: i32 = 5;

/// A kind of request.
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

/// Request number `at` of that kind fails, and with `lasts` all later ones too.
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

/// Requests of each kind so far, in the order of [`KINDS`].
#[derive(Clone, Default)]
pub struct Counts(Arc<[AtomicU64; 4]>);

impl Counts {
    /// Counts requests; none fails.
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
