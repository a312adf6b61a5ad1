//! Inodes whose in-memory fields differ from their inode table block.
/// The registry, by inode table block.
pub(crate) struct DirtyInodes {}
