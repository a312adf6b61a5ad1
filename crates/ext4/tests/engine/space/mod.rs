//! Space: an acknowledged write succeeds, and a volume returns ENOSPC only when it has no space.

mod failed_punch;
mod full;
mod own_blocks;
mod promises;
mod random;
mod volume;
