//! The journal on a recorded disk, after power failures, and with other implementations.

mod changes;
mod common;
mod crash;
mod fill;
mod held_data;
mod interop;
mod journal;
mod read_ahead;
mod room;
mod unlogged;
