//! The devices.

pub mod faulty;
pub mod memory;
pub mod uring;

pub use faulty::FaultyDevice;
pub use memory::MemoryDevice;
pub use uring::{IoEngine, UringDevice};
