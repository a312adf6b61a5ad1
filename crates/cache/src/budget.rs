//! One number that bounds pages, inodes and metadata blocks together.

use std::sync::{Arc, Weak};

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages of files.
    Pages,
    /// Inodes.
    Inodes,
    /// Metadata blocks.
    Metadata,
}

/// Something that can give memory back.
pub trait Shrinker: Send + Sync {
    /// Frees about `want` bytes of what is clean and unused; how many it freed. Must not block on I/O.
    fn shrink(&self, want: u64) -> u64;
}

/// A budget of memory, shared by every volume of a process that is given the same one.
pub struct Budget {}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Arc<Budget> {
        let _ = bytes;
        todo!()
    }
    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        todo!()
    }
    /// Changes the limit.
    pub fn set_limit(&self, bytes: u64) {
        let _ = bytes;
        todo!()
    }
    /// Bytes in use, all kinds.
    pub fn used(&self) -> u64 {
        todo!()
    }
    /// Bytes in use of one kind.
    pub fn used_by(&self, kind: Kind) -> u64 {
        let _ = kind;
        todo!()
    }
    /// Counts bytes in. Never fails and never blocks; [`Budget::make_room`] is where a caller pays.
    pub fn charge(&self, kind: Kind, bytes: u64) {
        let _ = (kind, bytes);
        todo!()
    }
    /// Counts bytes out.
    pub fn uncharge(&self, kind: Kind, bytes: u64) {
        let _ = (kind, bytes);
        todo!()
    }
    /// Adds a source of memory.
    pub fn register(&self, shrinker: Weak<dyn Shrinker>) {
        let _ = shrinker;
        todo!()
    }
    /// Cheap when within the limit. Otherwise reclaims clean memory, in batches, one reclaiming thread at a time with
    /// the others passing unless far over; whether the budget is kept now.
    pub fn make_room(&self) -> bool {
        todo!()
    }
}
