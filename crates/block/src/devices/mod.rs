//! The devices of this crate.

mod memory;
mod section;
mod uring;

pub use memory::MemoryDevice;
pub use section::Section;
pub use uring::{ImageFile, IoEngine, UringDevice};
