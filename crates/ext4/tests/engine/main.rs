//! The engine on volumes: one binary, because linking takes longer than most of these tests.

mod bigalloc;
mod bulkstat;
mod cold;
mod features;
mod fsync;
mod namespace;
mod space;
mod xattr_orphan;
