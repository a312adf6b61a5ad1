//! Giving space back: removing pages and blocks, deleting unlinked inodes, and the steps before an
//! operation fails with `NoSpace`.
//!
//! | file | what it holds |
//! |---|---|
//! | `blocks` | removing pages and freeing blocks, in as many transactions as it takes |
//! | `delete` | deleting unlinked inodes |
//! | `full` | the steps before an operation fails with `NoSpace` |
//!
//! Freeing blocks holds the inode's `writeback_lock` and waits for batches in flight, so that
//! nothing is recorded for a range that was freed.

mod blocks;
mod delete;
mod full;

pub(crate) use full::{ANY_BLOCKS, NAMESPACE_BLOCKS};

#[cfg(test)]
mod tests;
