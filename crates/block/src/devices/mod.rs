//! The devices of this crate.

mod format;
mod memory;
mod qcow2;
mod section;
mod uring;

pub use format::{backing_files, is_qcow2, open};
pub use memory::MemoryDevice;
pub use qcow2::{Bytes, Filled, Qcow2Device, Qcow2Error, Qcow2Image};
pub use section::Section;
pub use uring::{ImageFile, IoEngine, UringDevice};
