//! The journal on a recorded disk, after power failures, and with other implementations.

mod changes;
mod common;
mod crash;
mod fast_commit;
mod fill;
mod held_data;
mod interop;
mod journal;
mod panics;
mod read_ahead;
mod room;
mod unlogged;
