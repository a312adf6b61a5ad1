//! Delayed allocation at writeback, and what happens when data has landed.
/// I/O in flight of one or many inodes.
pub struct Batch {}
