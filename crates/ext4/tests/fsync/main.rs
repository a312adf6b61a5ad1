//! Durability: what fsync costs, what it promises, and what it says when it cannot.

mod bulk;
mod courtesy;
mod held;
mod queued;
mod replaced;
mod single;
mod tree;
mod volume;
