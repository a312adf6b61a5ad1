//! The devices of this crate.

mod memory;
mod uring;

pub use memory::MemoryDevice;
pub use uring::{ImageFile, IoEngine, UringDevice};
