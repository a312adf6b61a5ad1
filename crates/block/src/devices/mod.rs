//! The devices.

pub mod faulty;
pub mod memory;
pub mod sim;
pub mod uring;

pub use faulty::FaultyDevice;
pub use memory::MemoryDevice;
pub use sim::SimDevice;
pub use uring::{IoEngine, UringDevice};
