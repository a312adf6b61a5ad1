//! Space: an acknowledged write succeeds, and a volume returns ENOSPC only when it has no space.

mod full;
mod promises;
mod random;
mod volume;
