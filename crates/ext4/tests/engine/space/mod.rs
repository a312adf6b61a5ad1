//! Space: an acknowledged write succeeds, and a volume returns ENOSPC only when it has no space.

mod failed_removal;
mod full;
mod own_blocks;
mod promises;
mod random;
mod volume;
