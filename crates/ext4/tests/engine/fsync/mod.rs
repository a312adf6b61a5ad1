//! Durability: the cost of fsync, its promises and its errors.

mod bulk;
mod held;
mod queued;
mod replaced;
mod shared;
mod single;
mod sync_pacing;
mod tree;
mod volume;
