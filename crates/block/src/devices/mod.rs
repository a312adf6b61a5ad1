//! The devices.

pub mod memory;
pub mod sim;
pub mod uring;

pub use memory::MemoryDevice;
pub use sim::SimDevice;
pub use uring::{IoEngine, UringDevice};
